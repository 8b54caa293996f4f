// SPDX-License-Identifier: Apache-2.0

// How groups are made: the communicator's rank 0 gets an address from the command mpirun, every rank connects a queue pair to it,
// and rank 0 has its NIC register them in the switches.
#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../protocol.h"

int verbs_exchange(int sock, const void *request, size_t size, int fd, void *reply, size_t reply_size, int *fds, int nfds);

// The device, which all groups of the process share.
static struct {
	struct ibv_context *x;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct ibv_port_attr port;
	struct group *groups;
} nic;

// Registered memory is kept: programs broadcast from few buffers. A region goes by its addresses, so what has been unmapped and
// mapped again meanwhile is not lost.
enum { REGIONS = 16, REGION_BYTES = 256 << 20 };
static struct {
	struct ibv_mr *mr;
	unsigned long used;
} regions[REGIONS];
static unsigned long uses;

static void forget_region(int i)
{
	if (regions[i].mr)
		ibv_dereg_mr(regions[i].mr);
	regions[i].mr = NULL;
}

struct ibv_mr *group_region(void *p, size_t n)
{
	size_t all = n;
	int at = 0;
	for (int i = 0; i < REGIONS; i++) {
		struct ibv_mr *m = regions[i].mr;
		if (m && (char *)m->addr <= (char *)p && (char *)p + n <= (char *)m->addr + m->length) {
			regions[i].used = ++uses;
			return m;
		}
		if (m)
			all += m->length;
	}
	for (int i = 0; i < REGIONS && all > REGION_BYTES; i++)
		forget_region(i);
	for (int i = 0; i < REGIONS; i++)
		if (!regions[i].mr || (regions[at].mr && regions[i].used < regions[at].used))
			at = i;
	forget_region(at);
	regions[at].used = ++uses;
	return regions[at].mr = ibv_reg_mr(nic.pd, p, n, IBV_ACCESS_LOCAL_WRITE);
}

// open_device opens the device of the host, once. It returns whether it is there.
static int open_device(void)
{
	if (nic.pd)
		return 1;
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !nic.x; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mcast0"))
			nic.x = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!nic.x)
		return 0;
	if (ibv_query_gid(nic.x, 1, 0, &nic.gid) || ibv_query_port(nic.x, 1, &nic.port) || !(nic.pd = ibv_alloc_pd(nic.x))) {
		ibv_close_device(nic.x);
		nic.x = NULL;
		return 0;
	}
	return 1;
}

// ask sends the NIC a request that the verbs do not have, by the socket of the device. A communicator's groups are one thread's.
static int ask(const void *m, size_t size, void *r, size_t reply)
{
	return verbs_exchange(nic.x->cmd_fd, m, size, -1, r, reply, NULL, 0);
}

int group_turn(struct group *g, int rank, int root)
{
	int err = 0;
	if (g->source != root && (rank == root || rank == g->source)) {
		struct v_group_source m = {V_GROUP_SOURCE, g->qp->qp_num, rank == root};
		struct v_reply r;
		err = ask(&m, sizeof m, &r, sizeof r);
	}
	g->source = root;
	return err;
}

static void free_queues(struct group *g)
{
	if (g->qp)
		ibv_destroy_qp(g->qp);
	if (g->cq)
		ibv_destroy_cq(g->cq);
	free(g);
}

void group_end(struct group *g)
{
	for (struct group **p = &nic.groups; *p; p = &(*p)->next)
		if (*p == g) {
			*p = g->next;
			free_queues(g);
			return;
		}
}

void groups_end(void)
{
	while (nic.groups)
		group_end(nic.groups);
	for (int i = 0; i < REGIONS; i++)
		forget_region(i);
	if (nic.pd)
		ibv_dealloc_pd(nic.pd);
	if (nic.x)
		ibv_close_device(nic.x);
	memset(&nic, 0, sizeof nic);
}

