// SPDX-License-Identifier: Apache-2.0

// Events: the NIC's side sends them, and the library first carries out the steps that a program expects
// before it sees them.
#include "cm.h"

#include <arpa/inet.h>
#include <sys/socket.h>

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE", "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};
	return event < sizeof names / sizeof *names ? names[event] : "UNKNOWN EVENT";
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return cm_fail(EINVAL);
	struct event *e = (struct event *)event;
	cm_acknowledge(e->of);
	free(e);
	return 0;
}

// cm_set_path fills in the route that programs may look at.
void cm_set_path(struct id *p)
{
	struct ibv_sa_path_rec *r = &p->path;
	memset(r, 0, sizeof *r);
	memcpy(r->dgid.raw, p->id.route.addr.addr.ibaddr.dgid.raw, 16);
	memcpy(r->sgid.raw, p->id.route.addr.addr.ibaddr.sgid.raw, 16);
	r->hop_limit = 64;
	r->reversible = 1;
	r->numb_path = 1;
	r->pkey = htons(0xffff);
	r->mtu_selector = r->rate_selector = r->packet_life_time_selector = 2; // exactly
	r->mtu = IBV_MTU_256;
	while (r->mtu < IBV_MTU_4096 && (128u << (r->mtu + 1)) <= cm_device()->mtu)
		r->mtu++;
	r->packet_life_time = 16;
	p->id.route.path_rec = r;
	p->id.route.num_paths = 1;
}

static void set_addresses(struct id *p, const struct v_cm_event *v)
{
	struct rdma_addr *a = &p->id.route.addr;
	cm_sockaddr(&a->src_storage, &v->local);
	cm_sockaddr(&a->dst_storage, &v->remote);
	memcpy(a->addr.ibaddr.dgid.raw, v->remote.gid, 16);
}

// request makes the identifier of a connection that the peer asks for.
static int request(struct event *e, struct id *listener, const struct v_cm_event *v)
{
	struct id *p = cm_new_id(listener->id.channel, listener->id.context, listener->id.ps, listener->id.qp_type);
	if (!p)
		return ENOMEM;
	p->handle = v->id;
	p->bound = 1;
	cm_attach_device(p);
	set_addresses(p, v);
	cm_set_path(p);
	cm_enter(p);
	if (listener->sync && rdma_migrate_id(&p->id, NULL)) {
		cm_drop(p);
		return EIO;
	}
	e->e.id = &p->id;
	e->e.listen_id = &listener->id;
	return 0;
}

// respond brings up the queue pair after the peer has accepted, and confirms that.
static void respond(struct event *e, struct id *p)
{
	struct v_cm_conn m = {.op = V_CM_ACCEPT, .id = p->handle};
	struct v_reply r;
	if (!p->id.qp)
		return; // the program has one of its own, and calls rdma_establish
	int err = cm_up(p);
	if (!err)
		err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (err) {
		rdma_reject(&p->id, NULL, 0);
		cm_qp_error(p);
		e->e.event = RDMA_CM_EVENT_CONNECT_ERROR;
		e->e.status = -err;
		return;
	}
	p->connecting = 0;
	e->e.event = RDMA_CM_EVENT_ESTABLISHED;
}

// joined attaches the queue pair to a group.
static void joined(struct event *e, struct id *p, const struct v_cm_event *v)
{
	struct group *g;
	union ibv_gid gid;
	int err = 0;
	pthread_mutex_lock(&p->lock);
	for (g = p->groups; g && (uintptr_t)g != v->context; g = g->next)
		;
	if (g) {
		memcpy(gid.raw, g->gid, 16);
		if (p->id.qp && !g->send_only) {
			err = ibv_attach_mcast(p->id.qp, &gid, 0);
			g->attached = !err;
		}
		e->e.param.ud.private_data = g->context;
	}
	pthread_mutex_unlock(&p->lock);
	if (err) {
		e->e.event = RDMA_CM_EVENT_MULTICAST_ERROR;
		e->e.status = -err;
	}
}

static void fill(struct event *e, const struct id *p, const struct v_cm_event *v)
{
	const struct v_cm_params *c = &v->params;
	uint16_t n = c->length < V_CM_PRIVATE ? c->length : V_CM_PRIVATE;
	memcpy(e->data, c->data, n);
	if (p->id.ps == RDMA_PS_UDP) {
		struct rdma_ud_param *u = &e->e.param.ud;
		u->private_data = n ? e->data : NULL;
		u->private_data_len = n;
		cm_ah(&u->ah_attr, v->remote.gid, 0);
		u->qp_num = c->qpn;
		u->qkey = c->qkey;
		return;
	}
	e->e.param.conn = (struct rdma_conn_param){
		.private_data = n ? e->data : NULL, .private_data_len = n, .responder_resources = c->responder, .initiator_depth = c->initiator,
		.flow_control = c->flow, .retry_count = c->retry, .rnr_retry_count = c->rnr, .srq = c->srq, .qp_num = c->qpn,
	};
}

// take turns a message of the NIC's side into an event, and returns whether the program is to see it.
static int take(struct event *e, const struct v_cm_event *v)
{
	struct id *p = cm_find(v->type == RDMA_CM_EVENT_CONNECT_REQUEST ? v->listener : v->id);
	if (!p) { // destroyed meanwhile
		if (v->type == RDMA_CM_EVENT_CONNECT_REQUEST)
			cm_simple(V_CM_DESTROY, v->id);
		return 0;
	}
	e->of = p;
	e->e.id = &p->id;
	e->e.event = v->type;
	e->e.status = v->status;
	fill(e, p, v);
	switch (v->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		cm_attach_device(p);
		memcpy(p->id.route.addr.addr.ibaddr.dgid.raw, v->remote.gid, 16); // of the fabric, however the program names the host
		if (!p->id.verbs) {
			e->e.event = RDMA_CM_EVENT_ADDR_ERROR;
			e->e.status = -ENODEV;
		}
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		cm_set_path(p);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (request(e, p, v)) {
			cm_simple(V_CM_DESTROY, v->id);
			cm_acknowledge(p);
			return 0;
		}
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		respond(e, p);
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
		if (p->connecting)
			cm_qp_error(p);
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		joined(e, p, v);
		break;
	}
	return 1;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct v_cm_event v;
	struct event *e = calloc(1, sizeof *e);
	if (!event || !e) {
		free(e);
		return cm_fail(event ? ENOMEM : EINVAL);
	}
	do {
		memset(e, 0, sizeof *e);
		_Atomic int *waiting = &((struct cm_channel *)channel)->waiting;
		atomic_fetch_add(waiting, 1);
		ssize_t n = recv(channel->fd, &v, sizeof v, 0);
		atomic_fetch_sub(waiting, 1);
		if (n != sizeof v) {
			int err = n < 0 ? errno : EIO; // the NIC has gone
			free(e);
			return cm_fail(err);
		}
	} while (!take(e, &v));
	*event = &e->e;
	return 0;
}

// cm_complete waits for the event of a call if the identifier has no channel of the program's.
int cm_complete(struct id *p)
{
	struct rdma_cm_id *id = &p->id;
	if (!p->sync)
		return 0;
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	if (rdma_get_cm_event(id->channel, &id->event))
		return -1;
	int status = id->event->status;
	if (!status)
		return 0;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return cm_fail(ECONNREFUSED);
	return cm_fail(status < 0 ? -status : EIO);
}
