// SPDX-License-Identifier: Apache-2.0

// Calls that may block for something outside the lab, of a program that has turns: sockets, pipes, children. The thread waits in
// turns, and checks its condition when the node asks it to: while no other program runs, so that it does not matter which of two was
// faster.
#include "time.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "../protocol.h"
#include "block.h"

enum kind kind_of(int fd)
{
	struct stat st;
	int domain, type;
	socklen_t size = sizeof domain;
	if (fstat(fd, &st) || seat_serves(&st))
		return PLAIN;
	if (S_ISFIFO(st.st_mode))
		return PIPE;
	if (!S_ISSOCK(st.st_mode))
		return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && !isatty(fd)) ? PLAIN : OTHER;
	if (real.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size))
		return LOCAL;
	if (domain == AF_INET || domain == AF_INET6)
		return NETWORK;
	size = sizeof type;
	if (domain != AF_UNIX || real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_SEQPACKET)
		return LOCAL;
	struct sockaddr_un peer;
	size = sizeof peer;
	if (getpeername(fd, (struct sockaddr *)&peer, &size))
		return LOCAL;
	return size > offsetof(struct sockaddr_un, sun_path) ? PLAIN : NIC; // a pair has no names
}

static int active(void)
{
	return lab_on() && turns_on();
}

// glance is poll without waiting, of the NIC's descriptors alone unless all count. Signals do not end it.
static int glance(struct pollfd *fds, nfds_t n, const char *nic, int all)
{
	static const struct timespec none;
	if (all)
		return real.ppoll(fds, n, &none, NULL);
	struct pollfd some[n + 1];
	for (nfds_t i = 0; i < n; i++) {
		some[i] = fds[i];
		if (!nic[i])
			some[i].fd = -1;
		some[i].revents = 0;
	}
	int r = real.ppoll(some, n, &none, NULL);
	for (nfds_t i = 0; i < n; i++)
		fds[i].revents = some[i].revents;
	return r;
}

// polled is the condition that a poll checks.
struct polled {
	struct pollfd *fds;
	nfds_t n;
};

static int some_ready(void *arg)
{
	const struct polled *p = arg;
	return glance(p->fds, p->n, NULL, 1) != 0;
}

// mixed says that descriptors may stand for both, as one of epoll does; again is that of turns_wait_signals.
static int wait_for(struct pollfd *fds, nfds_t n, int64_t until, const sigset_t *mask, int mixed, int *again)
{
	char nic[n + 1];
	int nics = 0, all = lab_now() >= until;
	for (nfds_t i = 0; i < n; i++)
		nics += nic[i] = mixed || (fds[i].fd >= 0 && kind_of(fds[i].fd) == NIC);
	for (;;) {
		int r = glance(fds, n, nic, all);
		if (r)
			return r;
		if (lab_now() >= until) {
			if (mask && turns_signals(mask))
				return -1;
			if (all)
				turns_look(); // who looks again and again gets on
			return 0;
		}
		struct polled p = {fds, n};
		int outside = mixed || (nfds_t)nics < n;
		int why = outside || mask || signals_handled() ? turns_wait_signals(until_ps(until), nics > 0, outside ? some_ready : NULL, &p, mask, again)
							       : turns_wait(V_PARK_SLEEP, until_ps(until), 0, nics > 0);
		if (why < 0)
			return -1;
		all = why == V_WHY_OUTSIDE || lab_now() >= until;
	}
}

int turns_poll(struct pollfd *fds, nfds_t n, int64_t until, const sigset_t *mask)
{
	return wait_for(fds, n, until, mask, 0, NULL);
}

int turns_epoll(int ep, struct epoll_event *events, int max, int64_t until, const sigset_t *mask)
{
	struct pollfd p = {ep, POLLIN, 0};
	int r = wait_for(&p, 1, until, mask, 1, NULL);
	return r < 0 ? r : real.epoll_pwait(ep, events, max, 0, NULL);
}

