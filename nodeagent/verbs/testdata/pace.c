// SPDX-License-Identifier: Apache-2.0

// pace: how late busy waits end in virtual time, and what it costs to look at a clock before each post. It prints its figures, and what is
// beyond what docs/libibverbs.md promises.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH = 3000, ROUNDS = 20, LEAST = 230, PART = 64, MOST = 50000 };

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char bytes[128];
static int bad;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(3);
	}
}

#define NEED(x) need(!!(x), #x)

static void open_queue(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *x = NULL;
	struct ibv_pd *pd = NULL;
	union ibv_gid gid;
	NEED(list && list[0] && (x = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(x)) && (cq = ibv_create_cq(x, DEPTH + 1, NULL, NULL, 0)));
	struct ibv_qp_init_attr i = {.send_cq = cq, .recv_cq = cq, .cap = {DEPTH, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	NEED((qp = ibv_create_qp(pd, &i)) && (mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	NEED(!ibv_query_gid(x, 1, 0, &gid));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
	NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void post(void)
{
	struct ibv_sge e = {(uintptr_t)bytes, 64, mr->lkey};
	struct ibv_send_wr *failed, w = {.sg_list = &e, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)bytes + 64, mr->rkey}};
	NEED(!ibv_post_send(qp, &w, &failed));
}

static void complete(int n)
{
	struct ibv_wc w;
	for (int k; n; n -= k) {
		NEED((k = ibv_poll_cq(cq, 1, &w)) >= 0);
		NEED(!k || w.status == IBV_WC_SUCCESS);
	}
}

// most returns how late a busy wait of a length may end that began so long after the thread did something else.
static long long most(long long before, long long ns)
{
	long long share = (before + ns + MOST) / PART + 20;
	return share < LEAST ? LEAST : share < MOST ? share : MOST;
}

// wait waits by looking: at the clock (0), and at an empty queue (1), or with sleeps of no length between (2).
static long long wait(long long ns, int how)
{
	struct timespec none = {0, 0};
	struct ibv_wc w;
	long long end = now() + ns, t;
	while ((t = now()) < end)
		if (how == 1)
			NEED(!ibv_poll_cq(cq, 1, &w));
		else if (how == 2)
			nanosleep(&none, NULL);
	return t - end;
}

static void pace(long long ns, int how)
{
	long long late = 0, last = 0;
	for (int i = 0; i < ROUNDS; i++) {
		post();
		complete(1);
		last = wait(ns, how);
		late = last > late ? last : late;
	}
	printf("a busy wait of %lld ns (%d) ends %lld ns late at most, the last %lld ns\n", ns, how, late, last);
	if (late > most(0, ns) || last > LEAST + ns / 500) {
		printf("that is too late: %lld and %lld ns are allowed\n", most(0, ns), LEAST + ns / 500);
		bad = 1;
	}
}

int main(void)
{
	open_queue();
	for (int how = 0; how < 3; how++)
		for (long long ns = 1000; ns <= 1000000; ns *= 10)
			pace(ns, how);

	// Waits that follow each other without anything else.
	post();
	complete(1);
	long long from = now(), worst = 0;
	for (int i = 0; i < 100; i++) {
		long long before = now() - from, late = wait(20000, 0);
		worst = late > worst ? late : worst;
		if (late > most(before, 20000)) {
			printf("wait %d in a row is %lld ns late, of %lld allowed\n", i, late, most(before, 20000));
			bad = 1;
		}
	}
	printf("waits in a row end %lld ns late at most\n", worst);

	// Stamps and posts, up to the depth of the queue.
	for (int n = 1; n <= DEPTH; n = n < 1000 ? n * 10 : n + 1000) {
		post();
		complete(1);
		from = now();
		for (int i = 0; i < n; i++) {
			now();
			post();
		}
		long long took = now() - from;
		complete(n);
		printf("%d stamps and posts take %lld ns\n", n, took);
		if (took > 10ll * n + LEAST) {
			printf("that is too long: a look takes 10 ns\n");
			bad = 1;
		}
	}
	return bad;
}
