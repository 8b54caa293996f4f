// SPDX-License-Identifier: Apache-2.0

// Memory regions, address handles, multicast groups.
#include "internal.h"

// What a region may be asked for; the optional flags of relaxed ordering are hints.
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static int may_be_asked(unsigned access)
{
	return !(access & ~(unsigned)(RIGHTS | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct v_reg_mr m = {V_REG_MR, ((struct pd *)pd)->id, access & RIGHTS, 0, (uintptr_t)addr, length, iova};
	struct v_reply r;
	if (!may_be_asked(access)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct mr *p = calloc(1, sizeof *p);
	if (!p || verbs_call(context_of(pd->context), &m, sizeof m, &r, sizeof r, NULL, 0)) {
		free(p);
		return NULL;
	}
	p->mr.context = pd->context;
	p->mr.pd = pd;
	p->mr.addr = addr;
	p->mr.length = length;
	p->mr.handle = p->mr.lkey = p->mr.rkey = p->id = r.id;
	verbs_hold(pd);
	return &p->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

static int fail_with(int err, int value)
{
	errno = err;
	return value;
}

// ibv_rereg_mr returns 0, or one of the negative values of enum ibv_rereg_mr_err_code and errno. Whatever it returns but 0, the region is as
// it was. Other memory has other keys.
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct mr *p = (struct mr *)mr;
	struct v_rereg_mr m = {.op = V_REREG_MR, .id = p->id, .flags = flags, .access = access & RIGHTS};
	struct v_reply r;
	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length)) ||
		((flags & IBV_REREG_MR_CHANGE_PD) && !pd) || (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return fail_with(EINVAL, IBV_REREG_MR_ERR_INPUT);
	if (!may_be_asked(access))
		return fail_with(EOPNOTSUPP, IBV_REREG_MR_ERR_CMD);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		if (pd->context != mr->context)
			return fail_with(EINVAL, IBV_REREG_MR_ERR_CMD); // the number of a domain says nothing to another connection
		m.pd = ((struct pd *)pd)->id;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		m.addr = (uintptr_t)addr;
		m.length = length;
	}
	if (verbs_call(context_of(mr->context), &m, sizeof m, &r, sizeof r, NULL, 0))
		return IBV_REREG_MR_ERR_CMD;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		verbs_hold(pd);
		verbs_release(mr->pd);
		mr->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	mr->handle = mr->lkey = mr->rkey = p->id = r.id;
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *m)
{
	int err = verbs_simple(context_of(m->context), V_DEREG_MR, ((struct mr *)m)->id);
	if (!err) {
		verbs_release(m->pd);
		free(m);
	}
	return err;
}

void verbs_path(struct v_path *p, const struct ibv_ah_attr *a)
{
	memcpy(p->gid, a->grh.dgid.raw, sizeof p->gid);
	p->flow = a->grh.flow_label;
	p->traffic_class = a->grh.traffic_class;
	p->hop_limit = a->grh.hop_limit;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct v_create_ah m = {.op = V_CREATE_AH, .pd = ((struct pd *)pd)->id};
	struct v_reply r;
	if (!a->is_global || a->port_num != 1 || a->grh.sgid_index) { // RoCE has no other addresses than GIDs
		errno = EINVAL;
		return NULL;
	}
	verbs_path(&m.path, a);
	struct ah *h = calloc(1, sizeof *h);
	if (!h || verbs_call(context_of(pd->context), &m, sizeof m, &r, sizeof r, NULL, 0)) {
		free(h);
		return NULL;
	}
	h->ah.context = pd->context;
	h->ah.pd = pd;
	h->ah.handle = h->id = r.id;
	verbs_hold(pd);
	return &h->ah;
}

int ibv_destroy_ah(struct ibv_ah *a)
{
	int err = verbs_simple(context_of(a->context), V_DESTROY_AH, ((struct ah *)a)->id);
	if (!err) {
		verbs_release(a->pd);
		free(a);
	}
	return err;
}

// The address of a datagram's sender is in the header of 40 bytes: of IPv4 its last 20 bytes.
int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *a)
{
	(void)c;
	const uint8_t *ip = (const uint8_t *)grh;
	memset(a, 0, sizeof *a);
	if (!(wc->wc_flags & IBV_WC_GRH)) {
		errno = EINVAL;
		return -1;
	}
	a->is_global = 1;
	a->port_num = port;
	a->grh.hop_limit = 255;
	if (ip[0] >> 4 == 6) {
		a->grh.dgid = grh->sgid;
		a->grh.traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
		return 0;
	}
	a->grh.dgid.raw[10] = a->grh.dgid.raw[11] = 0xff;
	memcpy(a->grh.dgid.raw + 12, ip + 20 + 12, 4);
	a->grh.traffic_class = ip[20 + 1];
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &a) ? NULL : ibv_create_ah(pd, &a);
}

static int mcast(struct ibv_qp *q, uint32_t op, const union ibv_gid *gid)
{
	struct v_mcast m = {.op = op, .qpn = q->qp_num};
	struct v_reply r;
	memcpy(m.gid, gid->raw, sizeof m.gid);
	return verbs_call(context_of(q->context), &m, sizeof m, &r, sizeof r, NULL, 0);
}

int ibv_attach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return mcast(q, V_ATTACH_MCAST, gid);
}

int ibv_detach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return mcast(q, V_DETACH_MCAST, gid);
}

// Regions are read and written through the process's own memory file, which a fork does not change for the parent.
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
