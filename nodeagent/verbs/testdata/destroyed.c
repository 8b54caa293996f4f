// SPDX-License-Identifier: Apache-2.0

// An identifier is destroyed while its event is being taken by another thread. No event of it may come afterwards. The first event of a program
// takes long, since the device is opened for it.
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static struct rdma_event_channel *channel;
static _Atomic int destroyed;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *listen_to(void *unused)
{
	struct rdma_cm_event *e;
	for (int over = 0; !over;) {
		need(!rdma_get_cm_event(channel, &e), "get an event");
		if (e->event == RDMA_CM_EVENT_ADDR_RESOLVED && destroyed) {
			fprintf(stderr, "an identifier that is destroyed has an event\n");
			exit(1);
		}
		over = e->event == RDMA_CM_EVENT_MULTICAST_JOIN;
		need(!rdma_ack_cm_event(e), "acknowledge it");
	}
	return unused;
}

static struct sockaddr *address(struct sockaddr_in *a, const char *text)
{
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(7471)};
	need(inet_pton(AF_INET, text, &a->sin_addr) == 1, text);
	return (struct sockaddr *)a;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id, *last;
	struct sockaddr_in a;
	pthread_t listener;
	need(argc == 3, "usage: destroyed PEER GROUP");
	need((channel = rdma_create_event_channel()) != NULL, "channel");
	need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "identifier");
	need(!pthread_create(&listener, NULL, listen_to, NULL), "thread");
	need(!rdma_resolve_addr(id, NULL, address(&a, argv[1]), 2000), "resolve");
	need(!rdma_destroy_id(id), "destroy");
	destroyed = 1;
	// What comes of this one comes behind it.
	need(!rdma_create_id(channel, &last, NULL, RDMA_PS_UDP), "identifier");
	need(!rdma_join_multicast(last, address(&a, argv[2]), NULL), "join");
	need(!pthread_join(listener, NULL), "thread");
	need(!rdma_destroy_id(last), "destroy");
	rdma_destroy_event_channel(channel);
	return 0;
}
