// SPDX-License-Identifier: Apache-2.0

// Declarations that the files of libmcasttime.so share. Times are int64_t nanoseconds; "mono" is CLOCK_MONOTONIC of the server,
// "lab" is the lab's time.
#ifndef MCASTLAB_TIME_H
#define MCASTLAB_TIME_H
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden) // what is shared here is not the program's

// The C library's own, of what this library exports under the same name.
#define REAL(X) \
	X(clock_gettime) X(gettimeofday) X(time) X(timespec_get) \
	X(clock_nanosleep) X(nanosleep) X(sleep) X(usleep) \
	X(poll) X(ppoll) X(select) X(pselect) X(epoll_wait) X(epoll_pwait) X(sigtimedwait) \
	X(pthread_cond_timedwait) X(pthread_cond_clockwait) X(sem_timedwait) X(sem_clockwait) \
	X(pthread_mutex_timedlock) X(pthread_mutex_clocklock) X(pthread_rwlock_timedrdlock) X(pthread_rwlock_clockrdlock) \
	X(pthread_rwlock_timedwrlock) X(pthread_rwlock_clockwrlock) X(pthread_timedjoin_np) X(pthread_clockjoin_np) \
	X(mtx_timedlock) X(cnd_timedwait) X(thrd_sleep) X(setsockopt) X(getsockopt) \
	X(timerfd_settime) X(timerfd_gettime) X(setitimer) X(getitimer) X(alarm) \
	X(timer_create) X(timer_settime) X(timer_gettime) X(timer_getoverrun) X(timer_delete) \
	X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(accept) X(accept4) X(write) X(writev) X(send) X(sendto) X(sendmsg) X(connect) X(close) X(shutdown) X(flock) \
	X(wait4) X(waitid) X(fork) \
	X(pthread_create) X(pthread_join) X(pthread_mutex_lock) X(pthread_mutex_unlock) \
	X(pthread_rwlock_rdlock) X(pthread_rwlock_wrlock) X(pthread_rwlock_unlock) X(sem_wait) X(sem_post) \
	X(pthread_cond_wait) X(pthread_cond_signal) X(pthread_cond_broadcast) \
	X(pthread_spin_lock) X(pthread_spin_unlock) X(pthread_once) X(sched_yield) \
	X(pthread_barrier_init) X(pthread_barrier_wait) X(pthread_barrier_destroy) \
	X(thrd_create) X(thrd_join) X(mtx_lock) X(mtx_unlock) X(cnd_wait) X(cnd_signal) X(cnd_broadcast) X(call_once) \
	X(sigaction) X(signal) X(sigprocmask) X(pthread_sigmask) X(sigsuspend) X(pause) X(sigwait) X(sigwaitinfo) \
	X(kill) X(sigqueue) X(pthread_kill) \
	X(execve) X(execvpe) X(fexecve) X(posix_spawn) X(posix_spawnp) X(system) X(popen) X(pclose)

struct real {
#define MEMBER(name) __typeof__(&name) name;
	REAL(MEMBER)
#undef MEMBER
};

extern struct real real;

enum { SECOND = 1000000000 };

// lab_on reports whether the program is shown lab time, and sees to it that real is filled in.
int lab_on(void);

int64_t mono_now(void);
int64_t lab_now(void);
int64_t lab_at(int64_t mono);
long double lab_ps_at(int64_t mono); // in picoseconds, and parts of them
int64_t piece(int64_t lab);          // how long to wait on the server's clock for an instant of the lab's, or for a part of that
int64_t lab_wait(int64_t lab);       // how much longer to wait on the wall clock for an instant: at least 1

// The clocks that tell no date do not begin at 0: programs take a reading of no seconds for none (MPI_Wtime of Open MPI).
#define UPTIME (1000ll * SECOND)

// lab_epoch returns what a clock shows when the lab's time is 0, or -1 if the clock does not show the lab's time.
int64_t lab_epoch(clockid_t clock);

// A wait is cut into pieces, since the rate of lab time may change meanwhile.
enum { PIECE = 1000000000 };

// FOREVER is longer than any lab lives, and may be added to a lab time.
#define FOREVER (INT64_MAX / 4)

static inline int64_t ns_of(const struct timespec *t)
{
	return t->tv_sec > FOREVER / SECOND ? FOREVER : t->tv_sec * SECOND + t->tv_nsec;
}

static inline struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){ns / SECOND, ns % SECOND};
}

static inline int valid(const struct timespec *t)
{
	return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < SECOND;
}

// Turns (turns.c). turns_on reports whether the process has them; turns_begin gives it them if its environment says so, and
// returns an errno.
int turns_on(void);
int turns_begin(void);
int64_t turns_ps(void);       // lab time in picoseconds
void turns_look(void);        // pays for a look at a clock
void turns_yield(void);       // a look at what other threads have done
void turns_touch(int fd);     // notes that others may see something new: at a socket, or (-1) elsewhere
void turns_release(void);     // notes that the thread has given something that another thread of the process waits for
void turns_back(void);        // takes a turn again, if it was given on
void turns_progress(void);    // notes that the thread does not only look: for what it has seen, or done
void turns_started(int pid);  // says that a process was started

