// SPDX-License-Identifier: Apache-2.0

// Asks the device for each limit that it advertises, and for one more. A field of an attribute structure that is not zero and that no entry
// of a table covers fails, so a limit that is new has to be given a test. The argument says which part is run.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHECK(c) do { if (!(c)) { fprintf(stderr, "limits.c:%d: not %s (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)
#define IS(have, want) do { long long h_ = (have), w_ = (want); if (h_ != w_) { fprintf(stderr, "limits.c:%d: %s is %lld, not %lld (errno %d)\n", __LINE__, #have, h_, w_, errno); exit(1); } } while (0)

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, SIZE = 8192, GRH = 40 };

static struct ibv_context *x;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_device_attr_ex dev;
static struct ibv_port_attr port;
static union ibv_gid gid;
static char buf[SIZE] __attribute__((aligned(64)));
static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

static struct ibv_qp *try_qp(enum ibv_qp_type type, struct ibv_srq *s, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .srq = s, .cap = *cap, .qp_type = type, .sq_sig_all = 1};
	errno = 0;
	struct ibv_qp *q = ibv_create_qp(pd, &a);
	if (q)
		*cap = a.cap;
	return q;
}

static int modify(struct ibv_qp *q, enum ibv_qp_state to, const struct ibv_qp *peer, int rd, int mtu)
{
	int ud = q->qp_type == IBV_QPT_UD, rc = q->qp_type == IBV_QPT_RC, mask = IBV_QP_STATE;
	struct ibv_qp_attr a = {
		.qp_state = to, .port_num = 1, .qp_access_flags = ALL, .qkey = 0x11, .path_mtu = mtu, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = rd, .max_rd_atomic = rd,
		.min_rnr_timer = 14 /* 1 ms: a slow NIC answers nothing else at 10 us */, .timeout = 0, .retry_cnt = 7, .rnr_retry = 7, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
	};
	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	else if (to == IBV_QPS_RTR && !ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	else if (to == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
	return ibv_modify_qp(q, &a, mask);
}

// rise brings a queue pair to RTS, connected to its peer at the same NIC.
static void rise(struct ibv_qp *q, const struct ibv_qp *peer)
{
	IS(modify(q, IBV_QPS_INIT, peer, 1, 0), 0);
	IS(modify(q, IBV_QPS_RTR, peer, 1, IBV_MTU_1024), 0);
	IS(modify(q, IBV_QPS_RTS, peer, 1, 0), 0);
}

static struct ibv_wc wait_one(void)
{
	struct ibv_wc w;
	while (ibv_poll_cq(cq, 1, &w) < 1)
		;
	return w;
}

static int posts_recv(struct ibv_qp *q, struct ibv_srq *s, uint32_t length)
{
	struct ibv_sge e = {(uintptr_t)buf, length, mr->lkey};
	struct ibv_recv_wr w = {.sg_list = &e, .num_sge = 1}, *bad;
	return s ? ibv_post_srq_recv(s, &w, &bad) : ibv_post_recv(q, &w, &bad);
}

static int posts_send(struct ibv_qp *q, uint32_t length, int flags)
{
	struct ibv_sge e = {(uintptr_t)buf, length, mr->lkey};
	struct ibv_send_wr w = {.sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
	return ibv_post_send(q, &w, &bad);
}

// Many: as many objects of a kind as there may be, and one more.

static void *an_mr(void) { return ibv_reg_mr(pd, buf, sizeof buf, ALL); }
static void *a_pd(void) { return ibv_alloc_pd(x); }
static void *a_cq(void) { return ibv_create_cq(x, 1, NULL, NULL, 0); }
static void *a_qp(void) { return try_qp(IBV_QPT_UD, NULL, &(struct ibv_qp_cap){1, 1, 1, 1, 0}); }
static void *an_srq(void) { return ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr = {1, 1, 0}}); }
static void *an_mw(void) { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); }
static void *an_ah(void)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
	return ibv_create_ah(pd, &a);
}

static void many(uint64_t n, void *(*make)(void), int (*give_back)(void *), uint64_t have)
{
	void **all = calloc(n + 1, sizeof *all);
	CHECK(all);
	for (int round = 0; round < 2; round++) { // what is given back may be had again
		for (uint64_t i = have; i < n; i++)
			CHECK(all[i] = make());
		errno = 0;
		CHECK(!make());
		CHECK(errno == ENOMEM || (!n && errno == EOPNOTSUPP));
		for (uint64_t i = n; i-- > have && !round;)
			IS(give_back(all[i]), 0);
	}
	for (uint64_t i = have; i < n; i++)
		IS(give_back(all[i]), 0);
	free(all);
}

