// SPDX-License-Identifier: Apache-2.0

// Broadcasts of an MPI program, whose every byte is compared: of FIRST to LAST bytes, four times as many each time, ROUNDS times, from a
// root that changes with each size. It prints, for each size, the time from the root's call to the last rank's return, in us of
// CLOCK_MONOTONIC, which is the same for all ranks: of the rounds the median. With a fourth argument "s" rank
// 0 is always the root. In place of ROUNDS may be the name of a file: they repeat until it exists.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static unsigned char byte(int root, size_t k, int round)
{
	return root * 31 + k * 7 + k / 251 + round * 3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	size_t first = argc > 1 ? strtoul(argv[1], 0, 0) : 64, last = argc > 2 ? strtoul(argv[2], 0, 0) : 1 << 20;
	const char *file = argc > 3 && !atoi(argv[3]) ? argv[3] : NULL;
	int rounds = file ? 1 : argc > 3 ? atoi(argv[3]) : 3, still = argc > 4 && argv[4][0] == 's', rank, n, bad = 0, all, step = 0, on;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	unsigned char *b = malloc(last);
	double *times = malloc(rounds * sizeof *times);
	for (size_t size = first; size <= last; size *= 4, step++) {
		int root = still ? 0 : step % n;
		for (int round = -1; round < rounds; round++) { // the first warms up
			for (size_t k = 0; k < size; k++)
				b[k] = rank == root ? byte(root, k, round) : 0;
			MPI_Barrier(MPI_COMM_WORLD);
			double from = now(), to, end;
			MPI_Bcast(b, size, MPI_BYTE, root, MPI_COMM_WORLD);
			to = now();
			for (size_t k = 0; k < size; k++)
				bad += b[k] != byte(root, k, round);
			MPI_Allreduce(&to, &end, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
			from = rank == root ? from : 0;
			MPI_Allreduce(MPI_IN_PLACE, &from, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
			if (round >= 0)
				times[round] = end - from;
			on = file && access(file, F_OK); // of rank 0, whose broadcast is too short for a group
			MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
			round -= on && round >= 0;
		}
		qsort(times, rounds, sizeof *times, compare);
		if (!rank)
			printf("%zu bytes: %.1f us\n", size, times[rounds / 2]), fflush(stdout);
	}
	MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %d wrong\n", n, all);
	MPI_Finalize();
	return bad != 0;
}
