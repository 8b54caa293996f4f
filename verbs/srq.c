// SPDX-License-Identifier: Apache-2.0

// Shared receive queues.
#include "internal.h"

#include <sys/mman.h>

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct context *c = context_of(pd->context);
	struct v_create_srq m = {V_CREATE_SRQ, ((struct pd *)pd)->id, a->attr.max_wr, a->attr.max_sge ? a->attr.max_sge : 1};
	struct v_reply r;
	int fd;
	struct srq *q = calloc(1, sizeof *q);
	if (!q || verbs_call(c, &m, sizeof m, &r, sizeof r, &fd, 1)) {
		free(q);
		return NULL;
	}
	q->id = r.id;
	q->recvs = r.recv;
	q->max_sge = m.sge;
	q->size = V_RING_HEADER + (size_t)r.recv * sizeof *q->re;
	q->rq = verbs_map(fd, q->size);
	if (!q->rq) {
		verbs_simple(c, V_DESTROY_SRQ, q->id);
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	q->re = (struct v_recv *)(q->rq + 1);
	pthread_mutex_init(&q->lock, NULL);
	a->attr.max_wr = q->recvs;
	a->attr.max_sge = q->max_sge;
	q->s.context = pd->context;
	q->s.srq_context = a->srq_context;
	q->s.pd = pd;
	verbs_hold(pd);
	q->s.handle = q->id;
	pthread_mutex_init(&q->s.mutex, NULL);
	pthread_cond_init(&q->s.cond, NULL);
	pthread_mutex_lock(&c->objects);
	q->next = c->srqs;
	c->srqs = q;
	pthread_mutex_unlock(&c->objects);
	return &q->s;
}

// There are basic ones only: neither XRC nor tag matching.
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *x, struct ibv_srq_init_attr_ex *a)
{
	struct ibv_srq_init_attr basic = {.srq_context = a->srq_context, .attr = a->attr};
	(void)x;
	if ((a->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD)) ||
		((a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && a->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		errno = EINVAL;
		return NULL;
	}
	struct ibv_srq *s = ibv_create_srq(a->pd, &basic);
	if (s)
		a->attr = basic.attr;
	return s;
}

// The size stays: the device does not say IBV_DEVICE_SRQ_RESIZE.
int ibv_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *a, int mask)
{
	struct v_modify_srq m = {V_MODIFY_SRQ, ((struct srq *)s)->id, a->srq_limit};
	struct v_reply r;
	if (mask & ~IBV_SRQ_LIMIT)
		return errno = EOPNOTSUPP;
	if (!mask)
		return 0;
	return verbs_call(context_of(s->context), &m, sizeof m, &r, sizeof r, NULL, 0);
}

int ibv_query_srq(struct ibv_srq *s, struct ibv_srq_attr *a)
{
	struct srq *q = (struct srq *)s;
	struct v_id m = {V_QUERY_SRQ, q->id};
	struct v_reply r;
	int err = verbs_call(context_of(s->context), &m, sizeof m, &r, sizeof r, NULL, 0);
	if (!err)
		*a = (struct ibv_srq_attr){.max_wr = q->recvs, .max_sge = q->max_sge, .srq_limit = r.recv};
	return err;
}

int ibv_destroy_srq(struct ibv_srq *s)
{
	struct srq *q = (struct srq *)s;
	struct context *c = context_of(s->context);
	int err = verbs_simple(c, V_DESTROY_SRQ, q->id);
	if (err)
		return err;
	pthread_mutex_lock(&c->objects);
	for (struct srq **p = &c->srqs; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	pthread_mutex_unlock(&c->objects);
	pthread_mutex_lock(&s->mutex);
	while (q->events != s->events_completed)
		pthread_cond_wait(&s->cond, &s->mutex);
	pthread_mutex_unlock(&s->mutex);
	munmap(q->rq, q->size);
	verbs_release(s->pd);
	free(q);
	return 0;
}
