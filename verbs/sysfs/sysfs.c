// SPDX-License-Identifier: Apache-2.0

// libmcastsysfs.so, for LD_PRELOAD: the files of a device in /sys/class/infiniband and /dev/infiniband, which a machine
// without such a device lacks. A file there is made in memory when it is opened; all other paths are the C library's.
// Without MCASTLAB_VERBS it does nothing.
#define _GNU_SOURCE
#include "facts.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/sys/class/infiniband/mcast0"
#define NET DEVICE "/device/net/"
#define PORT DEVICE "/ports/1/"

// The folders are those that these files lie in. An interface of the device is there if its host has it: rdma_cm takes the addresses of
// mgmt0, too, for the device's.
static const struct {
	const char *path, *text; // text NULL: a folder, a device that is never opened, or
	enum sysfs_fact fact;    // what the NIC is asked for
} files[] = {
	{DEVICE "/node_type", "1: CA\n", 0},
	{DEVICE "/node_guid", NULL, SYSFS_GUID},
	{DEVICE "/sys_image_guid", NULL, SYSFS_GUID},
	{DEVICE "/fw_ver", "mcastlab\n", 0},
	{DEVICE "/hw_rev", "1\n", 0},
	{DEVICE "/device/numa_node", "-1\n", 0},
	{NET "mgmt0", NULL, 0},
	{NET "p0", NULL, 0},
	{PORT "state", "4: ACTIVE\n", 0},
	{PORT "phys_state", "5: LinkUp\n", 0},
	{PORT "link_layer", "Ethernet\n", 0},
	{PORT "rate", NULL, SYSFS_RATE},
	{PORT "lid", "0x0\n", 0}, // as on any RoCE port
	{PORT "lid_mask_count", "0\n", 0},
	{PORT "sm_lid", "0x0\n", 0},
	{PORT "sm_sl", "0\n", 0},
	{PORT "cap_mask", "0x00010000\n", 0}, // IBV_PORT_CM_SUP
	{PORT "pkeys/0", "0xffff\n", 0},
	{PORT "gids/0", NULL, SYSFS_GID},
	{PORT "gid_attrs/types/0", "RoCE v2\n", 0},
	{PORT "gid_attrs/ndevs/0", "p0\n", 0},
	{"/dev/infiniband/uverbs0", NULL, 0},
};

enum { FILES = sizeof files / sizeof *files, NONE = -1, FOLDER = FILES };

// there reports whether a file of the table is at this host.
static int there(size_t i)
{
	int before = errno; // which readdir leaves alone at the end
	int yes = strncmp(files[i].path, NET, sizeof NET - 1) || if_nametoindex(files[i].path + sizeof NET - 1);
	errno = before;
	return yes;
}

// plain writes a path without double slashes and one at its end to b of PATH_MAX bytes, and reports whether it may be one of the table.
static int plain(const char *path, char *b)
{
	size_t n = 0;
	if (!path || (strncmp(path, "/sys/class/infiniband", 21) && strncmp(path, "/dev/infiniband", 15)) || !getenv("MCASTLAB_VERBS"))
		return 0;
	for (; *path && n < PATH_MAX - 1; path++)
		if (*path != '/' || path[1] != '/')
			b[n++] = *path;
	if (n && b[n - 1] == '/')
		n--;
	b[n] = 0;
	return !*path;
}

// find returns the number of a path in the table, FOLDER if files of it lie below, or NONE.
static int find(const char *path)
{
	char b[PATH_MAX];
	int found = NONE;
	if (!plain(path, b))
		return NONE;
	size_t n = strlen(b);
	for (size_t i = 0; i < FILES; i++)
		if (!strcmp(b, files[i].path) && there(i))
			return i;
		else if (!strncmp(b, files[i].path, n) && files[i].path[n] == '/')
			found = FOLDER;
	return found;
}

