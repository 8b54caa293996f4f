// SPDX-License-Identifier: Apache-2.0

// Signals of a program that has turns. While a thread waits for something outside the lab, the signals that the program handles are
// held back, and end the wait too: their handlers run when it has its turn, and end the wait as they do on Linux.
#include "time.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "../protocol.h"

static _Atomic uint64_t handled;  // signals that the program handles: bit 0 is signal 1
static _Atomic uint64_t restarts; // those after whose handlers calls go on (SA_RESTART)

static uint64_t bit(int sig)
{
	return 1ull << (sig - 1);
}

static uint64_t bits(const sigset_t *s)
{
	return s->__val[0]; // Linux has 64 signals
}

// spared are not held back: those of faults, of which the trap's is one, and that of turns.c, which finds spins.
static uint64_t spared(void)
{
	return bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS) | bit(SIGRTMAX - 1);
}

void signals_set(int sig, const struct sigaction *a)
{
	int own = a->sa_flags & SA_SIGINFO || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
	if (own && !(bit(sig) & spared()))
		atomic_fetch_or(&handled, bit(sig));
	else
		atomic_fetch_and(&handled, ~bit(sig));
	if (a->sa_flags & SA_RESTART)
		atomic_fetch_or(&restarts, bit(sig));
	else
		atomic_fetch_and(&restarts, ~bit(sig));
}

int signals_handled(void)
{
	return atomic_load(&handled) != 0;
}

static uint64_t pending(void)
{
	sigset_t s;
	siginfo_t info;
	// A child's death is told while the kernel holds the lock that this waits for: SIGCHLD has come when it is known.
	real.waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
	return sigpending(&s) ? 0 : bits(&s);
}

// due returns which of the wanted signals wait, and would do something.
static uint64_t due(uint64_t wanted)
{
	uint64_t came = pending() & wanted;
	for (int sig = 1; sig <= 64; sig++) {
		struct sigaction a;
		if (!(came & bit(sig)) || real.sigaction(sig, NULL, &a))
			continue;
		int dropped = sig == SIGCHLD || sig == SIGURG || sig == SIGWINCH || sig == SIGCONT;
		if (!(a.sa_flags & SA_SIGINFO) && (a.sa_handler == SIG_IGN || (a.sa_handler == SIG_DFL && dropped)))
			came &= ~bit(sig);
	}
	return came;
}

// looked is the condition that a wait checks: signals, and its own.
struct looked {
	uint64_t wanted;
	int (*ready)(void *);
	void *arg;
};

static int look(void *arg)
{
	const struct looked *l = arg;
	return (l->ready && l->ready(l->arg)) || due(l->wanted) != 0;
}

// deliver runs the handlers of arrived signals, with a mask, and reports by *again whether calls are resumed after all of them.
static int deliver(uint64_t wanted, const sigset_t *mask, int *again)
{
	int err = errno;
	uint64_t came = due(wanted);
	if (came) {
		if (again)
			*again = !(came & ~atomic_load(&restarts));
		real.sigsuspend(mask);
		err = EINTR;
	}
	errno = err;
	return came != 0;
}

int turns_wait_signals(int64_t until_ps, int events, int (*ready)(void *), void *arg, const sigset_t *mask, int *again)
{
	uint64_t mine = atomic_load(&handled);
	if (!mine && !mask)
		return turns_wait_outside(until_ps, events, ready, arg);
	sigset_t old, open, hold;
	real.pthread_sigmask(SIG_SETMASK, NULL, &old);
	open = tsc_open(mask ? mask : &old);
	hold = open;
	hold.__val[0] = (bits(&open) | mine) & ~spared();
	real.pthread_sigmask(SIG_SETMASK, &hold, NULL);
	struct looked l = {mine & ~bits(&open), ready, arg};
	int why = turns_wait_outside(until_ps, events, look, &l);
	if (deliver(l.wanted, &open, again))
		why = -1;
	int err = errno;
	real.pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = err;
	return why;
}

int turns_signals(const sigset_t *mask)
{
	uint64_t wanted = atomic_load(&handled);
	sigset_t old, open = tsc_open(mask);
	real.pthread_sigmask(SIG_SETMASK, NULL, &old);
	// What is not blocked has come already.
	return deliver(wanted & ~bits(&open) & bits(&old), &open, NULL);
}

static int active(void)
{
	return lab_on() && turns_on();
}

int sigsuspend(const sigset_t *mask)
{
	if (!active())
		return real.sigsuspend(mask);
	while (turns_wait_signals(INT64_MAX, 0, NULL, NULL, mask, NULL) >= 0)
		;
	errno = EINTR;
	return -1;
}