#define MANY(name, make, give_back, have) static void name(uint64_t n) { many(n, make, (int (*)(void *))give_back, have); }
MANY(max_qp, a_qp, ibv_destroy_qp, 0)
MANY(max_cq, a_cq, ibv_destroy_cq, 1)
MANY(max_mr, an_mr, ibv_dereg_mr, 1)
MANY(max_pd, a_pd, ibv_dealloc_pd, 1)
MANY(max_ah, an_ah, ibv_destroy_ah, 0)
MANY(max_srq, an_srq, ibv_destroy_srq, 0)
MANY(max_mw, an_mw, ibv_dealloc_mw, 0)

// Sizes.

static void max_mr_size(uint64_t n)
{
	char *far = mmap(NULL, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(far != MAP_FAILED);
	struct ibv_mr *m = ibv_reg_mr(pd, far, n, ALL);
	CHECK(m);
	IS(ibv_dereg_mr(m), 0);
	CHECK(!ibv_reg_mr(pd, far, n + 1, ALL));
	IS(munmap(far, n + 4096), 0);
}

static void max_cqe(uint64_t n)
{
	struct ibv_cq *q = ibv_create_cq(x, n, NULL, NULL, 0);
	CHECK(q && (uint64_t)q->cqe >= n);
	IS(ibv_destroy_cq(q), 0);
	CHECK(!ibv_create_cq(x, n + 1, NULL, NULL, 0));
	CHECK(!ibv_create_cq(x, 0, NULL, NULL, 0));
	CHECK(q = ibv_create_cq(x, 1, NULL, NULL, 0));
	IS(ibv_resize_cq(q, n), 0);
	CHECK((uint64_t)q->cqe >= n);
	CHECK(ibv_resize_cq(q, n + 1));
	IS(ibv_destroy_cq(q), 0);
}

// caps asks for a queue pair of each type, and the same and more of its receive queue with a shared one, which stands in for it.
static void caps(struct ibv_qp_cap ok, struct ibv_qp_cap more, int receives)
{
	struct ibv_srq *s = an_srq();
	CHECK(s);
	for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
		struct ibv_qp_cap got = ok;
		struct ibv_qp *q = try_qp(types[t], NULL, &got);
		CHECK(q && got.max_send_wr >= ok.max_send_wr && got.max_recv_wr >= ok.max_recv_wr);
		CHECK(got.max_send_sge >= ok.max_send_sge && got.max_recv_sge >= ok.max_recv_sge && got.max_inline_data >= ok.max_inline_data);
		IS(ibv_destroy_qp(q), 0);
		got = more;
		CHECK(!try_qp(types[t], NULL, &got));
		IS(errno, EINVAL);
		if (types[t] == IBV_QPT_UC)
			continue;
		got = more;
		q = try_qp(types[t], s, &got);
		IS(!!q, receives);
		if (q)
			IS(ibv_destroy_qp(q), 0);
	}
	IS(ibv_destroy_srq(s), 0);
}

static void max_qp_wr(uint64_t n)
{
	caps((struct ibv_qp_cap){n, n, 1, 1, 0}, (struct ibv_qp_cap){n + 1, 1, 1, 1, 0}, 0);
	caps((struct ibv_qp_cap){0, 0, 0, 0, 0}, (struct ibv_qp_cap){1, n + 1, 1, 1, 0}, 1);
	caps((struct ibv_qp_cap){0, 0, 0, 0, 0}, (struct ibv_qp_cap){1, UINT32_MAX, 1, UINT32_MAX, 0}, 1);
}

static void max_sge(uint64_t n)
{
	caps((struct ibv_qp_cap){1, 1, n, n, 0}, (struct ibv_qp_cap){1, 1, n + 1, 1, 0}, 0);
	caps((struct ibv_qp_cap){1, 1, n, n, 0}, (struct ibv_qp_cap){1, 1, 1, n + 1, 0}, 1);
}

static void max_srq_wr(uint64_t n)
{
	struct ibv_srq_init_attr a = {.attr = {n, 1, 0}};
	struct ibv_srq *s = ibv_create_srq(pd, &a);
	CHECK(s && a.attr.max_wr >= n);
	struct ibv_srq_attr limit = {.srq_limit = a.attr.max_wr};
	IS(ibv_modify_srq(s, &limit, IBV_SRQ_LIMIT), 0);
	limit.srq_limit++;
	CHECK(ibv_modify_srq(s, &limit, IBV_SRQ_LIMIT));
	IS(ibv_destroy_srq(s), 0);
	a = (struct ibv_srq_init_attr){.attr = {n + 1, 1, 0}};
	CHECK(!ibv_create_srq(pd, &a));
}

