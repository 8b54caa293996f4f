// SPDX-License-Identifier: Apache-2.0

// MPI_Bcast by in-network multicast, for unmodified programs: the library is loaded before MPI's (LD_PRELOAD), and takes the place
// of MPI_Bcast by the profiling interface of MPI. PMPI_Bcast handles all other calls.
//
// All ranks decide alike. Whether a message is large enough follows from its size, which MPI demands to be the same at all; whether
// there is a group, they have found together; and the root alone decides whether a transfer has succeeded: its NIC has the
// acknowledgement of all, or not.
#include "../rest.h"
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, LEAST = 1 << 14 };

// What a communicator has by its attribute: a group, or a note that it has none.
struct state {
	struct group *g;
};

static int key = MPI_KEYVAL_INVALID;
static struct {
	unsigned long group, usual, lost;
} counts;

static int on(const char *name)
{
	const char *s = getenv(name);
	return s && *s && strcmp(s, "0");
}

static int drop(MPI_Comm comm, int k, void *value, void *extra)
{
	struct state *s = value;
	(void)comm, (void)k, (void)extra;
	if (s->g)
		group_end(s->g);
	free(s);
	return MPI_SUCCESS;
}

static int not_copied(MPI_Comm comm, int k, void *extra, void *in, void *out, int *flag)
{
	(void)comm, (void)k, (void)extra, (void)in, (void)out;
	*flag = 0; // a duplicate gets a group of its own
	return MPI_SUCCESS;
}

