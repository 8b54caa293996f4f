// SPDX-License-Identifier: Apache-2.0

// Calls that wait for a lock, a condition, a semaphore or a thread, until an instant.
#include "time.h"

// instant returns the server's instant at which to look again whether one of the lab's has come.
static struct timespec instant(int64_t until)
{
	return timespec_of(mono_now() + piece(until));
}

// A piece that has passed looks to the program as if it had been woken for nothing, which POSIX allows. To wait again here
// could miss a signal.
static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t until)
{
	if (turns_on())
		return turns_cond(c, m, until);
	struct timespec t = instant(until);
	int err = real.pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &t);
	return err == ETIMEDOUT && lab_now() < until ? 0 : err;
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *t)
{
	int64_t zero;
	if (!lab_on() || (zero = lab_epoch(clock)) < 0 || !valid(t))
		return real.pthread_cond_clockwait(c, m, clock, t);
	return cond_wait(c, m, ns_of(t) - zero);
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict t)
{
	if (!lab_on())
		return real.pthread_cond_timedwait(c, m, t);
	// Which clock a condition goes by cannot be asked for; glibc keeps it in this bit since 2.25.
	return pthread_cond_clockwait(c, m, c->__data.__wrefs & 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME, t);
}

int sem_clockwait(sem_t *restrict s, clockid_t clock, const struct timespec *restrict t)
{
	int64_t zero;
	if (!lab_on() || (zero = lab_epoch(clock)) < 0 || !valid(t))
		return real.sem_clockwait(s, clock, t);
	int64_t until = ns_of(t) - zero;
	int r;
	if (turns_on()) {
		int err = turns_sem(s, until);
		errno = err ? err : errno;
		return err ? -1 : 0;
	}
	do {
		struct timespec wall = instant(until);
		r = real.sem_clockwait(s, CLOCK_MONOTONIC, &wall);
	} while (r < 0 && errno == ETIMEDOUT && lab_now() < until);
	return r;
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict t)
{
	if (!lab_on())
		return real.sem_timedwait(s, t);
	return sem_clockwait(s, CLOCK_REALTIME, t);
}

// Both kinds of a timed wait that can be tried again: until an instant of a clock that is named, and of CLOCK_REALTIME.
#define TIMED(timed, clocked, type, in_turns) \
	int clocked(type *restrict x, clockid_t clock, const struct timespec *restrict t) \
	{ \
		int64_t zero; \
		if (!lab_on() || (zero = lab_epoch(clock)) < 0 || !valid(t)) \
			return real.clocked(x, clock, t); \
		int64_t until = ns_of(t) - zero; \
		int err; \
		if (turns_on()) \
			return in_turns(x, until); \
		do { \
			struct timespec wall = instant(until); \
			err = real.clocked(x, CLOCK_MONOTONIC, &wall); \
		} while (err == ETIMEDOUT && lab_now() < until); \
		return err; \
	} \
	int timed(type *restrict x, const struct timespec *restrict t) \
	{ \
		if (!lab_on()) \
			return real.timed(x, t); \
		return clocked(x, CLOCK_REALTIME, t); \
	}

TIMED(pthread_mutex_timedlock, pthread_mutex_clocklock, pthread_mutex_t, turns_mutex)
TIMED(pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock, pthread_rwlock_t, turns_rdlock)
TIMED(pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock, pthread_rwlock_t, turns_wrlock)

int pthread_clockjoin_np(pthread_t thread, void **value, clockid_t clock, const struct timespec *t)
{
	int64_t zero;
	if (!lab_on() || !t || (zero = lab_epoch(clock)) < 0 || !valid(t))
		return real.pthread_clockjoin_np(thread, value, clock, t);
	int64_t until = ns_of(t) - zero;
	int err;
	if (turns_on())
		return turns_join(thread, value, until);
	do {
		struct timespec wall = instant(until);
		err = real.pthread_clockjoin_np(thread, value, CLOCK_MONOTONIC, &wall);
	} while (err == ETIMEDOUT && lab_now() < until);
	return err;
}

int pthread_timedjoin_np(pthread_t thread, void **value, const struct timespec *t)
{
	if (!lab_on())
		return real.pthread_timedjoin_np(thread, value, t);
	return pthread_clockjoin_np(thread, value, CLOCK_REALTIME, t);
}
