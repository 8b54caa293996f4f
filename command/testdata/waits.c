// SPDX-License-Identifier: Apache-2.0

// waits: waits in each way that a shell or a utility does, and says which of them took other than it should in the lab's time. Children
// are waited for, and send signals, after a time of their own.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int wrong;
static volatile sig_atomic_t caught, threads;
static const char *name;
static double from;

static double ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void begin(const char *what)
{
	name = what;
	caught = 0;
	errno = 0;
	from = ms();
}

// took says that a wait has to have ended after so long, and that a condition has to hold.
static void took(double want, int holds)
{
	double is = ms() - from;
	int err = errno;
	if (is < want - 0.001 || is > want + 0.5 || !holds)
		wrong++, printf("WRONG: %s: %.4f ms, and not %.4f; caught %d, %s%s\n", name, is, want, (int)caught, strerror(err), holds ? "" : ": not as it should be");
	else
		printf("%s: %.4f ms\n", name, is);
	fflush(stdout);
}

static void catch(int sig)
{
	caught++;
	(void)sig;
}

static void on(int sig, int flags)
{
	struct sigaction a = {.sa_handler = catch, .sa_flags = flags};
	sigaction(sig, &a, NULL);
}

static void pausing(int milliseconds)
{
	struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
	nanosleep(&t, NULL);
}

// child ends after a while, and before sends its parent a signal, unless that is 0.
static pid_t child(int milliseconds, int sig)
{
	pid_t p = fork();
	if (!p) {
		pausing(milliseconds);
		if (sig)
			kill(getppid(), sig);
		_exit(7);
	}
	return p;
}

static void reap(void)
{
	int err = errno;
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	errno = err;
}

static sigset_t set_of(int sig)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, sig);
	return s;
}

static void children(void)
{
	int status = 0;
	siginfo_t info;
	pid_t p;
	begin("waitpid");
	p = child(40, 0);
	took(40, waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 7);
	begin("wait");
	p = child(41, 0);
	took(41, wait(NULL) == p);
	begin("waitid");
	p = child(42, 0);
	took(42, !waitid(P_PID, p, &info, WEXITED) && info.si_pid == p);
	begin("waitpid, until a signal");
	on(SIGUSR1, 0);
	p = child(10, SIGUSR1);
	child(30, 0);
	took(10, waitpid(p + 1, NULL, 0) < 0 && errno == EINTR && caught == 1);
	reap();
	begin("waitpid, which goes on after a signal");
	on(SIGUSR1, SA_RESTART);
	child(10, SIGUSR1);
	p = child(30, 0);
	took(30, waitpid(p, NULL, 0) == p && caught == 1);
	reap();
	begin("waitpid of a child that is killed");
	p = child(1000, 0);
	pausing(5);
	kill(p, SIGTERM);
	took(5, waitpid(p, &status, 0) == p && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	begin("waitpid of children that are killed as a group");
	if (!(p = fork())) {
		setpgid(0, 0);
		for (int i = 0; i < 2; i++)
			child(1000, 0);
		on(SIGTERM, 0);
		pausing(5);
		kill(0, SIGTERM);
		reap();
		_exit(caught);
	}
	took(5, waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 1);
}

static void signals(void)
{
	sigset_t mask, old, usr = set_of(SIGUSR1);
	siginfo_t info;
	int sig;
	pid_t p;
	struct timespec t = {0, 30000000};
	on(SIGUSR1, 0);
	on(SIGCHLD, 0);
	sigfillset(&mask);
	sigprocmask(SIG_BLOCK, &mask, &old);
	begin("sigsuspend, until a child ends");
	p = child(50, 0);
	took(50, sigsuspend(&old) < 0 && errno == EINTR && caught == 1 && waitpid(p, NULL, WNOHANG) == p);
	begin("sigsuspend, until a signal that has come");
	raise(SIGUSR1);
	took(0, sigsuspend(&old) < 0 && caught == 1);
	signal(SIGCHLD, SIG_DFL);
	begin("sigwaitinfo");
	p = child(20, SIGUSR1);
	took(20, sigwaitinfo(&usr, &info) == SIGUSR1 && info.si_pid == p);
	reap();
	begin("sigwait");
	child(21, SIGUSR1);
	took(21, !sigwait(&usr, &sig) && sig == SIGUSR1);
	reap();
	begin("sigtimedwait, to its end");
	took(30, sigtimedwait(&usr, NULL, &t) < 0 && errno == EAGAIN);
	begin("sigtimedwait");
	child(10, SIGUSR1);
	took(10, sigtimedwait(&usr, NULL, &t) == SIGUSR1);
	reap();
	sigprocmask(SIG_SETMASK, &old, NULL);
	begin("pause");
	child(15, SIGUSR1);
	took(15, pause() < 0 && errno == EINTR && caught == 1);
	reap();
	begin("nanosleep, until a signal");
	child(16, SIGUSR1);
	t.tv_nsec = 100000000;
	int r = nanosleep(&t, &t);
	took(16, r < 0 && errno == EINTR && t.tv_nsec > 83000000 && t.tv_nsec < 84100000);
	reap();
	begin("nanosleep, with a signal that nobody handles");
	signal(SIGUSR1, SIG_IGN);
	child(16, SIGUSR1);
	t.tv_nsec = 30000000;
	took(30, !nanosleep(&t, NULL));
	reap();
}

static void descriptors(void)
{
	int p[2], ep = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	sigset_t usr = set_of(SIGUSR1), none;
	struct timespec t = {0, 60000000};
	char b;
	sigemptyset(&none);
	on(SIGUSR1, 0);
	if (pipe(p) || epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e))
		exit(2);
	struct pollfd f = {p[0], POLLIN, 0};
	fd_set in;
	for (int blocked = 0; blocked < 2; blocked++) { // before, and let in by the wait
		const sigset_t *let = blocked ? &none : NULL;
		if (blocked)
			sigprocmask(SIG_BLOCK, &usr, NULL);
		begin("ppoll");
		child(22, SIGUSR1);
		took(22, ppoll(&f, 1, &t, let) < 0 && errno == EINTR && caught == 1);
		reap();
		begin("pselect");
		child(23, SIGUSR1);
		FD_ZERO(&in);
		FD_SET(p[0], &in);
		took(23, pselect(p[0] + 1, &in, NULL, NULL, &t, let) < 0 && errno == EINTR && caught == 1);
		reap();
		begin("epoll_pwait");
		child(24, SIGUSR1);
		took(24, epoll_pwait(ep, &e, 1, 60, let) < 0 && errno == EINTR && caught == 1);
		reap();
		begin("ppoll, to its end");
		took(60, ppoll(&f, 1, &t, let) == 0);
		begin("ppoll without waiting, with a signal that is let in");
		struct timespec now = {0, 0};
		raise(SIGUSR1);
		int r = ppoll(&f, 1, &now, let);
		took(0, blocked ? r < 0 && errno == EINTR && caught == 1 : !r && caught == 1);
	}
	sigprocmask(SIG_UNBLOCK, &usr, NULL);
	begin("read, until a signal");
	child(25, SIGUSR1);
	took(25, read(p[0], &b, 1) < 0 && errno == EINTR && caught == 1);
	reap();
	begin("read, which goes on after a signal");
	on(SIGUSR1, SA_RESTART);
	if (!fork()) {
		pausing(5);
		kill(getppid(), SIGUSR1);
		pausing(5);
		_exit(write(p[1], "x", 1) != 1);
	}
	took(10, read(p[0], &b, 1) == 1 && caught == 1);
	reap();
	close(p[0]);
	close(p[1]);
	close(ep);
}

