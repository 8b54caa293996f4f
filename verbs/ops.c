// SPDX-License-Identifier: Apache-2.0

// The tables of an open device. Operations that are not supported answer EOPNOTSUPP; no entry is NULL.
#include "internal.h"

static int no(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static void *none(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

// All take their arguments in registers or leave the stack to the caller, so one function stands for each kind.
#define REFUSE(field) ((field) = (void *)no)
#define REFUSE_OBJECT(field) ((field) = (void *)none)

void verbs_fill_ops(struct context *c)
{
	struct verbs_context *v = &c->verbs;
	struct ibv_context_ops *ops = &v->context.ops;
	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = ibv_query_port;
	ops->poll_cq = verbs_poll_cq;
	ops->req_notify_cq = verbs_req_notify_cq;
	verbs_fill_post_ops(ops);
	REFUSE_OBJECT(ops->alloc_mw);
	REFUSE(ops->bind_mw);
	REFUSE(ops->dealloc_mw);
	v->query_port = verbs_query_port;
	v->query_device_ex = verbs_query_device_ex;
	v->create_qp_ex = verbs_create_qp_ex;
	v->create_cq_ex = verbs_create_cq_ex;
	v->query_rt_values = verbs_query_rt_values;
	v->create_srq_ex = verbs_create_srq_ex;
	v->alloc_parent_domain = verbs_alloc_parent_domain;
	v->alloc_td = verbs_alloc_td;
	v->dealloc_td = verbs_dealloc_td;
	REFUSE(v->advise_mr);
	REFUSE_OBJECT(v->alloc_null_mr);
	REFUSE(v->read_counters);
	REFUSE(v->attach_counters_point_flow);
	REFUSE_OBJECT(v->create_counters);
	REFUSE(v->destroy_counters);
	REFUSE_OBJECT(v->reg_dm_mr);
	REFUSE_OBJECT(v->alloc_dm);
	REFUSE(v->free_dm);
	REFUSE(v->modify_flow_action_esp);
	REFUSE(v->destroy_flow_action);
	REFUSE_OBJECT(v->create_flow_action_esp);
	REFUSE(v->modify_qp_rate_limit);
	REFUSE(v->modify_cq);
	REFUSE(v->post_srq_ops);
	REFUSE(v->destroy_rwq_ind_table);
	REFUSE_OBJECT(v->create_rwq_ind_table);
	REFUSE(v->destroy_wq);
	REFUSE(v->modify_wq);
	REFUSE_OBJECT(v->create_wq);
	REFUSE(v->ibv_destroy_flow);
	REFUSE_OBJECT(v->ibv_create_flow);
	REFUSE_OBJECT(v->open_qp);
	REFUSE(v->get_srq_num);
	REFUSE_OBJECT(v->open_xrcd);
	REFUSE(v->close_xrcd);
}
