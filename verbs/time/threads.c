// SPDX-License-Identifier: Apache-2.0

// Threads of a program that has turns: one of them runs at a time. A thread that waits for another gives up
// its turn.
#include "time.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

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

void turns_leave_at_end(void)
{
	real.pthread_once(&once, make_key); // the library's own would wait for its end
	pthread_setspecific(key, &key);
}

struct start {
	void *(*f)(void *);
	void *arg;
	unsigned number;
};

static void *start_thread(void *arg)
{
	struct start s = *(struct start *)arg;
	free(arg);
	turns_begin_thread(s.number);
	return s.f(s.arg);
}

int pthread_create(pthread_t *restrict t, const pthread_attr_t *restrict attr, void *(*f)(void *), void *restrict arg)
{
	if (!active())
		return real.pthread_create(t, attr, f, arg);
	struct start *s = malloc(sizeof *s);
	if (!s)
		return EAGAIN;
	*s = (struct start){f, arg, turns_expect_thread()};
	int err = real.pthread_create(t, attr, start_thread, s);
	if (err) { // nobody comes
		free(s);
		turns_expect_none();
		return err;
	}
	for (int i = 0; i < GONE; i++) // its number may have been another's. It cannot have ended: it has had no turn
		if (pthread_equal(gone[i], *t))
			gone[i] = 0;
	return 0;
}

// How many threads wait for something, by a hash of its address: giving it is progress only if somebody waits for it.
enum { PLACES = 1024 };
static _Atomic unsigned awaited[PLACES];

static unsigned place(const void *what)
{
	return (uintptr_t)what / 8 % PLACES;
}

// given notes that a thread has given something that others may wait for.
static void given(const void *what)
{
	if (atomic_load(&awaited[place(what)]))
		turns_release();
}

// wait_beside gives up the turn until another thread has given something, or an instant has come.
static void wait_beside(const void *what, int64_t until, int again)
{
	atomic_fetch_add(&awaited[place(what)], 1);
	turns_beside(until_ps(until), again);
	atomic_fetch_sub(&awaited[place(what)], 1);
}

// let_others has those look first who wait for the same thing: who gives a lock and takes it again would keep it for ever.
static void let_others(const void *what)
{
	if (atomic_load(&awaited[place(what)]))
		turns_wait(V_PARK_SLEEP, turns_ps(), 0, 0);
}

// UNTIL_DONE tries again, whenever another thread has made progress, until an instant.
#define UNTIL_DONE(what, until, busy, attempt) \
	do { \
		int err_, again_ = 0; \
		let_others(what); \
		while ((err_ = (attempt)) == (busy)) { \
			if (lab_now() >= (until)) \
				return ETIMEDOUT; \
			wait_beside(what, until, again_); \
			again_ = 1; \
		} \
		return err_; \
	} while (0)

int turns_join(pthread_t t, void **value, int64_t until)
{
	UNTIL_DONE(NULL, until, EBUSY, has_gone(t) ? real.pthread_join(t, value) : pthread_tryjoin_np(t, value));
}

int pthread_join(pthread_t t, void **value)
{
	return active() ? turns_join(t, value, FOREVER) : real.pthread_join(t, value);
}

