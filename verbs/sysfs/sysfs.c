// libmcastsysfs.so, for LD_PRELOAD: what UCX looks for of a device in /sys/class/infiniband and /dev/infiniband, where a
// machine without such a device has nothing. A file there is made in memory when it is opened; all other paths are
// the C library's. Without MCASTLAB_VERBS it does nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *path, *text; // text NULL: a folder, or a device that is never opened
} files[] = {
	{"/sys/class/infiniband", NULL},
	{"/sys/class/infiniband/mcast0", NULL},
	{"/sys/class/infiniband/mcast0/node_type", "1: CA\n"},
	{"/sys/class/infiniband/mcast0/device", NULL},
	{"/sys/class/infiniband/mcast0/device/numa_node", "-1\n"},
	{"/sys/class/infiniband/mcast0/ports/1/state", "4: ACTIVE\n"},
	{"/sys/class/infiniband/mcast0/ports/1/link_layer", "Ethernet\n"},
	{"/sys/class/infiniband/mcast0/ports/1/pkeys/0", "0xffff\n"},
	{"/sys/class/infiniband/mcast0/ports/1/gid_attrs/types/0", "RoCE v2\n"},
	{"/sys/class/infiniband/mcast0/ports/1/gid_attrs/ndevs/0", "p0\n"},
	{"/dev/infiniband/uverbs0", NULL},
};

// find returns the number of a path in the table, or -1.
static int find(const char *path)
{
	if (!path || (strncmp(path, "/sys/class/infiniband", 21) && strncmp(path, "/dev/infiniband/", 16)) || !getenv("MCASTLAB_VERBS"))
		return -1;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (!strcmp(path, files[i].path))
			return i;
	return -1;
}

// text returns what is in a file of the table that may be opened so, or NULL.
static const char *text(const char *path, int flags)
{
	int i = find(path);
	return i >= 0 && (flags & O_ACCMODE) == O_RDONLY ? files[i].text : NULL;
}

static int in_memory(const char *s, int flags)
{
	size_t n = strlen(s);
	int fd = memfd_create("mcastlab-sysfs", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	if (pwrite(fd, s, n, 0) == (ssize_t)n)
		return fd;
	close(fd);
	errno = EIO;
	return -1;
}

static void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);
	if (!f)
		abort(); // there is no C library
	return f;
}

// O_TMPFILE has bits of O_DIRECTORY, which takes no mode.
static int has_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		static int (*real)(const char *, int, ...); \
		const char *s = text(path, flags); \
		mode_t mode = 0; \
		if (has_mode(flags)) { \
			va_list l; \
			va_start(l, flags); \
			mode = va_arg(l, mode_t); \
			va_end(l); \
		} \
		if (s) \
			return in_memory(s, flags); \
		if (!real) \
			real = (int (*)(const char *, int, ...))next(#name); \
		return real(path, flags, mode); \
	}

#define FOPEN(name) \
	FILE *name(const char *path, const char *mode) \
	{ \
		static FILE *(*real)(const char *, const char *); \
		const char *s = text(path, *mode == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR); \
		int fd; \
		if (s) \
			return (fd = in_memory(s, O_CLOEXEC)) < 0 ? NULL : fdopen(fd, "r"); \
		if (!real) \
			real = (FILE *(*)(const char *, const char *))next(#name); \
		return real(path, mode); \
	}

OPEN(open)
OPEN(open64)
FOPEN(fopen)
FOPEN(fopen64)

int access(const char *path, int mode)
{
	static int (*real)(const char *, int);
	int i = find(path);
	if (i >= 0 && (!(mode & (W_OK | X_OK)) || !strncmp(path, "/dev/", 5)))
		return 0;
	if (!real)
		real = (int (*)(const char *, int))next("access");
	return real(path, mode);
}

// A file or folder of the table looks like /dev/null: it is there, and whoever asks may use it.
#define STAT(name, type) \
	int name(const char *path, struct type *st) \
	{ \
		static int (*real)(const char *, struct type *); \
		if (!real) \
			real = (int (*)(const char *, struct type *))next(#name); \
		return real(find(path) >= 0 ? "/dev/null" : path, st); \
	}

STAT(stat, stat)
STAT(stat64, stat64)
