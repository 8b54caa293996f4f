// SPDX-License-Identifier: Apache-2.0

// Event channels and identifiers, and their addresses.
#include "cm.h"

#include <arpa/inet.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	struct id *first;
} ids = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *c = calloc(1, sizeof *c);
	struct v_id m = {V_CREATE_CHANNEL, 0};
	struct v_reply r;
	int err = c ? cm_call(&m, sizeof m, &r, sizeof r, &c->c.fd, 1) : ENOMEM;
	if (err) {
		free(c);
		errno = err == ENOENT || err == ECONNREFUSED ? ENODEV : err;
		return NULL;
	}
	c->handle = r.id;
	return &c->c;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *c = (struct cm_channel *)channel;
	if (c->waiting)
		return; // a thread that waits for the channel keeps waiting, as with a device file: rping does that as it ends
	cm_simple(V_CM_CLOSE_CHANNEL, c->handle);
	close(c->c.fd);
	free(c);
}

// cm_new_id returns an identifier without a handle.
struct id *cm_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct id *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->id.channel = channel;
	p->id.context = context;
	p->id.ps = ps;
	p->id.qp_type = type;
	p->responder = p->initiator = RDMA_MAX_RESP_RES;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->acked, NULL);
	return p;
}

void cm_enter(struct id *p)
{
	pthread_mutex_lock(&ids.lock);
	p->next = ids.first;
	ids.first = p;
	pthread_mutex_unlock(&ids.lock);
}

// cm_find returns the identifier of an event, or NULL. The event counts as handed to the program from here on: until it is acknowledged, by
// cm_acknowledge, the identifier stays.
struct id *cm_find(uint32_t handle)
{
	pthread_mutex_lock(&ids.lock);
	struct id *p = ids.first;
	while (p && p->handle != handle)
		p = p->next;
	if (p) {
		pthread_mutex_lock(&p->lock);
		p->events++;
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&ids.lock);
	return p;
}

void cm_acknowledge(struct id *p)
{
	pthread_mutex_lock(&p->lock);
	p->events_acked++;
	pthread_cond_broadcast(&p->acked);
	pthread_mutex_unlock(&p->lock);
}

// leave has no event find an identifier any more.
static void leave(struct id *p)
{
	pthread_mutex_lock(&ids.lock);
	for (struct id **q = &ids.first; *q; q = &(*q)->next)
		if (*q == p) {
			*q = p->next;
			break;
		}
	pthread_mutex_unlock(&ids.lock);
}

// cm_drop forgets an identifier.
void cm_drop(struct id *p)
{
	leave(p);
	while (p->groups) {
		struct group *g = p->groups;
		p->groups = g->next;
		free(g);
	}
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->acked);
	free(p->qp_attr);
	free(p);
}

int cm_create(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP)
		return cm_fail(EPROTONOSUPPORT);
	struct rdma_event_channel *own = channel ? channel : rdma_create_event_channel();
	if (!own)
		return -1;
	struct id *p = cm_new_id(own, context, ps, type);
	struct v_cm_create m = {V_CM_CREATE, ((struct cm_channel *)own)->handle, ps, 0};
	struct v_reply r;
	int err = p ? cm_call(&m, sizeof m, &r, sizeof r, NULL, 0) : ENOMEM;
	if (err) {
		free(p);
		if (!channel)
			rdma_destroy_event_channel(own);
		return cm_fail(err);
	}
	p->handle = r.id;
	p->sync = !channel;
	cm_enter(p);
	*id = &p->id;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	return cm_create(channel, id, context, ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
}

// The program must have acknowledged the events first, as everywhere.
int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *p = (struct id *)id;
	if (id->event)
		rdma_ack_cm_event(id->event);
	cm_simple(V_CM_DESTROY, p->handle); // if it is gone there, it is what was wanted
	leave(p);
	pthread_mutex_lock(&p->lock);
	while (p->events != p->events_acked)
		pthread_cond_wait(&p->acked, &p->lock);
	pthread_mutex_unlock(&p->lock);
	if (p->sync)
		rdma_destroy_event_channel(id->channel);
	cm_drop(p);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct id *p = (struct id *)id;
	struct rdma_event_channel *to = channel ? channel : rdma_create_event_channel();
	if (!to)
		return -1;
	int err = cm_value(V_CM_MIGRATE, p->handle, ((struct cm_channel *)to)->handle);
	if (err) {
		if (!channel)
			rdma_destroy_event_channel(to);
		return cm_fail(err);
	}
	if (p->sync) {
		if (id->event) {
			rdma_ack_cm_event(id->event);
			id->event = NULL;
		}
		rdma_destroy_event_channel(id->channel);
	}
	p->sync = !channel;
	id->channel = to;
	return 0;
}

// cm_address turns an address of IPv4 or IPv6 into the NIC's.
int cm_address(struct v_cm_addr *a, const struct sockaddr *s)
{
	memset(a, 0, sizeof *a);
	if (s->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)s;
		a->gid[10] = a->gid[11] = 0xff;
		memcpy(a->gid + 12, &in->sin_addr, 4);
		a->port = ntohs(in->sin_port);
		return 0;
	}
	if (s->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)s;
		memcpy(a->gid, &in->sin6_addr, 16);
		a->port = ntohs(in->sin6_port);
		return 0;
	}
	return EAFNOSUPPORT;
}

