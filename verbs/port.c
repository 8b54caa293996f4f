// SPDX-License-Identifier: Apache-2.0

// The device's attributes, shared by the library and libmcastsysfs.so.
#include "internal.h"

// The GUID is made of the address, as a MAC address would be.
__be64 verbs_guid(const struct v_device *a)
{
	uint8_t g[8] = {2, a->gid[12], a->gid[13], 0xff, 0xfe, a->gid[13], a->gid[14], a->gid[15]};
	__be64 v;
	memcpy(&v, g, sizeof v);
	return v;
}

// Width and speed of a lane whose product comes closest to the rate from below.
void verbs_speed(uint32_t mbps, struct ibv_port_attr *a)
{
	static const struct {
		uint32_t mbps;
		uint8_t code;
	} lanes[] = {{2500, 1}, {5000, 2}, {10000, 4}, {25000, 32}, {50000, 64}, {100000, 128}};
	static const struct {
		uint32_t n;
		uint8_t code;
	} widths[] = {{4, 2}, {1, 1}};
	uint32_t best = 0;
	a->active_speed = a->active_width = 1;
	for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
		for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
			uint32_t rate = widths[w].n * lanes[i].mbps;
			if (rate > mbps || rate <= best)
				continue;
			best = rate;
			a->active_width = widths[w].code;
			a->active_speed = lanes[i].code;
		}
}
