// SPDX-License-Identifier: Apache-2.0

// An MPI program whose every byte is compared: broadcasts, sums and exchanges of all with all, from 8 bytes to as many as
// the first argument says, or 256 KiB; as often as the second says, or four times. In an exchange each sends that to each,
// but at most as many bytes as the third says.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte(int from, int to, size_t k, int round)
{
	return from * 31 + to * 17 + k * 7 + k / 251 + round * 3;
}

int main(int argc, char **argv)
{
	size_t most = argc > 1 ? strtoul(argv[1], 0, 0) : 1 << 18, size = 8;
	size_t block, blocks = argc > 3 ? strtoul(argv[3], 0, 0) : most;
	int rank, n, bad = 0, all, rounds = argc > 2 ? atoi(argv[2]) : 4, sizes = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	for (;; size = size * 8 < most ? size * 8 : most) {
		sizes++;
		for (int round = 0; round < rounds; round++) {
			unsigned char *out, *in;
			long *sum = malloc(size), *sums = malloc(size);
			int root = round % n;
			block = size < blocks ? size : blocks;
			out = malloc(block * n), in = malloc(block * n > size ? block * n : size);
			for (size_t k = 0; k < size; k++)
				in[k] = rank == root ? byte(root, 0, k, round) : 0;
			MPI_Bcast(in, size, MPI_BYTE, root, MPI_COMM_WORLD);
			for (size_t k = 0; k < size; k++)
				bad += in[k] != byte(root, 0, k, round);
			for (size_t k = 0; k < block * n; k++)
				out[k] = byte(rank, k / block, k % block, round);
			MPI_Alltoall(out, block, MPI_BYTE, in, block, MPI_BYTE, MPI_COMM_WORLD);
			for (size_t k = 0; k < block * n; k++)
				bad += in[k] != byte(k / block, rank, k % block, round);
			for (size_t k = 0; k < size / sizeof *sum; k++)
				sum[k] = (rank + 1) * (long)(k + round);
			MPI_Allreduce(sum, sums, size / sizeof *sum, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
			for (size_t k = 0; k < size / sizeof *sum; k++)
				bad += sums[k] != n * (n + 1) / 2 * (long)(k + round);
			free(out), free(in), free(sum), free(sums);
		}
		if (size >= most)
			break;
	}
	MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %d wrong, %d sizes up to %zu\n", n, all, sizes, size);
	MPI_Finalize();
	return bad != 0;
}
