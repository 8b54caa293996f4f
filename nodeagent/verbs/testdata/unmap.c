// SPDX-License-Identifier: Apache-2.0

// unmap: a program whose own munmap takes a lock after the pages are gone, as UCX's does, and whose threads end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int hooked;

int munmap(void *at, size_t size)
{
	long failed = syscall(SYS_munmap, at, size);
	pthread_rwlock_wrlock(&lock);
	hooked++;
	pthread_rwlock_unlock(&lock);
	return failed;
}

static void *ends(void *unused)
{
	usleep(1000);
	return unused;
}

int main(void)
{
	for (int i = 0; i < 3; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, ends, NULL) || pthread_join(t, NULL))
			return 1;
	}
	printf("%d threads ended, munmap called: %s\n", 3, hooked ? "yes" : "no");
	return 0;
}
