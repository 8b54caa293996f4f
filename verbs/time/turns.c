// SPDX-License-Identifier: Apache-2.0

// Turns: in a lab whose time is virtual the node's process decides when a thread resumes (Turns of package nodeagent/verbs). Lab time
// stands still while a program runs. A thread that waits sends its wait over a connection of its own, and resumes when it gets the
// time.
#include "time.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "../protocol.h"

static int rank = -1;              // of the program; -1: the process has no turns
static _Atomic int64_t now_ps;     // as of the last that this process was told
static __thread int conn = -1;     // of the thread
static __thread int64_t debt_ps;   // for looking at clocks, that the thread has not waited yet
static __thread int64_t spun_ps;   // since when it has only looked: at clocks, at queues that are empty; 0: it has done something else
static __thread int64_t spun_for;  // how long it did the last time that it waited by looking at a clock
static __thread unsigned polls;    // that found nothing since one that did
static __thread unsigned yields;   // and how often it has let others run
static __thread unsigned looks;    // at clocks, since the last of these
static __thread int clocked;       // it has looked at a clock since spun_ps
static __thread int released;      // it has given something that another thread may wait for, since it waited
static __thread uint32_t flags;    // why the thread resumes
static __thread int dirty[8];      // sockets that the thread has written to
static __thread int dirties;
static __thread volatile sig_atomic_t waiting; // the thread is within a wait
static __thread volatile unsigned calls;       // of this library, and of that of verbs

// The cost of polls, in picoseconds. A thread that does nothing else polls less and less often: each poll takes 1/64 of the time for
// which it has been polling, at most LOOK_MAX. Programs that pace themselves by busy waits wait as long as the last time, or nearly:
// around that polls take less, down to 1/1024. Waits shorter than PACE are ignored there, since programs read the clock when they post.
// LOOK_WAIT is the cost of polls that a thread may have before they are waited for.
enum { LOOK = 10000, LOOK_WAIT = 200000, LOOK_MAX = 50000000, LOOK_PART = 64, LOOK_LEAST = 1024, PACE = 1000000, POLL = 10000, POLL_MAX = 10000000, POLLING = 16 };

// turns_on reports whether the process has turns, and takes the thread's turn back: its callers are
// about to act, which a thread may only in its turn.
int turns_on(void)
{
	if (rank < 0)
		return 0;
	turns_back();
	return 1;
}

int64_t turns_ps(void)
{
	return atomic_load(&now_ps) + debt_ps;
}

// lost ends a program whose node is gone: nothing would ever wake it.
static void lost(void)
{
	static const char text[] = "mcastlab: the node has gone, and with it the lab's time\n";
	ssize_t n = syscall(SYS_write, 2, text, sizeof text - 1);
	(void)n;
	_exit(70);
}

static void take_turn(void)
{
	struct v_turn t;
	ssize_t n;
	while ((n = real.recv(conn, &t, sizeof t, 0)) < 0 && errno == EINTR)
		;
	if (n != sizeof t)
		lost();
	atomic_store(&now_ps, (int64_t)t.now);
	flags = t.why;
}

