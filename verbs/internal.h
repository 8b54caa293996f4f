// SPDX-License-Identifier: Apache-2.0

// Declarations that the files of the library share.
#ifndef MCASTLAB_INTERNAL_H
#define MCASTLAB_INTERNAL_H
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

// The header makes macros of these, which add to what is exported.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// The device. Providers of other NICs, which perftest links, compare an operation behind the public part with their own.
struct device {
	struct ibv_device d;
	char pad[256];
	char path[108]; // of the socket
	struct v_device attr;
	_Atomic int users; // lists and contexts
};

// An open device: a connection of its own. The program sees verbs.context.
struct context {
	int sock, bell;
	struct v_page *page;
	struct v_device attr;
	pthread_mutex_t lock; // of the connection: one request at a time
	pthread_mutex_t objects;
	struct cq *cqs;
	struct qp *qps;
	struct srq *srqs;
	struct verbs_context verbs;
};

// A protection domain, or one that stands for it (a parent domain), with the number of the other.
struct pd {
	struct ibv_pd pd;
	uint32_t id;
	struct pd *of;     // NULL: it is no parent domain
	struct td *td;     // of a parent domain; NULL: none
	void *pd_context;  // of a parent domain: the program's
	_Atomic int users; // what was made in it, and parent domains that stand for it
};

// A thread domain says that its program makes calls of what is in it from one thread at a time. Locks stay: they cost little uncontended.
struct td {
	struct ibv_td td;
	_Atomic int users;
};

struct mr {
	struct ibv_mr mr;
	char pad[128]; // providers keep private fields here
	uint32_t id;
};

struct ah {
	struct ibv_ah ah;
	uint32_t id;
};

struct channel {
	struct ibv_comp_channel c;
	uint32_t id;
};

struct cq {
	struct ibv_cq_ex x;
	uint32_t id, entries;
	struct v_ring *ring;
	struct v_completion *e;
	size_t size;
	pthread_mutex_t lock;
	struct cq *next;
	struct ibv_pd *parent; // the parent domain that it was made in, or NULL
	unsigned events, async_events; // handed to the program
	struct v_completion now;       // extended polling: the completion being read
	uint64_t next_at;              // extended polling: the one after it
};

struct srq {
	struct ibv_srq s;
	uint32_t id, recvs, max_sge; // recvs: entries of the ring
	struct v_ring *rq;
	struct v_recv *re;
	size_t size;
	pthread_mutex_t lock;
	struct srq *next;
	unsigned events; // handed to the program
};

struct qp {
	struct ibv_qp_ex x;
	struct v_ring *sq, *rq;
	struct v_send *se;
	struct v_recv *re;
	uint32_t sends, recvs; // entries of the rings
	size_t size;
	pthread_mutex_t send_lock, recv_lock;
	struct ibv_qp_cap cap;
	int sig_all, is_ex;
	uint32_t mtu;        // of the path, in bytes; 0 before RTR
	uint64_t pending;    // extended posting: head with what has been built since wr_start
	struct v_send *last; // extended posting: the request being built
	int failed;          // extended posting: what wr_complete returns
	struct qp *next;
	unsigned events; // handed to the program
};

// verbs_wc_flags returns enum ibv_wc_flags of a completion's flags.
static inline unsigned verbs_wc_flags(uint32_t flags)
{
	return (flags & V_WC_IMM ? IBV_WC_WITH_IMM : 0) | (flags & V_WC_INV ? IBV_WC_WITH_INV : 0) | (flags & V_WC_GRH ? IBV_WC_GRH : 0);
}

static inline struct context *context_of(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, verbs.context));
}

// verbs_sl returns the service level of a completion. RoCE has none; in its place devices of Mellanox say which header
// a datagram had, 1: IPv6, 2: IPv4. UCX goes by it.
static inline uint8_t verbs_sl(const struct context *c, uint32_t flags)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return !(flags & V_WC_GRH) ? 0 : memcmp(c->attr.gid, mapped, sizeof mapped) ? 1 : 2;
}

int verbs_exchange(int sock, const void *request, size_t size, int fd, void *reply, size_t reply_size, int *fds, int nfds);
int verbs_connect(const char *path, int *sock, struct v_device *attr, int fds[3]);
int verbs_call(struct context *c, const void *request, size_t size, void *reply, size_t reply_size, int *fds, int nfds);
int verbs_simple(struct context *c, uint32_t op, uint32_t id);
void *verbs_map(int fd, size_t size);
void verbs_ring(struct context *c);
void verbs_fill_ops(struct context *c);
void verbs_fill_post_ops(struct ibv_context_ops *ops);
void verbs_let_go(struct context *c, const struct ibv_qp *b);
int verbs_fits(const struct qp *q, enum ibv_wr_opcode op, uint64_t length);
int verbs_takes(enum ibv_qp_type type, enum ibv_wr_opcode op);
uint64_t verbs_ex_ops(enum ibv_qp_type type);
void verbs_fill_ex(struct qp *q, uint64_t ops);
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
int verbs_poll_cq(struct ibv_cq *c, int n, struct ibv_wc *wc);
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
void verbs_forget(struct ibv_cq *cq, uint32_t qpn);
void verbs_idle(void);
void verbs_found(void);
void verbs_progress(void);
int verbs_req_notify_cq(struct ibv_cq *c, int solicited_only);
int verbs_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *p, size_t size);
int verbs_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v);
int verbs_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size);
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *x, struct ibv_parent_domain_init_attr *a);
struct ibv_td *verbs_alloc_td(struct ibv_context *x, struct ibv_td_init_attr *a);
int verbs_dealloc_td(struct ibv_td *t);
void verbs_hold(struct ibv_pd *p);
void verbs_release(struct ibv_pd *p);
int verbs_is_parent_domain(const struct ibv_pd *p, const struct ibv_context *x);
__be64 verbs_guid(const struct v_device *a);
void verbs_speed(uint32_t mbps, struct ibv_port_attr *a);
void verbs_path(struct v_path *p, const struct ibv_ah_attr *a);
#endif
