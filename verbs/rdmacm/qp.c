// SPDX-License-Identifier: Apache-2.0

// Queue pairs of identifiers, and their attributes for a connection.
#include "cm.h"

int cm_query(struct id *p, struct v_cm_query *q)
{
	struct v_id m = {V_CM_QUERY, p->handle};
	return cm_call(&m, sizeof m, q, sizeof *q, NULL, 0);
}

// cm_ah fills in the way to a GID.
void cm_ah(struct ibv_ah_attr *a, const uint8_t gid[16], uint8_t traffic)
{
	memset(a, 0, sizeof *a);
	memcpy(a->grh.dgid.raw, gid, 16);
	a->grh.hop_limit = 64;
	a->grh.traffic_class = traffic;
	a->is_global = 1;
	a->port_num = 1;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;
	while (code < IBV_MTU_4096 && (128u << (code + 1)) <= bytes)
		code++;
	return code;
}

static int attributes(struct id *p, const struct v_cm_query *q, struct ibv_qp_attr *a, int *mask)
{
	int ud = p->id.qp_type == IBV_QPT_UD;
	*mask = IBV_QP_STATE;
	switch (a->qp_state) {
	case IBV_QPS_INIT:
		a->pkey_index = 0;
		a->port_num = 1;
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		if (ud) {
			a->qkey = RDMA_UDP_QKEY;
			*mask |= IBV_QP_QKEY;
			return 0;
		}
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
		if (q->responder)
			a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		*mask |= IBV_QP_ACCESS_FLAGS;
		return 0;
	case IBV_QPS_RTR:
		if (ud)
			return 0;
		if (!q->known)
			return EINVAL;
		cm_ah(&a->ah_attr, q->remote.gid, q->traffic);
		a->path_mtu = mtu_code(q->mtu);
		a->dest_qp_num = q->qpn;
		a->rq_psn = q->rq_psn;
		a->max_dest_rd_atomic = q->responder;
		a->min_rnr_timer = 0; // as Linux has it: 655 ms
		*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		return 0;
	case IBV_QPS_RTS:
		a->sq_psn = q->sq_psn;
		*mask |= IBV_QP_SQ_PSN;
		if (ud)
			return 0;
		a->timeout = q->timeout;
		a->retry_cnt = q->retry;
		a->rnr_retry = q->rnr;
		a->max_rd_atomic = q->initiator;
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		return 0;
	default:
		return EINVAL;
	}
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct id *p = (struct id *)id;
	struct v_cm_query q;
	int err = cm_query(p, &q);
	return cm_fail(err ? err : attributes(p, &q, a, mask));
}

static int modify(struct id *p, const struct v_cm_query *q, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {.qp_state = to};
	int mask, err = attributes(p, q, &a, &mask);
	return err ? err : ibv_modify_qp(p->id.qp, &a, mask);
}

// cm_up brings the queue pair from INIT to RTS once the peer is known.
int cm_up(struct id *p)
{
	struct v_cm_query q;
	int err = cm_query(p, &q);
	if (p->responder != RDMA_MAX_RESP_RES)
		q.responder = p->responder;
	if (p->initiator != RDMA_MAX_INIT_DEPTH)
		q.initiator = p->initiator;
	err = err ? err : modify(p, &q, IBV_QPS_INIT); // the rights that were not known when it was made
	err = err ? err : modify(p, &q, IBV_QPS_RTR);
	return err ? err : modify(p, &q, IBV_QPS_RTS);
}

int cm_qp_error(struct id *p)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	return p->id.qp ? ibv_modify_qp(p->id.qp, &a, IBV_QP_STATE) : 0;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->qp_type == IBV_QPT_XRC_RECV && id->srq)
		return;
	if (id->recv_cq) {
		ibv_destroy_cq(id->recv_cq);
		if (id->send_cq && id->send_cq != id->recv_cq)
			ibv_destroy_cq(id->send_cq);
		id->recv_cq = id->send_cq = NULL;
	} else if (id->send_cq) {
		ibv_destroy_cq(id->send_cq);
		id->send_cq = NULL;
	}
	if (id->recv_cq_channel) {
		ibv_destroy_comp_channel(id->recv_cq_channel);
		if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
			ibv_destroy_comp_channel(id->send_cq_channel);
		id->recv_cq_channel = id->send_cq_channel = NULL;
	} else if (id->send_cq_channel) {
		ibv_destroy_comp_channel(id->send_cq_channel);
		id->send_cq_channel = NULL;
	}
}

// make_cq makes a completion queue with a channel of its own, for a program that gives none.
static struct ibv_cq *make_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	return *channel ? ibv_create_cq(id->verbs, size ? size : 1, id, *channel, 0) : NULL;
}

static int make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (!a->recv_cq) {
		id->recv_cq = make_cq(id, a->cap.max_recv_wr, &id->recv_cq_channel);
		if (!id->recv_cq)
			return errno;
		a->recv_cq = id->recv_cq;
	}
	if (!a->send_cq) {
		id->send_cq = make_cq(id, a->cap.max_send_wr, &id->send_cq_channel);
		if (!id->send_cq)
			return errno;
		a->send_cq = id->send_cq;
	}
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct id *p = (struct id *)id;
	struct v_cm_query q;
	if (id->qp || !id->verbs)
		return cm_fail(EINVAL);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = id->pd;
	} else if (a->pd->context != id->verbs) {
		return cm_fail(EINVAL);
	}
	int err = make_cqs(id, a);
	if (!err && id->srq && !a->srq)
		a->srq = id->srq;
	struct ibv_qp *qp = err ? NULL : ibv_create_qp_ex(id->verbs, a);
	if (!err && !qp)
		err = errno;
	err = err ? err : cm_query(p, &q);
	if (!err) {
		id->qp = qp;
		id->pd = a->pd;
		err = modify(p, &q, IBV_QPS_INIT);
		if (!err && id->qp_type == IBV_QPT_UD)
			err = modify(p, &q, IBV_QPS_RTR);
		if (!err && id->qp_type == IBV_QPT_UD)
			err = modify(p, &q, IBV_QPS_RTS);
	}
	if (err) {
		id->qp = NULL;
		if (qp)
			ibv_destroy_qp(qp);
		destroy_cqs(id);
	}
	return cm_fail(err);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {
		.qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap, .qp_type = a->qp_type,
		.sq_sig_all = a->sq_sig_all, .comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0, .pd = pd,
	};
	if (rdma_create_qp_ex(id, &x))
		return -1;
	a->cap = x.cap;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id->qp)
		return;
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	if (id->srq || !id->verbs)
		return cm_fail(EINVAL);
	id->srq = ibv_create_srq(pd ? pd : id->pd, a);
	if (!id->srq)
		return -1;
	if (pd)
		id->pd = pd;
	return 0;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (!id->srq)
		return;
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
