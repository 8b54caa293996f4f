// SPDX-License-Identifier: Apache-2.0

// The threads of C11. They are those of POSIX, in glibc, with other codes; its own calls do not pass by this library's.
#include "time.h"

static int active(void)
{
	return lab_on() && turns_on();
}

static int c11(int err)
{
	return !err ? thrd_success : err == EBUSY ? thrd_busy : err == ENOMEM || err == EAGAIN ? thrd_nomem : err == ETIMEDOUT ? thrd_timedout : thrd_error;
}

struct start {
	thrd_start_t f;
	void *arg;
};

static void *start_thread(void *arg)
{
	struct start s = *(struct start *)arg;
	free(arg);
	return (void *)(intptr_t)s.f(s.arg);
}

int thrd_create(thrd_t *t, thrd_start_t f, void *arg)
{
	if (!active())
		return real.thrd_create(t, f, arg);
	struct start *s = malloc(sizeof *s);
	if (!s)
		return thrd_nomem;
	*s = (struct start){f, arg};
	int err = pthread_create(t, NULL, start_thread, s);
	if (err)
		free(s);
	return c11(err);
}

int thrd_join(thrd_t t, int *value)
{
	void *v = NULL;
	if (!active())
		return real.thrd_join(t, value);
	int err = pthread_join(t, &v);
	if (!err && value)
		*value = (int)(intptr_t)v;
	return c11(err);
}

int thrd_sleep(const struct timespec *t, struct timespec *rest)
{
	if (!lab_on())
		return real.thrd_sleep(t, rest);
	int err = clock_nanosleep(CLOCK_MONOTONIC, 0, t, rest);
	return !err ? 0 : err == EINTR ? -1 : -2;
}

void thrd_yield(void)
{
	sched_yield();
}

int mtx_lock(mtx_t *m)
{
	return active() ? c11(pthread_mutex_lock((pthread_mutex_t *)m)) : real.mtx_lock(m);
}

int mtx_timedlock(mtx_t *restrict m, const struct timespec *restrict t)
{
	if (!lab_on())
		return real.mtx_timedlock(m, t);
	return c11(pthread_mutex_timedlock((pthread_mutex_t *)m, t));
}

int mtx_unlock(mtx_t *m)
{
	return active() ? c11(pthread_mutex_unlock((pthread_mutex_t *)m)) : real.mtx_unlock(m);
}

int cnd_wait(cnd_t *c, mtx_t *m)
{
	return active() ? c11(pthread_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m)) : real.cnd_wait(c, m);
}

int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict t)
{
	if (!lab_on())
		return real.cnd_timedwait(c, m, t);
	return c11(pthread_cond_clockwait((pthread_cond_t *)c, (pthread_mutex_t *)m, CLOCK_REALTIME, t));
}

int cnd_signal(cnd_t *c)
{
	return active() ? c11(pthread_cond_signal((pthread_cond_t *)c)) : real.cnd_signal(c);
}

int cnd_broadcast(cnd_t *c)
{
	return active() ? c11(pthread_cond_broadcast((pthread_cond_t *)c)) : real.cnd_broadcast(c);
}

void call_once(once_flag *control, void (*f)(void))
{
	if (active())
		pthread_once((pthread_once_t *)control, f);
	else
		real.call_once(control, f);
}
