// SPDX-License-Identifier: Apache-2.0

// Queue pairs and their states.
#include "internal.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t ring_bytes(uint32_t entries, size_t entry)
{
	return V_RING_HEADER + (size_t)entries * entry;
}

// allocate makes the queue pair at the NIC and maps its rings: sends, then receives.
static struct qp *allocate(struct context *c, const struct ibv_qp_init_attr_ex *a)
{
	struct v_create_qp m = {
		V_CREATE_QP, ((struct pd *)a->pd)->id, ((struct cq *)a->send_cq)->id, ((struct cq *)a->recv_cq)->id, a->qp_type, a->sq_sig_all,
		a->cap.max_send_wr, a->srq ? 0 : a->cap.max_recv_wr, a->cap.max_send_sge, a->srq ? 0 : a->cap.max_recv_sge, a->cap.max_inline_data,
		a->srq ? ((struct srq *)a->srq)->id : 0, a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? a->create_flags : 0,
	};
	struct v_reply r;
	int fd;
	struct qp *q = calloc(1, sizeof *q);
	if (!q || verbs_call(c, &m, sizeof m, &r, sizeof r, &fd, 1)) {
		free(q);
		return NULL;
	}
	q->sends = r.send;
	q->recvs = r.recv;
	q->size = ring_bytes(r.send, sizeof *q->se) + ring_bytes(r.recv, sizeof *q->re);
	q->sq = verbs_map(fd, q->size);
	if (!q->sq) {
		verbs_simple(c, V_DESTROY_QP, r.id);
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	q->se = (struct v_send *)(q->sq + 1);
	q->rq = (struct v_ring *)((char *)q->sq + ring_bytes(r.send, sizeof *q->se));
	q->re = (struct v_recv *)(q->rq + 1);
	q->x.qp_base.qp_num = q->x.qp_base.handle = r.id;
	return q;
}

// serves reports whether the device has the type of queue pair and all requested features.
static int serves(const struct ibv_qp_init_attr_ex *a)
{
	uint32_t mask = a->comp_mask;
	if (mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS))
		return 0;
	if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && (a->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB))
		return 0;
	if ((mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (a->send_ops_flags & ~verbs_ex_ops(a->qp_type)))
		return 0;
	return a->qp_type == IBV_QPT_RC || a->qp_type == IBV_QPT_UC || a->qp_type == IBV_QPT_UD;
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *x, struct ibv_qp_init_attr_ex *a)
{
	struct context *c = context_of(x);
	if (!serves(a)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !a->send_cq || !a->recv_cq || a->pd->context != x || a->send_cq->context != x || a->recv_cq->context != x) {
		errno = EINVAL;
		return NULL;
	}
	struct qp *q = allocate(c, a);
	if (!q)
		return NULL;
	a->cap.max_send_wr = q->sends;
	a->cap.max_recv_wr = a->srq ? 0 : q->recvs;
	a->cap.max_send_sge = a->cap.max_send_sge ? a->cap.max_send_sge : 1;
	a->cap.max_recv_sge = a->srq ? 0 : a->cap.max_recv_sge ? a->cap.max_recv_sge : 1;
	a->cap.max_inline_data = c->attr.max_inline; // an entry holds as much, and programs post inline what they have not asked for
	q->cap = a->cap;
	q->sig_all = a->sq_sig_all;
	pthread_mutex_init(&q->send_lock, NULL);
	pthread_mutex_init(&q->recv_lock, NULL);
	struct ibv_qp *b = &q->x.qp_base;
	b->context = x;
	b->qp_context = a->qp_context;
	b->pd = a->pd;
	verbs_hold(a->pd);
	b->send_cq = a->send_cq;
	b->recv_cq = a->recv_cq;
	b->srq = a->srq;
	b->qp_type = a->qp_type;
	b->state = IBV_QPS_RESET;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		verbs_fill_ex(q, a->send_ops_flags);
	pthread_mutex_lock(&c->objects);
	q->next = c->qps;
	c->qps = q;
	pthread_mutex_unlock(&c->objects);
	return b;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap,
		.qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *q = verbs_create_qp_ex(pd->context, &ex);
	if (q)
		a->cap = ex.cap;
	return q;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *q)
{
	return ((struct qp *)q)->is_ex ? &((struct qp *)q)->x : NULL;
}

// Programs destroy queue pairs of datagrams without waiting for the completions of what they have sent (mckey does). That is
// long gone when a driver has talked to its device, so here it gets the time to go: until the port has not sent for 20 ms. A
// reliable queue pair waits for its peer, for which nobody waits.
void verbs_let_go(struct context *c, const struct ibv_qp *b)
{
	struct v_id m = {V_UNSENT, b->qp_num};
	struct v_reply r = {0};
	uint32_t last = 0;
	if (b->qp_type == IBV_QPT_RC)
		return;
	for (int waited = 0; waited < 1000 && !verbs_call(c, &m, sizeof m, &r, sizeof r, NULL, 0) && r.send; waited++) {
		if (r.send != last)
			waited = 0;
		last = r.send;
		usleep(20);
	}
}

