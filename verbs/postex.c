// SPDX-License-Identifier: Apache-2.0

// Posting by the calls of struct ibv_qp_ex: between wr_start and wr_complete the queue pair is locked, and head moves
// only with wr_complete.
#include "internal.h"

#include <arpa/inet.h>

static struct qp *of(struct ibv_qp_ex *x)
{
	return (struct qp *)x;
}

static void start(struct ibv_qp_ex *x)
{
	struct qp *q = of(x);
	pthread_mutex_lock(&q->send_lock);
	q->pending = atomic_load_explicit(&q->sq->head, memory_order_relaxed);
	q->last = NULL;
	q->failed = x->qp_base.state < IBV_QPS_RTS ? EINVAL : 0;
}

// begin returns the entry of a new request. After a failure it is the entry behind the last one that counts, so that
// the setters that follow have something to write to.
static struct v_send *begin(struct ibv_qp_ex *x, enum ibv_wr_opcode op)
{
	struct qp *q = of(x);
	if (!q->failed && q->pending - atomic_load_explicit(&q->sq->tail, memory_order_acquire) >= q->sends)
		q->failed = ENOMEM;
	static __thread struct v_send nowhere;
	struct v_send *e = q->failed ? &nowhere : &q->se[q->pending++ & (q->sends - 1)];
	memset(e, 0, offsetof(struct v_send, sge));
	e->wr_id = x->wr_id;
	e->opcode = op;
	e->flags = x->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	q->last = e;
	return e;
}

static void send_plain(struct ibv_qp_ex *x)
{
	begin(x, IBV_WR_SEND);
}

static void send_imm(struct ibv_qp_ex *x, __be32 imm)
{
	begin(x, IBV_WR_SEND_WITH_IMM)->imm = ntohl(imm);
}

static void send_inv(struct ibv_qp_ex *x, uint32_t key)
{
	begin(x, IBV_WR_SEND_WITH_INV)->imm = key;
}

static struct v_send *remote(struct ibv_qp_ex *x, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr)
{
	struct v_send *e = begin(x, op);
	e->rkey = rkey;
	e->remote_addr = addr;
	return e;
}

static void rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	remote(x, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm)
{
	remote(x, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm = ntohl(imm);
}

static void rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	remote(x, IBV_WR_RDMA_READ, rkey, addr);
}

static void compare_swap(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct v_send *e = remote(x, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);
	e->compare_add = compare;
	e->swap = swap;
}

static void fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t add)
{
	remote(x, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr)->compare_add = add;
}

static void set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *sg)
{
	struct qp *q = of(x);
	uint64_t length = 0;
	if (n > q->cap.max_send_sge) {
		q->failed = EINVAL;
		return;
	}
	q->last->sges = n;
	for (size_t i = 0; i < n; i++) {
		q->last->sge[i] = (struct v_sge){sg[i].addr, sg[i].length, sg[i].lkey};
		length += sg[i].length;
	}
	if (!verbs_fits(q, q->last->opcode, length))
		q->failed = EINVAL;
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge s = {addr, length, lkey};
	set_sge_list(x, 1, &s);
}

static void set_inline_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *buf)
{
	struct qp *q = of(x);
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		if (buf[i].length > q->cap.max_inline_data - at) {
			q->failed = ENOMEM;
			return;
		}
		memcpy(q->last->data + at, buf[i].addr, buf[i].length);
		at += buf[i].length;
	}
	q->last->flags |= IBV_SEND_INLINE;
	q->last->inline_length = at;
}

static void set_inline(struct ibv_qp_ex *x, void *addr, size_t length)
{
	struct ibv_data_buf b = {addr, length};
	set_inline_list(x, 1, &b);
}

static void set_ud(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct v_send *e = of(x)->last;
	if (ah->pd != x->qp_base.pd)
		of(x)->failed = EINVAL;
	e->ah = ((struct ah *)ah)->id;
	e->dest_qpn = qpn;
	e->qkey = qkey;
}

// If one request of a batch could not be built, none is posted.
static int complete(struct ibv_qp_ex *x)
{
	struct qp *q = of(x);
	int err = q->failed;
	if (!err)
		atomic_store(&q->sq->head, q->pending);
	pthread_mutex_unlock(&q->send_lock);
	if (!err) {
		verbs_progress();
		verbs_ring(context_of(x->qp_base.context));
	}
	return err;
}

static void give_up(struct ibv_qp_ex *x)
{
	pthread_mutex_unlock(&of(x)->send_lock);
}

// The calls of struct ibv_qp_ex that build a request: what a program asks for, the operation, and where its pointer is.
static const struct {
	uint64_t flag;
	enum ibv_wr_opcode op;
	size_t at;
	void (*call)(void);
} builders[] = {
#define BUILDER(flag, op, field, call) {IBV_QP_EX_WITH_##flag, IBV_WR_##op, offsetof(struct ibv_qp_ex, field), (void (*)(void))call}
	BUILDER(SEND, SEND, wr_send, send_plain),
	BUILDER(SEND_WITH_IMM, SEND_WITH_IMM, wr_send_imm, send_imm),
	BUILDER(SEND_WITH_INV, SEND_WITH_INV, wr_send_inv, send_inv),
	BUILDER(RDMA_WRITE, RDMA_WRITE, wr_rdma_write, rdma_write),
	BUILDER(RDMA_WRITE_WITH_IMM, RDMA_WRITE_WITH_IMM, wr_rdma_write_imm, rdma_write_imm),
	BUILDER(RDMA_READ, RDMA_READ, wr_rdma_read, rdma_read),
	BUILDER(ATOMIC_CMP_AND_SWP, ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp, compare_swap),
	BUILDER(ATOMIC_FETCH_AND_ADD, ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add, fetch_add),
};

// verbs_ex_ops returns which calls there are for a type of queue pair.
uint64_t verbs_ex_ops(enum ibv_qp_type type)
{
	uint64_t ops = 0;
	for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
		if (verbs_takes(type, builders[i].op))
			ops |= builders[i].flag;
	return ops;
}

// A call that the program has not asked for stays NULL, as the manual has it.
void verbs_fill_ex(struct qp *q, uint64_t ops)
{
	struct ibv_qp_ex *x = &q->x;
	q->is_ex = 1;
	x->wr_start = start;
	x->wr_complete = complete;
	x->wr_abort = give_up;
	x->wr_set_sge = set_sge;
	x->wr_set_sge_list = set_sge_list;
	x->wr_set_inline_data = set_inline;
	x->wr_set_inline_data_list = set_inline_list;
	if (x->qp_base.qp_type == IBV_QPT_UD)
		x->wr_set_ud_addr = set_ud;
	for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
		if (ops & builders[i].flag)
			memcpy((char *)x + builders[i].at, &builders[i].call, sizeof builders[i].call);
}
