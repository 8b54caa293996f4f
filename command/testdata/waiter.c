// SPDX-License-Identifier: Apache-2.0

// waiter: rank 1 sends one message after another to rank 0, and takes a completion with an error for "not yet". Its queue pair gives up
// after some four milliseconds without an answer. Rank 0 fails after 200 ms.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char bytes[65536];

int main(void)
{
	int rank = atoi(getenv("MCASTLAB_RANK"));
	uint8_t wait = 8; // 4.096 us x 2^8
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = rank ? 0 : RAI_PASSIVE}, *a;
	struct ibv_qp_init_attr q = {.cap = {64, 64, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_conn_param param = {.retry_count = 3, .rnr_retry_count = 7};
	struct rdma_cm_id *listener, *id;
	struct ibv_wc w;
	if (rank)
		usleep(100000);
	if (rdma_getaddrinfo(rank ? "h0" : "0.0.0.0", "7479", &hints, &a) || rdma_create_ep(&listener, a, NULL, &q))
		return 1;
	id = listener;
	if (!rank && (rdma_listen(listener, 1) || rdma_get_request(listener, &id)))
		return 1;
	struct ibv_mr *mr = rdma_reg_msgs(id, bytes, sizeof bytes);
	for (int i = 0; !rank && i < 32; i++)
		rdma_post_recv(id, NULL, bytes, sizeof bytes, mr);
	if (rank ? rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &wait, sizeof wait) || rdma_connect(id, &param) : rdma_accept(id, NULL))
		return 1;
	for (;;) {
		if (rank) {
			if (rdma_post_send(id, NULL, bytes, sizeof bytes, mr, 0))
				return 1;
			do
				while (ibv_poll_cq(id->send_cq, 1, &w) < 1)
					;
			while (w.status != IBV_WC_SUCCESS);
			usleep(100);
		} else {
			struct timespec t;
			while (ibv_poll_cq(id->recv_cq, 1, &w) < 1)
				if (clock_gettime(CLOCK_MONOTONIC, &t), t.tv_nsec > 200000000)
					return 7;
			rdma_post_recv(id, NULL, bytes, sizeof bytes, mr);
		}
	}
}
