// SPDX-License-Identifier: Apache-2.0

// The socket of a connection to the NIC. librdmacm has one of its own.
#include "internal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// failure returns EIO if the NIC is gone, and else errno.
static int failure(void)
{
	return errno == EPIPE || errno == ECONNRESET ? EIO : errno;
}

// verbs_exchange sends a request, with a descriptor if fd is not -1, and takes the reply and exactly nfds descriptors.
int verbs_exchange(int sock, const void *request, size_t size, int fd, void *reply, size_t reply_size, int *fds, int nfds)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec io = {(void *)request, size};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	int got[4], n = 0;
	ssize_t r;
	if (fd >= 0) {
		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(sizeof fd);
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(h), &fd, sizeof fd);
	}
	while ((r = sendmsg(sock, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (r < 0)
		return failure();
	io = (struct iovec){reply, reply_size};
	m = (struct msghdr){.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	while ((r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (r < 0)
		return failure();
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	if (r && h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(got, CMSG_DATA(h), n * sizeof(int));
	}
	uint32_t status = EIO; // the NIC has gone, or answered something else
	if ((size_t)r >= sizeof status)
		memcpy(&status, reply, sizeof status);
	if (!status && (n != nfds || (size_t)r != reply_size))
		status = EIO;
	for (int i = 0; i < n && status; i++)
		close(got[i]);
	if (!status && n)
		memcpy(fds, got, n * sizeof(int));
	return status;
}

int verbs_connect(const char *path, int *sock, struct v_device *attr, int fds[3])
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct v_hello hello = {V_HELLO, V_VERSION};
	if (strlen(path) >= sizeof a.sun_path)
		return ENAMETOOLONG;
	strcpy(a.sun_path, path);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return errno;
	int mem = -1, err = 0;
	if (connect(s, (struct sockaddr *)&a, sizeof a) || (mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC)) < 0)
		err = errno;
	if (!err)
		err = verbs_exchange(s, &hello, sizeof hello, mem, attr, sizeof *attr, fds, 3);
	if (mem >= 0)
		close(mem);
	if (!err && attr->version != V_VERSION) {
		for (int i = 0; i < 3; i++)
			close(fds[i]);
		err = EPROTO;
	}
	if (err)
		close(s);
	else
		*sock = s;
	return err;
}