static void max_srq_sge(uint64_t n)
{
	struct ibv_srq_init_attr a = {.attr = {1, n, 0}};
	struct ibv_srq *s = ibv_create_srq(pd, &a);
	CHECK(s && a.attr.max_sge >= n);
	struct ibv_sge list[n + 1];
	struct ibv_recv_wr w = {.sg_list = list, .num_sge = n}, *bad;
	memset(list, 0, sizeof list);
	IS(ibv_post_srq_recv(s, &w, &bad), 0);
	w.num_sge++;
	IS(ibv_post_srq_recv(s, &w, &bad), EINVAL);
	IS(ibv_destroy_srq(s), 0);
	a = (struct ibv_srq_init_attr){.attr = {1, n + 1, 0}};
	CHECK(!ibv_create_srq(pd, &a));
}

static void pair(enum ibv_qp_type type, struct ibv_srq *s, struct ibv_qp_cap *cap, struct ibv_qp **a, struct ibv_qp **b)
{
	struct ibv_qp_cap other = *cap;
	CHECK(*a = try_qp(type, s, cap));
	CHECK(*b = try_qp(type, s, &other));
	rise(*a, *b);
	rise(*b, *a);
}

static void unpair(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_wc w;
	IS(ibv_destroy_qp(a), 0);
	IS(ibv_destroy_qp(b), 0);
	while (ibv_poll_cq(cq, 1, &w) > 0)
		;
}

static void max_sge_rd(uint64_t n)
{
	struct ibv_qp_cap cap = {1, 1, n, 1, 0};
	struct ibv_qp *a, *b;
	struct ibv_sge list[n + 1];
	pair(IBV_QPT_RC, NULL, &cap, &a, &b);
	for (uint64_t i = 0; i < sizeof buf; i++)
		buf[i] = i < n ? i + 1 : 0;
	for (uint64_t i = 0; i <= n; i++)
		list[i] = (struct ibv_sge){(uintptr_t)buf + 4096 + 2 * i, 1, mr->lkey};
	struct ibv_send_wr w = {.sg_list = list, .num_sge = n, .opcode = IBV_WR_RDMA_READ, .wr.rdma = {(uintptr_t)buf, mr->rkey}}, *bad;
	IS(ibv_post_send(a, &w, &bad), 0);
	IS(wait_one().status, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < n; i++)
		IS(buf[4096 + 2 * i], i + 1);
	w.num_sge++;
	IS(ibv_post_send(a, &w, &bad), EINVAL);
	unpair(a, b);
}

static void rd_atom(uint64_t n)
{
	struct ibv_qp_cap cap = {1, 1, 1, 1, 0};
	for (int more = 0; more < 3; more++) { // 1: of what it takes, 2: of what it asks
		struct ibv_qp *q = try_qp(IBV_QPT_RC, NULL, &cap);
		CHECK(q);
		IS(modify(q, IBV_QPS_INIT, q, 0, 0), 0);
		IS(!!modify(q, IBV_QPS_RTR, q, more == 1 ? n + 1 : n, IBV_MTU_1024), more == 1);
		if (more != 1)
			IS(!!modify(q, IBV_QPS_RTS, q, more == 2 ? n + 1 : n, 0), more == 2);
		IS(ibv_destroy_qp(q), 0);
	}
}

static void max_res_rd_atom(uint64_t n) { CHECK(n >= (uint64_t)dev.orig_attr.max_qp * dev.orig_attr.max_qp_rd_atom); }

static union ibv_gid group(uint32_t i)
{
	union ibv_gid g = {{0}};
	memset(g.raw + 10, 0xff, 2);
	g.raw[12] = 225;
	g.raw[13] = 1 + (i >> 16);
	g.raw[14] = i >> 8;
	g.raw[15] = i;
	return g;
}

static void max_mcast_grp(uint64_t n)
{
	struct ibv_qp *q = a_qp();
	union ibv_gid g;
	CHECK(q);
	for (uint64_t i = 0; i < n; i++)
		IS((g = group(i), ibv_attach_mcast(q, &g, 0)), 0);
	IS((g = group(0), ibv_attach_mcast(q, &g, 0)), 0); // again
	IS((g = group(n), ibv_attach_mcast(q, &g, 0)), ENOMEM);
	for (uint64_t i = 0; i < n; i++)
		IS((g = group(i), ibv_detach_mcast(q, &g, 0)), 0);
	IS(ibv_destroy_qp(q), 0);
}

static void max_mcast_qp_attach(uint64_t n)
{
	struct ibv_qp *q[n + 1];
	union ibv_gid g = group(7);
	for (uint64_t i = 0; i <= n; i++) {
		CHECK(q[i] = a_qp());
		IS(ibv_attach_mcast(q[i], &g, 0), i < n ? 0 : ENOMEM);
	}
	for (uint64_t i = 0; i <= n; i++) {
		if (i < n)
			IS(ibv_detach_mcast(q[i], &g, 0), 0);
		IS(ibv_destroy_qp(q[i]), 0);
	}
}

