// SPDX-License-Identifier: Apache-2.0

// Declarations that block.c and give.c share.
#ifndef MCASTLAB_BLOCK_H
#define MCASTLAB_BLOCK_H
#pragma GCC visibility push(hidden)
enum kind {
	PLAIN,   // a file, which does not block, or what is part of the turn: the library's talk with the NIC, and what the server reads at any time
	NIC,     // events of the NIC
	NETWORK, // a socket of the Internet; what is from here on others may wait for
	LOCAL,   // another socket
	PIPE,
	OTHER,   // a terminal, and what else there is
};

enum kind kind_of(int fd);
int blocks(int fd);                   // it is not O_NONBLOCK
void touch(int fd, enum kind k);      // notes that others may see something new
int await_ready(int fd, short events); // waits until a descriptor is ready; -1 with EINTR: a signal has ended that

// PART has a call be part of the turn, if it is one, however long it takes.
#define PART(is, type, call) \
	({ \
		int part_ = (is); \
		seat_busy(part_); \
		type r_ = call; \
		seat_busy(-part_); \
		r_; \
	})
#pragma GCC visibility pop
#endif
