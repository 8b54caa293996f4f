// SPDX-License-Identifier: Apache-2.0

// Posting: requests are written to a ring, and the NIC takes them from there.
#include "internal.h"

#include <arpa/inet.h>

// verbs_takes reports whether the service has the operation.
int verbs_takes(enum ibv_qp_type type, enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return 1;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_SEND_WITH_INV:
		return type == IBV_QPT_RC;
	default:
		return 0;
	}
}

// verbs_fits reports whether a message has a length that its NIC sends. It answers requests that are longer by ending the queue
// pair.
int verbs_fits(const struct qp *q, enum ibv_wr_opcode op, uint64_t length)
{
	return length <= V_MESSAGE && (op != IBV_WR_RDMA_READ || length <= (uint64_t)V_PACKETS * q->mtu);
}

static uint64_t total(const struct ibv_sge *sg, int n)
{
	uint64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += sg[i].length;
	return sum;
}

static int put_inline(const struct qp *q, struct v_send *e, const struct ibv_sge *sg, int n)
{
	uint32_t at = 0;
	for (int i = 0; i < n; i++) {
		if (sg[i].length > q->cap.max_inline_data - at)
			return ENOMEM;
		memcpy(e->data + at, (void *)(uintptr_t)sg[i].addr, sg[i].length);
		at += sg[i].length;
	}
	e->inline_length = at;
	e->sges = 0;
	return 0;
}

static int fill(const struct qp *q, struct v_send *e, const struct ibv_send_wr *w)
{
	enum ibv_qp_type type = q->x.qp_base.qp_type;
	if (!verbs_takes(type, w->opcode))
		return EINVAL;
	if (w->num_sge < 0 || (uint32_t)w->num_sge > q->cap.max_send_sge)
		return EINVAL;
	e->wr_id = w->wr_id;
	e->opcode = w->opcode;
	e->flags = w->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
	e->imm = w->opcode == IBV_WR_SEND_WITH_INV ? w->invalidate_rkey : ntohl(w->imm_data);
	e->remote_addr = e->compare_add = e->swap = 0;
	e->rkey = e->ah = e->dest_qpn = e->qkey = e->inline_length = 0;
	if (type == IBV_QPT_UD) {
		if (!w->wr.ud.ah || w->wr.ud.ah->pd != q->x.qp_base.pd)
			return EINVAL;
		e->ah = ((struct ah *)w->wr.ud.ah)->id;
		e->dest_qpn = w->wr.ud.remote_qpn;
		e->qkey = w->wr.ud.remote_qkey;
	} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		e->remote_addr = w->wr.atomic.remote_addr;
		e->rkey = w->wr.atomic.rkey;
		e->compare_add = w->wr.atomic.compare_add;
		e->swap = w->wr.atomic.swap;
	} else {
		e->remote_addr = w->wr.rdma.remote_addr;
		e->rkey = w->wr.rdma.rkey;
	}
	if (w->send_flags & IBV_SEND_INLINE)
		return w->opcode >= IBV_WR_RDMA_READ && w->opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD ? EINVAL : put_inline(q, e, w->sg_list, w->num_sge);
	if (!verbs_fits(q, w->opcode, total(w->sg_list, w->num_sge)))
		return EINVAL;
	e->sges = w->num_sge;
	for (int i = 0; i < w->num_sge; i++)
		e->sge[i] = (struct v_sge){w->sg_list[i].addr, w->sg_list[i].length, w->sg_list[i].lkey};
	return 0;
}

static int post_send(struct ibv_qp *b, struct ibv_send_wr *w, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)b;
	int err = 0;
	if (b->state < IBV_QPS_RTS) { // RESET, INIT and RTR
		*bad = w;
		return EINVAL;
	}
	pthread_mutex_lock(&q->send_lock);
	uint64_t head = atomic_load_explicit(&q->sq->head, memory_order_relaxed);
	for (; w && !err; w = w->next) {
		if (head - atomic_load_explicit(&q->sq->tail, memory_order_acquire) >= q->sends)
			err = ENOMEM;
		else
			err = fill(q, &q->se[head & (q->sends - 1)], w);
		if (err)
			*bad = w;
		else
			head++;
	}
	atomic_store(&q->sq->head, head);
	pthread_mutex_unlock(&q->send_lock);
	if (!err)
		verbs_progress();
	verbs_ring(context_of(b->context));
	return err;
}

// post_to writes receives to a ring of n entries. The caller holds the ring's lock.
static int post_to(struct v_ring *ring, struct v_recv *entries, uint32_t n, uint32_t max_sge, struct ibv_recv_wr *w, struct ibv_recv_wr **bad)
{
	int err = 0;
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	for (; w; w = w->next) {
		if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) >= n)
			err = ENOMEM;
		else if (w->num_sge < 0 || (uint32_t)w->num_sge > max_sge || total(w->sg_list, w->num_sge) > V_MESSAGE)
			err = EINVAL;
		if (err) {
			*bad = w;
			break;
		}
		struct v_recv *e = &entries[head & (n - 1)];
		e->wr_id = w->wr_id;
		e->sges = w->num_sge;
		for (int i = 0; i < w->num_sge; i++)
			e->sge[i] = (struct v_sge){w->sg_list[i].addr, w->sg_list[i].length, w->sg_list[i].lkey};
		head++;
	}
	atomic_store(&ring->head, head);
	if (!err)
		verbs_progress();
	return err;
}

static int post_recv(struct ibv_qp *b, struct ibv_recv_wr *w, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)b;
	if (b->state == IBV_QPS_RESET || b->srq) {
		*bad = w;
		return EINVAL;
	}
	pthread_mutex_lock(&q->recv_lock);
	int err = post_to(q->rq, q->re, q->recvs, q->cap.max_recv_sge, w, bad);
	pthread_mutex_unlock(&q->recv_lock);
	verbs_ring(context_of(b->context));
	return err;
}

// Nothing is rung: the NIC looks here before it takes a frame, and no error flushes what is shared.
static int post_srq_recv(struct ibv_srq *s, struct ibv_recv_wr *w, struct ibv_recv_wr **bad)
{
	struct srq *q = (struct srq *)s;
	pthread_mutex_lock(&q->lock);
	int err = post_to(q->rq, q->re, q->recvs, q->max_sge, w, bad);
	pthread_mutex_unlock(&q->lock);
	return err;
}

void verbs_fill_post_ops(struct ibv_context_ops *ops)
{
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
}