static void max_total_mcast_qp_attach(uint64_t n) { IS(n, (uint64_t)dev.orig_attr.max_mcast_grp * dev.orig_attr.max_mcast_qp_attach); }

static void max_pkeys(uint64_t n)
{
	__be16 key;
	IS(ibv_query_pkey(x, 1, n - 1, &key), 0);
	IS(ibv_query_pkey(x, 1, n, &key), -1);
	IS(n, port.pkey_tbl_len);
}

static void ports(uint64_t n)
{
	struct ibv_port_attr a;
	IS(ibv_query_port(x, 0, &a), EINVAL);
	IS(ibv_query_port(x, n, &a), 0);
	IS(ibv_query_port(x, n + 1, &a), EINVAL);
}

// What is not limited, or what zero says: the entries above would be refused.
static void no_limit(uint64_t n) { (void)n; }
static void raw_qp(uint64_t n)
{
	IS(n, 0);
	CHECK(!try_qp(IBV_QPT_RAW_PACKET, NULL, &(struct ibv_qp_cap){1, 1, 1, 1, 0}));
	IS(errno, EOPNOTSUPP);
}

// The port's.

static void max_mtu(uint64_t n)
{
	struct ibv_qp_cap cap = {1, 1, 1, 1, 0};
	for (uint64_t mtu = n; mtu <= n + 1; mtu++) {
		struct ibv_qp *q = try_qp(IBV_QPT_RC, NULL, &cap);
		CHECK(q);
		IS(modify(q, IBV_QPS_INIT, q, 0, 0), 0);
		IS(!!modify(q, IBV_QPS_RTR, q, 1, mtu), mtu > n);
		IS(ibv_destroy_qp(q), 0);
	}
}

static void gid_tbl_len(uint64_t n)
{
	union ibv_gid g;
	IS(ibv_query_gid(x, 1, n - 1, &g), 0);
	IS(ibv_query_gid(x, 1, n, &g), -1);
}

// Its READ is refused by the peer, whose key it does not have, so that no bytes travel.
static void max_msg_sz(uint64_t n)
{
	char *far = mmap(NULL, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *m;
	CHECK(far != MAP_FAILED && (m = ibv_reg_mr(pd, far, n + 4096, ALL)));
	for (int more = 0; more < 2; more++) {
		struct ibv_qp_cap cap = {1, 1, 1, 2, 0};
		struct ibv_qp *a, *b;
		pair(IBV_QPT_RC, NULL, &cap, &a, &b);
		struct ibv_sge e = {(uintptr_t)far, n + more, m->lkey};
		struct ibv_send_wr w = {.sg_list = &e, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .wr.rdma = {(uintptr_t)far, 1}}, *bad;
		IS(ibv_post_send(a, &w, &bad), more ? EINVAL : 0);
		if (!more)
			IS(wait_one().status, IBV_WC_REM_ACCESS_ERR);
		struct ibv_sge two[] = {{(uintptr_t)far, n - 1, m->lkey}, {(uintptr_t)far, 1 + more, m->lkey}};
		struct ibv_recv_wr r = {.sg_list = two, .num_sge = 2}, *bad_r;
		IS(ibv_post_recv(a, &r, &bad_r), more ? EINVAL : 0);
		unpair(a, b);
	}
	IS(ibv_dereg_mr(m), 0);
	IS(munmap(far, n + 4096), 0);
}

struct limit {
	const char *name;
	size_t at, size;
	void (*ask)(uint64_t n);
};

#define DEV(field, ask) {#field, offsetof(struct ibv_device_attr_ex, orig_attr.field), sizeof dev.orig_attr.field, ask}
#define EX(field, ask) {#field, offsetof(struct ibv_device_attr_ex, field), sizeof dev.field, ask}
static const struct limit device_limits[] = {
	DEV(fw_ver, no_limit), DEV(node_guid, no_limit), DEV(sys_image_guid, no_limit), DEV(vendor_id, no_limit), DEV(vendor_part_id, no_limit),
	DEV(hw_ver, no_limit), DEV(page_size_cap, no_limit), DEV(device_cap_flags, no_limit), DEV(atomic_cap, no_limit), DEV(local_ca_ack_delay, no_limit),
	DEV(max_mr_size, max_mr_size), DEV(max_qp, max_qp), DEV(max_qp_wr, max_qp_wr), DEV(max_sge, max_sge), DEV(max_sge_rd, max_sge_rd), DEV(max_cq, max_cq),
	DEV(max_cqe, max_cqe), DEV(max_mr, max_mr), DEV(max_pd, max_pd), DEV(max_qp_rd_atom, rd_atom), DEV(max_qp_init_rd_atom, rd_atom),
	DEV(max_res_rd_atom, max_res_rd_atom), DEV(max_mw, max_mw), DEV(max_raw_ipv6_qp, raw_qp), DEV(max_raw_ethy_qp, raw_qp), DEV(max_mcast_grp, max_mcast_grp),
	DEV(max_mcast_qp_attach, max_mcast_qp_attach), DEV(max_total_mcast_qp_attach, max_total_mcast_qp_attach), DEV(max_ah, max_ah), DEV(max_srq, max_srq),
	DEV(max_srq_wr, max_srq_wr), DEV(max_srq_sge, max_srq_sge), DEV(max_pkeys, max_pkeys), DEV(phys_port_cnt, ports),
	EX(completion_timestamp_mask, no_limit), EX(hca_core_clock, no_limit), EX(device_cap_flags_ex, no_limit), EX(phys_port_cnt_ex, ports),
};

#define PORT(field, ask) {#field, offsetof(struct ibv_port_attr, field), sizeof port.field, ask}
static const struct limit port_limits[] = {
	PORT(state, no_limit), PORT(max_mtu, max_mtu), PORT(active_mtu, max_mtu), PORT(gid_tbl_len, gid_tbl_len), PORT(port_cap_flags, no_limit),
	PORT(max_msg_sz, max_msg_sz), PORT(pkey_tbl_len, max_pkeys), PORT(max_vl_num, no_limit), PORT(active_width, no_limit), PORT(active_speed, no_limit),
	PORT(phys_state, no_limit), PORT(link_layer, no_limit),
};

static void sweep(const char *what, const void *attr, size_t size, const struct limit *l, size_t n)
{
	unsigned char left[size];
	memcpy(left, attr, size);
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 0;
		memcpy(&value, left + l[i].at, l[i].size < 8 ? l[i].size : 8);
		memset(left + l[i].at, 0, l[i].size);
		l[i].ask(value);
		printf("%s %s: %llu\n", what, l[i].name, (unsigned long long)value);
	}
	for (size_t i = 0; i < size; i++)
		if (left[i]) {
			fprintf(stderr, "limits.c: byte %zu of the %s's attributes is %d, and no test asks for it\n", i, what, left[i]);
			exit(1);
		}
}

