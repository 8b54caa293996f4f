// SPDX-License-Identifier: Apache-2.0

// One-sided MPI in all ways to synchronize: fences, post and start, locks, each with puts, gets, accumulates and atomics. Prints
// "N ranks, 0 wrong" at rank 0.
#include <mpi.h>
#include <stdio.h>

enum { N = 1000 };

int main(int argc, char **argv)
{
	int rank, ranks, *mem, old, sum, wrong = 0, one = 1, from[N], to[N];
	MPI_Win w;
	MPI_Group all, next, before;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	MPI_Win_allocate(N * sizeof *mem, sizeof *mem, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &w);

	MPI_Win_fence(0, w);
	for (int i = 0; i < N; i++)
		from[i] = rank * N + i;
	MPI_Put(from, N, MPI_INT, right, 0, N, MPI_INT, w);
	MPI_Win_fence(0, w);
	for (int i = 0; i < N; i++)
		wrong += mem[i] != left * N + i;
	MPI_Get(to, N, MPI_INT, right, 0, N, MPI_INT, w);
	MPI_Win_fence(0, w);
	for (int i = 0; i < N; i++)
		wrong += to[i] != rank * N + i;

	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &right, &next);
	MPI_Group_incl(all, 1, &left, &before);
	for (int k = 1; k <= 5; k++) {
		for (int i = 0; i < N; i++)
			from[i] = -(rank * N + i) * k;
		MPI_Win_post(before, 0, w);
		MPI_Win_start(next, 0, w);
		MPI_Put(from, N, MPI_INT, right, 0, N, MPI_INT, w);
		MPI_Win_complete(w);
		MPI_Win_wait(w);
		for (int i = 0; i < N; i++)
			wrong += mem[i] != -(left * N + i) * k;
	}

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w);
	mem[0] = mem[1] = 0;
	MPI_Win_unlock(rank, w);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, w);
	for (int k = 0; k < 10; k++) {
		MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, w);
		MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, w);
		MPI_Win_flush(0, w);
		wrong += old < 0 || old >= 10 * ranks;
	}
	MPI_Win_unlock_all(w);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w);
		wrong += (mem[0] != 10 * ranks) + (mem[1] != 10 * ranks);
		MPI_Win_unlock(0, w);
	}
	MPI_Reduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %d wrong\n", ranks, sum);
	MPI_Win_free(&w);
	MPI_Finalize();
	return 0;
}
