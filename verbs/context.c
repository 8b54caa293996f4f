// The connection to the NIC: a context has one of its own, and what it made goes when it is closed or the program dies.
#include "internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// exchange sends a request, with a descriptor if fd is not -1, and takes the reply and exactly nfds descriptors.
static int exchange(int sock, const void *request, size_t size, int fd, void *reply, size_t reply_size, int *fds, int nfds)
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
		return errno;
	io = (struct iovec){reply, reply_size};
	m = (struct msghdr){.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	while ((r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (r < 0)
		return errno;
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
		err = exchange(s, &hello, sizeof hello, mem, attr, sizeof *attr, fds, 3);
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

// verbs_call returns 0 or an errno, which it sets, too.
int verbs_call(struct context *c, const void *request, size_t size, void *reply, size_t reply_size, int *fds, int nfds)
{
	pthread_mutex_lock(&c->lock);
	int err = exchange(c->sock, request, size, -1, reply, reply_size, fds, nfds);
	pthread_mutex_unlock(&c->lock);
	if (err)
		errno = err;
	return err;
}

int verbs_simple(struct context *c, uint32_t op, uint32_t id)
{
	struct v_id m = {op, id};
	struct v_reply r;
	return verbs_call(c, &m, sizeof m, &r, sizeof r, NULL, 0);
}

// verbs_map maps a ring's memory, whose descriptor it takes over.
void *verbs_map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

void verbs_ring(struct context *c)
{
	atomic_thread_fence(memory_order_seq_cst); // what was posted is visible before asleep is looked at
	if (atomic_load(&c->page->asleep) && send(c->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; // it is full, so the NIC has been rung, or the NIC has gone
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct device *dev = (struct device *)d;
	struct context *c = calloc(1, sizeof *c);
	int fds[3], err;
	if (!c)
		return NULL;
	if ((err = verbs_connect(dev->path, &c->sock, &c->attr, fds))) {
		free(c);
		errno = err;
		return NULL;
	}
	c->bell = fds[1];
	c->page = verbs_map(fds[0], 4096);
	if (!c->page) {
		close(c->sock);
		close(c->bell);
		close(fds[2]);
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->objects, NULL);
	struct ibv_context *x = &c->verbs.context;
	atomic_fetch_add(&dev->users, 1);
	x->device = d;
	x->cmd_fd = c->sock;
	x->async_fd = fds[2];
	x->num_comp_vectors = 1;
	x->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&x->mutex, NULL);
	c->verbs.sz = sizeof c->verbs;
	verbs_fill_ops(c);
	return x;
}

int ibv_close_device(struct ibv_context *x)
{
	struct context *c = context_of(x);
	struct device *d = (struct device *)x->device;
	close(c->sock);
	close(c->bell);
	close(x->async_fd);
	munmap(c->page, 4096);
	if (atomic_fetch_sub(&d->users, 1) == 1)
		free(d);
	free(c);
	return 0;
}

// ibv_get_async_event waits for the next event of an object that still exists.
int ibv_get_async_event(struct ibv_context *x, struct ibv_async_event *e)
{
	struct context *c = context_of(x);
	struct v_event v;
	for (;;) {
		ssize_t n = read(x->async_fd, &v, sizeof v);
		if (n != sizeof v) {
			if (n >= 0)
				errno = EIO; // the NIC has gone
			return -1;
		}
		e->event_type = v.type;
		int found = v.type == IBV_EVENT_DEVICE_FATAL;
		pthread_mutex_lock(&c->objects);
		if (v.type == IBV_EVENT_CQ_ERR) {
			for (struct cq *q = c->cqs; q && !found; q = q->next)
				if (q->id == v.id) {
					e->element.cq = (struct ibv_cq *)&q->x;
					q->async_events++;
					found = 1;
				}
		} else {
			for (struct qp *q = c->qps; q && !found; q = q->next)
				if (q->x.qp_base.qp_num == v.id) {
					e->element.qp = &q->x.qp_base;
					q->events++;
					found = 1;
				}
		}
		pthread_mutex_unlock(&c->objects);
		if (found)
			return 0;
	}
}

// Destroying an object waits until its events have been acknowledged.
void ibv_ack_async_event(struct ibv_async_event *e)
{
	if (e->event_type == IBV_EVENT_DEVICE_FATAL)
		return;
	if (e->event_type == IBV_EVENT_CQ_ERR) {
		struct ibv_cq *q = e->element.cq;
		pthread_mutex_lock(&q->mutex);
		q->async_events_completed++;
		pthread_cond_broadcast(&q->cond);
		pthread_mutex_unlock(&q->mutex);
		return;
	}
	struct ibv_qp *q = e->element.qp;
	pthread_mutex_lock(&q->mutex);
	q->events_completed++;
	pthread_cond_broadcast(&q->cond);
	pthread_mutex_unlock(&q->mutex);
}