static void advertised(void)
{
	sweep("device", &dev, sizeof dev, device_limits, sizeof device_limits / sizeof *device_limits);
	sweep("port", &port, sizeof port, port_limits, sizeof port_limits / sizeof *port_limits);
	struct ibv_cq *q = ibv_create_cq(x, 1, NULL, NULL, x->num_comp_vectors - 1);
	CHECK(q && !ibv_create_cq(x, 1, NULL, NULL, x->num_comp_vectors));
	IS(ibv_destroy_cq(q), 0);
}

// Depths: a queue takes what was granted, however long its program waits between two requests, and one more when one has completed.

// taken has the NIC look at all rings: it takes what is posted before an address handle goes, and receives when a message comes.
static void taken(void)
{
	struct ibv_ah *h = an_ah();
	CHECK(h);
	IS(ibv_destroy_ah(h), 0);
}

static void receives(uint32_t depth, int shared)
{
	struct ibv_srq_init_attr si = {.attr = {depth, 1, 0}};
	struct ibv_qp_cap cap = {4, shared ? 0 : depth, 1, shared ? 0 : 1, 0};
	struct ibv_srq *s = NULL;
	struct ibv_qp *a, *b;
	CHECK(!shared || (s = ibv_create_srq(pd, &si)));
	pair(IBV_QPT_RC, s, &cap, &a, &b);
	uint32_t granted = shared ? si.attr.max_wr : cap.max_recv_wr, n = 0;
	CHECK(granted >= depth);
	for (; n < (granted + 1) / 2; n++)
		IS(posts_recv(b, s, 64), 0);
	for (int round = 0; round < 3; round++) { // a message takes one, and the NIC has all the others
		IS(posts_send(a, 8, 0), 0);
		IS(wait_one().status, IBV_WC_SUCCESS);
		IS(wait_one().status, IBV_WC_SUCCESS);
		for (n--; n < granted; n++)
			IS(posts_recv(b, s, 64), 0);
		IS(posts_recv(b, s, 64), ENOMEM);
	}
	unpair(a, b);
	if (s)
		IS(ibv_destroy_srq(s), 0);
}

