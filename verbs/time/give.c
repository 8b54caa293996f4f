// SPDX-License-Identifier: Apache-2.0

// Calls that write to pipes and sockets, of a program that has turns. A call that would block since the other end does not read gives its
// turn away, and takes it again when there is room.
#include "time.h"

#include <sys/uio.h>

#include "block.h"

// wait_room waits until a descriptor has room. What the call has written so far ends it if a signal does.
static int wait_room(int fd, enum kind k)
{
	struct pollfd p = {fd, POLLOUT, 0};
	static const struct timespec none;
	if (real.ppoll(&p, 1, &none, NULL) != 0)
		return 0;
	int r = await_ready(fd, POLLOUT);
	touch(fd, k);
	return r;
}

// to_pipe writes pieces for each of which a pipe that is ready has room: PIPE_BUF bytes, which Linux does not part.
static ssize_t to_pipe(int fd, const char *b, size_t n)
{
	enum { PIECE_OF = 4096 };
	size_t done = 0;
	do {
		if (wait_room(fd, PIPE))
			return done ? (ssize_t)done : -1;
		ssize_t r = real.write(fd, b + done, n - done < PIECE_OF ? n - done : PIECE_OF);
		if (r < 0)
			return done ? (ssize_t)done : -1;
		done += r;
	} while (done < n);
	return done;
}

static int stream(int fd)
{
	int type = 0;
	socklen_t size = sizeof type;
	return !real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

// to_socket sends as the call does, and of a stream all there is.
static ssize_t to_socket(int fd, enum kind k, const struct msghdr *m, int flags)
{
	struct iovec io[m->msg_iovlen + 1];
	struct msghdr rest = *m;
	size_t done = 0;
	memcpy(io, m->msg_iov, m->msg_iovlen * sizeof *io);
	rest.msg_iov = io;
	for (;;) {
		ssize_t r = real.sendmsg(fd, &rest, flags | MSG_DONTWAIT);
		if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			struct pollfd p = {fd, POLLOUT, 0};
			static const struct timespec none;
			if (real.ppoll(&p, 1, &none, NULL) > 0 && !stream(fd)) { // it is the far end that has no room, which the socket does not show
				touch(fd, k);
				return real.sendmsg(fd, &rest, flags);
			}
			if (await_ready(fd, POLLOUT))
				return done ? (ssize_t)done : -1;
			touch(fd, k);
			continue;
		}
		if (r < 0)
			return done ? (ssize_t)done : -1;
		done += r;
		rest.msg_control = NULL;
		rest.msg_controllen = 0;
		while (rest.msg_iovlen && (size_t)r >= rest.msg_iov->iov_len) {
			r -= rest.msg_iov->iov_len;
			rest.msg_iov++;
			rest.msg_iovlen--;
		}
		if (!rest.msg_iovlen || !stream(fd))
			return done;
		rest.msg_iov->iov_base = (char *)rest.msg_iov->iov_base + r;
		rest.msg_iov->iov_len -= r;
	}
}

// gives reports whether a call may block that writes, by *k for what. It notes that others may see something new.
static int gives(int fd, int flags, enum kind *k)
{
	*k = OTHER;
	if (!lab_on() || !turns_on())
		return 0;
	int err = errno;
	*k = kind_of(fd);
	touch(fd, *k);
	errno = err;
	return *k >= NETWORK && *k != OTHER && !(flags & MSG_DONTWAIT) && blocks(fd);
}

ssize_t write(int fd, const void *b, size_t n)
{
	enum kind k;
	if (!gives(fd, 0, &k))
		return PART(k == PLAIN, ssize_t, real.write(fd, b, n));
	if (k == PIPE)
		return to_pipe(fd, b, n);
	struct iovec io = {(void *)b, n};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	return to_socket(fd, k, &m, 0);
}

ssize_t writev(int fd, const struct iovec *io, int n)
{
	enum kind k;
	if (!gives(fd, 0, &k) || n < 0 || n > 1024)
		return PART(k == PLAIN, ssize_t, real.writev(fd, io, n));
	if (k != PIPE) {
		struct msghdr m = {.msg_iov = (struct iovec *)io, .msg_iovlen = n};
		return to_socket(fd, k, &m, 0);
	}
	size_t all = 0, done = 0;
	for (int i = 0; i < n; i++)
		all += io[i].iov_len;
	if (all <= 4096)
		return wait_room(fd, k) ? -1 : real.writev(fd, io, n);
	for (int i = 0; i < n; i++) {
		ssize_t r = io[i].iov_len ? to_pipe(fd, io[i].iov_base, io[i].iov_len) : 0;
		if (r < 0)
			return done ? (ssize_t)done : -1;
		done += r;
		if ((size_t)r < io[i].iov_len)
			break;
	}
	return done;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	enum kind k;
	if (!gives(fd, flags, &k) || k == PIPE || m->msg_iovlen > 1024)
		return PART(k == PLAIN, ssize_t, real.sendmsg(fd, m, flags));
	return to_socket(fd, k, m, flags);
}

ssize_t sendto(int fd, const void *b, size_t n, int flags, const struct sockaddr *a, socklen_t size)
{
	enum kind k;
	if (!gives(fd, flags, &k) || k == PIPE)
		return PART(k == PLAIN, ssize_t, real.sendto(fd, b, n, flags, a, size));
	struct iovec io = {(void *)b, n};
	struct msghdr m = {.msg_name = (void *)a, .msg_namelen = size, .msg_iov = &io, .msg_iovlen = 1};
	return to_socket(fd, k, &m, flags);
}

ssize_t send(int fd, const void *b, size_t n, int flags)
{
	return sendto(fd, b, n, flags, NULL, 0);
}
