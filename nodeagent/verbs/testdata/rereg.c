// SPDX-License-Identifier: Apache-2.0

// Changes a region at random, and holds what the peer may do with it then against what was asked for. Its arguments are the sockets
// of two NICs, and a seed.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(c) do { if (!(c)) { fprintf(stderr, "rereg.c:%d: not %s (errno %d, step %d)\n", __LINE__, #c, errno, step); exit(1); } } while (0)
#define IS(have, want) do { long h_ = (have), w_ = (want); if (h_ != w_) { fprintf(stderr, "rereg.c:%d: %s is %ld, not %ld (errno %d, step %d)\n", __LINE__, #have, h_, w_, errno, step); exit(1); } } while (0)

enum { SIZE = 5000, BUFFERS = 3, DOMAINS = 2, STEPS = 400, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
enum { MEMORY = IBV_REREG_MR_CHANGE_TRANSLATION, PD = IBV_REREG_MR_CHANGE_PD, ACCESS = IBV_REREG_MR_CHANGE_ACCESS };

static struct end {
	struct ibv_context *c;
	struct ibv_pd *pd[DOMAINS];
	struct ibv_cq *cq;
	struct ibv_qp *qp; // of the first domain
	union ibv_gid gid;
} a, b;

static char memory[BUFFERS * SIZE], own[SIZE];
static int step;

static void open_end(struct end *e, const char *socket)
{
	int n;
	setenv("MCASTLAB_VERBS", socket, 1);
	struct ibv_device **l = ibv_get_device_list(&n);
	IS(n, 1);
	CHECK(e->c = ibv_open_device(l[0]));
	ibv_free_device_list(l);
	for (int i = 0; i < DOMAINS; i++)
		CHECK(e->pd[i] = ibv_alloc_pd(e->c));
	CHECK(e->cq = ibv_create_cq(e->c, 16, NULL, NULL, 0));
	IS(ibv_query_gid(e->c, 1, 0, &e->gid), 0);
	struct ibv_qp_init_attr i = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
	CHECK(e->qp = ibv_create_qp(e->pd[0], &i));
}

static void rise(struct end *e, struct end *peer)
{
	struct ibv_qp_attr q = {
		.qp_state = IBV_QPS_RESET, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .port_num = 1,
		.qp_access_flags = ALL, .min_rnr_timer = 1, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};
	IS(ibv_modify_qp(e->qp, &q, IBV_QP_STATE), 0);
	q.qp_state = IBV_QPS_INIT;
	IS(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	q.qp_state = IBV_QPS_RTR;
	IS(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	q.qp_state = IBV_QPS_RTS;
	IS(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void connect_both(void)
{
	rise(&a, &b);
	rise(&b, &a);
}

// take returns how the only request of a queue pair ended, and connects the pair again if it failed.
static int take(struct end *e)
{
	struct ibv_wc w;
	while (!ibv_poll_cq(e->cq, 1, &w))
		;
	if (w.status)
		connect_both();
	return w.status;
}

static int remote(enum ibv_wr_opcode op, struct ibv_mr *from, char *at, size_t n, uint32_t rkey)
{
	struct ibv_sge s = {(uintptr_t)own, n, from->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = op, .wr.rdma = {(uintptr_t)at, rkey}}, *bad;
	IS(ibv_post_send(a.qp, &w, &bad), 0);
	return take(&a);
}

// What the region is to be.
static struct {
	char *addr;
	size_t length;
	int pd, access;
} want;

// holds has the peer write and read all of the region and one byte more, and this end send from it.
static void holds(struct ibv_mr *mine, struct ibv_mr *m, uint32_t former)
{
	CHECK(m->addr == want.addr && m->length == want.length && m->pd == b.pd[want.pd] && m->lkey == m->rkey);
	int reads = !want.pd && (want.access & IBV_ACCESS_REMOTE_READ), writes = !want.pd && (want.access & IBV_ACCESS_REMOTE_WRITE);
	char before[sizeof memory];
	for (size_t i = 0; i < sizeof memory; i++)
		before[i] = memory[i] = rand();
	IS(remote(IBV_WR_RDMA_READ, mine, want.addr, want.length, m->rkey), reads ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	CHECK(!reads || !memcmp(own, want.addr, want.length));
	for (size_t i = 0; i < sizeof own; i++)
		own[i] = rand();
	IS(remote(IBV_WR_RDMA_WRITE, mine, want.addr, want.length, m->rkey), writes ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	if (writes)
		memcpy(before + (want.addr - memory), own, want.length);
	CHECK(!memcmp(memory, before, sizeof memory));
	if (want.length < SIZE)
		IS(remote(IBV_WR_RDMA_READ, mine, want.addr, want.length + 1, m->rkey), IBV_WC_REM_ACCESS_ERR);
	if (former != m->rkey)
		IS(remote(IBV_WR_RDMA_READ, mine, want.addr, 1, former), IBV_WC_REM_ACCESS_ERR);
	struct ibv_sge s = {(uintptr_t)own, SIZE, mine->lkey};
	struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad_recv;
	IS(ibv_post_recv(a.qp, &r, &bad_recv), 0);
	s = (struct ibv_sge){(uintptr_t)want.addr, want.length, m->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	IS(ibv_post_send(b.qp, &w, &bad), 0);
	IS(take(&b), want.pd ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
	if (!want.pd) {
		IS(take(&a), IBV_WC_SUCCESS);
		CHECK(!memcmp(own, want.addr, want.length));
	}
}

// change asks for a change, and enters it in want if it is to be done.
static void change(struct ibv_mr *m, int flags, int pd, char *addr, size_t length, int access)
{
	int err = 0, code = IBV_REREG_MR_ERR_INPUT;
	if ((flags & ~7) || ((flags & MEMORY) && (!addr || !length)) || (access && !(flags & ACCESS)) || ((flags & PD) && pd < 0))
		err = EINVAL;
	else if (code = IBV_REREG_MR_ERR_CMD, access & IBV_ACCESS_ON_DEMAND)
		err = EOPNOTSUPP;
	else if (!flags || ((flags & PD) && pd == DOMAINS) ||
		((flags & ACCESS) && (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		err = EINVAL;
	if ((flags & MEMORY) && addr == (char *)4096 && (!err || (err == EINVAL && code == IBV_REREG_MR_ERR_CMD && !((flags & PD) && pd == DOMAINS))))
		err = EFAULT; // which is looked for first
	errno = 0;
	struct ibv_pd *other = pd < 0 ? NULL : pd == DOMAINS ? a.pd[0] : b.pd[pd];
	IS(ibv_rereg_mr(m, flags, other, addr, length, access), err ? code : 0);
	IS(errno, err);
	if (err)
		return;
	if (flags & MEMORY) {
		want.addr = addr;
		want.length = length;
	}
	want.pd = flags & PD ? pd : want.pd;
	want.access = flags & ACCESS ? access : want.access;
}

int main(int argc, char **argv)
{
	IS(argc, 4);
	srand(atoi(argv[3]));
	open_end(&a, argv[1]);
	open_end(&b, argv[2]);
	connect_both();
	want.addr = memory;
	want.length = SIZE;
	want.access = ALL;
	struct ibv_mr *mine = ibv_reg_mr(a.pd[0], own, SIZE, ALL), *m = ibv_reg_mr(b.pd[0], memory, SIZE, ALL);
	CHECK(mine && m);
	for (step = 0; step < STEPS; step++) {
		static const int rights[] = {0, ALL, 1, 3, 4, 2, 8, IBV_ACCESS_RELAXED_ORDERING | ALL, IBV_ACCESS_ON_DEMAND};
		uint32_t former = m->rkey;
		int flags = rand() % 8, odd = !(rand() % 8);
		char *addr = memory + (rand() % BUFFERS) * SIZE;
		size_t length = rand() % 3 ? 1 + rand() % SIZE : SIZE;
		if (odd && rand() % 2)
			flags |= 8 << rand() % 4;
		if (odd && rand() % 2)
			addr = rand() % 2 ? NULL : (char *)4096;
		if (odd && rand() % 2)
			length = 0;
		change(m, flags, odd ? rand() % (DOMAINS + 2) - 1 : rand() % 3 ? 0 : 1, addr, length, flags & ACCESS || odd ? rights[rand() % (sizeof rights / sizeof *rights)] : 0);
		holds(mine, m, former);
	}
	if (want.pd)
		IS(ibv_dealloc_pd(b.pd[0]), EBUSY); // of the queue pair
	else
		IS(ibv_dealloc_pd(b.pd[1]), 0);
	IS(ibv_destroy_qp(a.qp), 0);
	IS(ibv_destroy_qp(b.qp), 0);
	if (want.pd)
		IS(ibv_dealloc_pd(b.pd[0]), 0);
	IS(ibv_dealloc_pd(b.pd[want.pd]), EBUSY);
	IS(ibv_dereg_mr(m), 0);
	IS(ibv_dereg_mr(mine), 0);
	IS(ibv_dealloc_pd(b.pd[want.pd]), 0);
	IS(ibv_close_device(a.c), 0);
	IS(ibv_close_device(b.c), 0);
	return 0;
}
