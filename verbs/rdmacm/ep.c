// SPDX-License-Identifier: Apache-2.0

// Addresses by name, and identifiers with all that belongs to them in one call.
#include "cm.h"

#include <netdb.h>

static int copy(struct sockaddr **to, socklen_t *len, const struct sockaddr *from, socklen_t n)
{
	*to = malloc(n);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, n);
	*len = n;
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none;
	struct addrinfo h = {0}, *found;
	const struct rdma_addrinfo *w = hints ? hints : &none;
	if (!service && !node && !hints)
		return cm_fail(EINVAL);
	if (!cm_verbs())
		return cm_fail(ENODEV);
	int ud = w->ai_port_space == RDMA_PS_UDP || (!w->ai_port_space && w->ai_qp_type == IBV_QPT_UD);
	h.ai_flags = (w->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) | (w->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	h.ai_family = w->ai_flags & RAI_FAMILY || w->ai_family ? w->ai_family : AF_UNSPEC;
	h.ai_socktype = ud ? SOCK_DGRAM : SOCK_STREAM;
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	if (!r)
		return EAI_MEMORY;
	r->ai_flags = w->ai_flags;
	r->ai_port_space = ud ? RDMA_PS_UDP : RDMA_PS_TCP;
	r->ai_qp_type = w->ai_qp_type ? w->ai_qp_type : ud ? IBV_QPT_UD : IBV_QPT_RC;
	int err = 0;
	if (node || service) {
		err = getaddrinfo(node, service, &h, &found);
		if (err) {
			free(r);
			return err;
		}
		r->ai_family = found->ai_family;
		if (w->ai_flags & RAI_PASSIVE)
			err = copy(&r->ai_src_addr, &r->ai_src_len, found->ai_addr, found->ai_addrlen);
		else
			err = copy(&r->ai_dst_addr, &r->ai_dst_len, found->ai_addr, found->ai_addrlen);
		freeaddrinfo(found);
	} else {
		r->ai_family = w->ai_src_len ? w->ai_src_addr->sa_family : w->ai_dst_len ? w->ai_dst_addr->sa_family : w->ai_family;
	}
	if (!err && !r->ai_src_len && w->ai_src_len)
		err = copy(&r->ai_src_addr, &r->ai_src_len, w->ai_src_addr, w->ai_src_len);
	if (!err && !r->ai_dst_len && w->ai_dst_len)
		err = copy(&r->ai_dst_addr, &r->ai_dst_len, w->ai_dst_addr, w->ai_dst_len);
	if (err) {
		rdma_freeaddrinfo(r);
		return err;
	}
	*res = r;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *r)
{
	while (r) {
		struct rdma_addrinfo *next = r->ai_next;
		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r->ai_src_canonname);
		free(r->ai_dst_canonname);
		free(r->ai_route);
		free(r->ai_connect);
		free(r);
		r = next;
	}
}

static int make_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	a->qp_type = id->qp_type;
	return rdma_create_qp(id, pd, a);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	enum { MS = 2000 };
	struct rdma_cm_id *x;
	if (cm_create(NULL, &x, NULL, res->ai_port_space, res->ai_qp_type))
		return -1;
	struct id *p = (struct id *)x;
	int err = 0;
	if (res->ai_flags & RAI_PASSIVE) {
		err = rdma_bind_addr(x, res->ai_src_addr);
		if (!err && a) { // of the connections to come
			p->qp_attr = malloc(sizeof *a);
			err = p->qp_attr ? 0 : cm_fail(ENOMEM);
			if (!err)
				*p->qp_attr = *a;
			p->ep_pd = pd;
		}
	} else {
		err = rdma_resolve_addr(x, res->ai_src_addr, res->ai_dst_addr, MS);
		err = err ? err : rdma_resolve_route(x, MS);
		if (!err && a)
			err = make_qp(x, pd, a);
		if (!err && x->event) {
			rdma_ack_cm_event(x->event);
			x->event = NULL;
		}
	}
	if (err) {
		int why = errno;
		rdma_destroy_ep(x);
		return cm_fail(why);
	}
	*id = x;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct id *l = (struct id *)listen;
	struct rdma_cm_event *event;
	if (!l->sync)
		return cm_fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int err = event->status < 0 ? -event->status : EINVAL;
		rdma_ack_cm_event(event);
		return cm_fail(err);
	}
	struct rdma_cm_id *x = event->id;
	if (l->qp_attr) {
		struct ibv_qp_init_attr a = *l->qp_attr; // what is made does not change what is asked for
		if (make_qp(x, l->ep_pd, &a)) {
			int why = errno;
			rdma_reject(x, NULL, 0);
			rdma_ack_cm_event(event);
			rdma_destroy_id(x);
			return cm_fail(why);
		}
	}
	*id = x;
	x->event = event;
	return 0;
}
