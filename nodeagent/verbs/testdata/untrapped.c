// SPDX-License-Identifier: Apache-2.0

// Preloaded, it is a machine whose kernel accepts that rdtsc shall fault, and whose processor reads the counter all the same.
#include <sys/prctl.h>

int prctl(int option, ...)
{
	(void)option;
	return 0;
}
