// SPDX-License-Identifier: Apache-2.0

// A program with two devices, one at each end of a link: what it tests is its argument.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { fprintf(stderr, "verbs.c:%d: not %s (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)
#define IS(have, want) do { long h_ = (have), w_ = (want); if (h_ != w_) { fprintf(stderr, "verbs.c:%d: %s is %ld, not %ld\n", __LINE__, #have, h_, w_); exit(1); } } while (0)

enum { SIZE = 1 << 16, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

// Memory that is unmapped must stay so: the kernel puts nothing here of its own.
static char *const FAR = (char *)0x100000000000;

struct end {
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq; // NULL: none
	char *buf;
	struct ibv_mr *mr;
	union ibv_gid gid;
} a, b;

static char *map(void *at)
{
	char *p = mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void open_end(struct end *e, const char *socket, void *at)
{
	int n;
	setenv("MCASTLAB_VERBS", socket, 1);
	struct ibv_device **l = ibv_get_device_list(&n);
	IS(n, 1);
	CHECK(e->c = ibv_open_device(l[0]));
	ibv_free_device_list(l);
	CHECK(e->pd = ibv_alloc_pd(e->c));
	CHECK(e->ch = ibv_create_comp_channel(e->c));
	CHECK(e->cq = ibv_create_cq(e->c, 100, e, e->ch, 0));
	e->buf = map(at);
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, ALL));
	IS(ibv_query_gid(e->c, 1, 0, &e->gid), 0);
}

static int timeout = 18; // code: about a second

static void initialize(struct end *e)
{
	enum ibv_qp_type type = e->qp->qp_type;
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL, .qkey = 0x11};
	IS(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), 0);
}

static void create(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr i = {.send_cq = e->cq, .recv_cq = e->cq, .srq = e->srq, .qp_type = type, .cap = {16, 16, 4, 4, 64}};
	CHECK(e->qp = ibv_create_qp(e->pd, &i));
	initialize(e);
}

