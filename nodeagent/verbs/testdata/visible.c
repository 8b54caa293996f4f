// SPDX-License-Identifier: Apache-2.0

// visible N: one process opens the device twice, with a connected queue pair in each. Whenever a WRITE, a SEND or an atomic has completed at its
// sender, its bytes are in the memory that it went to.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 16, DEPTH = 8 };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static char from[SIZE], to[SIZE];

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct side make(void *memory)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct side s = {.context = all && all[0] ? ibv_open_device(all[0]) : NULL};
	need(s.context != NULL, "device");
	s.pd = ibv_alloc_pd(s.context);
	s.cq = ibv_create_cq(s.context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr a = {.send_cq = s.cq, .recv_cq = s.cq, .cap = {DEPTH, DEPTH, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	s.qp = ibv_create_qp(s.pd, &a);
	s.mr = ibv_reg_mr(s.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	need(s.qp && s.mr, "queue pair");
	return s;
}

static void connect_to(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	need(!ibv_query_gid(s->context, 1, 0, &rtr.ah_attr.grh.dgid), "GID");
	need(!ibv_modify_qp(s->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_modify_qp(s->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER), "RTR");
	need(!ibv_modify_qp(s->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv)
{
	need(argc == 2, "usage: visible N");
	struct side a = make(from), b = make(to);
	volatile char *there = to;
	connect_to(&a, &b);
	connect_to(&b, &a);
	for (int i = 1; i <= atoi(argv[1]); i++) {
		static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD};
		enum ibv_wr_opcode op = opcodes[i % 3];
		int n = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : i % 2 ? SIZE : 1;
		memset(from, i, SIZE);
		memset(to, 0, 8);
		to[n - 1] = 0;
		struct ibv_sge local = {(uintptr_t)from, n, a.mr->lkey}, remote = {(uintptr_t)to, SIZE, b.mr->lkey};
		struct ibv_recv_wr r = {.sg_list = &remote, .num_sge = 1}, *bad_r;
		struct ibv_send_wr w = {.sg_list = &local, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;
		uint64_t sum;
		memcpy(&sum, from, sizeof sum);
		if (op == IBV_WR_RDMA_WRITE)
			w.wr.rdma.remote_addr = (uintptr_t)to, w.wr.rdma.rkey = b.mr->rkey;
		else if (op == IBV_WR_SEND)
			need(!ibv_post_recv(b.qp, &r, &bad_r), "receive");
		else
			w.wr.atomic.remote_addr = (uintptr_t)to, w.wr.atomic.rkey = b.mr->rkey, w.wr.atomic.compare_add = sum;
		need(!ibv_post_send(a.qp, &w, &bad), "send");
		struct ibv_wc c;
		int got;
		while (!(got = ibv_poll_cq(a.cq, 1, &c)))
			;
		if (got < 0 || c.status || there[0] != (char)i || there[n - 1] != (char)i) {
			fprintf(stderr, "request %d, opcode %d of %d bytes: status %d, and %d and %d are there\n", i, op, n, c.status, there[0], there[n - 1]);
			return 1;
		}
		if (op == IBV_WR_SEND)
			while (!ibv_poll_cq(b.cq, 1, &c))
				;
	}
	return 0;
}
