// SPDX-License-Identifier: Apache-2.0

// Connections: the program's calls.
#include "cm.h"

// fill returns what a side says; its queue pair is that of the identifier if it has one.
static int fill(struct id *p, struct v_cm_conn *m, const struct rdma_conn_param *c)
{
	m->id = p->handle;
	if (!c)
		return 0;
	if (c->private_data_len > V_CM_PRIVATE)
		return EINVAL;
	m->params = (struct v_cm_params){
		.qpn = p->id.qp ? p->id.qp->qp_num : c->qp_num, .flow = c->flow_control, .retry = c->retry_count, .rnr = c->rnr_retry_count,
		.srq = p->id.qp ? p->id.qp->srq != NULL : c->srq, .qkey = RDMA_UDP_QKEY, .length = c->private_data ? c->private_data_len : 0,
	};
	if (c->private_data)
		memcpy(m->params.data, c->private_data, c->private_data_len);
	return 0;
}

static uint8_t least(uint8_t want, uint32_t most)
{
	return want < most ? want : most;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	struct id *p = (struct id *)id;
	struct v_cm_conn m = {.op = V_CM_CONNECT};
	struct rdma_conn_param none = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .retry_count = 7, .rnr_retry_count = 7};
	struct v_reply r;
	c = c ? c : &none;
	int err = fill(p, &m, c);
	if (err)
		return cm_fail(err);
	p->responder = least(c->responder_resources, cm_device()->max_rd_atomic);
	p->initiator = least(c->initiator_depth, cm_device()->max_rd_atomic);
	m.params.responder = p->responder;
	m.params.initiator = p->initiator;
	// What the peer grants counts from here on.
	p->responder = p->initiator = RDMA_MAX_RESP_RES;
	err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (err)
		return cm_fail(err);
	p->connecting = 1;
	return cm_complete(p);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct id *p = (struct id *)id;
	if (!p->bound) {
		struct sockaddr_in any = {.sin_family = AF_INET};
		if (rdma_bind_addr(id, (struct sockaddr *)&any))
			return -1;
	}
	int err = cm_value(V_CM_LISTEN, p->handle, backlog < 0 ? 0 : backlog);
	p->listening = !err;
	return cm_fail(err);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	struct id *p = (struct id *)id;
	struct v_cm_conn m = {.op = V_CM_ACCEPT};
	struct rdma_conn_param none = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 7};
	struct v_cm_query q;
	struct v_reply r;
	int err = cm_query(p, &q);
	c = c ? c : &none;
	err = err ? err : fill(p, &m, c);
	if (err)
		return cm_fail(err);
	if (id->qp_type != IBV_QPT_UD) {
		uint8_t most = cm_device()->max_rd_atomic;
		p->responder = c->responder_resources == RDMA_MAX_RESP_RES ? least(q.responder, most) : least(c->responder_resources, most);
		p->initiator = c->initiator_depth == RDMA_MAX_INIT_DEPTH ? least(q.initiator, most) : least(c->initiator_depth, most);
		m.params.responder = p->responder;
		m.params.initiator = p->initiator;
		if (id->qp)
			err = cm_up(p);
		if (err)
			return cm_fail(err);
	}
	err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (err) {
		cm_qp_error(p);
		return cm_fail(err);
	}
	return id->qp_type == IBV_QPT_UD ? 0 : cm_complete(p);
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	struct v_cm_conn m = {.op = V_CM_REJECT, .id = ((struct id *)id)->handle, .params = {.length = data ? length : 0}};
	struct v_reply r;
	if (length > V_CM_PRIVATE)
		return cm_fail(EINVAL);
	if (data)
		memcpy(m.params.data, data, length);
	return cm_fail(cm_call(&m, sizeof m, &r, sizeof r, NULL, 0));
}

// The program has brought up a queue pair of its own after RDMA_CM_EVENT_CONNECT_RESPONSE.
int rdma_establish(struct rdma_cm_id *id)
{
	struct v_cm_conn m = {.op = V_CM_ACCEPT, .id = ((struct id *)id)->handle};
	struct v_reply r;
	if (id->qp)
		return cm_fail(EINVAL);
	return cm_fail(cm_call(&m, sizeof m, &r, sizeof r, NULL, 0));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	if (event != IBV_EVENT_COMM_EST)
		return cm_fail(EINVAL);
	return cm_fail(cm_simple(V_CM_ESTABLISH, ((struct id *)id)->handle));
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *p = (struct id *)id;
	int err = cm_qp_error(p);
	err = err ? err : cm_simple(V_CM_DISCONNECT, p->handle);
	return err ? cm_fail(err) : cm_complete(p);
}

static int join(struct rdma_cm_id *id, const struct sockaddr *addr, int send_only, void *context)
{
	struct id *p = (struct id *)id;
	struct v_cm_addr a;
	struct v_cm_join m = {.op = V_CM_JOIN, .id = p->handle};
	struct v_reply r;
	struct group *g = calloc(1, sizeof *g);
	int err = g ? cm_address(&a, addr) : ENOMEM;
	if (!err && id->qp_type != IBV_QPT_UD)
		err = EINVAL; // groups are of datagrams
	if (err) {
		free(g);
		return cm_fail(err);
	}
	memcpy(g->gid, a.gid, 16);
	memcpy(m.gid, a.gid, 16);
	g->context = context;
	g->send_only = send_only;
	m.context = (uintptr_t)g;
	pthread_mutex_lock(&p->lock); // the event may come before the call returns
	g->next = p->groups;
	p->groups = g;
	pthread_mutex_unlock(&p->lock);
	err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (!err)
		return cm_complete(p);
	pthread_mutex_lock(&p->lock);
	for (struct group **h = &p->groups; *h; h = &(*h)->next)
		if (*h == g) {
			*h = g->next;
			break;
		}
	pthread_mutex_unlock(&p->lock);
	free(g);
	return cm_fail(err);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(id, addr, 0, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *a, void *context)
{
	if ((a->comp_mask & (RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS)) != 3 || a->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_fail(EINVAL);
	return join(id, a->addr, a->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct id *p = (struct id *)id;
	struct v_cm_addr a;
	union ibv_gid gid;
	struct group *g = NULL;
	int err = cm_address(&a, addr);
	if (err)
		return cm_fail(err);
	pthread_mutex_lock(&p->lock);
	for (struct group **h = &p->groups; *h && !g; h = &(*h)->next)
		if (!memcmp((*h)->gid, a.gid, 16)) {
			g = *h;
			*h = g->next;
			break;
		}
	pthread_mutex_unlock(&p->lock);
	if (!g)
		return cm_fail(EADDRNOTAVAIL);
	memcpy(gid.raw, g->gid, 16);
	err = g->attached && id->qp ? ibv_detach_mcast(id->qp, &gid, 0) : 0;
	free(g);
	return cm_fail(err);
}