static int mapped(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	return !memcmp(gid, prefix, sizeof prefix);
}

void cm_sockaddr(struct sockaddr_storage *s, const struct v_cm_addr *a)
{
	memset(s, 0, sizeof *s);
	if (mapped(a->gid)) {
		struct sockaddr_in *in = (struct sockaddr_in *)s;
		in->sin_family = AF_INET;
		in->sin_port = htons(a->port);
		memcpy(&in->sin_addr, a->gid + 12, 4);
		return;
	}
	struct sockaddr_in6 *in = (struct sockaddr_in6 *)s;
	in->sin6_family = AF_INET6;
	in->sin6_port = htons(a->port);
	memcpy(&in->sin6_addr, a->gid, 16);
}

static socklen_t size_of(const struct sockaddr *s)
{
	return s->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int any(const struct v_cm_addr *a)
{
	static const uint8_t zero[16];
	return !memcmp(a->gid, zero, 16) || (mapped(a->gid) && !memcmp(a->gid + 12, zero, 4));
}

static int loopback(const struct v_cm_addr *a)
{
	static const uint8_t six[16] = {[15] = 1};
	return !memcmp(a->gid, six, 16) || (mapped(a->gid) && a->gid[12] == 127);
}

// cm_attach_device gives an identifier the device, and the GIDs.
void cm_attach_device(struct id *p)
{
	p->id.verbs = cm_verbs();
	p->id.pd = cm_pd();
	p->id.port_num = 1;
	p->id.route.addr.addr.ibaddr.pkey = htons(0xffff);
	memcpy(p->id.route.addr.addr.ibaddr.sgid.raw, cm_device()->gid, 16);
}

static void set_port(struct sockaddr *s, uint16_t port)
{
	if (s->sa_family == AF_INET6)
		((struct sockaddr_in6 *)s)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)s)->sin_port = htons(port);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct id *p = (struct id *)id;
	struct v_cm_address m = {.op = V_CM_BIND, .id = p->handle, .flags = p->reuse ? V_CM_REUSE : 0};
	struct v_reply r;
	int err = cm_address(&m.addr, addr);
	if (!err)
		err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (err)
		return cm_fail(err);
	p->bound = 1;
	memcpy(&id->route.addr.src_storage, addr, size_of(addr));
	if (loopback(&m.addr)) { // libfabric binds to it and tells its peer the address: only the device's is of use there
		memcpy(m.addr.gid, cm_device()->gid, 16);
		cm_sockaddr(&id->route.addr.src_storage, &m.addr);
	}
	set_port(&id->route.addr.src_addr, r.send);
	if (!any(&m.addr))
		cm_attach_device(p);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct id *p = (struct id *)id;
	struct v_cm_address m = {.op = V_CM_RESOLVE, .id = p->handle};
	struct v_reply r;
	(void)timeout_ms; // what is known is known at once
	int err = cm_address(&m.addr, dst);
	if (err)
		return cm_fail(err);
	if (src && !p->bound && rdma_bind_addr(id, src))
		return -1;
	err = cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
	if (err)
		return cm_fail(err);
	p->bound = 1;
	struct v_cm_addr own = {.port = r.send};
	memcpy(own.gid, cm_device()->gid, 16);
	cm_sockaddr(&id->route.addr.src_storage, &own);
	memcpy(&id->route.addr.dst_storage, dst, size_of(dst));
	return cm_complete(p);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct id *p = (struct id *)id;
	(void)timeout_ms;
	if (!id->verbs)
		return cm_fail(EINVAL);
	int err = cm_simple(V_CM_ROUTE, p->handle);
	return err ? cm_fail(err) : cm_complete(p);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	const struct rdma_addr *a = &id->route.addr;
	return a->src_addr.sa_family == AF_INET6 ? a->src_sin6.sin6_port : a->src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	const struct rdma_addr *a = &id->route.addr;
	return a->dst_addr.sa_family == AF_INET6 ? a->dst_sin6.sin6_port : a->dst_sin.sin_port;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
	struct id *p = (struct id *)id;
	if (level != RDMA_OPTION_ID)
		return cm_fail(ENOSYS);
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		return size != 1 ? cm_fail(EINVAL) : cm_fail(cm_value(V_CM_TRAFFIC, p->handle, *(uint8_t *)value));
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return size != 1 || *(uint8_t *)value > 31 ? cm_fail(EINVAL) : cm_fail(cm_value(V_CM_TIMEOUT, p->handle, *(uint8_t *)value));
	case RDMA_OPTION_ID_REUSEADDR:
		if (size != sizeof(int))
			return cm_fail(EINVAL);
		p->reuse = *(int *)value;
		return 0;
	case RDMA_OPTION_ID_AFONLY: // a fabric has one family
		return size != sizeof(int) ? cm_fail(EINVAL) : 0;
	}
	return cm_fail(ENOSYS);
}
