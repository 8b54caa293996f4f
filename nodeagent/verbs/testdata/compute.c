// SPDX-License-Identifier: Apache-2.0

// Computes for as long as it is told, in milliseconds of processor time, in three ways and without a call. None of them takes lab time.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile uint32_t sink;

static int64_t now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void fill(char *b, size_t n) // as perftest fills its buffers
{
	for (size_t i = 0; i < n; i++)
		b[i] = (char)rand();
}

static void multiply(double *a, double *b, double *c, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			for (int k = 0; k < n; k++)
				c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static void clear(char *b, size_t n)
{
	for (int i = 0; i < 20; i++)
		memset(b, i, n);
	for (size_t i = 0; i < n; i++)
		sink += b[i];
}

int main(int argc, char **argv)
{
	int64_t least = argc > 1 ? atoll(argv[1]) * 1000000 : 0;
	enum { N = 128, BYTES = 4 << 20 };
	static double a[N * N], b[N * N], c[N * N];
	char *bytes = malloc(BYTES);
	int64_t begin = now(CLOCK_MONOTONIC);
	for (int way = 0; way < 3; way++) {
		int64_t worked = now(CLOCK_THREAD_CPUTIME_ID);
		do {
			if (way == 0)
				fill(bytes, BYTES);
			else if (way == 1)
				multiply(a, b, c, N);
			else
				clear(bytes, BYTES);
		} while (now(CLOCK_THREAD_CPUTIME_ID) - worked < least);
	}
	printf("%lld ns\n", (long long)(now(CLOCK_MONOTONIC) - begin));
	free(bytes);
	return 0;
}