// state_of returns what a communicator has. The first time all its ranks find that out together.
static struct state *state_of(MPI_Comm comm, int rank, int ranks)
{
	struct state *s = NULL;
	int found = 0;
	const char *why;
	if (key == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(not_copied, drop, &key, NULL);
	PMPI_Comm_get_attr(comm, key, &s, &found);
	if (found)
		return s;
	if (!(s = calloc(1, sizeof *s)))
		PMPI_Abort(comm, 1); // the others wait for this rank
	s->g = group_make(comm, rank, ranks, &why);
	if (!rank && !s->g)
		fprintf(stderr, "mcastlab: broadcasts of a communicator of %d ranks go the usual way: %s\n", ranks, why);
	PMPI_Comm_set_attr(comm, key, s);
	return s;
}

// piece returns the length of a message's pieces.
static size_t piece(size_t n)
{
	size_t least = (n + CHUNKS - 1) / CHUNKS;
	return least > CHUNK ? (least + 4095) / 4096 * 4096 : CHUNK;
}

static int post(struct group *g, struct ibv_mr *m, char *p, size_t n, int send)
{
	size_t step = piece(n);
	for (size_t off = 0; off < n; off += step) {
		size_t len = n - off < step ? n - off : step;
		struct ibv_sge e = {(uintptr_t)(p + off), len, m->lkey};
		struct ibv_send_wr s = {.sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = off + len == n ? IBV_SEND_SIGNALED : 0}, *bad;
		struct ibv_recv_wr r = {.sg_list = &e, .num_sge = 1}, *bad_recv;
		if (send ? ibv_post_send(g->qp, &s, &bad) : ibv_post_recv(g->qp, &r, &bad_recv))
			return -1;
	}
	return 0;
}

// take returns the number of requests that have completed, or -1 if one has failed.
static int take(struct group *g, struct wait *idle)
{
	struct ibv_wc w[16];
	int n = ibv_poll_cq(g->cq, 16, w);
	for (int i = 0; i < n; i++)
		if (w[i].status != IBV_WC_SUCCESS)
			return -1;
	if (n)
		idle->looks = 0;
	return n;
}

// A root's verdict on a transfer.
enum { LOST, DELIVERED };

// send_all is the root's part. It returns the verdict.
static int send_all(struct group *g, struct ibv_mr *m, char *p, size_t n, MPI_Comm comm, int rank, int ready)
{
	struct wait idle = {0};
	int verdict = LOST, all = 0, got = 0;
	MPI_Request q;
	PMPI_Reduce(&ready, &all, 1, MPI_INT, MPI_MIN, rank, comm);
	if (all && !post(g, m, p, n, 1)) {
		while (!(got = take(g, &idle)))
			rest(&idle, 50);
		verdict = got > 0 ? DELIVERED : LOST;
	}
	PMPI_Ibcast(&verdict, 1, MPI_INT, rank, comm, &q);
	PMPI_Wait(&q, MPI_STATUS_IGNORE);
	return verdict;
}

// receive_all is a receiver's part. With DELIVERED *err reports whether all data is in its memory.
static int receive_all(struct group *g, size_t n, MPI_Comm comm, int root, int ready, int *err)
{
	struct wait idle = {0};
	int verdict = LOST, known = 0, got, left = (n + piece(n) - 1) / piece(n);
	MPI_Request q;
	PMPI_Reduce(&ready, NULL, 1, MPI_INT, MPI_MIN, root, comm);
	PMPI_Ibcast(&verdict, 1, MPI_INT, root, comm, &q);
	while (!known || (verdict == DELIVERED && left > 0)) {
		if (left > 0 && (got = take(g, &idle)) != 0) {
			left = got > 0 ? left - got : -1; // of no more after a failure
			continue;
		}
		if (!known)
			PMPI_Test(&q, &known, MPI_STATUS_IGNORE);
		if (!known || left > 0)
			rest(&idle, 50);
	}
	*err = verdict == DELIVERED && left ? MPI_ERR_INTERN : MPI_SUCCESS;
	return verdict;
}

// by_group does a broadcast. It returns LOST, at all ranks, if PMPI_Bcast has to do it; then the group has ended.
static int by_group(struct state *s, char *p, size_t n, MPI_Comm comm, int rank, int root, int *err)
{
	struct group *g = s->g;
	struct ibv_mr *m = group_region(p, n);
	int ready = m && (rank == root || !post(g, m, p, n, 0)), verdict;
	if (group_turn(g, rank, root))
		ready = 0;
	*err = MPI_SUCCESS;
	verdict = rank == root ? send_all(g, m, p, n, comm, rank, ready) : receive_all(g, n, comm, root, ready, err);
	if (verdict == LOST) {
		group_end(g); // before anybody sends in another way: nothing of the group is written any more
		s->g = NULL;
		counts.lost++;
		if (rank == root)
			fprintf(stderr, "mcastlab: the group of a communicator is lost: its broadcasts go the usual way\n");
	}
	return verdict;
}

// direct reports whether the elements of a type lie in memory as they are sent. All others are packed.
static int direct(MPI_Datatype type, int size)
{
	int i, a, d, combiner;
	MPI_Aint lb, extent;
	PMPI_Type_get_envelope(type, &i, &a, &d, &combiner);
	PMPI_Type_get_extent(type, &lb, &extent);
	return combiner == MPI_COMBINER_NAMED && extent == size;
}

// packed does a broadcast of a type that has to be packed.
static int packed(struct state *s, void *buf, int count, MPI_Datatype type, size_t n, MPI_Comm comm, int rank, int root, int *err)
{
	char *p = malloc(n);
	int at = 0, verdict;
	if (!p)
		PMPI_Abort(comm, 1); // the others wait for this rank
	if (rank == root)
		PMPI_Pack(buf, count, type, p, n, &at, comm);
	verdict = by_group(s, p, n, comm, rank, root, err);
	if (verdict == DELIVERED && rank != root)
		PMPI_Unpack(p, n, &at, buf, count, type, comm);
	free(p);
	return verdict;
}

// least returns the number of bytes from which on broadcasts go to groups.
static size_t least(void)
{
	const char *s = getenv("MCASTLAB_MPI_MIN");
	size_t n = s ? strtoul(s, NULL, 0) : 0;
	return n ? n : LEAST;
}

// The longest message of a group. Positions in a packed one are ints.
static const size_t most = 1 << 30;

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	int rank, ranks, size, inter, err;
	if (!on("MCASTLAB_MPI") || count <= 0 || type == MPI_DATATYPE_NULL || comm == MPI_COMM_NULL)
		return PMPI_Bcast(buf, count, type, root, comm);
	if (PMPI_Type_size(type, &size) || size <= 0 || PMPI_Comm_test_inter(comm, &inter) || inter || PMPI_Comm_size(comm, &ranks) ||
	    PMPI_Comm_rank(comm, &rank))
		return PMPI_Bcast(buf, count, type, root, comm);
	size_t n = (size_t)count * size;
	if (n < least() || n > most || ranks < 3 || root < 0 || root >= ranks) {
		counts.usual++;
		return PMPI_Bcast(buf, count, type, root, comm);
	}
	struct state *s = state_of(comm, rank, ranks);
	if (s->g) {
		int verdict = direct(type, size) ? by_group(s, buf, n, comm, rank, root, &err) : packed(s, buf, count, type, n, comm, rank, root, &err);
		if (verdict == DELIVERED) {
			counts.group++;
			return err;
		}
	}
	counts.usual++;
	return PMPI_Bcast(buf, count, type, root, comm);
}

int MPI_Finalize(void)
{
	if (on("MCASTLAB_MPI")) {
		int rank = 0;
		PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
		if (on("MCASTLAB_MPI_VERBOSE"))
			fprintf(stderr, "mcastlab: rank %d: %lu broadcasts by groups, %lu the usual way, %lu groups lost\n", rank, counts.group, counts.usual, counts.lost);
		groups_end(); // what communicators still have of them is not used any more
	}
	return PMPI_Finalize();
}