static sem_t done;

static void threaded(union sigval v)
{
	threads = v.sival_int;
	sem_post(&done);
}

static void timers(void)
{
	timer_t id;
	struct itimerspec s = {{0, 0}, {0, 20000000}}, is;
	sigset_t alrm = set_of(SIGALRM), usr = set_of(SIGUSR2);
	siginfo_t info;
	on(SIGALRM, 0);
	begin("alarm");
	alarm(1);
	took(1000, pause() < 0 && caught == 1 && !alarm(0));
	begin("alarm that is taken back");
	alarm(2);
	pausing(100);
	took(100, alarm(0) == 2 && !caught);
	begin("setitimer");
	struct itimerval every = {{0, 10000}, {0, 10000}}, none = {0};
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 3; i++)
		pause();
	took(30, caught == 3 && !setitimer(ITIMER_REAL, &none, &every) && every.it_interval.tv_usec == 10000);
	pausing(30);
	took(60, caught == 3);
	begin("timer_settime");
	if (timer_create(CLOCK_REALTIME, NULL, &id) || timer_settime(id, 0, &s, NULL) || timer_gettime(id, &is))
		took(0, 0);
	took(20, is.it_value.tv_nsec > 19000000 && pause() < 0 && caught == 1);
	begin("timer_settime, taken back");
	struct itimerspec zero = {{0, 0}, {0, 0}};
	timer_settime(id, 0, &s, NULL);
	pausing(10);
	timer_settime(id, 0, &zero, &is);
	pausing(20);
	took(30, !caught && is.it_value.tv_nsec > 9000000 && is.it_value.tv_nsec < 10000001);
	timer_delete(id);
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value.sival_int = 42};
	sigprocmask(SIG_BLOCK, &usr, NULL);
	begin("timer_settime until an instant, again and again");
	timer_create(CLOCK_MONOTONIC, &e, &id);
	clock_gettime(CLOCK_MONOTONIC, &s.it_value);
	s.it_interval.tv_nsec = 10000000;
	if ((s.it_value.tv_nsec += 20000000) >= 1000000000)
		s.it_value.tv_sec++, s.it_value.tv_nsec -= 1000000000;
	timer_settime(id, TIMER_ABSTIME, &s, NULL);
	pausing(45); // 20, and 30 and 40 while that is pending
	took(45, sigwaitinfo(&usr, &info) == SIGUSR2 && info.si_value.sival_int == 42 && info.si_code == SI_TIMER && timer_getoverrun(id) == 2);
	took(50, sigwaitinfo(&usr, &info) == SIGUSR2);
	took(50, !timer_delete(id) && timer_settime(id, 0, &s, NULL) < 0 && errno == EINVAL);
	begin("timer_settime with a thread");
	e = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = threaded, .sigev_value.sival_int = 5};
	sem_init(&done, 0, 0);
	s = (struct itimerspec){{0, 0}, {0, 15000000}};
	timer_create(CLOCK_REALTIME, &e, &id);
	timer_settime(id, 0, &s, NULL);
	sem_wait(&done);
	took(15, threads == 5 && !timer_delete(id));
	begin("timers of a child");
	alarm(1);
	pid_t p = fork();
	if (!p) {
		pausing(1500);
		_exit(caught);
	}
	int status;
	pausing(2000);
	took(1000, caught == 1);
	while (waitpid(p, &status, 0) < 0)
		;
	took(1500, WEXITSTATUS(status) == 0);
	(void)alrm;
}

int main(void)
{
	children();
	signals();
	descriptors();
	timers();
	if (wrong)
		printf("%d waits are wrong\n", wrong);
	return wrong > 0;
}