int pause(void)
{
	sigset_t now;
	if (!active())
		return real.pause();
	real.pthread_sigmask(SIG_SETMASK, NULL, &now);
	return sigsuspend(&now);
}

// awaited are signals that a call takes.
static int some_awaited(void *arg)
{
	return (pending() & *(const uint64_t *)arg) != 0;
}

// take takes a signal of a set, until an instant: it returns -1 and errno as sigtimedwait does.
static int take(const sigset_t *set, siginfo_t *info, int64_t until)
{
	static const struct timespec none;
	uint64_t wanted = bits(set);
	for (;;) {
		int r = real.sigtimedwait(set, info, &none);
		if (r >= 0 || errno != EAGAIN)
			return r;
		if (lab_now() >= until) {
			turns_look();
			errno = EAGAIN;
			return -1;
		}
		if (turns_wait_signals(until_ps(until), 0, some_awaited, &wanted, NULL, NULL) < 0)
			return -1;
	}
}

int turns_sigtimedwait(const sigset_t *set, siginfo_t *info, int64_t until)
{
	return take(set, info, until);
}

int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict info)
{
	return active() ? take(set, info, FOREVER) : real.sigwaitinfo(set, info);
}

int sigwait(const sigset_t *restrict set, int *restrict sig)
{
	if (!active())
		return real.sigwait(set, sig);
	int r;
	while ((r = take(set, NULL, FOREVER)) < 0 && errno == EINTR)
		;
	if (r < 0)
		return errno;
	*sig = r;
	return 0;
}

// field returns a number of /proc/PID/status, whose lines begin with their names, or none.
static uint64_t field(const char *text, const char *name, int base, uint64_t none)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, base) : none;
}

// A process that a signal kills is to have died before anybody goes on: it dies while lab time passes otherwise, at an instant
// that this server decides on.
static void see_die(pid_t pid, int sig)
{
	char path[64], text[4096];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC), self = syscall(SYS_pidfd_open, pid, 0);
	ssize_t n = fd < 0 ? -1 : real.read(fd, text, sizeof text - 1);
	if (n > 0) {
		text[n] = 0;
		uint64_t lives = field(text, "SigBlk:", 16, 0) | field(text, "SigIgn:", 16, 0) | field(text, "SigCgt:", 16, 0);
		int harmless = sig == SIGCHLD || sig == SIGURG || sig == SIGWINCH || sig == SIGCONT || sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;
		struct pollfd p = {self, POLLIN, 0};
		if (self >= 0 && !harmless && (sig == SIGKILL || !(lives & bit(sig)))) {
			real.poll(&p, 1, 2000);
			turns_dies(pid);
		}
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (self >= 0)
		syscall(SYS_close, self);
}

struct dirent64_ {
	uint64_t ino, off;
	unsigned short length;
	unsigned char type;
	char name[];
};

// signalled sees to the processes that kill has sent a signal to. It may run in a handler, so it allocates nothing.
static void signalled(pid_t pid, int sig)
{
	int err = errno;
	turns_touch(-1);
	seat_busy(1);
	if (pid > 0 && pid != getpid())
		see_die(pid, sig);
	int dir = pid > 0 ? -1 : open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t group = pid ? -pid : getpgid(0);
	_Alignas(8) char room[2048];
	for (long n; dir >= 0 && (n = syscall(SYS_getdents64, dir, room, sizeof room)) > 0;)
		for (long at = 0; at < n;) {
			const struct dirent64_ *d = (const struct dirent64_ *)(room + at);
			pid_t one = atoi(d->name);
			at += d->length;
			if (one > 0 && one != getpid() && (pid == -1 || getpgid(one) == group))
				see_die(one, sig);
		}
	if (dir >= 0)
		syscall(SYS_close, dir);
	seat_busy(-1);
	errno = err;
}

int kill(pid_t pid, int sig)
{
	lab_on();
	int r = real.kill(pid, sig);
	if (!r && sig && turns_on())
		signalled(pid, sig);
	return r;
}

int killpg(pid_t group, int sig)
{
	return kill(group ? -group : 0, sig);
}

int sigqueue(pid_t pid, int sig, const union sigval value)
{
	lab_on();
	int r = real.sigqueue(pid, sig, value);
	if (!r && sig && turns_on())
		signalled(pid, sig);
	return r;
}

int pthread_kill(pthread_t t, int sig)
{
	lab_on();
	if (turns_on())
		turns_touch(-1);
	return real.pthread_kill(t, sig);
}
