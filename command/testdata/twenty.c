// SPDX-License-Identifier: Apache-2.0

// twenty server N: accepts N connections by rdma_cm, each with a thread of its own, which brings back what it gets.
// twenty client HOST: asks for one, and checks what comes back.
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4096, ROUNDS = 5, MOST = 64 };

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(3);
	}
}

#define NEED(x) need(!!(x), #x)

static struct rdma_cm_id *endpoint(const char *host)
{
	struct rdma_addrinfo *res, hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = host ? 0 : RAI_PASSIVE};
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
	struct rdma_cm_id *id;
	NEED(!rdma_getaddrinfo((char *)host, "7471", &hints, &res));
	NEED(!rdma_create_ep(&id, res, NULL, &a));
	rdma_freeaddrinfo(res);
	return id;
}

static void *serve(void *arg)
{
	struct rdma_cm_id *id = arg;
	static __thread char bytes[SIZE];
	struct ibv_wc w;
	struct ibv_mr *mr = rdma_reg_msgs(id, bytes, SIZE);
	NEED(mr && !rdma_post_recv(id, NULL, bytes, SIZE, mr) && !rdma_accept(id, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		NEED(rdma_get_recv_comp(id, &w) == 1 && w.status == IBV_WC_SUCCESS && w.byte_len == SIZE);
		NEED(!rdma_post_send(id, NULL, bytes, SIZE, mr, 0));
		NEED(rdma_get_send_comp(id, &w) == 1 && w.status == IBV_WC_SUCCESS);
		if (i < ROUNDS - 1)
			NEED(!rdma_post_recv(id, NULL, bytes, SIZE, mr));
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void server(int n)
{
	struct rdma_cm_id *listener = endpoint(NULL), *id;
	pthread_t t[MOST];
	NEED(n <= MOST && !rdma_listen(listener, MOST));
	for (int i = 0; i < n; i++)
		NEED(!rdma_get_request(listener, &id) && !pthread_create(&t[i], NULL, serve, id));
	for (int i = 0; i < n; i++)
		NEED(!pthread_join(t[i], NULL));
	rdma_destroy_ep(listener);
	printf("%d connections\n", n);
}

static void client(const char *host)
{
	static char out[SIZE], in[SIZE];
	struct rdma_cm_id *id = endpoint(host);
	struct ibv_wc w;
	struct ibv_mr *mr = rdma_reg_msgs(id, out, SIZE), *back = rdma_reg_msgs(id, in, SIZE);
	NEED(mr && back && !rdma_connect(id, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		memset(out, i + getpid(), SIZE);
		NEED(!rdma_post_recv(id, NULL, in, SIZE, back) && !rdma_post_send(id, NULL, out, SIZE, mr, 0));
		NEED(rdma_get_send_comp(id, &w) == 1 && w.status == IBV_WC_SUCCESS);
		NEED(rdma_get_recv_comp(id, &w) == 1 && w.status == IBV_WC_SUCCESS);
		errno = 0;
		NEED(!memcmp(in, out, SIZE));
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(back);
	rdma_destroy_ep(id);
	puts("ok");
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "server"))
		server(atoi(argv[2]));
	else
		client(argv[2]);
	return 0;
}
