// SPDX-License-Identifier: Apache-2.0

// The connection to the NIC: each context has one of its own, and its objects are destroyed when it is closed or the
// program dies.
#include "internal.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// verbs_call returns 0 or an errno, which it sets, too.
int verbs_call(struct context *c, const void *request, size_t size, void *reply, size_t reply_size, int *fds, int nfds)
{
	pthread_mutex_lock(&c->lock);
	int err = verbs_exchange(c->sock, request, size, -1, reply, reply_size, fds, nfds);
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

// find fills in the object of an event and reports whether it still exists.
static int find(struct context *c, const struct v_event *v, struct ibv_async_event *e)
{
	int found = v->type == IBV_EVENT_DEVICE_FATAL;
	e->event_type = v->type;
	pthread_mutex_lock(&c->objects);
	switch (v->type) {
	case IBV_EVENT_DEVICE_FATAL:
		break;
	case IBV_EVENT_CQ_ERR:
		for (struct cq *q = c->cqs; q && !found; q = q->next)
			if (q->id == v->id) {
				e->element.cq = (struct ibv_cq *)&q->x;
				q->async_events++;
				found = 1;
			}
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		for (struct srq *q = c->srqs; q && !found; q = q->next)
			if (q->id == v->id) {
				e->element.srq = &q->s;
				q->events++;
				found = 1;
			}
		break;
	default:
		for (struct qp *q = c->qps; q && !found; q = q->next)
			if (q->x.qp_base.qp_num == v->id) {
				e->element.qp = &q->x.qp_base;
				q->events++;
				found = 1;
			}
	}
	pthread_mutex_unlock(&c->objects);
	return found;
}

// orphan is called when the NIC is gone. No more events come, so in place of an end that is readable for ever there is one
// that never is: a program that waits for events would read failures without end.
static int orphan(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	int silent = eventfd(0, EFD_CLOEXEC | (flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
	if (silent < 0 || dup3(silent, fd, O_CLOEXEC) < 0)
		return -1;
	close(silent);
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
			if (n != 0 || orphan(x->async_fd))
				return -1;
			v = (struct v_event){.type = IBV_EVENT_DEVICE_FATAL};
		}
		if (find(c, &v, e))
			return 0;
	}
}

static void acknowledge(pthread_mutex_t *lock, pthread_cond_t *cond, uint32_t *count)
{
	pthread_mutex_lock(lock);
	++*count;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(lock);
}

// Destroying an object waits until its events have been acknowledged.
void ibv_ack_async_event(struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		return;
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *q = e->element.cq;
		acknowledge(&q->mutex, &q->cond, &q->async_events_completed);
		return;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *q = e->element.srq;
		acknowledge(&q->mutex, &q->cond, &q->events_completed);
		return;
	}
	default: {
		struct ibv_qp *q = e->element.qp;
		acknowledge(&q->mutex, &q->cond, &q->events_completed);
	}
	}
}