int turns_mutex(pthread_mutex_t *m, int64_t until)
{
	if ((m->__data.__kind & 3) == PTHREAD_MUTEX_ERRORCHECK && m->__data.__owner == (int)syscall(SYS_gettid))
		return EDEADLK;
	UNTIL_DONE(m, until, EBUSY, pthread_mutex_trylock(m));
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
	return active() ? turns_mutex(m, FOREVER) : real.pthread_mutex_lock(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	if (active())
		given(m);
	return real.pthread_mutex_unlock(m);
}

int turns_rdlock(pthread_rwlock_t *l, int64_t until)
{
	UNTIL_DONE(l, until, EBUSY, pthread_rwlock_tryrdlock(l));
}

int turns_wrlock(pthread_rwlock_t *l, int64_t until)
{
	UNTIL_DONE(l, until, EBUSY, pthread_rwlock_trywrlock(l));
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	return active() ? turns_rdlock(l, FOREVER) : real.pthread_rwlock_rdlock(l);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	return active() ? turns_wrlock(l, FOREVER) : real.pthread_rwlock_wrlock(l);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
	if (active())
		given(l);
	return real.pthread_rwlock_unlock(l);
}

static int try_sem(sem_t *s)
{
	return sem_trywait(s) ? errno : 0;
}

int turns_sem(sem_t *s, int64_t until)
{
	UNTIL_DONE(s, until, EAGAIN, try_sem(s));
}

int sem_wait(sem_t *s)
{
	if (!active())
		return real.sem_wait(s);
	int err = turns_sem(s, FOREVER);
	errno = err ? err : errno;
	return err ? -1 : 0;
}

int sem_post(sem_t *s)
{
	if (active())
		given(s);
	return real.sem_post(s);
}

static int spin(pthread_spinlock_t *l)
{
	UNTIL_DONE((const void *)l, FOREVER, EBUSY, pthread_spin_trylock(l));
}

int pthread_spin_lock(pthread_spinlock_t *l)
{
	return active() ? spin(l) : real.pthread_spin_lock(l);
}

int pthread_spin_unlock(pthread_spinlock_t *l)
{
	if (active())
		given((const void *)l);
	return real.pthread_spin_unlock(l);
}

int sched_yield(void)
{
	if (!active())
		return real.sched_yield();
	turns_yield();
	return 0;
}

// Of what once goes by, glibc keeps in the two lowest bits whether somebody is at it (1) or it is done (2).
int pthread_once(pthread_once_t *control, void (*f)(void))
{
	if (active())
		for (int again = 0; (__atomic_load_n(control, __ATOMIC_ACQUIRE) & 3) == 1; again = 1)
			wait_beside(control, FOREVER, again);
	int err = real.pthread_once(control, f);
	given(control);
	return err;
}

// A barrier of a program that has turns, in the place of the C library's.
struct barrier {
	unsigned count, in, round;
};

_Static_assert(sizeof(struct barrier) <= sizeof(pthread_barrier_t), "a barrier has room for ours");

int pthread_barrier_init(pthread_barrier_t *restrict b, const pthread_barrierattr_t *restrict attr, unsigned count)
{
	if (!active())
		return real.pthread_barrier_init(b, attr, count);
	if (!count || count > INT32_MAX)
		return EINVAL;
	*(struct barrier *)b = (struct barrier){.count = count};
	return 0;
}

int pthread_barrier_destroy(pthread_barrier_t *b)
{
	if (!active())
		return real.pthread_barrier_destroy(b);
	return ((struct barrier *)b)->in ? EBUSY : 0;
}

int pthread_barrier_wait(pthread_barrier_t *b)
{
	if (!active())
		return real.pthread_barrier_wait(b);
	volatile struct barrier *x = (struct barrier *)b;
	unsigned round = x->round;
	if (++x->in == x->count) {
		x->in = 0;
		x->round++;
		given(b);
		return PTHREAD_BARRIER_SERIAL_THREAD;
	}
	for (int again = 0; x->round == round; again = 1)
		wait_beside(b, FOREVER, again);
	return 0;
}

// Threads that wait for conditions, in the order in which they came. A signal wakes one of them: programs that do not look again
// at what they wait for are many. Its lock is held by threads that are outside turns, too, but never for long.
struct sleeper {
	struct sleeper *next;
	const pthread_cond_t *cond;
	pthread_mutex_t *mutex;
	int woken;
};

static struct sleeper *sleepers;
static atomic_flag sleepers_lock = ATOMIC_FLAG_INIT;

static void lock_sleepers(void)
{
	while (atomic_flag_test_and_set(&sleepers_lock))
		;
}

static void enter_sleeper(struct sleeper *s)
{
	lock_sleepers();
	struct sleeper **p = &sleepers;
	while (*p)
		p = &(*p)->next;
	*p = s;
	atomic_flag_clear(&sleepers_lock);
}

static void leave_sleeper(struct sleeper *s)
{
	lock_sleepers();
	struct sleeper **p = &sleepers;
	while (*p && *p != s)
		p = &(*p)->next;
	if (*p)
		*p = s->next;
	atomic_flag_clear(&sleepers_lock);
}

// wake resumes up to most of the threads that wait for a condition.
static void wake(const pthread_cond_t *c, unsigned most)
{
	lock_sleepers();
	for (struct sleeper *s = sleepers; s && most; s = s->next)
		if (s->cond == c && !s->woken) {
			s->woken = 1;
			most--;
			turns_release();
		}
	atomic_flag_clear(&sleepers_lock);
}

// A child has one thread: what others waited for is over.
void turns_forget_threads(void)
{
	sleepers = NULL;
	atomic_flag_clear(&sleepers_lock);
	for (int i = 0; i < PLACES; i++)
		atomic_store(&awaited[i], 0);
}

// A thread that is cancelled in a wait has the mutex, as POSIX has it.
static void cancelled(void *arg)
{
	struct sleeper *s = arg;
	leave_sleeper(s);
	turns_mutex(s->mutex, FOREVER);
}

int turns_cond(pthread_cond_t *c, pthread_mutex_t *m, int64_t until)
{
	struct sleeper s = {NULL, c, m, 0};
	enter_sleeper(&s); // a thread that has unlocked may lose its turn (tick)
	int err = pthread_mutex_unlock(m);
	if (err) {
		leave_sleeper(&s);
		return err;
	}
	pthread_cleanup_push(cancelled, &s);
	for (int again = 0; !s.woken && lab_now() < until; again = 1)
		turns_beside(until_ps(until), again);
	pthread_cleanup_pop(0);
	leave_sleeper(&s);
	err = pthread_mutex_lock(m);
	return err ? err : s.woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m)
{
	return active() ? turns_cond(c, m, FOREVER) : real.pthread_cond_wait(c, m);
}

int pthread_cond_signal(pthread_cond_t *c)
{
	if (!active())
		return real.pthread_cond_signal(c);
	wake(c, 1);
	return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
	if (!active())
		return real.pthread_cond_broadcast(c);
	wake(c, -1u);
	return 0;
}
