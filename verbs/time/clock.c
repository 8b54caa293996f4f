// SPDX-License-Identifier: Apache-2.0

// libmcasttime.so, for LD_PRELOAD: a program's clocks show the lab's time. The rates come from the node's process, in a page that it
// updates (struct v_time); the program's deadlines are converted to the server's clock. Without MCASTLAB_CLOCK it does nothing.
// docs/libibverbs.md lists the covered calls.
#include "time.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "../protocol.h"

struct real real;

static const struct v_time *page; // NULL: the program sees the server's time
static int64_t epoch;             // of the clocks that tell the date

int64_t mono_now(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t); // not by the vDSO, whose rdtsc would be trapped
	return t.tv_sec * SECOND + t.tv_nsec;
}

struct rate {
	int64_t mono, lab; // lab in picoseconds
	double dilation;
};

// rates reads the current rate and the one that has been announced, whose dilation is 0 if there is none. The node's process fills
// one set of rates while the other is valid.
static void rates(struct rate r[2])
{
	uint64_t n;
	do {
		n = atomic_load(&page->generation);
		for (int i = 0; i < 2; i++) {
			const struct v_rate *p = &page->rates[n & 1][i];
			uint64_t bits = atomic_load(&p->dilation);
			r[i].mono = atomic_load(&p->mono);
			r[i].lab = atomic_load(&p->lab);
			memcpy(&r[i].dilation, &bits, sizeof bits);
		}
	} while (atomic_load(&page->generation) != n);
}

long double lab_ps_at(int64_t mono)
{
	if (turns_on()) { // only the counter of the processor is asked for like this
		turns_look();
		return turns_ps();
	}
	struct rate r[2];
	rates(r);
	const struct rate *p = &r[r[1].dilation >= 1 && mono >= r[1].mono];
	return p->lab + (long double)(mono - p->mono) * 1000 / p->dilation;
}

int64_t lab_at(int64_t mono)
{
	return turns_on() ? turns_ps() / 1000 : (int64_t)(lab_ps_at(mono) / 1000);
}

int64_t lab_now(void)
{
	return lab_at(mono_now());
}

int64_t lab_wait(int64_t lab)
{
	struct rate r[2];
	if (turns_on())
		return 1; // nothing waits on the server's clock
	rates(r);
	const struct rate *p = &r[r[1].dilation >= 1 && lab >= r[1].lab / 1000];
	long double wait = p->mono + ((long double)lab * 1000 - p->lab) / 1000 * p->dilation - mono_now();
	return wait < 1 ? 1 : wait > FOREVER ? FOREVER : (int64_t)wait + 1;
}

// receive_page asks the node's process for the page, and returns why there is none. It calls what is real: the library's own calls would
// wait for its end.
static int receive_page(const char *path, int *fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct v_id ask = {V_TIME, 0};
	struct v_reply r;
	struct iovec io = {&r, sizeof r};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	struct timeval patience = {10, 0};
	if (!path || strlen(path) >= sizeof a.sun_path)
		return ENODEV;
	strcpy(a.sun_path, path);
	int err = 0, s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return errno;
	ssize_t n = -1;
	if (real.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) || real.setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) ||
		real.connect(s, (struct sockaddr *)&a, sizeof a) || real.send(s, &ask, sizeof ask, MSG_NOSIGNAL) < 0 || (n = real.recvmsg(s, &m, MSG_CMSG_CLOEXEC)) < 0)
		err = errno;
	struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int have = h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof *fd);
	if (have)
		memcpy(fd, CMSG_DATA(h), sizeof *fd);
	else if (!err)
		err = n == (ssize_t)sizeof r && r.status ? (int)r.status : EPROTO;
	real.close(s);
	return err;
}

static void begin(void)
{
#define FIND(name) real.name = (__typeof__(real.name))dlsym(RTLD_NEXT, #name);
	REAL(FIND)
#undef FIND
	const char *start = getenv("MCASTLAB_CLOCK");
	int fd;
	if (!start)
		return;
	if (getenv("MCASTLAB_TURNS")) {
		int late = turns_begin();
		if (late) {
			fprintf(stderr, "mcastlab: process %d has no turns in the lab's time: %s\n", getpid(), strerror(late));
			_exit(70);
		}
		epoch = strtoll(start, NULL, 10) * SECOND;
		return;
	}
	int err = receive_page(getenv("MCASTLAB_VERBS"), &fd);
	if (!err) {
		void *p = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			err = errno;
		else
			page = p;
		real.close(fd);
	}
	if (err)
		fprintf(stderr, "mcastlab: process %d sees the server's clock and not the lab's, which its node does not tell: %s\n", getpid(), strerror(err));
	epoch = strtoll(start, NULL, 10) * SECOND;
}

int lab_on(void)
{
	static _Atomic int state; // 1: somebody begins, 2: done
	int s = atomic_load(&state), none = 0;
	if (s == 2)
		return page != NULL || turns_on();
	if (atomic_compare_exchange_strong(&state, &none, 1)) {
		begin();
		atomic_store(&state, 2);
	}
	while (atomic_load(&state) != 2)
		syscall(SYS_sched_yield);
	return page != NULL || turns_on();
}

// look pays for a look at a clock, where that takes time.
static void look(void)
{
	if (turns_on())
		turns_look();
}

__attribute__((constructor)) static void start(void)
{
	if (lab_on())
		tsc_trap();
}

int64_t lab_epoch(clockid_t clock)
{
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_REALTIME_ALARM:
	case CLOCK_TAI:
		return epoch;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_BOOTTIME:
	case CLOCK_BOOTTIME_ALARM:
		return UPTIME;
	}
	return -1; // processor time, or another process's
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int64_t zero;
	if (!lab_on())
		return real.clock_gettime(clock, t);
	if ((zero = lab_epoch(clock)) < 0)
		return syscall(SYS_clock_gettime, clock, t);
	look();
	*t = timespec_of(zero + lab_now());
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	if (!lab_on())
		return real.gettimeofday(t, zone);
	look();
	int64_t ns = epoch + lab_now();
	*t = (struct timeval){ns / SECOND, ns % SECOND / 1000};
	if (zone)
		memset(zone, 0, sizeof(struct timezone));
	return 0;
}

time_t time(time_t *t)
{
	if (!lab_on())
		return real.time(t);
	look();
	time_t s = (epoch + lab_now()) / SECOND;
	if (t)
		*t = s;
	return s;
}

int timespec_get(struct timespec *t, int base)
{
	if (!lab_on() || base != TIME_UTC)
		return real.timespec_get(t, base);
	look();
	*t = timespec_of(epoch + lab_now());
	return base;
}
