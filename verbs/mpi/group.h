// SPDX-License-Identifier: Apache-2.0

// Groups of libmcastmpi.so: the queue pairs by which the ranks of a communicator broadcast.
#ifndef MCASTLAB_MPI_GROUP_H
#define MCASTLAB_MPI_GROUP_H
#include <infiniband/verbs.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef OPEN_MPI
// The library is also loaded into programs without MPI, such as a shell that starts the ranks; there these do not exist.
#pragma weak ompi_mpi_comm_null
#pragma weak ompi_mpi_comm_world
#pragma weak ompi_mpi_datatype_null
#pragma weak ompi_mpi_byte
#pragma weak ompi_mpi_int
#pragma weak ompi_mpi_op_min
#endif

enum { CHUNKS = 128 }; // of a message at most: what a queue pair's queues hold

struct group {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint8_t gid[16]; // its address
	int source;      // rank that may send
	struct group *next;
};

// group_make has the ranks of a communicator make a group, and all have the same answer: NULL if there can be none. why is what
// keeps it from being, at rank 0.
struct group *group_make(MPI_Comm comm, int rank, int ranks, const char **why);

// group_end leaves a group. What comes for it later finds nobody.
void group_end(struct group *g);

// groups_end leaves all groups, and closes the device.
void groups_end(void);

// group_region returns memory as the NIC knows it, or NULL.
struct ibv_mr *group_region(void *p, size_t n);

// group_turn makes another rank the source. It returns 0 or an errno.
int group_turn(struct group *g, int rank, int root);
#endif