static void ready(struct end *e, struct end *peer)
{
	struct ibv_qp_attr q = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .rq_psn = 7, .sq_psn = 7, .max_dest_rd_atomic = 4,
		.max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};
	int ud = e->qp->qp_type == IBV_QPT_UD;
	IS(ibv_modify_qp(e->qp, &q, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	q.qp_state = IBV_QPS_RTS;
	IS(ibv_modify_qp(e->qp, &q, ud ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void connect_both(enum ibv_qp_type type)
{
	create(&a, type);
	create(&b, type);
	ready(&a, &b);
	ready(&b, &a);
}

static struct ibv_wc take(struct end *e)
{
	struct ibv_wc w;
	int n;
	while (!(n = ibv_poll_cq(e->cq, 1, &w)))
		;
	IS(n, 1);
	return w;
}

static void recv_at(struct end *e, uint64_t id, char *p, uint32_t n)
{
	struct ibv_sge s = {(uintptr_t)p, n, e->mr->lkey};
	struct ibv_recv_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
	IS(ibv_post_recv(e->qp, &w, &bad), 0);
}

static int post(struct end *e, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;
	w->send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(e->qp, w, &bad);
}

static void one_sided(void)
{
	struct ibv_sge s = {(uintptr_t)a.buf, SIZE / 2, a.mr->lkey};
	struct ibv_send_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	w.wr.rdma.remote_addr = (uintptr_t)b.buf;
	w.wr.rdma.rkey = b.mr->rkey;
	for (int i = 0; i < SIZE; i++)
		a.buf[i] = i * 7;
	IS(post(&a, &w), 0);
	struct ibv_wc c = take(&a);
	IS(c.status, IBV_WC_SUCCESS);
	IS(c.opcode, IBV_WC_RDMA_WRITE);
	recv_at(&b, 2, b.buf + SIZE - 8, 8);
	w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	w.imm_data = 0x44332211;
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	c = take(&b); // from here on the bytes are there
	IS(c.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	IS(c.imm_data, 0x44332211);
	CHECK(!memcmp(a.buf, b.buf, SIZE / 2));

	memset(b.buf, 9, 5000); // a READ takes what is there now
	s = (struct ibv_sge){(uintptr_t)a.buf + SIZE / 2, 5000, a.mr->lkey};
	w.opcode = IBV_WR_RDMA_READ;
	IS(post(&a, &w), 0);
	IS(take(&a).opcode, IBV_WC_RDMA_READ);
	CHECK(!memcmp(a.buf + SIZE / 2, b.buf, 5000));

	static const uint64_t held[] = {40, 41, 42, 77};
	*(uint64_t *)b.buf = held[0];
	s = (struct ibv_sge){(uintptr_t)a.buf, 8, a.mr->lkey};
	for (int i = 0; i < 4; i++) {
		memset(&w.wr, 0, sizeof w.wr);
		w.opcode = i < 2 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		w.wr.atomic.remote_addr = (uintptr_t)b.buf;
		w.wr.atomic.rkey = b.mr->rkey;
		w.wr.atomic.compare_add = i < 2 ? 1 : 42;
		w.wr.atomic.swap = 77;
		IS(post(&a, &w), 0);
		IS(take(&a).status, IBV_WC_SUCCESS);
		IS(*(uint64_t *)a.buf, held[i]);
	}
}

static void two_sided(void)
{
	struct ibv_sge s[3] = {{(uintptr_t)a.buf, 10, a.mr->lkey}, {(uintptr_t)a.buf + 100, 0, a.mr->lkey}, {(uintptr_t)a.buf + 200, 3000, a.mr->lkey}};
	struct ibv_send_wr w = {.wr_id = 3, .sg_list = s, .num_sge = 3, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 5};
	struct ibv_cq *cq;
	void *context;
	for (int i = 0; i < SIZE; i++)
		a.buf[i] = i * 3;
	IS(ibv_req_notify_cq(b.cq, 1), 0);
	recv_at(&b, 4, b.buf, 4000);
	w.send_flags = IBV_SEND_SOLICITED;
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(ibv_get_cq_event(b.ch, &cq, &context), 0);
	CHECK(cq == b.cq && context == &b);
	ibv_ack_cq_events(cq, 1);
	struct ibv_wc c = take(&b);
	IS(c.status, IBV_WC_SUCCESS);
	IS(c.byte_len, 3010);
	IS(c.imm_data, 5);
	CHECK(c.wc_flags & IBV_WC_WITH_IMM);
	CHECK(!memcmp(b.buf, a.buf, 10) && !memcmp(b.buf + 10, a.buf + 200, 3000));

	char local[64] = "inline data need no region";
	s[0] = (struct ibv_sge){(uintptr_t)local, sizeof local, 0};
	w = (struct ibv_send_wr){.wr_id = 5, .sg_list = s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
	recv_at(&b, 6, b.buf, 64);
	IS(post(&a, &w), 0);
	memset(local, 0, sizeof local);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).byte_len, 64);
	CHECK(!strcmp(b.buf, "inline data need no region"));
	s[0].length = 401;
	IS(post(&a, &w), ENOMEM);
	w.num_sge = 0; // a message of no bytes
	recv_at(&b, 7, b.buf, 64);
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).byte_len, 0);
}

// A region at an address of the program's choice, and rights that are not given.
static void regions(void)
{
	struct ibv_mr *m = ibv_reg_mr_iova(a.pd, a.buf + 4096, 100, 0x5000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(m);
	strcpy(a.buf + 4096 + 32, "by iova");
	struct ibv_sge s = {0x5000 + 32, 8, m->lkey};
	struct ibv_send_wr w = {.wr_id = 8, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	recv_at(&b, 9, b.buf, 64);
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).byte_len, 8);
	CHECK(!strcmp(b.buf, "by iova"));
	CHECK(!ibv_reg_mr(a.pd, a.buf, 10, IBV_ACCESS_REMOTE_WRITE));
	IS(errno, EINVAL);
	CHECK(!ibv_reg_mr_iova(a.pd, a.buf, 10, UINT64_MAX - 5, 0));
	IS(errno, EINVAL);
	CHECK(!ibv_reg_mr(a.pd, a.buf, 10, IBV_ACCESS_ON_DEMAND));
	IS(errno, EOPNOTSUPP);
	CHECK(!ibv_reg_mr(a.pd, FAR + (1ul << 40), 10, 0));
	IS(errno, EFAULT);
	IS(ibv_dealloc_pd(a.pd), EBUSY);
	IS(ibv_destroy_cq(a.cq), EBUSY);

	struct ibv_mr *closed = ibv_reg_mr(b.pd, b.buf, 100, IBV_ACCESS_LOCAL_WRITE);
	s = (struct ibv_sge){(uintptr_t)a.buf, 10, a.mr->lkey};
	w.opcode = IBV_WR_RDMA_READ;
	w.wr.rdma.remote_addr = (uintptr_t)b.buf;
	w.wr.rdma.rkey = closed->rkey;
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_REM_ACCESS_ERR);
	struct ibv_async_event e;
	do {
		IS(ibv_get_async_event(b.c, &e), 0);
		ibv_ack_async_event(&e);
	} while (e.event_type == IBV_EVENT_COMM_EST);
	IS(e.event_type, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(e.element.qp == b.qp);
	struct ibv_qp_attr q;
	struct ibv_qp_init_attr i;
	IS(ibv_query_qp(a.qp, &q, IBV_QP_STATE, &i), 0);
	IS(q.qp_state, IBV_QPS_ERR);
	IS(q.path_mtu, IBV_MTU_1024);
	CHECK(!memcmp(&q.ah_attr.grh.dgid, &b.gid, 16));
	recv_at(&a, 10, a.buf, 10); // is flushed
	IS(take(&a).status, IBV_WC_WR_FLUSH_ERR);
	IS(ibv_dereg_mr(m), 0);
	IS(ibv_dereg_mr(closed), 0);
}

static void datagrams(void)
{
	struct ibv_ah_attr at = {.is_global = 1, .port_num = 1, .grh = {.dgid = b.gid, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(a.pd, &at);
	CHECK(ah);
	struct ibv_sge s = {(uintptr_t)a.buf, 100, a.mr->lkey};
	struct ibv_send_wr w = {.wr_id = 11, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	w.wr.ud.ah = ah;
	w.wr.ud.remote_qpn = b.qp->qp_num;
	w.wr.ud.remote_qkey = 0x11;
	memset(a.buf, 1, 100);
	recv_at(&b, 12, b.buf, 200);
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	struct ibv_wc c = take(&b);
	IS(c.byte_len, 140);
	IS(c.src_qp, a.qp->qp_num);
	CHECK(c.wc_flags & IBV_WC_GRH);
	CHECK(b.buf[40] == 1 && b.buf[139] == 1);
	struct ibv_ah *back = ibv_create_ah_from_wc(b.pd, &c, (struct ibv_grh *)b.buf, 1);
	CHECK(back);
	IS(ibv_destroy_ah(back), 0);
	IS(ibv_destroy_ah(ah), 0);
}

// What has been posted arrives, though its address and its queue pair are destroyed at once.
static void abandoned(void)
{
	struct ibv_ah_attr at = {.is_global = 1, .port_num = 1, .grh = {.dgid = b.gid, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(a.pd, &at);
	CHECK(ah);
	struct ibv_sge s = {(uintptr_t)a.buf, 4096, a.mr->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	w.wr.ud.ah = ah;
	w.wr.ud.remote_qpn = b.qp->qp_num;
	w.wr.ud.remote_qkey = 0x11;
	for (int k = 0; k < 16; k++)
		recv_at(&b, k, b.buf, 40 + 4096);
	for (int k = 0; k < 16; k++)
		IS(post(&a, &w), 0);
	IS(ibv_destroy_ah(ah), 0);
	IS(ibv_destroy_qp(a.qp), 0);
	for (int k = 0; k < 16; k++)
		IS(take(&b).wr_id, k);
	create(&a, IBV_QPT_UD);
}

// Polls that find nothing leave the processor by sleeping.
static void vain(void)
{
	struct ibv_wc w;
	struct rusage before, after;
	IS(getrusage(RUSAGE_THREAD, &before), 0);
	for (int k = 0; k < 64 * 50; k++)
		IS(ibv_poll_cq(a.cq, 1, &w), 0);
	IS(getrusage(RUSAGE_THREAD, &after), 0);
	CHECK(after.ru_nvcsw - before.ru_nvcsw >= 25); // a sleep may be over before it has begun
}

static struct ibv_async_event next_event(struct end *e, enum ibv_event_type want)
{
	struct ibv_async_event v;
	do {
		IS(ibv_get_async_event(e->c, &v), 0);
		ibv_ack_async_event(&v);
	} while (v.event_type == IBV_EVENT_COMM_EST);
	IS(v.event_type, want);
	return v;
}

static int share_recv(uint64_t id, int pieces)
{
	struct ibv_sge s[2] = {{(uintptr_t)b.buf + 100 * id, 60, b.mr->lkey}, {(uintptr_t)b.buf + 100 * id + 60, 40, b.mr->lkey}};
	struct ibv_recv_wr w = {.wr_id = id, .sg_list = s, .num_sge = pieces}, *bad;
	return ibv_post_srq_recv(b.srq, &w, &bad);
}

static void share(struct end *e, uint32_t wr)
{
	struct ibv_srq_init_attr i = {.attr = {.max_wr = wr, .max_sge = 2}};
	CHECK(e->srq = ibv_create_srq(e->pd, &i));
	CHECK(i.attr.max_wr >= wr && i.attr.max_sge == 2);
}

static void send_shared(int n)
{
	struct ibv_sge s = {(uintptr_t)a.buf, 80, a.mr->lkey};
	struct ibv_send_wr w = {.wr_id = n, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	memset(a.buf, n, 80);
	IS(post(&a, &w), 0);
}

// Two queue pairs take from one queue, whose limit is told of once; what is shared outlives an error of one.
static void shared(void)
{
	struct ibv_qp *first[2] = {a.qp, b.qp}, *second[2];
	struct ibv_srq_attr at;
	connect_both(IBV_QPT_RC);
	second[0] = a.qp, second[1] = b.qp;
	for (int i = 0; i < 4; i++)
		IS(share_recv(i, 2), 0);
	IS(share_recv(9, 3), EINVAL);
	at.srq_limit = 3;
	IS(ibv_modify_srq(b.srq, &at, IBV_SRQ_LIMIT), 0);
	for (int i = 0; i < 4; i++) {
		a.qp = i & 1 ? second[0] : first[0];
		send_shared(i);
		IS(take(&a).status, IBV_WC_SUCCESS);
		struct ibv_wc c = take(&b);
		IS(c.status, IBV_WC_SUCCESS);
		IS(c.wr_id, i);
		IS(c.qp_num, (i & 1 ? second[1] : first[1])->qp_num);
		CHECK(b.buf[100 * i] == i && b.buf[100 * i + 79] == i && b.buf[100 * i + 80] == 0);
		IS(ibv_query_srq(b.srq, &at), 0);
		IS(at.srq_limit, i < 1 ? 3 : 0); // the second leaves two
	}
	CHECK(next_event(&b, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == b.srq);

	send_shared(4); // it waits for a buffer
	IS(share_recv(4, 2), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).wr_id, 4);

	IS(share_recv(5, 2), 0);
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_ERR};
	IS(ibv_modify_qp(first[1], &q, IBV_QP_STATE), 0);
	CHECK(next_event(&b, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == first[1]);
	send_shared(5); // by the second queue pair
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).wr_id, 5);

	struct ibv_recv_wr r = {.wr_id = 1}, *bad;
	IS(ibv_post_recv(second[1], &r, &bad), EINVAL);
	IS(ibv_destroy_srq(b.srq), EBUSY);
	at.srq_limit = 1000;
	IS(ibv_modify_srq(b.srq, &at, IBV_SRQ_LIMIT), EINVAL);
	IS(ibv_modify_srq(b.srq, &at, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	int posted = 0;
	while (!share_recv(6, 1))
		CHECK(++posted < 100);
	IS(share_recv(6, 1), ENOMEM);
	struct ibv_qp_init_attr i = {.send_cq = b.cq, .recv_cq = b.cq, .srq = b.srq, .qp_type = IBV_QPT_UC, .cap = {1, 1, 1, 1, 0}};
	CHECK(!ibv_create_qp(b.pd, &i));
	IS(errno, EINVAL);
	IS(ibv_destroy_qp(first[0]), 0);
	IS(ibv_destroy_qp(first[1]), 0);
	struct ibv_srq_init_attr_ex x = {.attr = {.max_wr = 3}, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .srq_type = IBV_SRQT_BASIC, .pd = a.pd};
	struct ibv_srq *other = ibv_create_srq_ex(a.c, &x);
	CHECK(other);
	IS(ibv_destroy_srq(other), 0);
	x.srq_type = IBV_SRQT_XRC;
	CHECK(!ibv_create_srq_ex(a.c, &x));
	IS(errno, EOPNOTSUPP);
}

// Extended queues: completions in their order, stamped with the NIC's time; a queue that grows keeps what is in it.
static void extended(void)
{
	struct ibv_cq_init_attr_ex i = {.cqe = 3, .cq_context = &b, .channel = b.ch,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	struct ibv_cq_ex *x = ibv_create_cq_ex(b.c, &i);
	CHECK(x);
	i.wc_flags = IBV_WC_EX_WITH_CVLAN;
	CHECK(!ibv_create_cq_ex(b.c, &i));
	IS(errno, EOPNOTSUPP);
	struct ibv_values_ex before = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, after = before;
	IS(ibv_query_rt_values_ex(b.c, &before), 0);
	struct ibv_device_attr_ex d;
	IS(ibv_query_device_ex(b.c, NULL, &d), 0);
	IS(d.hca_core_clock, 1000000);
	CHECK(d.completion_timestamp_mask == UINT64_MAX);
	IS(ibv_destroy_qp(a.qp), 0);
	IS(ibv_destroy_qp(b.qp), 0);
	struct ibv_cq *plain = b.cq;
	b.cq = ibv_cq_ex_to_cq(x);
	connect_both(IBV_QPT_RC);

	struct ibv_poll_cq_attr p = {0};
	IS(ibv_start_poll(x, &p), ENOENT);
	struct ibv_sge s = {(uintptr_t)a.buf, 10, a.mr->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM};
	for (int k = 0; k < 3; k++) {
		recv_at(&b, k, b.buf, 100);
		w.imm_data = 70 + k;
		IS(post(&a, &w), 0);
		IS(take(&a).status, IBV_WC_SUCCESS);
	}
	while (ibv_start_poll(x, &p))
		;
	uint64_t last = before.raw_clock.tv_nsec;
	for (int k = 0; k < 2; k++) {
		IS(x->status, IBV_WC_SUCCESS);
		IS(x->wr_id, k);
		IS(ibv_wc_read_opcode(x), IBV_WC_RECV);
		IS(ibv_wc_read_byte_len(x), 10);
		IS(ibv_wc_read_imm_data(x), 70 + k);
		IS(ibv_wc_read_qp_num(x), b.qp->qp_num);
		IS(ibv_wc_read_src_qp(x), 0); // datagrams have one
		IS(ibv_wc_read_wc_flags(x), IBV_WC_WITH_IMM);
		CHECK(ibv_wc_read_completion_ts(x) >= last);
		last = ibv_wc_read_completion_ts(x);
		while (k == 0 && ibv_next_poll(x))
			;
	}
	ibv_end_poll(x);
	IS(ibv_query_rt_values_ex(b.c, &after), 0);
	CHECK((uint64_t)after.raw_clock.tv_nsec >= last);

	int size = b.cq->cqe;
	IS(ibv_req_notify_cq(b.cq, 0), 0); // which stays asked for
	IS(ibv_resize_cq(b.cq, 0), EINVAL);
	IS(ibv_resize_cq(b.cq, 50), 0); // with the third in it
	CHECK(b.cq->cqe >= 50 && size < 50);
	IS(take(&b).wr_id, 2);
	for (int k = 0; k < 10; k++) { // more than the former ring holds
		recv_at(&b, 10 + k, b.buf, 100);
		IS(post(&a, &w), 0);
		IS(take(&a).status, IBV_WC_SUCCESS);
	}
	struct ibv_cq *cq;
	void *context;
	IS(ibv_get_cq_event(b.ch, &cq, &context), 0);
	CHECK(cq == b.cq);
	ibv_ack_cq_events(cq, 1);
	while (ibv_start_poll(x, &p))
		;
	IS(x->wr_id, 10);
	IS(ibv_next_poll(x), 0);
	ibv_end_poll(x);
	for (int k = 2; k < 10; k++)
		IS(take(&b).wr_id, 10 + k);
	IS(ibv_destroy_qp(b.qp), 0);
	IS(ibv_destroy_cq(b.cq), 0);
	b.cq = plain;
	create(&b, IBV_QPT_RC);
}

// As many pieces, and as much inline, as the device says.
static void pieces(void)
{
	enum { N = 27 };
	struct ibv_device_attr d;
	IS(ibv_query_device(a.c, &d), 0);
	IS(d.max_sge, N);
	IS(ibv_destroy_qp(a.qp), 0);
	IS(ibv_destroy_qp(b.qp), 0);
	struct ibv_qp_init_attr i = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, N, N, 400}};
	CHECK(a.qp = ibv_create_qp(a.pd, &i));
	i.send_cq = i.recv_cq = b.cq;
	CHECK(b.qp = ibv_create_qp(b.pd, &i));
	i.cap.max_send_sge = N + 1;
	CHECK(!ibv_create_qp(b.pd, &i));
	initialize(&a), initialize(&b);
	ready(&a, &b), ready(&b, &a);
	struct ibv_sge from[N + 1], to[N];
	for (int k = 0; k <= N; k++)
		from[k] = (struct ibv_sge){(uintptr_t)a.buf + 1000 * k, 100 + k, a.mr->lkey};
	for (int k = 0; k < N; k++)
		to[k] = (struct ibv_sge){(uintptr_t)b.buf + 1000 * k, 100 + N - 1 - k, b.mr->lkey};
	for (int k = 0; k < SIZE; k++)
		a.buf[k] = k * 13 + k / 256;
	struct ibv_recv_wr r = {.sg_list = to, .num_sge = N}, *bad;
	IS(ibv_post_recv(b.qp, &r, &bad), 0);
	struct ibv_send_wr w = {.sg_list = from, .num_sge = N, .opcode = IBV_WR_SEND};
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).byte_len, N * (100 + (N - 1) / 2));
	for (unsigned k = 0, f = 0, fo = 0, t = 0, o = 0; k < N * (100 + (N - 1) / 2); k++) {
		CHECK(a.buf[1000 * f + fo] == b.buf[1000 * t + o]);
		if (++fo == from[f].length)
			f++, fo = 0;
		if (++o == to[t].length)
			t++, o = 0;
	}
	w.num_sge = N + 1;
	IS(post(&a, &w), EINVAL);
	struct ibv_sge all = {(uintptr_t)a.buf, 400, 0};
	w = (struct ibv_send_wr){.sg_list = &all, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
	recv_at(&b, 1, b.buf, 400);
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_SUCCESS);
	IS(take(&b).byte_len, 400);
	CHECK(!memcmp(a.buf, b.buf, 400));
}

static void unmap_b(void)
{
	CHECK(b.buf == FAR);
	IS(munmap(b.buf, SIZE), 0);
}

// The target of a READ has gone, before the READ is posted.
static void read_gone(void)
{
	unmap_b();
	struct ibv_sge s = {(uintptr_t)a.buf, 100, a.mr->lkey};
	struct ibv_send_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	w.wr.rdma.remote_addr = (uintptr_t)b.buf;
	w.wr.rdma.rkey = b.mr->rkey;
	IS(post(&a, &w), 0);
	IS(take(&a).status, IBV_WC_REM_ACCESS_ERR);
}

// What is to be sent has gone.
static void send_gone(void)
{
	unmap_b();
	struct ibv_sge s = {(uintptr_t)b.buf, 100, b.mr->lkey};
	struct ibv_send_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	IS(post(&b, &w), 0);
	IS(take(&b).status, IBV_WC_LOC_PROT_ERR);
}

// Where a message was to be received has gone: the receiver is told, though the NIC has acknowledged.
static void recv_gone(void)
{
	recv_at(&b, 1, b.buf, 100);
	unmap_b();
	struct ibv_sge s = {(uintptr_t)a.buf, 100, a.mr->lkey};
	struct ibv_send_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
	IS(post(&a, &w), 0);
	IS(take(&b).status, IBV_WC_LOC_PROT_ERR);
	struct ibv_async_event e;
	do {
		IS(ibv_get_async_event(b.c, &e), 0);
		ibv_ack_async_event(&e);
	} while (e.event_type != IBV_EVENT_DEVICE_FATAL);
}

// Requests of all kinds, which never end: the test kills it.
static void stream(void)
{
	puts("ready");
	fflush(stdout);
	for (unsigned k = 0;; k++) {
		struct ibv_sge s = {(uintptr_t)a.buf, SIZE / 2, a.mr->lkey};
		struct ibv_send_wr w = {.wr_id = k, .sg_list = &s, .num_sge = 1, .opcode = k % 3 == 0 ? IBV_WR_RDMA_READ : k % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND};
		w.wr.rdma.remote_addr = (uintptr_t)b.buf;
		w.wr.rdma.rkey = b.mr->rkey;
		struct ibv_wc c;
		if (w.opcode == IBV_WR_SEND)
			recv_at(&b, k, b.buf, SIZE);
		while (post(&a, &w) == ENOMEM)
			while (ibv_poll_cq(a.cq, 1, &c) > 0)
				IS(c.status, IBV_WC_SUCCESS);
		while (ibv_poll_cq(b.cq, 1, &c) > 0)
			;
	}
}

// The NIC goes: the program is told once, and then nothing is to be read any more.
static void orphaned(void)
{
	puts("ready");
	fflush(stdout);
	next_event(&b, IBV_EVENT_DEVICE_FATAL);
	IS(fcntl(b.c->async_fd, F_SETFL, O_NONBLOCK), 0);
	struct ibv_async_event e;
	IS(ibv_get_async_event(b.c, &e), -1);
	IS(errno, EAGAIN);
	CHECK(!ibv_alloc_pd(b.c));
	IS(errno, EIO);
	exit(0);
}

// Memory goes while bytes are read from it and written to it: each request ends, well or not, and nothing waits.
static void unmap_amid(void)
{
	for (int k = 0; k < 12; k++) {
		struct ibv_sge s = {(uintptr_t)a.buf, SIZE, a.mr->lkey};
		struct ibv_send_wr w = {.wr_id = k, .sg_list = &s, .num_sge = 1, .opcode = k % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE};
		w.wr.rdma.remote_addr = (uintptr_t)b.buf;
		w.wr.rdma.rkey = b.mr->rkey;
		IS(post(&a, &w), 0);
	}
	unmap_b();
	for (int k = 0; k < 12; k++)
		take(&a);
}

static void close_end(struct end *e)
{
	IS(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		IS(ibv_destroy_srq(e->srq), 0);
	IS(ibv_destroy_cq(e->cq), 0);
	IS(ibv_destroy_comp_channel(e->ch), 0);
	IS(ibv_dereg_mr(e->mr), 0);
	IS(ibv_dealloc_pd(e->pd), 0);
	IS(ibv_close_device(e->c), 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	const char *what = argv[3];
	open_end(&a, argv[1], NULL);
	open_end(&b, argv[2], strstr(what, "gone") ? FAR : NULL);
	if (!strcmp(what, "amid-gone"))
		timeout = 12; // 17 ms: requests to a queue pair that has ended run into it
	if (!strcmp(what, "shared"))
		share(&b, 8);
	connect_both(!strcmp(what, "datagrams") || !strcmp(what, "abandoned") ? IBV_QPT_UD : IBV_QPT_RC);
	if (!strcmp(what, "one-sided"))
		one_sided();
	else if (!strcmp(what, "two-sided"))
		two_sided();
	else if (!strcmp(what, "regions"))
		regions();
	else if (!strcmp(what, "datagrams"))
		datagrams();
	else if (!strcmp(what, "abandoned"))
		abandoned();
	else if (!strcmp(what, "vain"))
		vain();
	else if (!strcmp(what, "extended"))
		extended();
	else if (!strcmp(what, "pieces"))
		pieces();
	else if (!strcmp(what, "shared"))
		shared();
	else if (!strcmp(what, "read-gone"))
		read_gone();
	else if (!strcmp(what, "send-gone"))
		send_gone();
	else if (!strcmp(what, "recv-gone"))
		recv_gone();
	else if (!strcmp(what, "stream"))
		stream();
	else if (!strcmp(what, "orphaned"))
		orphaned();
	else if (!strcmp(what, "amid-gone"))
		unmap_amid();
	else if (!strcmp(what, "linger")) {
		puts("ready");
		fflush(stdout);
		for (;;)
			pause();
	} else
		CHECK(!"a known test");
	close_end(&a);
	close_end(&b);
	return 0;
}