static int is_folder(int i)
{
	return i == FOLDER || (i >= 0 && !strncmp(files[i].path, NET, sizeof NET - 1));
}

// text returns what is in a file of the table that may be opened so, or NULL.
static const char *text(const char *path, int flags)
{
	int i = find(path);
	if (i < 0 || i >= FILES || (flags & O_ACCMODE) != O_RDONLY)
		return NULL;
	return files[i].fact ? sysfs_fact(files[i].fact) : files[i].text;
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

// READ_MODE declares the mode of a call that may make a file; it is passed only then.
#define READ_MODE(mode, flags) \
	mode_t mode = 0; \
	if (has_mode(flags)) { \
		va_list l; \
		va_start(l, flags); \
		mode = va_arg(l, mode_t); \
		va_end(l); \
	}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		static int (*real)(const char *, int, ...); \
		const char *s = text(path, flags); \
		READ_MODE(mode, flags); \
		if (s) \
			return in_memory(s, flags); \
		if (!real) \
			real = (int (*)(const char *, int, ...))next(#name); \
		return real(path, flags, mode); \
	}

// A path of the table begins with a slash, so the folder that another would be relative to does not count.
#define OPENAT(name) \
	int name(int dir, const char *path, int flags, ...) \
	{ \
		static int (*real)(int, const char *, int, ...); \
		const char *s = text(path, flags); \
		READ_MODE(mode, flags); \
		if (s) \
			return in_memory(s, flags); \
		if (!real) \
			real = (int (*)(int, const char *, int, ...))next(#name); \
		return real(dir, path, flags, mode); \
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
OPENAT(openat)
OPENAT(openat64)
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

// A folder looks like /, the device like /dev/null, and any other file like one of procfs: it is a file, and every user may read it.
static const char *stand_in(const char *path)
{
	int i = find(path);
	return i < 0 ? path : is_folder(i) ? "/" : !strncmp(path, "/dev", 4) ? "/dev/null" : "/proc/self/status";
}

#define STAT(name, type) \
	int name(const char *path, struct type *st) \
	{ \
		static int (*real)(const char *, struct type *); \
		if (!real) \
			real = (int (*)(const char *, struct type *))next(#name); \
		return real(stand_in(path), st); \
	}

STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	static int (*real)(int, const char *, int, unsigned, struct statx *);
	if (!real)
		real = (int (*)(int, const char *, int, unsigned, struct statx *))next("statx");
	return real(dir, stand_in(path), flags, mask, st);
}

#define STATAT(name, type) \
	int name(int dir, const char *path, struct type *st, int flags) \
	{ \
		static int (*real)(int, const char *, struct type *, int); \
		if (!real) \
			real = (int (*)(int, const char *, struct type *, int))next(#name); \
		return real(dir, stand_in(path), st, flags); \
	}

STATAT(fstatat, stat)
STATAT(fstatat64, stat64)

ssize_t readlink(const char *path, char *b, size_t n)
{
	static ssize_t (*real)(const char *, char *, size_t);
	if (find(path) >= 0) {
		errno = EINVAL; // it is no link
		return -1;
	}
	if (!real)
		real = (ssize_t (*)(const char *, char *, size_t))next("readlink");
	return real(path, b, n);
}

static char *put(char *to, const char *path)
{
	return to ? strcpy(to, path) : strdup(path);
}

// There are no links in the table.
#define CANONICAL(name, params, args, buf) \
	char *name params \
	{ \
		static char *(*real) params; \
		char b[PATH_MAX]; \
		if (find(path) >= 0 && plain(path, b)) \
			return put(buf, b); \
		if (!real) \
			real = (char *(*) params)next(#name); \
		return real args; \
	}

#undef realpath
CANONICAL(realpath, (const char *path, char *to), (path, to), to)
CANONICAL(__realpath_chk, (const char *path, char *to, size_t n), (path, to, n), to)
CANONICAL(canonicalize_file_name, (const char *path), (path), NULL)

// A folder of the table that is open. The program has the address, which is no folder of the C library's.
struct folder {
	struct folder *next;
	char path[PATH_MAX];
	size_t at; // the next file of the table
	struct dirent entry;
};

static struct folder *open_folders;
static int lock; // a spin lock: libpthread may be another than the program's

static void enter(void)
{
	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
		usleep(1);
}

static void leave(void)
{
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static struct folder *folder_of(DIR *d)
{
	struct folder *f;
	enter();
	for (f = open_folders; f && (DIR *)f != d; f = f->next)
		;
	leave();
	return f;
}

DIR *opendir(const char *path)
{
	static DIR *(*real)(const char *);
	if (is_folder(find(path))) {
		struct folder *f = calloc(1, sizeof *f);
		if (!f || !plain(path, f->path)) {
			free(f);
			errno = ENOMEM;
			return NULL;
		}
		enter();
		f->next = open_folders;
		open_folders = f;
		leave();
		return (DIR *)f;
	}
	if (!real)
		real = (DIR * (*)(const char *))next("opendir");
	return real(path);
}

// same reports whether the names in two files' paths behind n bytes are the same up to the next slash.
static int same(const char *a, const char *b, size_t n)
{
	size_t k = strcspn(a + n, "/");
	return !strncmp(a, b, n + k) && strcspn(b + n, "/") == k;
}

// entry_of returns the next name in a folder: each once, though several files may lie below.
static struct dirent *entry_of(struct folder *f)
{
	size_t n = strlen(f->path);
	for (; f->at < FILES; f->at++) {
		const char *p = files[f->at].path;
		int before = 0;
		if (strncmp(p, f->path, n) || p[n] != '/' || !there(f->at))
			continue;
		for (size_t i = 0; i < f->at; i++)
			before |= there(i) && same(p, files[i].path, n + 1);
		if (before)
			continue;
		size_t k = strcspn(p + n + 1, "/");
		f->entry = (struct dirent){.d_ino = f->at + 1, .d_reclen = sizeof f->entry, .d_type = p[n + 1 + k] || is_folder(f->at) ? DT_DIR : DT_REG};
		memcpy(f->entry.d_name, p + n + 1, k);
		f->at++;
		return &f->entry;
	}
	return NULL;
}

struct dirent *readdir(DIR *d)
{
	static struct dirent *(*real)(DIR *);
	struct folder *f = folder_of(d);
	if (f)
		return entry_of(f);
	if (!real)
		real = (struct dirent * (*)(DIR *))next("readdir");
	return real(d);
}

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64) && offsetof(struct dirent, d_name) == offsetof(struct dirent64, d_name), "entries of folders");

struct dirent64 *readdir64(DIR *d)
{
	static struct dirent64 *(*real)(DIR *);
	struct folder *f = folder_of(d);
	if (f)
		return (struct dirent64 *)entry_of(f);
	if (!real)
		real = (struct dirent64 * (*)(DIR *))next("readdir64");
	return real(d);
}

void rewinddir(DIR *d)
{
	static void (*real)(DIR *);
	struct folder *f = folder_of(d);
	if (f) {
		f->at = 0;
		return;
	}
	if (!real)
		real = (void (*)(DIR *))next("rewinddir");
	real(d);
}

int dirfd(DIR *d)
{
	static int (*real)(DIR *);
	if (folder_of(d)) {
		errno = ENOTSUP;
		return -1;
	}
	if (!real)
		real = (int (*)(DIR *))next("dirfd");
	return real(d);
}

int closedir(DIR *d)
{
	static int (*real)(DIR *);
	enter();
	for (struct folder **p = &open_folders; *p; p = &(*p)->next)
		if ((DIR *)*p == d) {
			struct folder *f = *p;
			*p = f->next;
			leave();
			free(f);
			return 0;
		}
	leave();
	if (!real)
		real = (int (*)(DIR *))next("closedir");
	return real(d);
}