static void sends(uint32_t depth)
{
	struct ibv_qp_cap cap = {depth, 4, 1, 1, 0};
	struct ibv_qp *a, *b;
	pair(IBV_QPT_RC, NULL, &cap, &a, &b);
	CHECK(cap.max_send_wr >= depth);
	for (uint32_t n = 0; n < cap.max_send_wr; n++) { // the peer has no receive
		IS(posts_send(a, 8, 0), 0);
		if (n % 7 == 0)
			taken();
	}
	taken();
	IS(posts_send(a, 8, 0), ENOMEM);
	IS(posts_recv(b, NULL, 64), 0);
	IS(wait_one().status, IBV_WC_SUCCESS);
	IS(wait_one().status, IBV_WC_SUCCESS);
	IS(posts_send(a, 8, 0), 0);
	taken();
	IS(posts_send(a, 8, 0), ENOMEM);
	unpair(a, b);
}

static void depths(void)
{
	static const uint32_t some[] = {1, 2, 3, 16, 17, 300};
	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		receives(some[i], 0);
		receives(some[i], 1);
		sends(some[i]);
	}
	for (size_t t = 0; t < sizeof types / sizeof *types; t++) { // inline data, whether asked for or not
		struct ibv_qp_cap cap = {2, 2, 1, 1, 0};
		struct ibv_qp *a, *b;
		pair(types[t], NULL, &cap, &a, &b);
		CHECK(cap.max_inline_data >= 64);
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		IS(ibv_query_qp(a, &attr, IBV_QP_CAP, &init), 0);
		IS(init.cap.max_inline_data, cap.max_inline_data);
		IS(posts_send(a, cap.max_inline_data + 1, IBV_SEND_INLINE), types[t] == IBV_QPT_UD ? EINVAL : ENOMEM);
		if (types[t] != IBV_QPT_UD) {
			IS(posts_recv(b, NULL, 1024), 0);
			IS(posts_send(a, cap.max_inline_data, IBV_SEND_INLINE), 0);
			IS(wait_one().status, IBV_WC_SUCCESS);
			IS(wait_one().status, IBV_WC_SUCCESS);
		}
		unpair(a, b);
		cap.max_inline_data++;
		CHECK(!try_qp(types[t], NULL, &cap));
	}
}

// Operations: what is granted is served, and what is not is refused when it is asked for.

static void build(struct ibv_qp_ex *q, uint64_t flag)
{
	switch (flag) {
	case IBV_QP_EX_WITH_SEND: ibv_wr_send(q); break;
	case IBV_QP_EX_WITH_SEND_WITH_IMM: ibv_wr_send_imm(q, 5); break;
	case IBV_QP_EX_WITH_SEND_WITH_INV: ibv_wr_send_inv(q, ((struct ibv_mr *)an_mr())->rkey); break;
	case IBV_QP_EX_WITH_RDMA_WRITE: ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 4096); break;
	case IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(q, mr->rkey, (uintptr_t)buf + 4096, 5); break;
	case IBV_QP_EX_WITH_RDMA_READ: ibv_wr_rdma_read(q, mr->rkey, (uintptr_t)buf + 4096); break;
	case IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(q, mr->rkey, (uintptr_t)buf + 4096, 0, 1); break;
	case IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: ibv_wr_atomic_fetch_add(q, mr->rkey, (uintptr_t)buf + 4096, 1); break;
	default: fprintf(stderr, "limits.c: operation %#llx is granted, and no test has it\n", (unsigned long long)flag); exit(1);
	}
}

static struct ibv_qp *ex(enum ibv_qp_type type, uint32_t mask, uint64_t ops, uint32_t create)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 2, 2, 0}, .qp_type = type, .sq_sig_all = 1, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask, .send_ops_flags = ops, .create_flags = create,
	};
	errno = 0;
	return ibv_create_qp_ex(x, &a);
}

static void operation(enum ibv_qp_type type, uint64_t flag)
{
	struct ibv_qp *a = ex(type, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, flag, 0), *b;
	if (!a) {
		IS(errno, EOPNOTSUPP);
		return;
	}
	CHECK(b = ex(type, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, flag, 0));
	rise(a, b);
	rise(b, a);
	IS(posts_recv(b, NULL, 1024), 0);
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a);
	struct ibv_ah *h = an_ah();
	ibv_wr_start(q);
	build(q, flag);
	if (type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(q, h, b->qp_num, 0x11);
	ibv_wr_set_sge(q, mr->lkey, (uintptr_t)buf, 8);
	IS(ibv_wr_complete(q), 0);
	IS(wait_one().status, IBV_WC_SUCCESS);
	IS(ibv_destroy_ah(h), 0);
	unpair(a, b);
}