// turns_wait waits, until an instant at the latest, and returns why it is over (V_WHY_TIME and others). events: an
// event of the NIC ends the wait, too.
int turns_wait(int kind, int64_t until_ps, int64_t grid_ps, int events);

// turns_beside waits for another thread of the process, until an instant. again: it has just looked for what it waits for, and
// done nothing else since the last such wait.
void turns_beside(int64_t until_ps, int again);

// turns_wait_outside waits until ready, which looks at what is outside the lab, returns other than 0, as turns_wait does.
int turns_wait_outside(int64_t until_ps, int events, int (*ready)(void *), void *arg);

// turns_wait_signals does so too, with a mask of signals in place of the thread's unless it is NULL. It returns -1 with EINTR if the
// program has handled signals, and by *again whether a call that Linux may begin again does so. Without ready it waits for signals alone.
int turns_wait_signals(int64_t until_ps, int events, int (*ready)(void *), void *arg, const sigset_t *mask, int *again);

int turns_signals(const sigset_t *mask);                    // has signals handled that a mask lets in, and reports whether there were any
int signals_handled(void);                                  // reports whether the program handles any
void signals_set(int sig, const struct sigaction *a);       // notes what the program does with one
int turns_sigtimedwait(const sigset_t *set, siginfo_t *info, int64_t until);
void turns_dies(int pid);                                   // says that a process dies of a signal that it was sent
// Samples of a thread that calls nobody (spin.c), by a timer of the server's clock that signals it. spin_found takes one, with the
// context of the signal's handler: 1 if the thread only looks at memory. It ends the samples when there are enough.
void spin_begin(timer_t burst);
void spin_end(timer_t burst);
int spin_found(timer_t burst, const void *context);

// Timers (expire.c): they are set and asked for as by timer_settime and timer_gettime, if turns_timer_known, or as by setitimer.
int turns_timer_known(timer_t id);
int turns_timer(timer_t id, int flags, const struct itimerspec *set, struct itimerspec *old);
int turns_timer_rest(timer_t id, struct itimerspec *rest);
void turns_alarm(const struct itimerspec *set, struct itimerspec *old);
void turns_alarm_rest(struct itimerspec *rest);
void turns_forget_timers(void);                             // a new process has none

// A thread's seat (seat.c), by which its node sees that it sleeps in the kernel. seat_take makes one, whose descriptors the node is to have.
struct stat;
void seat_take(int fds[2]);
void seat_leave(void);
void seat_busy(int more);                    // 1: what follows is part of the turn, however long it takes; -1: no longer
int seat_asleep(void);                       // the turn was given on while the thread slept
void seat_says(void);                        // before each message but the first
void seat_awake(void);                       // it asks for another
int seat_serves(const struct stat *st);      // a pipe that the server reads from at any time

// until_ps returns an instant as turns_wait has it.
static inline int64_t until_ps(int64_t lab)
{
	return lab > INT64_MAX / 1000 ? INT64_MAX : lab * 1000;
}

void turns_come(void);          // has a thread take part that does not yet
void turns_begin_thread(unsigned number); // what a new thread does first, of which another has announced that it comes
void turns_end(void);           // what it does last
void turns_forget_threads(void); // in a child: it has none but the one that forked
void turns_leave_at_end(void);  // sees to it that the thread does that
unsigned turns_expect_thread(void); // what another does before it begins: it returns its number
void turns_expect_none(void);   // what that does if it does not

// Waits for other threads, until an instant: they return an errno.
int turns_join(pthread_t t, void **value, int64_t until);
int turns_mutex(pthread_mutex_t *m, int64_t until);
int turns_rdlock(pthread_rwlock_t *l, int64_t until);
int turns_wrlock(pthread_rwlock_t *l, int64_t until);
int turns_sem(sem_t *s, int64_t until);
int turns_cond(pthread_cond_t *c, pthread_mutex_t *m, int64_t until);

int turns_system(const char *command); // system, whose shell has turns
FILE *turns_popen(const char *command, const char *mode);

// turns_unserved says that a call has no part in turns, and returns -1 with ENOTSUP.
int turns_unserved(const char *call);

// turns_poll is poll until an instant, with EINTR for a signal; turns_select and turns_epoll are select and epoll_wait.
int turns_poll(struct pollfd *fds, nfds_t n, int64_t until, const sigset_t *mask);
int turns_select(int n, fd_set *in, fd_set *out, fd_set *except, int64_t until, const sigset_t *mask);
int turns_epoll(int ep, struct epoll_event *events, int max, int64_t until, const sigset_t *mask);

// tsc_open returns a mask without the signal of the trap.
sigset_t tsc_open(const sigset_t *mask);

// tsc_trap has rdtsc show the lab's time, too.
void tsc_trap(void);
#pragma GCC visibility pop
#endif
