// SPDX-License-Identifier: Apache-2.0

// Addresses of IPv6 by number, as rping -a and mckey -m take them. The C library refuses them where no interface has an address of IPv6,
// unless the caller turns that check off, and a lab's interfaces have none: the fabric is the NIC's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	if (!real && !(real = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo")))
		abort(); // there is no C library
	int err = real(node, service, hints, found);
	if (!err || !node || !strchr(node, ':') || !getenv("MCASTLAB_VERBS"))
		return err;
	struct addrinfo number = {.ai_flags = AI_V4MAPPED}; // the C library's own without hints, but AI_ADDRCONFIG
	if (hints)
		number = *hints;
	number.ai_flags = (number.ai_flags & ~AI_ADDRCONFIG) | AI_NUMERICHOST; // what has a colon is no name
	return real(node, service, &number, found) ? err : 0;
}