// post_sends has the same of ibv_post_send.
static void post_sends(enum ibv_qp_type type, int opcode)
{
	struct ibv_qp_cap cap = {4, 4, 2, 2, 0};
	struct ibv_qp *a, *b;
	pair(type, NULL, &cap, &a, &b);
	IS(posts_recv(b, NULL, 1024), 0);
	struct ibv_ah *h = an_ah();
	struct ibv_sge e = {(uintptr_t)buf, 8, mr->lkey};
	struct ibv_send_wr w = {.sg_list = &e, .num_sge = 1, .opcode = opcode}, *bad;
	if (type == IBV_QPT_UD) {
		w.wr.ud.ah = h;
		w.wr.ud.remote_qpn = b->qp_num;
		w.wr.ud.remote_qkey = 0x11;
	} else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w.wr.atomic.remote_addr = (uintptr_t)buf + 4096;
		w.wr.atomic.rkey = mr->rkey;
	} else {
		w.wr.rdma.remote_addr = (uintptr_t)buf + 4096;
		w.wr.rdma.rkey = mr->rkey;
	}
	if (opcode == IBV_WR_SEND_WITH_INV)
		w.invalidate_rkey = ((struct ibv_mr *)an_mr())->rkey;
	if (!ibv_post_send(a, &w, &bad))
		IS(wait_one().status, IBV_WC_SUCCESS);
	IS(ibv_destroy_ah(h), 0);
	unpair(a, b);
}

static void operations(void)
{
	for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
		for (int bit = 0; bit < 64; bit++)
			operation(types[t], 1ull << bit);
		for (int opcode = 0; opcode < 32; opcode++)
			post_sends(types[t], opcode);
		struct ibv_qp *q = ex(types[t], IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, 0);
		CHECK(q);
		CHECK(ibv_query_qp_data_in_order(q, IBV_WR_RDMA_WRITE, 0) <= 1);
		IS(ibv_destroy_qp(q), 0);
		for (int bit = 0; bit < 32; bit++) {
			if (1u << bit == IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) {
				struct ibv_qp *b = ex(types[t], IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, 1u << bit);
				CHECK(b);
				IS(ibv_destroy_qp(b), 0);
			} else {
				CHECK(!ex(types[t], IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, 1u << bit));
				IS(errno, EOPNOTSUPP);
			}
			if (1u << bit & ~(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
				CHECK(!ex(types[t], 1u << bit, 0, 0));
				IS(errno, EOPNOTSUPP);
			}
		}
	}
	for (int type = 0; type < 300; type++) { // XRC, raw packets, a driver's
		struct ibv_qp_cap cap = {1, 1, 1, 1, 0};
		struct ibv_qp *q = try_qp(type, NULL, &cap);
		if (q)
			IS(ibv_destroy_qp(q), 0);
		else
			IS(errno, EOPNOTSUPP);
		IS(!!q, type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD);
	}
}

static void short_region(void)
{
	struct ibv_qp_cap cap = {2, 2, 1, 1, 0};
	struct ibv_qp *a, *b;
	pair(IBV_QPT_RC, NULL, &cap, &a, &b);
	IS(posts_recv(b, NULL, 2 * SIZE), 0);
	IS(posts_send(a, SIZE, 0), 0);
	IS(wait_one().status, IBV_WC_SUCCESS);
	IS(wait_one().status, IBV_WC_SUCCESS);
	unpair(a, b);
}

// Resets: what has completed and was not polled is forgotten of the queue pair that is reset, and of no other.

static void resets(void)
{
	enum { PAIRS = 3, RECEIVES = 4 };
	struct ibv_qp *a[PAIRS], *b[PAIRS];
	struct ibv_wc w;
	for (int i = 0; i < PAIRS; i++) {
		struct ibv_qp_cap cap = {RECEIVES, RECEIVES, 1, 1, 0};
		pair(IBV_QPT_RC, NULL, &cap, &a[i], &b[i]);
	}
	for (int round = 0; round < 600; round++) { // the queue has 2000 entries: it is passed several times
		int posted[PAIRS] = {0}, gone = rand() % PAIRS, left = 0;
		for (int n = rand() % (PAIRS * RECEIVES); n > 0; n--) {
			int i = rand() % PAIRS;
			if (posted[i] == RECEIVES)
				continue;
			posted[i]++;
			IS(posts_recv(a[i], NULL, 64), 0);
		}
		struct ibv_qp_attr to = {.qp_state = IBV_QPS_ERR};
		for (int i = 0; i < PAIRS; i++) { // which flushes what was posted, in this order
			IS(ibv_modify_qp(a[i], &to, IBV_QP_STATE), 0);
			left += i == gone ? 0 : posted[i];
		}
		to.qp_state = IBV_QPS_RESET;
		IS(ibv_modify_qp(a[gone], &to, IBV_QP_STATE), 0);
		for (; left; left--) {
			w = wait_one();
			IS(w.status, IBV_WC_WR_FLUSH_ERR);
			CHECK(w.qp_num != a[gone]->qp_num);
			for (int i = 0; i < PAIRS; i++)
				posted[i] -= w.qp_num == a[i]->qp_num;
		}
		IS(ibv_poll_cq(cq, 1, &w), 0);
		for (int i = 0; i < PAIRS; i++) {
			CHECK(i == gone || !posted[i]);
			if (i != gone)
				IS(ibv_modify_qp(a[i], &to, IBV_QP_STATE), 0);
			rise(a[i], b[i]);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		unpair(a[i], b[i]);
}

// Domains: a parent domain stands for its protection domain in all that is made in it, and stays as long as that.

static struct ibv_pd *parent_of(struct ibv_pd *of, struct ibv_td *td, uint32_t mask)
{
	struct ibv_parent_domain_init_attr a = {.pd = of, .td = td, .comp_mask = mask, .pd_context = buf};
	errno = 0;
	return ibv_alloc_parent_domain(x, &a);
}

static void *a_cq_in(void)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd};
	return ibv_create_cq_ex(x, &a);
}

