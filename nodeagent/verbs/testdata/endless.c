// SPDX-License-Identifier: Apache-2.0

// endless HOW: two threads hand something to and fro without an end and without a wait for time, until the main thread has slept for 1 ms:
// by semaphores, by a lock and a condition, by pipes, by yields, or by memory alone.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int stop, ball;
static sem_t sems[2];
static int pipes[2][2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static const char *how;

static void *play(void *arg)
{
	int me = arg != NULL;
	char b = 0;
	while (!stop) {
		if (!strcmp(how, "semaphores")) {
			sem_wait(&sems[me]);
			sem_post(&sems[!me]);
		} else if (!strcmp(how, "condition")) {
			pthread_mutex_lock(&lock);
			while (ball != me && !stop)
				pthread_cond_wait(&cond, &lock);
			ball = !me;
			pthread_cond_broadcast(&cond);
			pthread_mutex_unlock(&lock);
		} else if (!strcmp(how, "pipes")) {
			if (read(pipes[me][0], &b, 1) != 1 || write(pipes[!me][1], &b, 1) != 1)
				exit(3);
		} else if (!strcmp(how, "yields")) {
			while (ball != me && !stop)
				sched_yield();
			ball = !me;
		} else {
			while (ball != me && !stop)
				;
			ball = !me;
		}
	}
	sem_post(&sems[!me]); // the other may wait for it
	if (write(pipes[!me][1], &b, 1) != 1)
		exit(3);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	struct timespec ms = {0, 1000000}, now;
	how = argc > 1 ? argv[1] : "";
	if (sem_init(&sems[0], 0, 1) || sem_init(&sems[1], 0, 0) || pipe(pipes[0]) || pipe(pipes[1]) || write(pipes[0][1], "", 1) != 1)
		return 3;
	pthread_create(&t[0], NULL, play, NULL);
	pthread_create(&t[1], NULL, play, &how);
	nanosleep(&ms, NULL);
	stop = 1;
	pthread_mutex_lock(&lock);
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("done at %ld us\n", now.tv_nsec / 1000);
	return 0;
}