static void say(const void *m, size_t size)
{
	ssize_t n;
	seat_says();
	while ((n = real.send(conn, m, size, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (n < 0)
		lost();
}

// settle waits until the thread's writes to sockets have arrived, so that readers that wait for them find them. Bytes that the
// other end has no room for stay.
static void settle(void)
{
	for (int i = 0; i < dirties; i++)
		for (int left = 0, before = 0, tries = 0; tries < 2000 && !ioctl(dirty[i], SIOCOUTQ, &left) && left > 0; tries++) {
			struct timespec t = {0, 50000};
			if (left != before)
				tries = 0;
			else if (tries > 400)
				break;
			before = left;
			syscall(SYS_nanosleep, &t, NULL);
		}
	dirties = 0;
}

static uint32_t touched; // V_TOUCHED if the process has done something that others may wait for

void turns_touch(int fd)
{
	touched = V_TOUCHED;
	turns_progress();
	for (int i = 0; i < dirties; i++)
		if (dirty[i] == fd)
			return;
	if (fd >= 0 && dirties < 8)
		dirty[dirties++] = fd;
}

void turns_release(void)
{
	released = 1;
}

// again is V_AGAIN for a look that found nothing, unless the thread has given something since.
static int wait_as(int kind, int64_t until_ps, int64_t grid_ps, int events, int again, int (*ready)(void *), void *arg)
{
	int err = errno;
	waiting = 1;
	calls++;
	turns_come();
	seat_busy(1);
	seat_awake();
	int64_t now = turns_ps();
	if (kind != V_PARK_OUTSIDE && kind != V_PARK_BESIDE)
		polls = kind == V_PARK_POLL ? polls : 0;
	if (until_ps < now)
		until_ps = now;
	settle();
	struct v_park p = {V_PARK, kind, touched | (events ? V_EVENTS : 0) | (released ? again & ~V_AGAIN : again), 0, until_ps, grid_ps};
	touched = 0;
	released = 0;
	debt_ps = 0;
	spun_ps = 0;
	yields = 0;
	for (;;) {
		say(&p, sizeof p);
		take_turn();
		if (flags != V_WHY_CHECK)
			break;
		p.flags = (p.flags & ~(V_READY | V_TOUCHED)) | (ready && ready(arg) ? V_READY : 0);
	}
	if (atomic_load(&now_ps) < now)
		debt_ps = now - atomic_load(&now_ps); // an event came before the thread had paid for what it looked at
	errno = err;
	calls++;
	seat_busy(-1);
	waiting = 0;
	return flags;
}

void turns_back(void)
{
	if (seat_asleep())
		wait_as(V_PARK_SLEEP, turns_ps(), 0, 0, V_BACK, NULL, NULL);
}

int turns_wait(int kind, int64_t until_ps, int64_t grid_ps, int events)
{
	return wait_as(kind, until_ps, grid_ps, events, 0, NULL, NULL);
}

void turns_beside(int64_t until_ps, int again)
{
	wait_as(V_PARK_BESIDE, until_ps, 0, 0, again ? V_AGAIN : 0, NULL, NULL);
}

int turns_wait_outside(int64_t until_ps, int events, int (*ready)(void *), void *arg)
{
	return wait_as(V_PARK_OUTSIDE, until_ps, 0, events, 0, ready, arg);
}

int turns_unserved(const char *call)
{
	static _Atomic int said;
	if (!atomic_exchange(&said, 1))
		dprintf(2, "mcastlab: %s does not go by the time of a lab in lockstep: docs/libibverbs.md lists what does\n", call);
	errno = ENOTSUP;
	return -1;
}

// began returns since when the thread has only looked.
static int64_t began(void)
{
	if (!spun_ps)
		spun_ps = turns_ps();
	return spun_ps;
}

// share returns what a look takes after so long a time of nothing but looks.
static int64_t share(int64_t spent_ps, int64_t least)
{
	int64_t cost = spent_ps / LOOK_PART, near = llabs(spun_for - spent_ps) / 2;
	if (near < cost)
		cost = near > spent_ps / LOOK_LEAST ? near : spent_ps / LOOK_LEAST;
	return cost < least ? least : cost < LOOK_MAX ? cost : LOOK_MAX;
}

// give lets other threads run, and lab time advance by the cost of the thread's polls.
static void give(void)
{
	int64_t since = spun_ps;
	unsigned polled = polls, yielded = yields;
	wait_as(V_PARK_SLEEP, turns_ps(), 0, 0, V_AGAIN, NULL, NULL);
	spun_ps = since;
	polls = polled;
	yields = yielded;
}

// A look at a clock takes time, so that a thread that waits for an instant by looking comes to it. Between polls and yields it is these
// that get on.
void turns_look(void)
{
	calls++;
	int64_t since = began();
	clocked = 1;
	debt_ps += (polls || yields) && ++looks < POLLING ? LOOK : share(turns_ps() - since, LOOK);
	if (debt_ps >= LOOK_WAIT)
		give();
}

void turns_yield(void)
{
	calls++;
	int64_t since = began();
	debt_ps += share(turns_ps() - since, LOOK);
	yields++;
	looks = 0;
	give();
}

// The library of verbs calls it when a poll has found nothing, in place of giving up the processor. A thread that looks at a clock
// between polls waits for an instant, too, and is not to be late.
__attribute__((visibility("default"))) int mcastlab_poll(void)
{
	if (!turns_on())
		return 0;
	int64_t since = began(), wait = polls < 10 ? (int64_t)POLL << polls : POLL_MAX;
	int64_t most = looks ? share(turns_ps() - since, LOOK_WAIT) : POLL_MAX;
	int again = polls++ ? V_AGAIN : 0;
	wait_as(V_PARK_POLL, turns_ps() + (wait < most ? wait : most), POLL, 0, again, NULL, NULL);
	spun_ps = since;
	looks = 0;
	return 1;
}

void turns_progress(void)
{
	turns_back();
	if (clocked && spun_ps && turns_ps() - spun_ps > PACE)
		spun_for = turns_ps() - spun_ps;
	clocked = 0;
	polls = 0;
	yields = 0;
	looks = 0;
	spun_ps = 0;
	calls++;
}

// And when a poll has found something, or the program has posted.
__attribute__((visibility("default"))) void mcastlab_progress(void)
{
	turns_progress();
}

// A thread that looks at its memory until a WRITE has changed it calls nobody. A timer of its processor time finds who has not called
// for two ticks. If samples say that it only looks (spin.c), it waits until bytes have come into the process's memory, or goes on by itself
// after a while, which is longer each time, as another process may have changed it. Samples do not find a loop that
// counts its looks: after QUIET ticks it waits all the same.
enum { TICK = 4000000, QUIET = 250, SPIN = 10000000 };
static __thread timer_t ticks, burst;
static __thread int ticking;
static __thread unsigned quiet;        // ticks in a row without a call
static __thread unsigned seen;         // calls at the last tick
static __thread unsigned last_spin;    // calls when it was last found
static __thread int64_t spin_ps;       // how long it waits then

// looked waits as a thread does that has been found to look at memory.
static void looked(void)
{
	int same = spin_ps && last_spin == calls; // a new thread has made no call, either
	spin_ps = same && spin_ps < 1000ll * SPIN ? spin_ps * 2 : SPIN;
	wait_as(V_PARK_MEMORY, turns_ps() + spin_ps, 0, 0, same ? V_AGAIN : 0, NULL, NULL);
	last_spin = calls;
	quiet = 0;
}

static void tick(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	int err = errno, sample = info->si_value.sival_int;
	if (waiting || conn < 0 || calls != seen) {
		quiet = 0;
		if (sample)
			spin_end(burst);
	} else if (sample ? spin_found(burst, context) : ++quiet >= QUIET) {
		looked();
	} else if (!sample) {
		spin_begin(burst);
	}
	seen = calls;
	errno = err;
}

static void watch_spins(void)
{
	struct sigaction a = {.sa_sigaction = tick, .sa_flags = SA_RESTART | SA_SIGINFO};
	struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMAX - 1};
	struct itimerspec every = {{0, TICK}, {0, TICK}};
	e._sigev_un._tid = syscall(SYS_gettid);
	if (real.sigaction(SIGRTMAX - 1, &a, NULL) || real.timer_create(CLOCK_THREAD_CPUTIME_ID, &e, &ticks))
		return; // such a thread is named when it has kept its turn for long
	e.sigev_value.sival_int = 1;
	if (real.timer_create(CLOCK_MONOTONIC, &e, &burst)) {
		real.timer_delete(ticks);
		return;
	}
	ticking = !real.timer_settime(ticks, 0, &every, NULL);
}

static _Atomic unsigned announced; // threads of the process

// come makes the connection of the thread that calls it, and waits for its turn. It returns an errno.
static int come(int number)
{
	const char *path = getenv("MCASTLAB_VERBS");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control;
	struct v_thread hello = {V_THREAD, rank, getpid(), number};
	struct iovec io = {&hello, sizeof hello};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	if (!path || strlen(path) >= sizeof a.sun_path)
		return ENODEV;
	strcpy(a.sun_path, path);
	int self = syscall(SYS_pidfd_open, getpid(), 0), s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), err = 0;
	if (self < 0 || s < 0)
		return errno;
	int high = fcntl(s, F_DUPFD_CLOEXEC, 900); // shells use the low ones, and close them
	if (high >= 0) {
		syscall(SYS_close, s);
		s = high;
	}
	int fds[3] = {self, -1, -1};
	seat_take(fds + 1);
	size_t size = fds[1] < 0 || fds[2] < 0 ? sizeof self : sizeof fds;
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(size);
	m.msg_controllen = CMSG_SPACE(size);
	memcpy(CMSG_DATA(h), fds, size);
	seat_busy(1);
	if (syscall(SYS_connect, s, &a, sizeof a) || syscall(SYS_sendmsg, s, &m, MSG_NOSIGNAL) < 0)
		err = errno;
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			syscall(SYS_close, fds[i]);
	if (err) {
		syscall(SYS_close, s);
		return err;
	}
	conn = s;
	waiting = 1;
	take_turn();
	waiting = 0;
	seat_busy(-1);
	turns_leave_at_end();
	watch_spins();
	return 0;
}

void turns_come(void)
{
	if (conn < 0 && come(0))
		lost();
}

void turns_begin_thread(unsigned number)
{
	if (come(number))
		lost();
}

void turns_end(void)
{
	struct v_id m = {V_BYE, 0};
	if (conn < 0)
		return;
	waiting = 1; // for ever
	seat_busy(1);
	if (ticking) {
		real.timer_delete(ticks);
		real.timer_delete(burst);
	}
	settle();
	say(&m, sizeof m);
	syscall(SYS_close, conn);
	conn = -1;
	seat_leave();
}

static void expect(uint32_t pid)
{
	struct v_id m = {V_EXPECT, pid};
	turns_come();
	say(&m, sizeof m);
}

unsigned turns_expect_thread(void)
{
	unsigned n = atomic_fetch_add(&announced, 1) + 1;
	expect(0);
	return n;
}

void turns_expect_none(void)
{
	expect(UINT32_MAX);
}

static void in_child(void)
{
	if (!turns_on())
		return;
	if (conn >= 0)
		syscall(SYS_close, conn); // the parent's
	conn = -1;
	seat_leave();
	debt_ps = 0;
	dirties = 0;
	released = 0;
	turns_forget_timers();
	turns_forget_threads();
	atomic_store(&announced, 0);
	if (come(0))
		lost();
}

int turns_begin(void)
{
	const char *text = getenv("MCASTLAB_TURNS");
	if (!text)
		return 0;
	rank = atoi(text);
	pthread_atfork(NULL, NULL, in_child);
	int err = come(0);
	if (err)
		rank = -1;
	return err;
}

void turns_dies(int pid)
{
	struct v_id m = {V_DIES, pid};
	turns_come();
	say(&m, sizeof m);
}

void turns_started(int pid)
{
	if (turns_on() && pid > 0)
		expect(pid);
}
