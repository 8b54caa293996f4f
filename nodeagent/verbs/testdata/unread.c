// SPDX-License-Identifier: Apache-2.0

// Events that a program leaves unread: many are raised before the first is read, and all come, in order.
//   unread resolve N ADDRESS   addresses are resolved
//   unread queues N            completion queues of one channel have a completion each
//   unread serve N             a server sleeps while N clients ask for connections
//   unread ask N ADDRESS       the clients
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct rdma_event_channel *channel;

static struct rdma_cm_id **identifiers(int n)
{
	struct rdma_cm_id **id = calloc(n, sizeof *id);
	need(id && (channel = rdma_create_event_channel()) != NULL, "channel");
	for (int i = 0; i < n; i++)
		need(!rdma_create_id(channel, &id[i], NULL, RDMA_PS_TCP), "identifier");
	return id;
}

// next takes the event that has to come now.
static struct rdma_cm_id *next(enum rdma_cm_event_type want, const struct rdma_cm_id *of)
{
	struct rdma_cm_event *e;
	need(!rdma_get_cm_event(channel, &e), "get an event");
	struct rdma_cm_id *id = e->id;
	if (e->event != want || (of && id != of)) {
		fprintf(stderr, "%s comes, and not %s, or of another identifier\n", rdma_event_str(e->event), rdma_event_str(want));
		exit(1);
	}
	need(!rdma_ack_cm_event(e), "acknowledge it");
	return id;
}

static void resolve(struct rdma_cm_id **id, int n, const char *host)
{
	struct addrinfo *a, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	need(!getaddrinfo(host, "7471", &hints, &a), host);
	for (int i = 0; i < n; i++)
		need(!rdma_resolve_addr(id[i], NULL, a->ai_addr, 2000), "resolve");
	for (int i = 0; i < n; i++)
		next(RDMA_CM_EVENT_ADDR_RESOLVED, id[i]);
	freeaddrinfo(a);
}

static void ask(int n, const char *host)
{
	struct rdma_cm_id **id = identifiers(n);
	struct rdma_conn_param p = {.retry_count = 7};
	resolve(id, n, host);
	for (int i = 0; i < n; i++) {
		need(!rdma_resolve_route(id[i], 2000), "route");
		next(RDMA_CM_EVENT_ROUTE_RESOLVED, id[i]);
	}
	for (int i = 0; i < n; i++) {
		p.qp_num = i + 1;
		need(!rdma_connect(id[i], &p), "connect");
	}
	for (int i = 0; i < n; i++)
		next(RDMA_CM_EVENT_REJECTED, NULL);
}

static void serve(int n)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7471)};
	struct rdma_cm_id *listener = *identifiers(1);
	need(!rdma_bind_addr(listener, (struct sockaddr *)&a) && !rdma_listen(listener, n), "listen");
	sleep(3);
	for (int i = 0; i < n; i++) {
		struct rdma_cm_id *id = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
		need(!rdma_reject(id, NULL, 0), "reject");
	}
}

static void queues(int n)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_context *x = all && all[0] ? ibv_open_device(all[0]) : NULL;
	need(x != NULL, "device");
	struct ibv_comp_channel *h = ibv_create_comp_channel(x);
	struct ibv_pd *pd = ibv_alloc_pd(x);
	struct ibv_cq **q = calloc(n, sizeof *q);
	need(h && pd && q, "channel");
	for (int i = 0; i < n; i++) {
		need((q[i] = ibv_create_cq(x, 4, NULL, h, 0)) && !ibv_req_notify_cq(q[i], 0), "queue");
		struct ibv_qp_init_attr a = {.send_cq = q[i], .recv_cq = q[i], .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
		struct ibv_qp *p = ibv_create_qp(pd, &a);
		struct ibv_qp_attr t = {.qp_state = IBV_QPS_INIT, .port_num = 1};
		struct ibv_recv_wr w = {0}, *bad;
		need(p && !ibv_modify_qp(p, &t, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "queue pair");
		need(!ibv_post_recv(p, &w, &bad), "receive");
		t.qp_state = IBV_QPS_ERR; // the receive is flushed
		need(!ibv_modify_qp(p, &t, IBV_QP_STATE), "error state");
	}
	for (int i = 0; i < n; i++) {
		struct ibv_cq *of;
		void *context;
		need(!ibv_get_cq_event(h, &of, &context), "get an event");
		if (of != q[i]) {
			fprintf(stderr, "event %d is of another queue\n", i);
			exit(1);
		}
		ibv_ack_cq_events(of, 1);
	}
}

int main(int argc, char **argv)
{
	need(argc > 2, "usage: unread resolve|queues|serve|ask N [ADDRESS]");
	int n = atoi(argv[2]);
	if (!strcmp(argv[1], "queues"))
		queues(n);
	else if (!strcmp(argv[1], "serve"))
		serve(n);
	else if (!strcmp(argv[1], "ask") && argc == 4)
		ask(n, argv[3]);
	else if (!strcmp(argv[1], "resolve") && argc == 4)
		resolve(identifiers(n), n, argv[3]);
	else
		return 2;
	puts("all of them");
	return 0;
}
