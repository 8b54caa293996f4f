// SPDX-License-Identifier: Apache-2.0

// Timers of a program that has turns: those of timer_create on a clock of the lab's, and that of setitimer and alarm. A thread of this
// library waits for the next of them, and sends its signal. It is there while a timer is armed.
#include "time.h"

#include <stdatomic.h>
#include <sys/syscall.h>

#include "../protocol.h"

enum { TIMERS = 64, FIRST = 0x6d630000 }; // how many, and the number of the first: the kernel's are small

static struct timer {
	int used, overrun;
	clockid_t clock;
	struct sigevent event;
	int64_t at, every; // lab time; at 0: not armed
} timers[TIMERS];      // the first is that of setitimer

static int running;              // the thread is there
static _Atomic unsigned changes; // of timers
static unsigned seen;            // by the thread

static struct timer *of(timer_t id)
{
	uintptr_t i = (uintptr_t)id - FIRST;
	return i > 0 && i < TIMERS && timers[i].used ? &timers[i] : NULL;
}

void turns_forget_timers(void)
{
	memset(timers, 0, sizeof timers);
	running = 0;
}

static struct timer *first(void)
{
	struct timer *t = NULL;
	for (int i = 0; i < TIMERS; i++)
		if (timers[i].at && (!t || timers[i].at < t->at))
			t = &timers[i];
	return t;
}

struct call {
	void (*f)(union sigval);
	union sigval value;
};

static void *call(void *arg)
{
	struct call c = *(struct call *)arg;
	free(arg);
	c.f(c.value);
	return NULL;
}

// notify has a function of the program's run in a thread of its own.
static void notify(const struct sigevent *e)
{
	struct call *c = malloc(sizeof *c);
	pthread_t t;
	if (!c)
		return;
	*c = (struct call){e->sigev_notify_function, e->sigev_value};
	if (pthread_create(&t, e->sigev_notify_attributes, call, c))
		free(c);
	else
		pthread_detach(t);
}

// expire sends what a timer is for. While its signal is pending none is added, but counted.
static void expire(struct timer *t)
{
	siginfo_t info = {0};
	sigset_t waiting;
	int sig = t->event.sigev_signo;
	if (t->event.sigev_notify == SIGEV_THREAD)
		notify(&t->event);
	else if (t->event.sigev_notify != SIGEV_NONE && t->overrun >= 0 && !sigpending(&waiting) && sigismember(&waiting, sig) == 1)
		t->overrun++;
	else if (t->event.sigev_notify != SIGEV_NONE) {
		info.si_signo = sig;
		info.si_code = SI_TIMER;
		info.si_timerid = t - timers + FIRST;
		info.si_value = t->event.sigev_value;
		t->overrun = 0;
		if (t == timers)
			real.kill(getpid(), sig);
		else if (t->event.sigev_notify == SIGEV_THREAD_ID)
			syscall(SYS_rt_tgsigqueueinfo, getpid(), t->event._sigev_un._tid, sig, &info);
		else
			syscall(SYS_rt_sigqueueinfo, getpid(), sig, &info);
	}
	t->at = t->every ? t->at + t->every : 0;
	turns_touch(-1);
}

static int changed(void *arg)
{
	(void)arg;
	return atomic_load(&changes) != seen;
}

static void *run(void *arg)
{
	struct timer *t;
	while ((t = first())) {
		seen = atomic_load(&changes);
		if (t->at <= lab_now())
			expire(t);
		else
			turns_wait_outside(until_ps(t->at), 0, changed, NULL);
	}
	running = 0;
	return arg;
}

// start has the thread look at timers that have changed. It returns an errno.
static int start(void)
{
	atomic_fetch_add(&changes, 1);
	turns_touch(-1);
	if (running || !first())
		return 0;
	sigset_t all, old;
	pthread_attr_t small;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); // signals are the program's
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	running = 1;
	int err = pthread_create(&thread, &small, run, NULL);
	running = !err;
	pthread_attr_destroy(&small);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static struct itimerspec rest_of(const struct timer *t)
{
	int64_t rest = t->at - lab_now();
	return (struct itimerspec){timespec_of(t->every), timespec_of(!t->at ? 0 : rest > 0 ? rest : 1)};
}

static int active(void)
{
	return lab_on() && turns_on();
}

static int fails(int err)
{
	errno = err;
	return -1;
}

int timer_create(clockid_t clock, struct sigevent *restrict e, timer_t *restrict id)
{
	if (!active() || lab_epoch(clock) < 0) // of processor time
		return real.timer_create(clock, e, id);
	if (e && e->sigev_notify != SIGEV_NONE && e->sigev_notify != SIGEV_THREAD && (e->sigev_signo < 1 || e->sigev_signo > 64))
		return fails(EINVAL);
	for (int i = 1; i < TIMERS; i++)
		if (!timers[i].used) {
			timers[i] = (struct timer){.used = 1, .clock = clock};
			if (e)
				timers[i].event = *e;
			else
				timers[i].event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM, .sigev_value.sival_int = FIRST + i};
			*id = (timer_t)(uintptr_t)(FIRST + i);
			return 0;
		}
	return fails(EAGAIN);
}

int turns_timer(timer_t id, int flags, const struct itimerspec *set, struct itimerspec *old)
{
	struct timer *t = of(id);
	if (!t || !valid(&set->it_value) || !valid(&set->it_interval))
		return fails(EINVAL);
	if (old)
		*old = rest_of(t);
	int64_t value = ns_of(&set->it_value);
	t->every = ns_of(&set->it_interval);
	t->overrun = 0;
	t->at = !value ? 0 : flags & TIMER_ABSTIME ? value - lab_epoch(t->clock) : lab_now() + value;
	if (value && t->at < 1)
		t->at = 1; // it has passed
	int err = start();
	return err ? fails(err) : 0;
}

int turns_timer_known(timer_t id)
{
	return of(id) != NULL;
}

int turns_timer_rest(timer_t id, struct itimerspec *rest)
{
	*rest = rest_of(of(id));
	return 0;
}

int timer_getoverrun(timer_t id)
{
	return active() && of(id) ? of(id)->overrun : real.timer_getoverrun(id);
}

int timer_delete(timer_t id)
{
	struct timer *t = active() ? of(id) : NULL;
	if (!t)
		return real.timer_delete(id);
	*t = (struct timer){0};
	return start();
}

void turns_alarm(const struct itimerspec *set, struct itimerspec *old)
{
	*old = rest_of(timers);
	timers[0].event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	timers[0].every = ns_of(&set->it_interval);
	timers[0].at = ns_of(&set->it_value) ? lab_now() + ns_of(&set->it_value) : 0;
	start();
}

void turns_alarm_rest(struct itimerspec *rest)
{
	*rest = rest_of(timers);
}
