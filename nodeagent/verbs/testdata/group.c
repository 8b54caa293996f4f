// SPDX-License-Identifier: Apache-2.0

// A program of plain verbs that takes part in a multicast group by one reliable queue pair: group ADDRESS send|receive MESSAGES
// [BYTES]. The sender sends so many messages, and ends when all members have acknowledged them. A receiver compares every byte. With
// MESSAGES 0 it takes part, says so, and lingers.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { fprintf(stderr, "group.c:%d: not %s (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)

enum { DEPTH = 64 };

static unsigned char byte(int message, size_t k)
{
	return message * 13 + k * 7 + k / 251;
}

int main(int argc, char **argv)
{
	CHECK(argc >= 4);
	int send = !strcmp(argv[2], "send"), messages = atoi(argv[3]), n, done = 0, posted = 0;
	size_t size = argc > 4 ? strtoul(argv[4], 0, 0) : 65536;
	unsigned char *buf = malloc(DEPTH * size);
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(buf && n == 1);
	struct ibv_context *c = ibv_open_device(list[0]);
	CHECK(c);
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(c, 1, &port));
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, DEPTH, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, DEPTH * size, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 1, 1, 0}, .sq_sig_all = 1};
	CHECK(mr);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = 1, .rq_psn = 0, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};
	uint8_t *gid = rtr.ah_attr.grh.dgid.raw;
	if (inet_pton(AF_INET, argv[1], gid + 12) == 1)
		gid[10] = gid[11] = 0xff; // an IPv4 address, mapped
	else
		CHECK(inet_pton(AF_INET6, argv[1], gid) == 1);
	CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 0, .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	for (int first = 1; !messages; first = 0) {
		if (first)
			printf("in the group\n"), fflush(stdout);
		pause();
	}
	while (done < messages) {
		for (; posted < messages && posted < done + DEPTH; posted++) {
			unsigned char *p = buf + posted % DEPTH * size;
			struct ibv_sge e = {(uintptr_t)p, size, mr->lkey};
			struct ibv_send_wr s = {.wr_id = posted, .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
			struct ibv_recv_wr r = {.wr_id = posted, .sg_list = &e, .num_sge = 1}, *bad_recv;
			for (size_t k = 0; send && k < size; k++)
				p[k] = byte(posted, k);
			CHECK(!(send ? ibv_post_send(qp, &s, &bad) : ibv_post_recv(qp, &r, &bad_recv)));
		}
		struct ibv_wc w;
		if (!ibv_poll_cq(cq, 1, &w)) {
			usleep(1000);
			continue;
		}
		if (w.status != IBV_WC_SUCCESS) {
			printf("message %d: %s\n", (int)w.wr_id, ibv_wc_status_str(w.status));
			return 2;
		}
		for (size_t k = 0; !send && k < size; k++)
			CHECK(buf[w.wr_id % DEPTH * size + k] == byte(w.wr_id, k));
		done++;
	}
	printf("%d messages %s\n", done, send ? "sent" : "received");
	return 0;
}
