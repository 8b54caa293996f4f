// SPDX-License-Identifier: Apache-2.0

// labtime EPOCH MONO LAB DILATION [MONO LAB DILATION] runs with libmcasttime.so and checks each of its calls against the server's
// clock, which it reads by the system call: a clock between two readings of that, a wait by the least it may take. The rates are those that
// the library is told, LAB in picoseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static int64_t epoch;
static struct {
	int64_t mono;
	long double lab, dilation;
} rates[2];
static int announced, failed;

static void fail(const char *what, int64_t have, int64_t low, int64_t high)
{
	printf("%s: %lld is not between %lld and %lld\n", what, (long long)have, (long long)low, (long long)high);
	failed = 1;
}

static int64_t wall(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// lab returns the lab's time in nanoseconds.
static int64_t lab(int64_t mono)
{
	int i = announced && mono >= rates[1].mono;
	return (rates[i].lab + (mono - rates[i].mono) * 1000.0L / rates[i].dilation) / 1000;
}

static int64_t ns(struct timespec t)
{
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static struct timespec spec(int64_t n)
{
	return (struct timespec){n / 1000000000, n % 1000000000};
}

static const struct {
	const char *name;
	clockid_t id;
	int date;
} clocks[] = {
	{"CLOCK_REALTIME", CLOCK_REALTIME, 1}, {"CLOCK_REALTIME_COARSE", CLOCK_REALTIME_COARSE, 1}, {"CLOCK_TAI", CLOCK_TAI, 1},
	{"CLOCK_MONOTONIC", CLOCK_MONOTONIC, 0}, {"CLOCK_MONOTONIC_RAW", CLOCK_MONOTONIC_RAW, 0},
	{"CLOCK_MONOTONIC_COARSE", CLOCK_MONOTONIC_COARSE, 0}, {"CLOCK_BOOTTIME", CLOCK_BOOTTIME, 0},
};

static void read_clocks(void)
{
	struct timespec t;
	struct timeval v;
	for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		int64_t from = wall();
		clock_gettime(clocks[i].id, &t);
		int64_t to = wall(), have = ns(t) - (clocks[i].date ? epoch : 1000000000000);
		if (have < lab(from) - 1 || have > lab(to) + 1)
			fail(clocks[i].name, have, lab(from), lab(to));
	}
	int64_t from = wall();
	gettimeofday(&v, NULL);
	int64_t to = wall(), have = v.tv_sec * 1000000000ll + v.tv_usec * 1000 - epoch;
	if (have < lab(from) - 1001 || have > lab(to) + 1)
		fail("gettimeofday", have, lab(from), lab(to));
	from = wall();
	time_t s = time(NULL);
	to = wall(), have = s * 1000000000ll - epoch;
	if (have < lab(from) - 1000000001 || have > lab(to) + 1)
		fail("time", have, lab(from), lab(to));
	from = wall();
	timespec_get(&t, TIME_UTC);
	to = wall(), have = ns(t) - epoch;
	if (have < lab(from) - 1 || have > lab(to) + 1)
		fail("timespec_get", have, lab(from), lab(to));
}

// The length of lab time that everything waits for here.
enum { LENGTH = 2000000 };

// passed demands that a wait which began at an instant of the server's clock has taken LENGTH of lab time.
static void passed(const char *what, int64_t from)
{
	int64_t took = lab(wall()) - lab(from);
	if (took < LENGTH)
		fail(what, took, LENGTH, INT64_MAX);
}

static int64_t now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return ns(t);
}

static void sleeps(void)
{
	struct timespec t = spec(LENGTH);
	int64_t from = wall();
	nanosleep(&t, NULL);
	passed("nanosleep", from);
	from = wall();
	usleep(LENGTH / 1000);
	passed("usleep", from);
	from = wall();
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	passed("clock_nanosleep", from);
	for (int i = 0; i < 2; i++) {
		clockid_t c = i ? CLOCK_REALTIME : CLOCK_MONOTONIC;
		from = wall();
		t = spec(now(c) + LENGTH);
		clock_nanosleep(c, TIMER_ABSTIME, &t, NULL);
		passed("clock_nanosleep until", from);
	}
}