int ibv_destroy_qp(struct ibv_qp *b)
{
	struct qp *q = (struct qp *)b;
	struct context *c = context_of(b->context);
	verbs_let_go(c, b);
	int err = verbs_simple(c, V_DESTROY_QP, b->qp_num);
	if (err)
		return err;
	pthread_mutex_lock(&c->objects);
	for (struct qp **p = &c->qps; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	pthread_mutex_unlock(&c->objects);
	pthread_mutex_lock(&b->mutex);
	while (q->events != b->events_completed)
		pthread_cond_wait(&b->cond, &b->mutex);
	pthread_mutex_unlock(&b->mutex);
	munmap(q->sq, q->size);
	verbs_release(b->pd);
	free(q);
	return 0;
}

// What the NIC has no use for: alternate paths and rates.
enum { REFUSED = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_RATE_LIMIT };

int ibv_modify_qp(struct ibv_qp *b, struct ibv_qp_attr *a, int mask)
{
	struct v_modify_qp m = {.op = V_MODIFY_QP, .qpn = b->qp_num, .mask = mask};
	struct v_reply r;
	if (mask & REFUSED)
		return errno = EOPNOTSUPP;
	if ((mask & IBV_QP_AV) && (!a->ah_attr.is_global || a->ah_attr.grh.sgid_index || a->ah_attr.port_num != 1))
		return errno = EINVAL; // RoCE has no other addresses than GIDs
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return errno = EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index)
		return errno = EINVAL;
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return errno = EINVAL;
	m.attr = (struct v_attr){
		.state = a->qp_state, .cur_state = a->cur_qp_state, .sqd_async = a->en_sqd_async_notify, .access = a->qp_access_flags,
		.pkey_index = a->pkey_index, .port = a->port_num, .timeout = a->timeout, .retry_cnt = a->retry_cnt, .rnr_retry = a->rnr_retry,
		.rq_psn = a->rq_psn, .sq_psn = a->sq_psn, .min_rnr_timer = a->min_rnr_timer, .rd_atomic = a->max_rd_atomic,
		.dest_rd_atomic = a->max_dest_rd_atomic, .dest_qpn = a->dest_qp_num, .qkey = a->qkey,
	};
	if (mask & IBV_QP_PATH_MTU)
		m.attr.path_mtu = 128u << a->path_mtu;
	if (mask & IBV_QP_AV)
		verbs_path(&m.attr.path, &a->ah_attr);
	int err = verbs_call(context_of(b->context), &m, sizeof m, &r, sizeof r, NULL, 0);
	if (!err && (mask & IBV_QP_STATE))
		b->state = a->qp_state;
	if (!err && (mask & IBV_QP_STATE) && a->qp_state == IBV_QPS_RESET) {
		verbs_forget(b->send_cq, b->qp_num);
		verbs_forget(b->recv_cq, b->qp_num);
	}
	if (!err && (mask & IBV_QP_PATH_MTU))
		((struct qp *)b)->mtu = m.attr.path_mtu;
	return err;
}

int ibv_query_qp(struct ibv_qp *b, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = (struct qp *)b;
	struct v_id m = {V_QUERY_QP, b->qp_num};
	struct v_queried r;
	int err = verbs_call(context_of(b->context), &m, sizeof m, &r, sizeof r, NULL, 0);
	(void)mask; // a hint
	if (err)
		return err;
	const struct v_attr *v = &r.attr;
	memset(a, 0, sizeof *a);
	b->state = a->qp_state = a->cur_qp_state = v->state;
	a->path_mtu = IBV_MTU_256;
	while (a->path_mtu < IBV_MTU_4096 && (128u << (a->path_mtu + 1)) <= v->path_mtu)
		a->path_mtu++;
	a->path_mig_state = IBV_MIG_MIGRATED;
	a->qkey = v->qkey;
	a->rq_psn = v->rq_psn;
	a->sq_psn = v->sq_psn;
	a->dest_qp_num = v->dest_qpn;
	a->qp_access_flags = v->access;
	a->cap = q->cap;
	memcpy(a->ah_attr.grh.dgid.raw, v->path.gid, 16);
	a->ah_attr.grh.flow_label = v->path.flow;
	a->ah_attr.grh.traffic_class = v->path.traffic_class;
	a->ah_attr.grh.hop_limit = v->path.hop_limit;
	a->ah_attr.is_global = 1;
	a->ah_attr.port_num = 1;
	a->pkey_index = v->pkey_index;
	a->en_sqd_async_notify = v->sqd_async;
	a->max_rd_atomic = v->rd_atomic;
	a->max_dest_rd_atomic = v->dest_rd_atomic;
	a->min_rnr_timer = v->min_rnr_timer;
	a->port_num = v->port;
	a->timeout = v->timeout;
	a->retry_cnt = v->retry_cnt;
	a->rnr_retry = v->rnr_retry;
	if (init)
		*init = (struct ibv_qp_init_attr){
			.qp_context = b->qp_context, .send_cq = b->send_cq, .recv_cq = b->recv_cq, .srq = b->srq, .cap = q->cap,
			.qp_type = b->qp_type, .sq_sig_all = q->sig_all,
		};
	return 0;
}

// Enhanced connection establishment: no option is offered, and none taken.
int ibv_query_ece(struct ibv_qp *q, struct ibv_ece *e)
{
	(void)q;
	memset(e, 0, sizeof *e);
	return 0;
}

int ibv_set_ece(struct ibv_qp *q, struct ibv_ece *e)
{
	(void)q;
	return e->vendor_id ? EOPNOTSUPP : 0;
}

// Bytes of a message may be placed in any order: with selective repeat packets are placed as they come.
int ibv_query_qp_data_in_order(struct ibv_qp *q, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)q;
	(void)op;
	(void)flags;
	return 0;
}
