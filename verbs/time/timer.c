// SPDX-License-Identifier: Apache-2.0

// Timers and the time-outs of sockets, which are the kernel's: they are set by the current rate, or the announced one, and a later change does not move them.
#include "time.h"

// wall returns how long a length of lab time takes from now on; 0, which disarms, stays 0.
static int64_t wall(int64_t ns)
{
	return ns ? lab_wait(lab_now() + (ns < FOREVER ? ns : FOREVER)) : 0;
}

// lab returns the lab time that passes in a length of the server's from now on.
static int64_t lab(int64_t ns)
{
	int64_t now = mono_now();
	return ns ? lab_at(now + ns) - lab_at(now) + 1 : 0;
}

static int bad(const struct itimerspec *t)
{
	return !valid(&t->it_value) || !valid(&t->it_interval);
}

static struct itimerspec scaled(const struct itimerspec *t, int64_t (*f)(int64_t))
{
	return (struct itimerspec){timespec_of(f(ns_of(&t->it_interval))), timespec_of(f(ns_of(&t->it_value)))};
}

// clock_of returns the clock of a timer's descriptor, or -1.
static clockid_t clock_of(int fd)
{
	char path[64], line[128];
	int clock = -1;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(path, "re");
	while (f && clock < 0 && fgets(line, sizeof line, f))
		sscanf(line, "clockid: %d", &clock);
	if (f)
		fclose(f);
	return clock;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old)
{
	int64_t zero;
	if (lab_on() && turns_on())
		return turns_unserved("timerfd_settime");
	if (!lab_on() || bad(t))
		return real.timerfd_settime(fd, flags, t, old);
	struct itimerspec w = scaled(t, wall);
	if (flags & TFD_TIMER_ABSTIME && ns_of(&t->it_value)) {
		if ((zero = lab_epoch(clock_of(fd))) < 0)
			return real.timerfd_settime(fd, flags, t, old); // not a timer
		w.it_value = timespec_of(lab_wait(ns_of(&t->it_value) - zero));
		flags &= ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET);
	}
	int r = real.timerfd_settime(fd, flags, &w, old);
	if (!r && old)
		*old = scaled(old, lab);
	return r;
}

int timerfd_gettime(int fd, struct itimerspec *t)
{
	int on = lab_on(), r = real.timerfd_gettime(fd, t);
	if (turns_on())
		return r; // none is armed
	if (on && !r)
		*t = scaled(t, lab);
	return r;
}

// Which clock such a timer goes by cannot be asked for. An instant tells: dates are far beyond what other clocks reach.
int timer_settime(timer_t id, int flags, const struct itimerspec *restrict t, struct itimerspec *restrict old)
{
	if (lab_on() && turns_on())
		return turns_timer_known(id) ? turns_timer(id, flags, t, old) : real.timer_settime(id, flags, t, old); // of processor time
	if (!lab_on() || bad(t))
		return real.timer_settime(id, flags, t, old);
	struct itimerspec w = scaled(t, wall);
	int64_t until = ns_of(&t->it_value), date = lab_epoch(CLOCK_REALTIME);
	if (flags & TIMER_ABSTIME && until)
		w.it_value = timespec_of(lab_wait(until - (until > date / 2 ? date : UPTIME)));
	int r = real.timer_settime(id, flags & ~TIMER_ABSTIME, &w, old);
	if (!r && old)
		*old = scaled(old, lab);
	return r;
}

int timer_gettime(timer_t id, struct itimerspec *t)
{
	int on = lab_on();
	if (turns_on() && turns_timer_known(id))
		return turns_timer_rest(id, t);
	int r = real.timer_gettime(id, t);
	if (turns_on())
		return r;
	if (on && !r)
		*t = scaled(t, lab);
	return r;
}