static void polls(void)
{
	int none[2];
	struct epoll_event e = {.events = EPOLLIN};
	if (pipe(none))
		abort();
	struct pollfd p = {none[0], POLLIN, 0};
	struct timespec t = spec(LENGTH);
	int64_t from = wall();
	int r = poll(&p, 1, LENGTH / 1000000);
	passed("poll", from);
	from = wall();
	r |= ppoll(&p, 1, &t, NULL);
	passed("ppoll", from);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(none[0], &set);
	struct timeval v = {0, LENGTH / 1000};
	from = wall();
	r |= select(none[0] + 1, &set, NULL, NULL, &v);
	passed("select", from);
	if (v.tv_sec || v.tv_usec || FD_ISSET(none[0], &set))
		fail("select leaves", v.tv_usec, 0, 0);
	FD_SET(none[0], &set);
	from = wall();
	r |= pselect(none[0] + 1, &set, NULL, NULL, &t, NULL);
	passed("pselect", from);
	int ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, none[0], &e);
	from = wall();
	r |= epoll_wait(ep, &e, 1, LENGTH / 1000000);
	passed("epoll_wait", from);
	from = wall();
	r |= epoll_pwait(ep, &e, 1, LENGTH / 1000000, NULL);
	passed("epoll_pwait", from);
	if (r)
		fail("what polls find", r, 0, 0);
	if (write(none[1], "", 1) != 1 || poll(&p, 1, 1000000000) != 1)
		fail("poll of what is there", 0, 1, 1);
	FD_SET(none[0], &set);
	v.tv_sec = 1000000;
	if (select(none[0] + 1, &set, NULL, NULL, &v) != 1 || !FD_ISSET(none[0], &set))
		fail("select of what is there", 0, 1, 1);
}

static void deadlines(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t plain = PTHREAD_COND_INITIALIZER, mono;
	pthread_condattr_t a;
	sem_t s;
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&mono, &a);
	sem_init(&s, 0, 0);
	pthread_mutex_lock(&m);
	int64_t from = wall();
	struct timespec t = spec(now(CLOCK_REALTIME) + LENGTH);
	while (!pthread_cond_timedwait(&plain, &m, &t))
		;
	passed("pthread_cond_timedwait", from);
	from = wall();
	t = spec(now(CLOCK_MONOTONIC) + LENGTH);
	while (!pthread_cond_timedwait(&mono, &m, &t))
		;
	passed("pthread_cond_timedwait by CLOCK_MONOTONIC", from);
	from = wall();
	t = spec(now(CLOCK_MONOTONIC) + LENGTH);
	while (!pthread_cond_clockwait(&plain, &m, CLOCK_MONOTONIC, &t))
		;
	passed("pthread_cond_clockwait", from);
	from = wall();
	t = spec(now(CLOCK_REALTIME) + LENGTH);
	if (!sem_timedwait(&s, &t) || errno != ETIMEDOUT)
		fail("sem_timedwait", errno, ETIMEDOUT, ETIMEDOUT);
	passed("sem_timedwait", from);
	from = wall();
	t = spec(now(CLOCK_MONOTONIC) + LENGTH);
	if (!sem_clockwait(&s, CLOCK_MONOTONIC, &t) || errno != ETIMEDOUT)
		fail("sem_clockwait", errno, ETIMEDOUT, ETIMEDOUT);
	passed("sem_clockwait", from);
	sem_post(&s);
	t = spec(0);
	if (sem_timedwait(&s, &t))
		fail("sem_timedwait of what is there", errno, 0, 0);
}

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;
static sem_t joined;

// one waits where another thread holds the lock, and lives until that thread has given up joining it, however late that is.
static void *one(void *p)
{
	int64_t from = wall();
	struct timespec t = spec(now(CLOCK_REALTIME) + LENGTH);
	if (pthread_mutex_timedlock(&taken, &t) != ETIMEDOUT)
		fail("pthread_mutex_timedlock", 0, ETIMEDOUT, ETIMEDOUT);
	passed("pthread_mutex_timedlock", from);
	from = wall();
	t = spec(now(CLOCK_MONOTONIC) + LENGTH);
	if (pthread_mutex_clocklock(&taken, CLOCK_MONOTONIC, &t) != ETIMEDOUT)
		fail("pthread_mutex_clocklock", 0, ETIMEDOUT, ETIMEDOUT);
	passed("pthread_mutex_clocklock", from);
	while (sem_wait(&joined))
		;
	return p;
}

static int other(void *p)
{
	mtx_t *m = p;
	int64_t from = wall();
	struct timespec t = spec(now(CLOCK_REALTIME) + LENGTH);
	if (mtx_timedlock(m, &t) != thrd_timedout)
		fail("mtx_timedlock", 0, thrd_timedout, thrd_timedout);
	passed("mtx_timedlock", from);
	return 0;
}

