// SPDX-License-Identifier: Apache-2.0

// Protection domains, parent domains and thread domains.
#include "internal.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *x)
{
	struct v_id m = {V_ALLOC_PD, 0};
	struct v_reply r;
	struct pd *p = calloc(1, sizeof *p);
	if (!p || verbs_call(context_of(x), &m, sizeof m, &r, sizeof r, NULL, 0)) {
		free(p);
		return NULL;
	}
	p->pd.context = x;
	p->pd.handle = p->id = r.id;
	return &p->pd;
}

// A domain is in use if something was made in it, or a parent domain stands for it.
int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct pd *p = (struct pd *)pd;
	if (atomic_load(&p->users))
		return errno = EBUSY;
	if (!p->of) {
		int err = verbs_simple(context_of(pd->context), V_DEALLOC_PD, p->id);
		if (!err)
			free(p);
		return err;
	}
	verbs_release(&p->of->pd);
	if (p->td)
		atomic_fetch_sub(&p->td->users, 1);
	free(p);
	return 0;
}

// verbs_alloc_parent_domain returns a domain that stands for another wherever a domain is asked for. The memory of queues is shared with the
// NIC, so it cannot be the program's: allocators are refused.
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *x, struct ibv_parent_domain_init_attr *a)
{
	struct pd *of = (struct pd *)a->pd;
	if (a->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!of || of->of || of->pd.context != x || (a->td && a->td->context != x)) {
		errno = EINVAL;
		return NULL;
	}
	struct pd *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->pd.context = x;
	p->pd.handle = p->id = of->id;
	p->of = of;
	p->td = (struct td *)a->td;
	p->pd_context = a->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT ? a->pd_context : NULL;
	verbs_hold(&of->pd);
	if (p->td)
		atomic_fetch_add(&p->td->users, 1);
	return &p->pd;
}

// verbs_hold counts something that was made in a domain, or stands for it.
void verbs_hold(struct ibv_pd *p)
{
	atomic_fetch_add(&((struct pd *)p)->users, 1);
}

void verbs_release(struct ibv_pd *p)
{
	atomic_fetch_sub(&((struct pd *)p)->users, 1);
}

// verbs_is_parent_domain reports whether a domain is a parent domain of an open device.
int verbs_is_parent_domain(const struct ibv_pd *p, const struct ibv_context *x)
{
	return p && p->context == x && ((const struct pd *)p)->of;
}

struct ibv_td *verbs_alloc_td(struct ibv_context *x, struct ibv_td_init_attr *a)
{
	if (a->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	struct td *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->td.context = x;
	return &t->td;
}

int verbs_dealloc_td(struct ibv_td *t)
{
	if (atomic_load(&((struct td *)t)->users))
		return errno = EBUSY;
	free(t);
	return 0;
}