// micro returns a value of setitimer in the other time; what is armed stays armed.
static struct itimerval micro(const struct itimerval *t, int64_t (*f)(int64_t))
{
	struct itimerspec n = {{t->it_interval.tv_sec, t->it_interval.tv_usec * 1000}, {t->it_value.tv_sec, t->it_value.tv_usec * 1000}};
	n = scaled(&n, f);
	struct itimerval r = {{n.it_interval.tv_sec, (n.it_interval.tv_nsec + 999) / 1000}, {n.it_value.tv_sec, (n.it_value.tv_nsec + 999) / 1000}};
	for (struct timeval *v = &r.it_interval;; v = &r.it_value) {
		v->tv_sec += v->tv_usec / 1000000;
		v->tv_usec %= 1000000;
		if (v == &r.it_value)
			return r;
	}
}

static struct itimerval itimerval_of(const struct itimerspec *t)
{
	int64_t every = (ns_of(&t->it_interval) + 999) / 1000, value = (ns_of(&t->it_value) + 999) / 1000;
	return (struct itimerval){{every / 1000000, every % 1000000}, {value / 1000000, value % 1000000}};
}

static int bad_micro(const struct timeval *t)
{
	return t->tv_sec < 0 || t->tv_usec < 0 || t->tv_usec > 999999;
}

int setitimer(__itimer_which_t which, const struct itimerval *restrict t, struct itimerval *restrict old)
{
	if (lab_on() && turns_on() && which == ITIMER_REAL) {
		static const struct itimerval none;
		const struct itimerval *v = t ? t : &none; // which disarms
		if (bad_micro(&v->it_interval) || bad_micro(&v->it_value)) {
			errno = EINVAL;
			return -1;
		}
		struct itimerspec n = {{v->it_interval.tv_sec, v->it_interval.tv_usec * 1000}, {v->it_value.tv_sec, v->it_value.tv_usec * 1000}}, was;
		turns_alarm(&n, &was);
		if (old)
			*old = itimerval_of(&was);
		return 0;
	}
	if (!lab_on() || which != ITIMER_REAL || !t || bad_micro(&t->it_interval) || bad_micro(&t->it_value))
		return real.setitimer(which, t, old);
	struct itimerval w = micro(t, wall);
	int r = real.setitimer(which, &w, old);
	if (!r && old)
		*old = micro(old, lab);
	return r;
}

int getitimer(__itimer_which_t which, struct itimerval *t)
{
	struct itimerspec rest;
	int on = lab_on(), r = real.getitimer(which, t);
	if (turns_on() && which == ITIMER_REAL && !r) {
		turns_alarm_rest(&rest);
		*t = itimerval_of(&rest);
	}
	if (turns_on())
		return r;
	if (on && !r && which == ITIMER_REAL)
		*t = micro(t, lab);
	return r;
}

unsigned alarm(unsigned seconds)
{
	if (!lab_on())
		return real.alarm(seconds);
	struct itimerval old, t = {{0, 0}, {seconds, 0}};
	if (setitimer(ITIMER_REAL, &t, &old))
		return 0;
	return old.it_value.tv_sec + (old.it_value.tv_usec >= 500000 || (!old.it_value.tv_sec && old.it_value.tv_usec));
}

static int times_out(int level, int name)
{
	return level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	const struct timeval *t = value;
	if (!lab_on() || turns_on() || !times_out(level, name) || size < sizeof *t || bad_micro(t))
		return real.setsockopt(fd, level, name, value, size);
	struct itimerval v = {{0, 0}, *t};
	v = micro(&v, wall);
	return real.setsockopt(fd, level, name, &v.it_value, sizeof v.it_value);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size)
{
	int on = lab_on(), r = real.getsockopt(fd, level, name, value, size);
	if (on && !turns_on() && !r && times_out(level, name) && *size == sizeof(struct timeval)) {
		struct itimerval v = {{0, 0}, *(struct timeval *)value};
		v = micro(&v, lab);
		*(struct timeval *)value = v.it_value;
	}
	return r;
}