// connect_to makes a queue pair that receives what is sent to the group.
static struct group *connect_to(const uint8_t gid[16])
{
	struct group *g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	memcpy(g->gid, gid, sizeof g->gid);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = nic.port.active_mtu, .dest_qp_num = 1, .rq_psn = 0, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};
	memcpy(rtr.ah_attr.grh.dgid.raw, gid, 16);
	if ((g->cq = ibv_create_cq(nic.x, 2 * CHUNKS, NULL, NULL, 0))) {
		struct ibv_qp_init_attr a = {.send_cq = g->cq, .recv_cq = g->cq, .qp_type = IBV_QPT_RC, .cap = {CHUNKS, CHUNKS, 1, 1, 0}};
		g->qp = ibv_create_qp(nic.pd, &a);
	}
	if (!g->qp || ibv_modify_qp(g->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(g->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
		free_queues(g);
		return NULL;
	}
	return g;
}

// timeout returns the exponent of the queue pair's timeout, 4.096 us to the power of 2: 4.2 ms of lab time, and eight of them until a group
// is given up, unless MCASTLAB_MPI_TIMEOUT says otherwise.
static int timeout(void)
{
	const char *s = getenv("MCASTLAB_MPI_TIMEOUT");
	int n = s ? atoi(s) : 0;
	return n > 0 && n < 32 ? n : 10;
}

static int may_send(struct group *g)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .timeout = timeout(), .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	return ibv_modify_qp(g->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

// What a rank says of its queue pair; qpn 0: it has none.
struct member {
	uint8_t gid[16];
	uint32_t qpn;
};

// enroll registers the members, of whom rank 0 is the first, and waits until the switches have them.
static const char *enroll(struct group *g, const struct member *all, int ranks)
{
	struct v_reply r;
	for (int i = 1; i < ranks; i++) {
		struct v_group_member m = {.op = V_GROUP_MEMBER, .qpn = all[i].qpn};
		memcpy(m.group, g->gid, 16);
		memcpy(m.gid, all[i].gid, 16);
		if (ask(&m, sizeof m, &r, sizeof r))
			return "the NIC does not take its members";
	}
	struct v_group m = {.op = V_GROUP_REGISTER};
	memcpy(m.gid, g->gid, 16);
	if (ask(&m, sizeof m, &r, sizeof r))
		return "the NIC does not register it";
	for (m.op = V_GROUP_STATUS;;) {
		if (ask(&m, sizeof m, &r, sizeof r) || r.id == V_PHASE_FAILED)
			return "a switch has no room for it, or a host or a switch does not answer";
		if (r.id == V_PHASE_ACTIVE)
			return NULL;
		struct timespec t = {0, 1000000}; // of the wall clock, whatever this program's shows
		syscall(SYS_nanosleep, &t, NULL);
	}
}

// unlike returns why ranks cannot be members of one group, or NULL. Every rank finds the same.
static const char *unlike(const struct member *all, int ranks)
{
	static const uint8_t none[16];
	for (int i = 0; i < ranks; i++)
		for (int k = 0; k < i; k++)
			if (memcmp(all[i].gid, none, 16) && !memcmp(all[i].gid, all[k].gid, 16))
				return "two of its ranks are at one host";
	for (int i = 0; i < ranks; i++)
		if (!all[i].qpn)
			return "a rank has no queue pair for it";
	return NULL;
}

// What rank 0 says first: whether there is an address, and which.
struct address {
	uint8_t gid[16];
	uint32_t ok;
};

struct group *group_make(MPI_Comm comm, int rank, int ranks, const char **why)
{
	struct address a = {.ok = 0};
	struct member me = {.qpn = 0}, *all = malloc(ranks * sizeof *all);
	struct group *g = NULL;
	int level, ok = 0;
	*why = "there is no memory";
	if (!all)
		PMPI_Abort(comm, 1); // the others wait for this rank
	PMPI_Query_thread(&level);
	int able = level != MPI_THREAD_MULTIPLE && open_device();
	if (!rank && able) {
		struct v_id m = {V_GROUP_WANT, 0};
		struct v_group_grant r;
		a.ok = !ask(&m, sizeof m, &r, sizeof r);
		memcpy(a.gid, r.gid, 16);
	}
	PMPI_Bcast(&a, sizeof a, MPI_BYTE, 0, comm);
	if (a.ok && able)
		g = connect_to(a.gid);
	if (able)
		memcpy(me.gid, nic.gid.raw, 16);
	if (g)
		me.qpn = g->qp->qp_num;
	PMPI_Allgather(&me, sizeof me, MPI_BYTE, all, sizeof me, MPI_BYTE, comm);
	*why = a.ok ? unlike(all, ranks) : "there is no address for it";
	if (!*why) {
		if (!rank)
			*why = enroll(g, all, ranks);
		ok = !*why;
		PMPI_Bcast(&ok, 1, MPI_INT, 0, comm);
		int mine = ok && !may_send(g);
		PMPI_Allreduce(&mine, &ok, 1, MPI_INT, MPI_MIN, comm);
		if (!ok && !*why)
			*why = "a rank's queue pair does not go on";
	}
	free(all);
	if (!ok) {
		if (g)
			free_queues(g);
		return NULL;
	}
	g->next = nic.groups;
	nic.groups = g;
	return g;
}
