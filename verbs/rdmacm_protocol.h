// SPDX-License-Identifier: Apache-2.0

// The part of the protocol that librdmacm uses (see protocol.h): endpoints of connections, whose events come by a channel
// of V_CREATE_CHANNEL.
#ifndef MCASTLAB_RDMACM_PROTOCOL_H
#define MCASTLAB_RDMACM_PROTOCOL_H
#include "protocol.h"

enum v_cm_op {
	V_CM_CREATE = 64,
	V_CM_DESTROY,
	V_CM_CLOSE_CHANNEL,
	V_CM_BIND,
	V_CM_RESOLVE,
	V_CM_ROUTE,
	V_CM_LISTEN,
	V_CM_CONNECT,
	V_CM_ACCEPT,
	V_CM_REJECT,
	V_CM_DISCONNECT,
	V_CM_ESTABLISH,
	V_CM_JOIN,
	V_CM_QUERY,
	V_CM_MIGRATE,
	V_CM_TRAFFIC,
	V_CM_TIMEOUT,
};

struct v_cm_create {
	uint32_t op, channel, space, zero;
};

struct v_cm_addr {
	uint8_t gid[16]; // an address of IPv4 as a mapped one
	uint16_t port, zero; // the port in host order
};

enum { V_CM_REUSE = 1 };

// V_CM_BIND and V_CM_RESOLVE. In the reply, send is the port of this side.
struct v_cm_address {
	uint32_t op, id, flags, zero;
	struct v_cm_addr addr;
};

// V_CM_LISTEN, V_CM_MIGRATE, V_CM_TRAFFIC and V_CM_TIMEOUT.
struct v_cm_value {
	uint32_t op, id, value;
};

enum { V_CM_PRIVATE = 224 };

// What a side says of a connection.
struct v_cm_params {
	uint32_t qpn, qkey;
	uint8_t responder, initiator, flow, retry, rnr, srq;
	uint16_t length;
	uint8_t data[V_CM_PRIVATE];
};

// V_CM_CONNECT, V_CM_ACCEPT and V_CM_REJECT.
struct v_cm_conn {
	uint32_t op, id;
	struct v_cm_params params;
};

struct v_cm_join {
	uint32_t op, id, flags, zero;
	uint64_t context;
	uint8_t gid[16];
};

// The answer to V_CM_QUERY.
struct v_cm_query {
	struct v_reply reply;
	struct v_cm_addr local, remote;
	uint32_t qpn, qkey, sq_psn, rq_psn, mtu, space; // the MTU in bytes
	uint8_t timeout, retry, rnr, responder, initiator, traffic, known, zero;
};

// What a channel carries; the type is an enum rdma_cm_event_type.
struct v_cm_event {
	uint32_t type, id, listener;
	int32_t status;
	struct v_cm_addr local, remote;
	uint64_t context; // of V_CM_JOIN
	struct v_cm_params params;
};
#endif
