// SPDX-License-Identifier: Apache-2.0

// A thread's seat: a page that its node may read (struct v_seat). The library's own waits are part of the turn. In any other call that
// sleeps in the kernel the node sees it asleep, and passes the turn on.
#include "time.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../protocol.h"

static __thread struct v_seat *seat; // NULL: nobody looks

static uint64_t served[2]; // pipes, by their inodes; 0: none

// find_served finds which pipes the server reads from (MCASTLAB_SERVED).
static void find_served(void)
{
	const char *text = getenv("MCASTLAB_SERVED");
	for (int i = 0; text && i < 2; i++) {
		char *end;
		served[i] = strtoull(text, &end, 10);
		text = *end ? end + 1 : NULL;
	}
}

int seat_serves(const struct stat *st)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	real.pthread_once(&once, find_served);
	return S_ISFIFO(st->st_mode) && (st->st_ino == served[0] || st->st_ino == served[1]);
}

void seat_take(int fds[2])
{
	struct stat none = {0};
	fds[0] = memfd_create("mcastlab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fds[1] = open("/proc/thread-self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fds[0] < 0 || fds[1] < 0 || ftruncate(fds[0], V_SEAT_SIZE) || fcntl(fds[0], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return; // such a thread keeps its turn whatever it waits for
	void *p = mmap(NULL, V_SEAT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (p == MAP_FAILED)
		return;
	seat_serves(&none);
	seat = p;
	memcpy(seat->served, served, sizeof served);
}

void seat_leave(void)
{
	struct v_seat *page = seat;
	seat = NULL; // programs may have a munmap of their own, as UCX does, which comes back here
	if (page)
		munmap(page, V_SEAT_SIZE);
}

void seat_busy(int more)
{
	if (seat)
		atomic_fetch_add(&seat->busy, more);
}

int seat_asleep(void)
{
	return seat && atomic_load(&seat->asleep) && !atomic_load(&seat->busy);
}

void seat_awake(void)
{
	if (seat)
		atomic_store(&seat->asleep, 0);
}

void seat_says(void)
{
	if (seat)
		atomic_fetch_add(&seat->said, 1);
}
