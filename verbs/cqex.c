// SPDX-License-Identifier: Apache-2.0

// Extended completion queues: between start_poll and end_poll the queue is locked, and tail moves only with end_poll.
#include "internal.h"

#include <arpa/inet.h>

static struct cq *of(struct ibv_cq_ex *x)
{
	return (struct cq *)x;
}

// load makes the next completion the current one, if there is one.
static int load(struct cq *q)
{
	if (q->next_at == atomic_load_explicit(&q->ring->head, memory_order_acquire))
		return ENOENT;
	q->now = q->e[q->next_at++ & (q->entries - 1)];
	q->x.wr_id = q->now.wr_id;
	q->x.status = q->now.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *a)
{
	struct cq *q = of(x);
	if (a && a->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&q->lock);
	q->next_at = atomic_load_explicit(&q->ring->tail, memory_order_relaxed);
	int err = load(q);
	if (err) {
		pthread_mutex_unlock(&q->lock);
		verbs_idle();
	} else {
		verbs_found();
	}
	return err;
}

static int next_poll(struct ibv_cq_ex *x)
{
	return load(of(x));
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct cq *q = of(x);
	atomic_store(&q->ring->tail, q->next_at);
	int starved = atomic_exchange(&q->ring->starved, 0);
	pthread_mutex_unlock(&q->lock);
	if (starved)
		verbs_ring(context_of(x->context));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *x)
{
	return of(x)->now.opcode;
}

static uint32_t read_byte_len(struct ibv_cq_ex *x)
{
	return of(x)->now.byte_len;
}

// The immediate in network order, or the key that was taken back in the host's.
static __be32 read_imm(struct ibv_cq_ex *x)
{
	const struct v_completion *e = &of(x)->now;
	return e->flags & V_WC_INV ? e->imm : htonl(e->imm);
}

static uint32_t read_qp_num(struct ibv_cq_ex *x)
{
	return of(x)->now.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *x)
{
	return of(x)->now.src_qp;
}

static unsigned read_flags(struct ibv_cq_ex *x)
{
	return verbs_wc_flags(of(x)->now.flags);
}

static uint64_t read_ts(struct ibv_cq_ex *x)
{
	return of(x)->now.ns;
}

static uint8_t read_sl(struct ibv_cq_ex *x)
{
	return verbs_sl(context_of(x->context), of(x)->now.flags);
}

// Vendor errors, and what InfiniBand has and RoCE has not: LIDs.
static uint32_t zero32(struct ibv_cq_ex *x)
{
	(void)x;
	return 0;
}

static uint8_t zero8(struct ibv_cq_ex *x)
{
	(void)x;
	return 0;
}

// A call that the program has not asked for, as the manual has it, must not be made; here all stay that there are.
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
	if ((a->wc_flags & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) ||
		(a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
		((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (a->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct ibv_pd *parent = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? a->parent_domain : NULL;
	if (a->cqe > INT32_MAX || ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && !verbs_is_parent_domain(parent, c))) {
		errno = EINVAL;
		return NULL;
	}
	struct ibv_cq *cq = ibv_create_cq(c, a->cqe, a->cq_context, a->channel, a->comp_vector);
	if (!cq)
		return NULL;
	struct ibv_cq_ex *x = (struct ibv_cq_ex *)cq;
	of(x)->parent = parent;
	if (parent)
		verbs_hold(parent);
	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = zero32;
	x->read_byte_len = read_byte_len;
	x->read_imm_data = read_imm;
	x->read_qp_num = read_qp_num;
	x->read_src_qp = read_src_qp;
	x->read_wc_flags = read_flags;
	x->read_slid = zero32;
	x->read_sl = read_sl;
	x->read_dlid_path_bits = zero8;
	x->read_completion_ts = read_ts;
	return x;
}