static void locks(void)
{
	pthread_rwlock_t w = PTHREAD_RWLOCK_INITIALIZER;
	pthread_t waits;
	thrd_t waits11;
	mtx_t m;
	cnd_t c;
	pthread_mutex_lock(&taken);
	sem_init(&joined, 0, 0);
	pthread_create(&waits, NULL, one, NULL);
	int64_t from = wall();
	struct timespec t = spec(now(CLOCK_REALTIME) + LENGTH);
	if (pthread_timedjoin_np(waits, NULL, &t) != ETIMEDOUT)
		fail("pthread_timedjoin_np", 0, ETIMEDOUT, ETIMEDOUT);
	passed("pthread_timedjoin_np", from);
	sem_post(&joined);
	pthread_join(waits, NULL);
	pthread_rwlock_rdlock(&w);
	from = wall();
	t = spec(now(CLOCK_REALTIME) + LENGTH);
	if (pthread_rwlock_timedwrlock(&w, &t) != ETIMEDOUT)
		fail("pthread_rwlock_timedwrlock", 0, ETIMEDOUT, ETIMEDOUT);
	passed("pthread_rwlock_timedwrlock", from);
	mtx_init(&m, mtx_timed);
	cnd_init(&c);
	mtx_lock(&m);
	thrd_create(&waits11, other, &m);
	thrd_join(waits11, NULL);
	from = wall();
	t = spec(now(CLOCK_REALTIME) + LENGTH);
	while (cnd_timedwait(&c, &m, &t) == thrd_success)
		;
	passed("cnd_timedwait", from);
	from = wall();
	t = spec(LENGTH);
	thrd_sleep(&t, NULL);
	passed("thrd_sleep", from);
	int pair[2];
	char b;
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	struct timeval v = {0, LENGTH / 1000};
	socklen_t size = sizeof v;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &v, size);
	from = wall();
	if (recv(pair[0], &b, 1, 0) != -1 || errno != EAGAIN)
		fail("SO_RCVTIMEO", errno, EAGAIN, EAGAIN);
	passed("SO_RCVTIMEO", from);
	getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &v, &size); // the kernel counts in ticks
	if (v.tv_sec || v.tv_usec < LENGTH / 1000 || v.tv_usec > LENGTH / 1000 + 10000)
		fail("SO_RCVTIMEO that is read", v.tv_usec, LENGTH / 1000, LENGTH / 1000 + 10000);
}

static void timers(void)
{
	uint64_t n;
	for (int i = 0; i < 4; i++) {
		clockid_t c = i & 1 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
		int until = i & 2, fd = timerfd_create(c, 0);
		int64_t from = wall();
		struct itimerspec left, t = {{0, 0}, spec(until ? now(c) + LENGTH : LENGTH)};
		if (timerfd_settime(fd, until ? TFD_TIMER_ABSTIME : 0, &t, NULL) || timerfd_gettime(fd, &left))
			abort();
		if (ns(left.it_value) > LENGTH + 1000)
			fail("timerfd_gettime", ns(left.it_value), 0, LENGTH + 1000);
		if (read(fd, &n, sizeof n) != sizeof n)
			abort();
		passed(until ? "timerfd_settime until" : "timerfd_settime", from);
		close(fd);
	}
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	struct itimerval v = {{0, 0}, {0, LENGTH / 1000}};
	int64_t from = wall();
	setitimer(ITIMER_REAL, &v, NULL);
	if (sigtimedwait(&set, NULL, &(struct timespec){1000, 0}) != SIGALRM)
		fail("setitimer", errno, 0, 0);
	passed("setitimer", from);
	alarm(1000);
	unsigned rest = alarm(0);
	if (rest < 900 || rest > 1000)
		fail("alarm", rest, 900, 1000);
	timer_t id;
	struct itimerspec t = {{0, 0}, spec(LENGTH)};
	from = wall();
	if (timer_create(CLOCK_MONOTONIC, NULL, &id) || timer_settime(id, 0, &t, NULL))
		abort();
	if (sigtimedwait(&set, NULL, &(struct timespec){1000, 0}) != SIGALRM)
		fail("timer_settime", errno, 0, 0);
	passed("timer_settime", from);
	for (int i = 0; i < 2; i++) {
		clockid_t c = i ? CLOCK_REALTIME : CLOCK_MONOTONIC;
		from = wall();
		t.it_value = spec(now(c) + LENGTH);
		if (timer_create(c, NULL, &id) || timer_settime(id, TIMER_ABSTIME, &t, NULL))
			abort();
		if (sigtimedwait(&set, NULL, &(struct timespec){1000, 0}) != SIGALRM)
			fail("timer_settime until", errno, 0, 0);
		passed("timer_settime until", from);
	}
	from = wall();
	t.it_value = spec(LENGTH);
	if (sigtimedwait(&set, NULL, &t.it_value) != -1 || errno != EAGAIN)
		fail("sigtimedwait", errno, EAGAIN, EAGAIN);
	passed("sigtimedwait", from);
}

#if defined(__x86_64__)
#include <x86intrin.h>

static double per_ns; // the counter's own cycles by a nanosecond of the server's