int turns_select(int n, fd_set *in, fd_set *out, fd_set *except, int64_t until, const sigset_t *mask)
{
	static const short events[3] = {POLLIN, POLLOUT, POLLPRI}, shows[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
	fd_set *sets[3] = {in, out, except};
	struct pollfd *fds = calloc(n + 1, sizeof *fds);
	int used = 0, count = 0;
	if (!fds)
		return -1;
	for (int fd = 0; fd < n; fd++) {
		short e = 0;
		for (int i = 0; i < 3; i++)
			if (sets[i] && FD_ISSET(fd, sets[i]))
				e |= events[i];
		if (e)
			fds[used++] = (struct pollfd){fd, e, 0};
	}
	int r = wait_for(fds, used, until, mask, 0, NULL), err = errno;
	for (int k = 0; r >= 0 && k < used; k++)
		if (fds[k].revents & POLLNVAL) {
			r = -1;
			err = EBADF;
		}
	for (int i = 0; r >= 0 && i < 3; i++)
		for (int k = 0; sets[i] && k < used; k++)
			if (FD_ISSET(fds[k].fd, sets[i])) {
				if (fds[k].revents & shows[i])
					count++;
				else
					FD_CLR(fds[k].fd, sets[i]);
			}
	free(fds);
	errno = err;
	return r < 0 ? -1 : count;
}

int await_ready(int fd, short events)
{
	struct pollfd p = {fd, events, 0};
	int err = errno, r, again = 0;
	do
		r = wait_for(&p, 1, FOREVER, NULL, 0, &again);
	while (r < 0 && errno == EINTR && again);
	if (r < 0 && errno == EINTR)
		return -1;
	errno = err;
	return 0;
}

int blocks(int fd)
{
	int err = errno, fl = fcntl(fd, F_GETFL);
	errno = err;
	return fl >= 0 && !(fl & O_NONBLOCK);
}

// await waits until a descriptor that blocks has something, and returns -1 with EINTR if a signal ends that; 1: what is read next is part of the turn.
static int await(int fd, short events)
{
	if (!active() || !blocks(fd))
		return 0;
	int err = errno;
	enum kind k = kind_of(fd);
	errno = err;
	return k == PLAIN ? 1 : await_ready(fd, events);
}

void touch(int fd, enum kind k)
{
	if (k >= NETWORK)
		turns_touch(k == NETWORK ? fd : -1);
}

// wrote notes that others may see something new.
static void wrote(int fd)
{
	if (!active())
		return;
	int err = errno;
	touch(fd, kind_of(fd));
	errno = err;
}

// took notes that bytes have come: the program waits for something else from now on.
static ssize_t took(ssize_t n)
{
	if (n > 0 && active())
		turns_progress();
	return n;
}

// TAKES waits for something to read, if the call would, and reads it.
#define TAKES(fd, flags, call) \
	do { \
		lab_on(); \
		int how_ = (flags) & MSG_DONTWAIT ? 0 : await(fd, POLLIN); \
		return how_ < 0 ? -1 : took(PART(how_, ssize_t, call)); \
	} while (0)

ssize_t read(int fd, void *b, size_t n)
{
	TAKES(fd, 0, real.read(fd, b, n));
}

ssize_t readv(int fd, const struct iovec *io, int n)
{
	TAKES(fd, 0, real.readv(fd, io, n));
}

ssize_t recv(int fd, void *b, size_t n, int flags)
{
	TAKES(fd, flags, real.recv(fd, b, n, flags));
}

ssize_t recvfrom(int fd, void *restrict b, size_t n, int flags, struct sockaddr *restrict a, socklen_t *restrict size)
{
	TAKES(fd, flags, real.recvfrom(fd, b, n, flags, a, size));
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	TAKES(fd, flags, real.recvmsg(fd, m, flags));
}

// Programs that were built with _FORTIFY_SOURCE call these.
ssize_t __read_chk(int fd, void *b, size_t n, size_t size);
ssize_t __read_chk(int fd, void *b, size_t n, size_t size)
{
	if (n > size)
		abort();
	return read(fd, b, n);
}

ssize_t __recv_chk(int fd, void *b, size_t n, size_t size, int flags);
ssize_t __recv_chk(int fd, void *b, size_t n, size_t size, int flags)
{
	if (n > size)
		abort();
	return recv(fd, b, n, flags);
}

ssize_t __recvfrom_chk(int fd, void *restrict b, size_t n, size_t size, int flags, struct sockaddr *restrict a, socklen_t *restrict length);
ssize_t __recvfrom_chk(int fd, void *restrict b, size_t n, size_t size, int flags, struct sockaddr *restrict a, socklen_t *restrict length)
{
	if (n > size)
		abort();
	return recvfrom(fd, b, n, flags, a, length);
}

int accept(int fd, struct sockaddr *restrict a, socklen_t *restrict size)
{
	if (await(fd, POLLIN) < 0)
		return -1;
	return real.accept(fd, a, size);
}

int accept4(int fd, struct sockaddr *restrict a, socklen_t *restrict size, int flags)
{
	if (await(fd, POLLIN) < 0)
		return -1;
	return real.accept4(fd, a, size, flags);
}

int connect(int fd, const struct sockaddr *a, socklen_t size)
{
	lab_on();
	int r = real.connect(fd, a, size);
	wrote(fd);
	return r;
}

int shutdown(int fd, int how)
{
	lab_on();
	wrote(fd);
	return real.shutdown(fd, how);
}

static int locks; // the process has locked files, which closing unlocks

int close(int fd)
{
	if (active() && (locks || kind_of(fd) >= NETWORK))
		turns_touch(-1);
	return real.close(fd);
}

// locked is a file that a call waits to lock.
struct locked {
	int fd, how, err;
};

static int some_lock(void *arg)
{
	struct locked *l = arg;
	l->err = real.flock(l->fd, l->how | LOCK_NB) ? errno : 0;
	return l->err != EWOULDBLOCK;
}

int flock(int fd, int how)
{
	struct locked l = {fd, how, 0};
	if (!active())
		return real.flock(fd, how);
	locks = 1;
	if ((how & ~LOCK_NB) == LOCK_UN)
		turns_touch(-1);
	if (how & (LOCK_NB | LOCK_UN))
		return real.flock(fd, how);
	for (int again = 0; some_lock(&l), l.err == EWOULDBLOCK;)
		if (turns_wait_signals(INT64_MAX, 0, some_lock, &l, NULL, &again) < 0 && !again)
			return -1;
	errno = l.err ? l.err : errno;
	return l.err ? -1 : 0;
}

// children are those of which a call waits for one.
struct children {
	idtype_t type;
	id_t id;
	int options;
};

static int some_changed(void *arg)
{
	const struct children *c = arg;
	siginfo_t info = {.si_pid = 0};
	return real.waitid(c->type, c->id, &info, c->options | WNOHANG | WNOWAIT) || info.si_pid;
}

// child waits for a child until one is as asked for.
static pid_t child(pid_t pid, int *status, int options, struct rusage *usage)
{
	if (!active() || options & WNOHANG)
		return real.wait4(pid, status, options, usage);
	struct children c = {pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID, pid > 0 ? pid : pid == -1 ? 0 : -pid,
		WEXITED | (options & WUNTRACED ? WSTOPPED : 0) | (options & WCONTINUED)};
	for (int again = 0;;) {
		if (turns_wait_signals(INT64_MAX, 0, some_changed, &c, NULL, &again) < 0 && !again)
			return -1;
		pid_t r = real.wait4(pid, status, options | WNOHANG, usage);
		if (r)
			return r;
	}
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	return child(pid, status, options, usage);
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
	return child(-1, status, options, usage);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return child(pid, status, options, NULL);
}

pid_t wait(int *status)
{
	return child(-1, status, 0, NULL);
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	siginfo_t own;
	if (!active() || options & WNOHANG)
		return real.waitid(type, id, info, options);
	struct children c = {type, id, options & (WEXITED | WSTOPPED | WCONTINUED)};
	for (int again = 0;;) {
		if (turns_wait_signals(INT64_MAX, 0, some_changed, &c, NULL, &again) < 0 && !again)
			return -1;
		own.si_pid = 0;
		if (real.waitid(type, id, &own, options | WNOHANG))
			return -1;
		if (own.si_pid) {
			if (info)
				*info = own;
			return 0;
		}
	}
}

pid_t fork(void)
{
	lab_on();
	pid_t pid = real.fork();
	if (pid > 0)
		turns_started(pid);
	return pid;
}

int turns_system(const char *command)
{
	int status = -1;
	if (!command)
		return 1;
	pid_t pid = fork();
	if (!pid) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 ? -1 : status;
}

// A child of vfork may do nothing but start a program, so it does not notice that it has memory of its own.
pid_t vfork(void)
{
	return fork();
}
