// SPDX-License-Identifier: Apache-2.0

// Where protocol.h puts things.
#include <stddef.h>
#include <stdio.h>

#include "rdmacm_protocol.h"

#define SIZE(op, s) printf("%d %zu\n", op, sizeof(struct s))
#define AT(s, f) printf(#s "." #f " %zu\n", offsetof(struct s, f))

int main(void)
{
	SIZE(V_HELLO, v_hello);
	SIZE(V_ALLOC_PD, v_id);
	SIZE(V_REG_MR, v_reg_mr);
	SIZE(V_CREATE_CQ, v_create_cq);
	SIZE(V_CREATE_QP, v_create_qp);
	SIZE(V_MODIFY_QP, v_modify_qp);
	SIZE(V_QUERY_QP, v_id);
	SIZE(V_CREATE_AH, v_create_ah);
	SIZE(V_DETACH_MCAST, v_mcast);
	SIZE(V_CREATE_SRQ, v_create_srq);
	SIZE(V_MODIFY_SRQ, v_modify_srq);
	SIZE(V_QUERY_SRQ, v_id);
	SIZE(V_RESIZE_CQ, v_resize_cq);
	SIZE(V_CLOCK, v_id);
	SIZE(V_UNSENT, v_id);
	SIZE(V_REREG_MR, v_rereg_mr);
	SIZE(V_GROUP_WANT, v_id);
	SIZE(V_GROUP_MEMBER, v_group_member);
	SIZE(V_GROUP_REGISTER, v_group);
	SIZE(V_GROUP_STATUS, v_group);
	SIZE(V_GROUP_SOURCE, v_group_source);
	printf("group_grant %zu\n", sizeof(struct v_group_grant));
	SIZE(V_PROGRAM, v_id);
	SIZE(V_THREAD, v_thread);
	SIZE(V_PARK, v_park);
	SIZE(V_BYE, v_id);
	SIZE(V_EXPECT, v_id);
	SIZE(V_DIES, v_id);
	printf("turn %zu\n", sizeof(struct v_turn));
	AT(v_park, until), AT(v_park, grid), AT(v_turn, now);
	AT(v_seat, busy), AT(v_seat, asleep), AT(v_seat, served), AT(v_seat, said);
	printf("seat %zu\n", sizeof(struct v_seat));
	printf("clock %zu\n", sizeof(struct v_clock));
	printf("reply %zu\ndevice %zu\nqueried %zu\nevent %zu\n", sizeof(struct v_reply), sizeof(struct v_device), sizeof(struct v_queried),
		sizeof(struct v_event));
	AT(v_reg_mr, access), AT(v_reg_mr, addr), AT(v_reg_mr, iova);
	AT(v_modify_qp, attr), AT(v_attr, path_mtu), AT(v_attr, qkey), AT(v_attr, path);
	AT(v_device, version), AT(v_device, max_inline), AT(v_device, gid);
	AT(v_ring, head), AT(v_ring, tail), AT(v_ring, armed), AT(v_ring, starved);
	AT(v_send, remote_addr), AT(v_send, compare_add), AT(v_send, swap), AT(v_send, opcode), AT(v_send, inline_length);
	AT(v_send, imm), AT(v_send, ah), AT(v_send, qkey), AT(v_send, sge), AT(v_send, data);
	AT(v_recv, sges), AT(v_recv, sge), AT(v_sge, length), AT(v_sge, lkey);
	AT(v_completion, status), AT(v_completion, src_qp), AT(v_completion, flags), AT(v_completion, ns);
	SIZE(V_CM_CREATE, v_cm_create);
	SIZE(V_CM_DESTROY, v_id);
	SIZE(V_CM_BIND, v_cm_address);
	SIZE(V_CM_RESOLVE, v_cm_address);
	SIZE(V_CM_LISTEN, v_cm_value);
	SIZE(V_CM_CONNECT, v_cm_conn);
	SIZE(V_CM_REJECT, v_cm_conn);
	SIZE(V_CM_JOIN, v_cm_join);
	SIZE(V_CM_QUERY, v_id);
	SIZE(V_CM_TIMEOUT, v_cm_value);
	printf("cm_query %zu\ncm_event %zu\n", sizeof(struct v_cm_query), sizeof(struct v_cm_event));
	AT(v_cm_address, addr), AT(v_cm_addr, port), AT(v_cm_conn, params), AT(v_cm_params, responder), AT(v_cm_params, length), AT(v_cm_params, data);
	AT(v_cm_join, context), AT(v_cm_join, gid), AT(v_cm_query, remote), AT(v_cm_query, qpn), AT(v_cm_query, timeout), AT(v_cm_query, known);
	AT(v_cm_event, local), AT(v_cm_event, context), AT(v_cm_event, params);
	return 0;
}