// pair reads both, of a few times when the least came between.
static void pair(int64_t *mono, uint64_t *tsc)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < 20; i++) {
		int64_t before = wall();
		uint64_t t = __rdtsc();
		int64_t took = wall() - before;
		if (took < least) {
			least = took;
			*mono = before + took / 2;
			*tsc = t;
		}
	}
}

static void measure(void)
{
	int64_t from, to;
	uint64_t a, b;
	prctl(PR_SET_TSC, PR_TSC_ENABLE);
	pair(&from, &a);
	while (wall() - from < 20000000)
		;
	pair(&to, &b);
	per_ns = (double)(b - a) / (to - from);
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
}

#define UNTRAPPED "rdtsc is not trapped by this server\n"

// traps reports whether the server does what the kernel has been asked for: a child that has no handler dies of rdtsc. If the kernel has
// not been asked, that is no fault of the server's.
static int traps(void)
{
	int mode = 0, status = 0;
	if (prctl(PR_GET_TSC, &mode) || mode != PR_TSC_SIGSEGV)
		return 1;
	cpu_set_t here; // where the counter was read just now
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof here, &here);
	pid_t child = fork();
	if (!child) {
		struct {
			void *handler;
			unsigned long flags, restorer, mask;
		} none = {0};
		syscall(SYS_rt_sigaction, SIGSEGV, &none, NULL, sizeof none.mask);
		__rdtsc();
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status);
}

static void counter(const char *what)
{
	unsigned aux;
	int64_t w0 = wall();
	uint64_t a = __rdtsc();
	int64_t w1 = wall();
	while (wall() - w1 < 20000000)
		;
	int64_t w2 = wall();
	uint64_t b = __rdtscp(&aux);
	int64_t w3 = wall(), have = b - a;
	int64_t low = (lab(w2) - lab(w1)) * per_ns * 0.99, high = (lab(w3) - lab(w0)) * per_ns * 1.01;
	if (have >= low && have <= high)
		return;
	if (traps())
		fail(what, have, low, high);
	else
		printf(UNTRAPPED);
}

static jmp_buf back;
static volatile int seen;

static void on_fault(int sig, siginfo_t *i, void *u)
{
	(void)i, (void)u;
	seen = sig;
	siglongjmp(back, 1);
}

static void *thread(void *p)
{
	counter("rdtsc in a thread");
	return p;
}

static void cycles(void)
{
	int mode = 0;
	if (prctl(PR_GET_TSC, &mode) || mode != PR_TSC_SIGSEGV) {
		printf(UNTRAPPED); // and the library must have said so
		return;
	}
	measure();
	counter("rdtsc");
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	counter("rdtsc with all signals blocked");
	struct sigaction old, a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &a, &old);
	if (old.sa_handler != SIG_DFL)
		fail("the first handler of SIGSEGV", 1, 0, 0);
	if (!sigsetjmp(back, 1))
		*(volatile int *)8 = 1;
	if (seen != SIGSEGV)
		fail("a fault of the program's own", seen, SIGSEGV, SIGSEGV);
	counter("rdtsc after a fault of the program's own");
	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
	pid_t child = fork();
	if (!child) {
		counter("rdtsc after fork");
		_exit(failed);
	}
	int status;
	waitpid(child, &status, 0);
	failed |= status;
	child = fork();
	if (!child) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	if (status)
		fail("exec", status, 0, 0);
	if (posix_spawnp(&child, "true", NULL, NULL, (char *[]){"true", NULL}, environ) || waitpid(child, &status, 0) != child || status)
		fail("posix_spawnp", status, 0, 0);
	if ((status = system("true")))
		fail("system", status, 0, 0);
	char line[8] = "";
	FILE *f = popen("echo yes", "r");
	if (!f || !fgets(line, sizeof line, f) || strcmp(line, "yes\n") || pclose(f))
		fail("popen", 0, 1, 1);
	counter("rdtsc after other programs");
	child = fork();
	if (!child) { // a fault without a handler of the program's ends it
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *)8 = 1;
		_exit(1);
	}
	waitpid(child, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
		fail("a fault without a handler", status, SIGSEGV, SIGSEGV);
}
#else
static void cycles(void)
{
}
#endif

int main(int n, char **v)
{
	if (n != 5 && n != 8)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	epoch = strtoll(v[1], NULL, 10) * 1000000000;
	for (int i = 0; 3 * i + 4 < n; i++) {
		rates[i].mono = strtoll(v[3 * i + 2], NULL, 10);
		rates[i].lab = strtoll(v[3 * i + 3], NULL, 10);
		rates[i].dilation = strtod(v[3 * i + 4], NULL);
		announced = i;
	}
	read_clocks();
	while (announced && wall() < rates[1].mono + 1000000)
		read_clocks();
	if (!announced) {
		sleeps();
		polls();
		deadlines();
		locks();
		timers();
		cycles();
		read_clocks();
	}
	return failed;
}
