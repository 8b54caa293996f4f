// Threads of a program that has turns: one of them runs at a time. Who waits for another gives up its turn.
#include "time.h"

#include <sched.h>
#include <stdatomic.h>

#include "../protocol.h"

static pthread_key_t key; // its destructor says that a thread ends
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int active(void)
{
	return lab_on() && turns_on();
}

// Threads that have said that they end: they may be waited for outside turns.
enum { GONE = 1024 };
static pthread_t gone[GONE];
static _Atomic unsigned gones;

static int has_gone(pthread_t t)
{
	unsigned n = atomic_load(&gones);
	for (unsigned i = n > GONE ? n - GONE : 0; i < n; i++)
		if (pthread_equal(gone[i % GONE], t))
			return 1;
	return 0;
}

static void end_thread(void *arg)
{
	(void)arg;
	gone[atomic_fetch_add(&gones, 1) % GONE] = pthread_self();
	turns_end();
}

static void make_key(void)
{
	pthread_key_create(&key, end_thread);
}

struct start {
	void *(*f)(void *);
	void *arg;
};

static void *start_thread(void *arg)
{
	struct start s = *(struct start *)arg;
	free(arg);
	pthread_once(&once, make_key);
	pthread_setspecific(key, &key);
	pthread_t self = pthread_self();
	for (int i = 0; i < GONE; i++) // its number may have been another's
		if (pthread_equal(gone[i], self))
			gone[i] = 0;
	turns_begin_thread();
	return s.f(s.arg);
}

int pthread_create(pthread_t *restrict t, const pthread_attr_t *restrict attr, void *(*f)(void *), void *restrict arg)
{
	if (!active())
		return real.pthread_create(t, attr, f, arg);
	struct start *s = malloc(sizeof *s);
	if (!s)
		return EAGAIN;
	*s = (struct start){f, arg};
	turns_expect_thread();
	int err = real.pthread_create(t, attr, start_thread, s);
	if (err) { // nobody comes
		free(s);
		turns_expect_none();
	}
	return err;
}

// until_done tries again, whenever another thread has had its turn, until an instant.
#define UNTIL_DONE(until, busy, attempt) \
	do { \
		int err_; \
		while ((err_ = (attempt)) == (busy)) { \
			if (lab_now() >= (until)) \
				return ETIMEDOUT; \
			turns_wait(V_PARK_BESIDE, until_ps(until), 0, 0); \
		} \
		return err_; \
	} while (0)

int turns_join(pthread_t t, void **value, int64_t until)
{
	UNTIL_DONE(until, EBUSY, has_gone(t) ? real.pthread_join(t, value) : pthread_tryjoin_np(t, value));
}

int pthread_join(pthread_t t, void **value)
{
	return active() ? turns_join(t, value, FOREVER) : real.pthread_join(t, value);
}

int turns_mutex(pthread_mutex_t *m, int64_t until)
{
	UNTIL_DONE(until, EBUSY, pthread_mutex_trylock(m));
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
	return active() ? turns_mutex(m, FOREVER) : real.pthread_mutex_lock(m);
}

int turns_rdlock(pthread_rwlock_t *l, int64_t until)
{
	UNTIL_DONE(until, EBUSY, pthread_rwlock_tryrdlock(l));
}

int turns_wrlock(pthread_rwlock_t *l, int64_t until)
{
	UNTIL_DONE(until, EBUSY, pthread_rwlock_trywrlock(l));
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	return active() ? turns_rdlock(l, FOREVER) : real.pthread_rwlock_rdlock(l);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	return active() ? turns_wrlock(l, FOREVER) : real.pthread_rwlock_wrlock(l);
}

static int try_sem(sem_t *s)
{
	return sem_trywait(s) ? errno : 0;
}

int turns_sem(sem_t *s, int64_t until)
{
	UNTIL_DONE(until, EAGAIN, try_sem(s));
}

int sem_wait(sem_t *s)
{
	if (!active())
		return real.sem_wait(s);
	int err = turns_sem(s, FOREVER);
	errno = err ? err : errno;
	return err ? -1 : 0;
}

// Conditions: how often each has been signalled, by a hash of its address. A waiter may be woken for another's signal, which
// POSIX allows.
enum { CONDS = 1024 };
static _Atomic unsigned signalled[CONDS];

static _Atomic unsigned *of(pthread_cond_t *c)
{
	return &signalled[(uintptr_t)c / 16 % CONDS];
}

int turns_cond(pthread_cond_t *c, pthread_mutex_t *m, int64_t until)
{
	unsigned had = atomic_load(of(c));
	int err = pthread_mutex_unlock(m);
	if (err)
		return err;
	while (atomic_load(of(c)) == had && lab_now() < until)
		turns_wait(V_PARK_BESIDE, until_ps(until), 0, 0);
	int late = atomic_load(of(c)) == had;
	err = pthread_mutex_lock(m);
	return err ? err : late ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m)
{
	return active() ? turns_cond(c, m, FOREVER) : real.pthread_cond_wait(c, m);
}

int pthread_cond_signal(pthread_cond_t *c)
{
	lab_on();
	atomic_fetch_add(of(c), 1);
	return real.pthread_cond_signal(c);
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
	lab_on();
	atomic_fetch_add(of(c), 1);
	return real.pthread_cond_broadcast(c);
}
