// SPDX-License-Identifier: Apache-2.0

// Files of sysfs whose text is the device's: the NIC is asked when they are opened, and gives the values of
// ibv_query_*.
#include "facts.h"
#include "../internal.h"

#include <endian.h>
#include <stdio.h>
#include <unistd.h>

// The kernel's words of a rate (rate_show in drivers/infiniband/core/sysfs.c).
static void rate(char *b, size_t n, uint32_t mbps)
{
	static const struct {
		int code, tenths; // of a Gb/s in each lane
		const char *name;
	} speeds[] = {{1, 25, ""}, {2, 50, " DDR"}, {4, 100, " QDR"}, {32, 250, " EDR"}, {64, 500, " HDR"}, {128, 1000, " NDR"}};
	struct ibv_port_attr a;
	verbs_speed(mbps, &a);
	int lanes = a.active_width == 2 ? 4 : 1;
	for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
		if (speeds[i].code == a.active_speed) {
			int all = lanes * speeds[i].tenths;
			snprintf(b, n, "%d%s Gb/sec (%dX%s)\n", all / 10, all % 10 ? ".5" : "", lanes, speeds[i].name);
		}
}

// groups writes 16-bit groups in hexadecimal with colons between.
static void groups(char *b, const void *bytes, int n)
{
	const uint8_t *p = bytes;
	for (int i = 0; i < n; i++)
		b += sprintf(b, "%02x%02x%c", p[2 * i], p[2 * i + 1], i == n - 1 ? '\n' : ':');
}

const char *sysfs_fact(enum sysfs_fact what)
{
	static _Thread_local char b[64];
	const char *path = getenv("MCASTLAB_VERBS");
	struct v_device d;
	int sock, fds[3];
	if (!path || verbs_connect(path, &sock, &d, fds))
		return NULL;
	close(sock);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	__be64 guid = verbs_guid(&d);
	switch (what) {
	case SYSFS_RATE:
		rate(b, sizeof b, d.mbps);
		break;
	case SYSFS_GID:
		groups(b, d.gid, 8);
		break;
	case SYSFS_GUID:
		groups(b, &guid, 4);
	}
	return b;
}
