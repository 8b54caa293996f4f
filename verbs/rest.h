// SPDX-License-Identifier: Apache-2.0

// How a thread that polls without end gives the processors to others: the lab's nodes, which bring the events that it
// waits for. It sleeps and does not yield: with 16 ranks of MPI that yielded on two cores, Linux 6.18 let no other process
// run for up to 48 s.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A wait: how often a thread has looked in vain, and since when, in ns of the wall clock.
struct wait {
	long looks, since;
};

// rest_wall is the wall clock, whatever this program's clocks show.
static inline long rest_wall(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

// rest sleeps at every look from the given one on, a small part of the time that has been waited, on the wall clock, so that
// in a lab whose clock is slow, too, a wait is as good as exact.
static inline void rest(struct wait *w, long from)
{
	if (!w->looks++)
		w->since = rest_wall();
	if (w->looks < from)
		return;
	long ns = (rest_wall() - w->since) / 64;
	struct timespec t = {0, ns < 20000 ? 20000 : ns > 5000000 ? 5000000 : ns};
	syscall(SYS_nanosleep, &t, NULL);
}