static void domains(void)
{
	static const struct {
		void *(*make)(void);
		int (*give_back)(void *);
	} kinds[] = {
		{an_mr, (int (*)(void *))ibv_dereg_mr}, {a_qp, (int (*)(void *))ibv_destroy_qp}, {an_srq, (int (*)(void *))ibv_destroy_srq},
		{an_ah, (int (*)(void *))ibv_destroy_ah}, {a_cq_in, (int (*)(void *))ibv_destroy_cq},
	};
	struct ibv_td_init_attr plain_td = {0}, odd_td = {.comp_mask = 1};
	struct ibv_td *td = ibv_alloc_td(x, &plain_td);
	CHECK(td && !ibv_alloc_td(x, &odd_td));
	IS(errno, EINVAL);
	CHECK(!parent_of(NULL, td, 0));
	IS(errno, EINVAL);
	CHECK(!parent_of(pd, td, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS)); // the memory of queues is the NIC's
	IS(errno, EOPNOTSUPP);
	CHECK(!a_cq_in()); // in a domain that is no parent domain
	IS(errno, EINVAL);
	struct ibv_pd *plain = ibv_alloc_pd(x), *first = pd;
	CHECK(plain);
	struct ibv_pd *parent = parent_of(plain, td, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT), *bare = parent_of(plain, NULL, 0);
	CHECK(parent && bare && !parent_of(parent, NULL, 0));
	IS(errno, EINVAL);
	IS(ibv_dealloc_td(td), EBUSY);
	IS(ibv_dealloc_pd(plain), EBUSY);
	IS(ibv_dealloc_pd(bare), 0);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		pd = parent;
		void *o = kinds[i].make();
		CHECK(o);
		IS(ibv_dealloc_pd(parent), EBUSY);
		IS(kinds[i].give_back(o), 0);
	}
	pd = plain;
	struct ibv_mr *whole = mr, *m = mr = an_mr(); // a region of the one serves queue pairs of the other
	CHECK(m);
	pd = parent;
	depths();
	IS(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, parent, NULL, 0, 0), 0);
	CHECK(m->pd == parent);
	IS(ibv_dealloc_pd(parent), EBUSY);
	pd = plain;
	depths();
	IS(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, first, NULL, 0, 0), 0);
	IS(ibv_dealloc_pd(parent), 0);
	IS(ibv_dealloc_td(td), 0);
	IS(ibv_dealloc_pd(plain), 0);
	IS(ibv_dereg_mr(m), 0);
	pd = first;
	mr = whole;
}

int main(int argc, char **argv)
{
	int n;
	struct ibv_device **l = ibv_get_device_list(&n);
	setvbuf(stdout, NULL, _IOLBF, 0);
	IS(argc, 2);
	IS(n, 1);
	CHECK(x = ibv_open_device(l[0]));
	CHECK((pd = ibv_alloc_pd(x)) && (cq = ibv_create_cq(x, 2000, NULL, NULL, 0)) && (mr = an_mr()));
	IS(ibv_query_device_ex(x, NULL, &dev), 0);
	IS(ibv_query_port(x, 1, &port), 0);
	IS(ibv_query_gid(x, 1, 0, &gid), 0);
	if (!strcmp(argv[1], "advertised"))
		advertised();
	else if (!strcmp(argv[1], "depths"))
		depths();
	else if (!strcmp(argv[1], "operations"))
		operations();
	else if (!strcmp(argv[1], "short-region"))
		short_region();
	else if (!strcmp(argv[1], "resets"))
		resets();
	else if (!strcmp(argv[1], "domains"))
		domains();
	else
		CHECK(!"a part that there is");
	IS(ibv_close_device(x), 0);
	return 0;
}
