// SPDX-License-Identifier: Apache-2.0

// popen of a program that has turns: the C library starts the shell by a call of its own, which this library
// would not see.
#include "time.h"

#include <fcntl.h>

static struct stream {
	struct stream *next;
	FILE *file;
	pid_t pid;
} *streams;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

FILE *turns_popen(const char *command, const char *mode)
{
	int reads = mode[0] == 'r', ends[2];
	if ((mode[0] != 'r' && mode[0] != 'w') || mode[strspn(mode, "rwe")]) {
		errno = EINVAL;
		return NULL;
	}
	struct stream *s = malloc(sizeof *s);
	if (!s || pipe2(ends, O_CLOEXEC)) {
		free(s);
		return NULL;
	}
	pid_t pid = fork();
	if (!pid) {
		for (const struct stream *o = streams; o; o = o->next)
			close(fileno(o->file)); // POSIX has those of earlier calls closed
		if (ends[reads] == reads)
			fcntl(ends[reads], F_SETFD, 0);
		else
			dup2(ends[reads], reads);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(ends[reads]);
	if (!strchr(mode, 'e'))
		fcntl(ends[!reads], F_SETFD, 0);
	FILE *f = pid < 0 ? NULL : fdopen(ends[!reads], reads ? "r" : "w");
	if (!f) {
		close(ends[!reads]);
		free(s);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	*s = (struct stream){streams, f, pid};
	streams = s;
	pthread_mutex_unlock(&lock);
	return f;
}

int pclose(FILE *f)
{
	int status = -1;
	pid_t pid = 0;
	lab_on();
	pthread_mutex_lock(&lock);
	for (struct stream **p = &streams; *p; p = &(*p)->next)
		if ((*p)->file == f) {
			struct stream *s = *p;
			*p = s->next;
			pid = s->pid;
			free(s);
			break;
		}
	pthread_mutex_unlock(&lock);
	if (!pid)
		return real.pclose(f);
	if (turns_on())
		turns_touch(-1); // the C library closes by itself
	fclose(f);
	pid_t r;
	while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	return r < 0 ? -1 : status;
}
