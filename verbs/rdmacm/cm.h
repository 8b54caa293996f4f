// SPDX-License-Identifier: Apache-2.0

// Declarations that the files of librdmacm share.
#ifndef MCASTLAB_CM_H
#define MCASTLAB_CM_H
#include "../internal.h"
#include "../rdmacm_protocol.h"

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

// A group that an identifier has joined.
struct group {
	uint8_t gid[16];
	void *context;
	int attached, send_only;
	struct group *next;
};

struct id {
	struct rdma_cm_id id;
	uint32_t handle; // of the NIC's side
	int sync;        // calls wait for their events
	int bound;       // to a port
	int reuse;
	int connecting, listening;
	uint8_t responder, initiator; // what this side answers, and asks
	struct ibv_qp_init_attr *qp_attr; // rdma_create_ep: of the connections to come
	struct ibv_pd *ep_pd;
	struct group *groups;
	struct ibv_sa_path_rec path;
	struct sockaddr_storage src, dst; // before the NIC knows them
	pthread_mutex_t lock;
	pthread_cond_t acked;
	unsigned events, events_acked; // handed to the program
	struct id *next;
};

struct cm_channel {
	struct rdma_event_channel c;
	uint32_t handle;
	_Atomic int waiting; // threads in rdma_get_cm_event
};

struct event {
	struct rdma_cm_event e;
	struct id *of;
	uint8_t data[V_CM_PRIVATE];
};

int cm_open(void);
int cm_call(const void *request, size_t size, void *reply, size_t reply_size, int *fds, int nfds);
int cm_simple(uint32_t op, uint32_t id);
int cm_value(uint32_t op, uint32_t id, uint32_t value);
struct ibv_context *cm_verbs(void);
struct ibv_pd *cm_pd(void);
const struct v_device *cm_device(void);

int cm_create(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
struct id *cm_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
void cm_enter(struct id *p);
struct id *cm_find(uint32_t handle);
void cm_acknowledge(struct id *p);
void cm_drop(struct id *p);
void cm_attach_device(struct id *p);
int cm_complete(struct id *p);
int cm_fail(int err);
int cm_address(struct v_cm_addr *a, const struct sockaddr *s);
void cm_sockaddr(struct sockaddr_storage *s, const struct v_cm_addr *a);
void cm_set_path(struct id *p);
int cm_up(struct id *p);
int cm_qp_error(struct id *p);
int cm_query(struct id *p, struct v_cm_query *q);
void cm_ah(struct ibv_ah_attr *a, const uint8_t gid[16], uint8_t traffic);
#endif
