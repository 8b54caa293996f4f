// SPDX-License-Identifier: Apache-2.0

// Does a thread that makes no calls compute, or poll memory until another thread changes it? Computing takes no lab time, and its
// processor time differs from run to run, so the answer must not depend on that. A thread that polls returns to the same few states again
// and again: the same instruction with the same registers. A thread that computes advances, and so do its registers. A burst of samples
// decides. One counts only if the thread has run since the one before: it has used processor time, and has not lost its processor, which
// it does where a signal's handler ends.
#include "time.h"

#include <sys/syscall.h>
#include <ucontext.h>

// EVERY is the time from the end of a sample to the next one in nanoseconds, RAN the least processor time of it. Of at least LEAST samples half have to be
// of states seen before.
enum { EVERY = 50000, RAN = 30000, LEAST = 32, MOST = 64 };

static __thread uint64_t states[MOST];
static __thread int samples, known;
static __thread int64_t ran;   // processor time at the end of the last sample
static __thread long switches; // how often the thread had lost its processor then

static int64_t processor_time(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static long switched(void)
{
	struct rusage u = {0};
	syscall(SYS_getrusage, RUSAGE_THREAD, &u);
	return u.ru_nvcsw + u.ru_nivcsw;
}

// state is a hash of a thread's instruction and its registers; 0 where they are not known.
static uint64_t state(const ucontext_t *u)
{
	uint64_t h = 0;
#if defined(__x86_64__)
	for (int i = 0; i <= REG_RIP; i++)
		h = (h ^ (uint64_t)u->uc_mcontext.gregs[i]) * 0x9e3779b97f4a7c15 ^ h >> 29;
#elif defined(__aarch64__)
	for (int i = 0; i < 31; i++)
		h = (h ^ u->uc_mcontext.regs[i]) * 0x9e3779b97f4a7c15 ^ h >> 29;
	h = ((h ^ u->uc_mcontext.sp) * 0x9e3779b97f4a7c15 ^ u->uc_mcontext.pc) * 0x9e3779b97f4a7c15;
#endif
	return h;
}

// next has a sample taken after a while.
static void next(timer_t burst)
{
	struct itimerspec once = {{0, 0}, {0, EVERY}};
	real.timer_settime(burst, 0, &once, NULL);
	switches = switched();
	ran = processor_time();
}

void spin_begin(timer_t burst)
{
	samples = known = 0;
	next(burst);
}

void spin_end(timer_t burst)
{
	struct itimerspec never = {{0, 0}, {0, 0}};
	real.timer_settime(burst, 0, &never, NULL);
}

int spin_found(timer_t burst, const void *context)
{
	int64_t used = processor_time() - ran;
	int i = 0;
	if (used >= RAN && switched() == switches) { // else its state may be that of the sample before
		uint64_t h = state(context);
		while (i < samples && states[i] != h)
			i++;
		known += i < samples;
		states[samples++] = h;
	}
	if (samples >= LEAST && known * 2 >= samples)
		return 1;
	if (samples < MOST)
		next(burst);
	return 0;
}
