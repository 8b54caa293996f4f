// SPDX-License-Identifier: Apache-2.0

// Calls that wait: for a length of lab time, or until an instant of it.
#include "time.h"

#include "../protocol.h"

int64_t piece(int64_t until)
{
	int64_t ns = lab_wait(until);
	return ns < PIECE ? ns : PIECE;
}

static int piece_ms(int64_t until)
{
	return (piece(until) + 999999) / 1000000;
}

// after returns the instant so much after now.
static int64_t after(int64_t ns)
{
	return lab_now() + (ns < FOREVER ? ns : FOREVER);
}

// sleep_until returns 0, or an errno.
static int sleep_until(int64_t until)
{
	if (turns_on()) {
		if (until <= lab_now()) {
			turns_yield(); // who sleeps for nothing again and again gets on
			return 0;
		}
		while (signals_handled() && lab_now() < until)
			if (turns_wait_signals(until_ps(until), 0, NULL, NULL, NULL, NULL) < 0)
				return EINTR;
		if (lab_now() < until)
			turns_wait(V_PARK_SLEEP, until_ps(until), 0, 0);
		return 0;
	}
	while (lab_now() < until) {
		struct timespec t = timespec_of(piece(until));
		int err = real.clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		if (err)
			return err;
	}
	return 0;
}

static int64_t left(int64_t until)
{
	int64_t ns = until - lab_now();
	return ns > 0 ? ns : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *rest)
{
	int64_t zero;
	if (!lab_on() || (zero = lab_epoch(clock)) < 0 || !valid(t))
		return real.clock_nanosleep(clock, flags, t, rest);
	int64_t until = flags & TIMER_ABSTIME ? ns_of(t) - zero : after(ns_of(t));
	int err = sleep_until(until);
	if (err == EINTR && rest && !(flags & TIMER_ABSTIME))
		*rest = timespec_of(left(until));
	return err;
}

int nanosleep(const struct timespec *t, struct timespec *rest)
{
	if (!lab_on())
		return real.nanosleep(t, rest);
	int err = clock_nanosleep(CLOCK_MONOTONIC, 0, t, rest);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

unsigned sleep(unsigned seconds)
{
	if (!lab_on())
		return real.sleep(seconds);
	int64_t until = after((int64_t)seconds * SECOND);
	return sleep_until(until) ? (left(until) + SECOND - 1) / SECOND : 0;
}

int usleep(useconds_t us)
{
	if (!lab_on())
		return real.usleep(us);
	int err = sleep_until(after((int64_t)us * 1000));
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (lab_on() && turns_on())
		return turns_poll(fds, n, timeout ? after(ns_of(timeout)) : FOREVER, mask);
	if (!lab_on() || !timeout || !valid(timeout) || !ns_of(timeout))
		return real.ppoll(fds, n, timeout, mask);
	int64_t until = after(ns_of(timeout));
	int r;
	do {
		struct timespec t = timespec_of(piece(until));
		r = real.ppoll(fds, n, &t, mask);
	} while (!r && lab_now() < until);
	return r;
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (lab_on() && turns_on())
		return turns_poll(fds, n, ms < 0 ? FOREVER : after(ms * 1000000ll), NULL);
	if (!lab_on() || ms <= 0)
		return real.poll(fds, n, ms);
	struct timespec t = timespec_of(ms * 1000000ll);
	return ppoll(fds, n, &t, NULL);
}

// Programs that were built with _FORTIFY_SOURCE call these.
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size);
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof *fds < n)
		abort();
	return poll(fds, n, ms);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size)
{
	if (size / sizeof *fds < n)
		abort();
	return ppoll(fds, n, t, mask);
}

int pselect(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except, const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
	if (lab_on() && turns_on() && n >= 0 && (!timeout || valid(timeout)))
		return turns_select(n, in, out, except, timeout ? after(ns_of(timeout)) : FOREVER, mask);
	if (!lab_on() || !timeout || !valid(timeout) || !ns_of(timeout) || n < 0)
		return real.pselect(n, in, out, except, timeout, mask);
	fd_set *sets[3] = {in, out, except};
	size_t size = ((size_t)n + 63) / 64 * 8; // a set may be larger than fd_set
	char *saved = NULL;
	if (size && !(saved = malloc(3 * size))) {
		errno = ENOMEM;
		return -1;
	}
	for (int i = 0; i < 3; i++)
		if (sets[i] && size)
			memcpy(saved + i * size, sets[i], size);
	int64_t until = after(ns_of(timeout));
	int r;
	for (;;) {
		struct timespec t = timespec_of(piece(until));
		r = real.pselect(n, in, out, except, &t, mask);
		if (r || lab_now() >= until)
			break;
		for (int i = 0; i < 3; i++)
			if (sets[i] && size)
				memcpy(sets[i], saved + i * size, size);
	}
	int err = errno;
	free(saved);
	errno = err;
	return r;
}

int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except, struct timeval *restrict timeout)
{
	if (lab_on() && turns_on() && !timeout)
		return pselect(n, in, out, except, NULL, NULL);
	if (!lab_on() || !timeout || timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec > 999999)
		return real.select(n, in, out, except, timeout);
	struct timespec t = {timeout->tv_sec, timeout->tv_usec * 1000};
	int64_t until = after(ns_of(&t));
	int r = pselect(n, in, out, except, &t, NULL), err = errno;
	int64_t rest = left(until) / 1000;
	*timeout = (struct timeval){rest / 1000000, rest % 1000000};
	errno = err;
	return r;
}

int epoll_pwait(int ep, struct epoll_event *events, int max, int ms, const sigset_t *mask)
{
	if (lab_on() && turns_on())
		return turns_epoll(ep, events, max, ms < 0 ? FOREVER : after(ms * 1000000ll), mask);
	if (!lab_on() || ms <= 0)
		return real.epoll_pwait(ep, events, max, ms, mask);
	int64_t until = after(ms * 1000000ll);
	int r;
	do
		r = real.epoll_pwait(ep, events, max, piece_ms(until), mask);
	while (!r && lab_now() < until);
	return r;
}

int epoll_wait(int ep, struct epoll_event *events, int max, int ms)
{
	if (!lab_on() || (ms <= 0 && !turns_on()))
		return real.epoll_wait(ep, events, max, ms);
	return epoll_pwait(ep, events, max, ms, NULL);
}

int epoll_pwait2(int ep, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask)
{
	lab_on();
	if (!timeout && !turns_on())
		return real.epoll_pwait(ep, events, max, -1, mask);
	int64_t ns = timeout ? ns_of(timeout) : -1000000, ms = ns < 0 ? -1 : (ns + 999999) / 1000000;
	return epoll_pwait(ep, events, max, ms > INT32_MAX ? INT32_MAX : (int)ms, mask);
}

int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict timeout)
{
	if (lab_on() && turns_on() && (!timeout || valid(timeout)))
		return turns_sigtimedwait(set, info, timeout ? after(ns_of(timeout)) : FOREVER);
	if (!lab_on() || !timeout || !valid(timeout) || !ns_of(timeout))
		return real.sigtimedwait(set, info, timeout);
	int64_t until = after(ns_of(timeout));
	int r;
	do {
		struct timespec t = timespec_of(piece(until));
		r = real.sigtimedwait(set, info, &t);
	} while (r < 0 && errno == EAGAIN && lab_now() < until);
	return r;
}
