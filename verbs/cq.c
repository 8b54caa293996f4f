// SPDX-License-Identifier: Apache-2.0

// Completion queues and channels.
#include "internal.h"
#include "rest.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *x)
{
	struct v_id m = {V_CREATE_CHANNEL, 0};
	struct v_reply r;
	int fd;
	struct channel *h = calloc(1, sizeof *h);
	if (!h || verbs_call(context_of(x), &m, sizeof m, &r, sizeof r, &fd, 1)) {
		free(h);
		return NULL;
	}
	h->c.context = x;
	h->c.fd = fd;
	h->id = r.id;
	return &h->c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *h)
{
	struct channel *c = (struct channel *)h;
	if (h->refcnt)
		return EBUSY;
	int err = verbs_simple(context_of(h->context), V_DESTROY_CHANNEL, c->id);
	if (!err) {
		close(h->fd);
		free(c);
	}
	return err;
}

// depth returns the depth of a queue whose ring has the given entries, for the given number of
// requested completions.
static int depth(uint32_t entries, int asked)
{
	return entries > (uint32_t)asked ? entries - 1 : entries;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *x, int cqe, void *cq_context, struct ibv_comp_channel *h, int vector)
{
	struct context *c = context_of(x);
	struct v_create_cq m = {V_CREATE_CQ, h ? ((struct channel *)h)->id : 0, cqe, 0};
	struct v_reply r;
	int fd;
	if (cqe < 1 || vector) {
		errno = EINVAL;
		return NULL;
	}
	struct cq *q = calloc(1, sizeof *q);
	if (!q || verbs_call(c, &m, sizeof m, &r, sizeof r, &fd, 1)) {
		free(q);
		return NULL;
	}
	q->id = r.id;
	q->entries = r.send;
	q->size = V_RING_HEADER + (size_t)q->entries * sizeof *q->e;
	q->ring = verbs_map(fd, q->size);
	if (!q->ring) {
		verbs_simple(c, V_DESTROY_CQ, q->id);
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	q->e = (struct v_completion *)(q->ring + 1);
	q->x.context = x;
	q->x.channel = h;
	q->x.cq_context = cq_context;
	q->x.handle = q->id;
	q->x.cqe = depth(q->entries, cqe);
	pthread_mutex_init(&q->x.mutex, NULL);
	pthread_cond_init(&q->x.cond, NULL);
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_lock(&c->objects);
	q->next = c->cqs;
	c->cqs = q;
	if (h)
		h->refcnt++;
	pthread_mutex_unlock(&c->objects);
	return (struct ibv_cq *)&q->x;
}

// settle lets datagrams go whose completions belong into a queue: a program counts them as there when the queue is to become smaller.
static void settle(struct context *c, const struct ibv_cq *cq)
{
	struct v_reply r;
	pthread_mutex_lock(&c->objects);
	for (const struct qp *q = c->qps; q; q = q->next)
		if (q->x.qp_base.send_cq == cq && q->x.qp_base.qp_type != IBV_QPT_RC) {
			struct v_id m = {V_UNSENT, q->x.qp_base.qp_num};
			verbs_let_go(c, &q->x.qp_base);
			verbs_call(c, &m, sizeof m, &r, sizeof r, NULL, 0); // is answered when they have been written
		}
	pthread_mutex_unlock(&c->objects);
}

// A queue is as large as its ring. It never becomes smaller, but what is in it must fit.
int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct cq *q = (struct cq *)cq;
	if (cqe < cq->cqe)
		settle(context_of(cq->context), cq);
	struct v_resize_cq m = {V_RESIZE_CQ, q->id, cqe};
	struct v_reply r;
	int fd, err;
	pthread_mutex_lock(&q->lock);
	if (cqe < 1 || (uint64_t)cqe < atomic_load(&q->ring->head) - atomic_load(&q->ring->tail))
		err = EINVAL;
	else if (cqe <= cq->cqe)
		err = 0;
	else if (!(err = verbs_call(context_of(cq->context), &m, sizeof m, &r, sizeof r, &fd, 1))) {
		size_t size = V_RING_HEADER + (size_t)r.send * sizeof *q->e;
		struct v_ring *ring = verbs_map(fd, size);
		if (!ring) // the NIC writes to a ring that nobody sees: nothing completes here any more
			err = ENOMEM;
		else {
			munmap(q->ring, q->size);
			q->ring = ring;
			q->size = size;
			q->entries = r.send;
			q->e = (struct v_completion *)(ring + 1);
			cq->cqe = depth(r.send, cqe);
		}
	}
	pthread_mutex_unlock(&q->lock);
	return err;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct cq *q = (struct cq *)cq;
	struct context *c = context_of(cq->context);
	int err = verbs_simple(c, V_DESTROY_CQ, q->id);
	if (err)
		return err;
	pthread_mutex_lock(&c->objects);
	for (struct cq **p = &c->cqs; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	if (cq->channel)
		cq->channel->refcnt--;
	pthread_mutex_unlock(&c->objects);
	pthread_mutex_lock(&cq->mutex);
	while (q->events != cq->comp_events_completed || q->async_events != cq->async_events_completed)
		pthread_cond_wait(&cq->cond, &cq->mutex);
	pthread_mutex_unlock(&cq->mutex);
	munmap(q->ring, q->size);
	if (q->parent)
		verbs_release(q->parent);
	free(q);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *h, struct ibv_cq **cq, void **cq_context)
{
	struct context *c = context_of(h->context);
	uint32_t id;
	for (;;) {
		ssize_t n = read(h->fd, &id, sizeof id);
		if (n != sizeof id) {
			if (n >= 0)
				errno = EIO; // the NIC has gone
			return -1;
		}
		struct cq *q;
		pthread_mutex_lock(&c->objects);
		for (q = c->cqs; q && q->id != id; q = q->next)
			;
		if (q)
			q->events++;
		pthread_mutex_unlock(&c->objects);
		if (!q)
			continue; // destroyed since
		*cq = (struct ibv_cq *)&q->x;
		*cq_context = q->x.cq_context;
		return 0;
	}
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

// libmcasttime.so has these, if it is loaded.
__attribute__((weak)) int mcastlab_poll(void);
__attribute__((weak)) void mcastlab_progress(void);

static __thread int polls;           // in vain, since the last rest or completion
static __thread struct wait waiting; // since the last completion

// A program that polls without end takes the processor from its NIC when there are few: it rests from time to time, and
// once it has rested, oftener: between two polls UCX's threads and Open MPI's progress yield, as rest.h says with what effect.
void verbs_idle(void)
{
	if (mcastlab_poll && mcastlab_poll())
		return; // in virtual time
	if (++polls >= (waiting.looks ? 8 : 64)) {
		polls = 0;
		rest(&waiting, 1);
	}
}

// verbs_progress informs the lab's clock that the thread does not only wait.
void verbs_progress(void)
{
	if (mcastlab_progress)
		mcastlab_progress();
}

// verbs_found ends a wait.
void verbs_found(void)
{
	verbs_progress();
	polls = 0;
	waiting.looks = 0;
}

int verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct cq *q = (struct cq *)cq;
	int n = 0;
	pthread_mutex_lock(&q->lock);
	uint64_t tail = atomic_load_explicit(&q->ring->tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&q->ring->head, memory_order_acquire);
	for (; n < max && tail != head; n++, tail++) {
		const struct v_completion *e = &q->e[tail & (q->entries - 1)];
		memset(&wc[n], 0, sizeof wc[n]);
		wc[n].wr_id = e->wr_id;
		wc[n].status = e->status;
		wc[n].opcode = e->opcode;
		wc[n].byte_len = e->byte_len;
		wc[n].qp_num = e->qpn;
		wc[n].src_qp = e->src_qp;
		wc[n].wc_flags = verbs_wc_flags(e->flags);
		wc[n].sl = verbs_sl(context_of(cq->context), e->flags);
		if (e->flags & V_WC_IMM)
			wc[n].imm_data = htonl(e->imm);
		if (e->flags & V_WC_INV)
			wc[n].invalidated_rkey = e->imm;
	}
	int starved = 0;
	if (n) {
		verbs_found();
		atomic_store(&q->ring->tail, tail);
		starved = atomic_exchange(&q->ring->starved, 0);
	}
	pthread_mutex_unlock(&q->lock);
	if (starved)
		verbs_ring(context_of(cq->context));
	if (!n)
		verbs_idle();
	return n;
}

// verbs_forget takes out what has not been polled of a queue pair that has been reset, as drivers do.
void verbs_forget(struct ibv_cq *cq, uint32_t qpn)
{
	struct cq *q = (struct cq *)cq;
	pthread_mutex_lock(&q->lock);
	uint64_t tail = atomic_load_explicit(&q->ring->tail, memory_order_relaxed);
	uint64_t to = atomic_load_explicit(&q->ring->head, memory_order_acquire);
	for (uint64_t at = to; at-- != tail;) // the NIC writes behind head only, so what stays moves there
		if (q->e[at & (q->entries - 1)].qpn != qpn && --to != at)
			q->e[to & (q->entries - 1)] = q->e[at & (q->entries - 1)];
	atomic_store(&q->ring->tail, to);
	int starved = to != tail && atomic_exchange(&q->ring->starved, 0);
	pthread_mutex_unlock(&q->lock);
	if (starved)
		verbs_ring(context_of(cq->context));
}

int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct cq *q = (struct cq *)cq;
	if (!cq->channel)
		return EINVAL;
	pthread_mutex_lock(&q->lock); // the ring stays
	if (!solicited_only) {
		atomic_store(&q->ring->armed, 2);
	} else {
		uint32_t no = 0;
		atomic_compare_exchange_strong(&q->ring->armed, &no, 1);
	}
	pthread_mutex_unlock(&q->lock);
	atomic_thread_fence(memory_order_seq_cst);
	return 0;
}
