// SPDX-License-Identifier: Apache-2.0

// The messages between the library and the NIC's side (package nodeagent/verbs). Both run on one server, so numbers
// have its byte order, which is little-endian. A request and its reply are one message each of a SEQPACKET socket.
// TestLayout compares these structures with the package's.
#ifndef MCASTLAB_PROTOCOL_H
#define MCASTLAB_PROTOCOL_H
#include <stdatomic.h>
#include <stdint.h>

enum { V_VERSION = 5 };

enum v_op {
	V_HELLO = 1,
	V_ALLOC_PD,
	V_DEALLOC_PD,
	V_REG_MR,
	V_DEREG_MR,
	V_CREATE_CHANNEL,
	V_DESTROY_CHANNEL,
	V_CREATE_CQ,
	V_DESTROY_CQ,
	V_CREATE_QP,
	V_DESTROY_QP,
	V_MODIFY_QP,
	V_QUERY_QP,
	V_CREATE_AH,
	V_DESTROY_AH,
	V_ATTACH_MCAST,
	V_DETACH_MCAST,
	V_CREATE_SRQ,
	V_DESTROY_SRQ,
	V_MODIFY_SRQ,
	V_QUERY_SRQ,
	V_RESIZE_CQ,
	V_CLOCK,
	V_UNSENT, // the reply's send is how many sends of a UC or UD queue pair have not left
	V_REREG_MR,
};

// V_TIME, a v_id whose id is 0, is all that a connection of libmcasttime.so says. The descriptor of a page, which can only be
// read, comes with the reply (v_reply).
enum { V_TIME = 48 };

// The page has the rates of a lab's clock: the rate that is valid now, and the one that has been announced, whose dilation is 0 if there
// is none. From the instant mono (CLOCK_MONOTONIC, nanoseconds) lab (picoseconds) passes in that proportion. The rates that count are
// those of the generation's last bit.
struct v_rate {
	_Atomic int64_t mono, lab;
	_Atomic uint64_t dilation; // the bits of a double: machine time per lab time
};

struct v_time {
	_Atomic uint64_t generation; // 0: nothing is known yet
	struct v_rate rates[2][2];
};

// In-network groups. A program may take part in those that an operator has offered at its NIC: an RC queue pair that it
// connects to a group's address, with PSN 0 both ways, is the NIC's member. A host registers a group whose members it has been told.
enum {
	V_GROUP_WANT = 96, // a v_id whose id is 0: the address of a new group, offered at all hosts of the job
	V_GROUP_MEMBER,
	V_GROUP_REGISTER,
	V_GROUP_STATUS, // the reply's id is a v_phase
	V_GROUP_SOURCE,
};

enum v_phase { V_PHASE_ACTIVE = 3, V_PHASE_FAILED = 7 };

struct v_group {
	uint32_t op;
	uint8_t gid[16];
};

struct v_group_member {
	uint32_t op;
	uint8_t group[16], gid[16];
	uint32_t qpn;
};

// Between two messages, when the former source has everything acknowledged: it says so with become 0, and the new one with 1.
struct v_group_source {
	uint32_t op, qpn, become;
};

// What connections say in a lab whose time is virtual. That of a program's guardian says V_PROGRAM and V_EXPECT (v_id, whose id is a
// rank, and a process). That of a thread begins with V_THREAD, with a descriptor of its process (pidfd); for each turn that it
// is given (v_turn) it says V_PARK when it waits again. V_EXPECT says that it has started a process, or
// starts a thread (0) or does not after all (UINT32_MAX); V_DIES that a process dies of a signal that it has sent; V_BYE that it ends. announced
// counts the threads of a process that were announced; it is 0 for one of its own accord.
enum { V_PROGRAM = 49, V_THREAD, V_PARK, V_BYE, V_EXPECT, V_DIES };

// A second and a third descriptor may come with V_THREAD: a memfd of V_SEAT_SIZE bytes that cannot shrink and begins with this, and the
// thread's folder of procfs. By these the node sees a thread that has a turn asleep in the kernel in a call that has not been announced. It
// sets asleep then, and gives the turn on. A thread that finds asleep set asks for a turn (V_BACK) before it does anything else.
struct v_seat {
	_Atomic uint32_t busy, asleep; // busy: what the library waits for now is part of the turn
	uint64_t served[2];            // pipes that the server reads from at any time: the program's output and errors
	_Atomic uint64_t said;         // messages of the thread after V_THREAD: the node may not have heard all
};
enum { V_SEAT_SIZE = 4096 };

struct v_thread {
	uint32_t op, rank, pid, announced;
};

// What a thread waits for. Times are lab time in picoseconds. After news of the NIC V_PARK_POLL ends when the thread would have looked
// next, if it looked every grid.
enum { V_PARK_SLEEP = 1, V_PARK_POLL, V_PARK_OUTSIDE, V_PARK_BESIDE, V_PARK_MEMORY };
// V_AGAIN: since its last turn the thread has only looked, and found nothing. V_BACK: it asks for a turn after it was asleep in the kernel.
enum { V_TOUCHED = 1, V_EVENTS = 2, V_READY = 4, V_AGAIN = 8, V_BACK = 16 };
struct v_park {
	uint32_t op, kind, flags, zero;
	uint64_t until, grid;
};

// V_WHY_CHECK is no turn: the thread looks whether what it waits for has come, and says so by V_PARK with V_READY, or without.
enum { V_WHY_TIME = 1, V_WHY_OUTSIDE, V_WHY_EVENT, V_WHY_CHECK };
struct v_turn {
	uint32_t status, why;
	uint64_t now;
};

// V_HELLO, with the descriptor of the program's /proc/self/mem.
struct v_hello {
	uint32_t op, version;
};

// V_ALLOC_PD, V_CREATE_CHANNEL and V_CLOCK, whose id is 0, V_QUERY_QP, V_UNSENT, V_QUERY_SRQ, and all that destroy.
struct v_id {
	uint32_t op, id;
};

struct v_reg_mr {
	uint32_t op, pd, access, zero;
	uint64_t addr, length, iova;
};

// The reply has the key, which is another if the memory is.
struct v_rereg_mr {
	uint32_t op, id, flags, pd, access, zero; // flags of enum ibv_rereg_mr_flags
	uint64_t addr, length;
};

struct v_create_cq {
	uint32_t op, channel, depth, zero; // channel 0: none
};

struct v_resize_cq {
	uint32_t op, id, depth;
};

struct v_create_qp {
	uint32_t op, pd, send_cq, recv_cq, type, sig_all;
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_data, srq; // srq 0: none
	uint32_t flags; // IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
};

struct v_create_srq {
	uint32_t op, pd, wr, sge;
};

struct v_modify_srq {
	uint32_t op, id, limit;
};

// Where a queue pair or an address handle sends.
struct v_path {
	uint8_t gid[16];
	uint32_t flow, traffic_class, hop_limit;
};

struct v_attr {
	uint32_t state, cur_state, sqd_async, access, pkey_index, port, path_mtu; // the MTU in bytes
	uint32_t timeout, retry_cnt, rnr_retry, rq_psn, sq_psn, min_rnr_timer;
	uint32_t rd_atomic, dest_rd_atomic, dest_qpn, qkey;
	struct v_path path;
};

struct v_modify_qp {
	uint32_t op, qpn, mask;
	struct v_attr attr;
};

struct v_create_ah {
	uint32_t op, pd;
	struct v_path path;
};

struct v_mcast {
	uint32_t op, qpn;
	uint8_t gid[16];
};

// Every reply begins so; status is 0 or an errno. A ring's memory, the far end of a channel, and in the reply to V_HELLO
// the bell's page, the bell and the far end of the asynchronous events, come as descriptors with it.
struct v_reply {
	uint32_t status, id;
	uint32_t send, recv; // V_CREATE_QP: entries of the rings; V_CREATE_CQ and V_RESIZE_CQ: send is the ring's; V_CREATE_SRQ: recv is; V_QUERY_SRQ: recv is the limit
};

struct v_device {
	struct v_reply reply;
	uint32_t version, mtu, mbps, max_qp, max_qp_wr, max_cqe, max_sge, max_inline, max_rd_atomic, max_mcast_qp;
	uint32_t max_mcast_groups, max_cq, max_srq, max_mr, max_pd, max_ah;
	uint64_t max_mr_size;
	uint8_t gid[16];
};

struct v_queried {
	struct v_reply reply;
	struct v_attr attr;
};

// The answer to V_CLOCK.
struct v_clock {
	struct v_reply reply;
	uint64_t ns; // of the NIC's time
};

// The answer to V_GROUP_WANT.
struct v_group_grant {
	struct v_reply reply;
	uint8_t gid[16];
};

// Events: a completion channel carries the number of a completion queue, the asynchronous events a type and an object.
struct v_event {
	uint32_t type, id;
};

// The bell's page: the library rings (sends a byte) only if asleep is not 0.
struct v_page {
	_Atomic uint32_t asleep;
};

// A ring begins with this header; entries follow, their number is a power of two. Its producer writes head, its
// consumer tail; both only grow.
enum { V_RING_HEADER = 256, V_SGES = 27, V_INLINE = 400 };

// The longest message, and the most packets of one that answers a READ.
#define V_MESSAGE (1ull << 31)
enum { V_PACKETS = (1 << 23) - 1 };

struct v_ring {
	_Atomic uint64_t head;
	uint8_t pad0[56];
	_Atomic uint64_t tail;
	uint8_t pad1[56];
	_Atomic uint32_t armed;   // completions: 1: the next solicited one is to raise an event; 2: the next one
	_Atomic uint32_t starved; // completions: the NIC waits for room, ring after taking some
	uint8_t pad2[120];
};

struct v_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

// Entry of a send ring.
struct v_send {
	uint64_t wr_id, remote_addr, compare_add, swap;
	uint32_t opcode, flags, sges, inline_length;
	uint32_t imm, rkey, ah, dest_qpn, qkey; // imm in host order, or the key that is taken back
	uint32_t zero[3];
	union {
		struct v_sge sge[V_SGES];
		uint8_t data[V_INLINE];
	};
};

// Entry of a receive ring.
struct v_recv {
	uint64_t wr_id;
	uint32_t sges, zero;
	struct v_sge sge[V_SGES];
};

// Entry of a completion ring.
enum { V_WC_IMM = 1, V_WC_GRH = 2, V_WC_INV = 4 };
struct v_completion {
	uint64_t wr_id;
	uint32_t status, opcode, byte_len, imm, qpn, src_qp, flags;
	uint32_t zero;
	uint64_t ns; // of the NIC's time
	uint64_t zero2[2];
};

_Static_assert(sizeof(struct v_rate) == 24 && sizeof(struct v_time) == 104, "page of the clock");
_Static_assert(sizeof(struct v_ring) == V_RING_HEADER, "ring header");
_Static_assert(sizeof(struct v_send) == 512, "send entry");
_Static_assert(sizeof(struct v_recv) == 448, "receive entry");
_Static_assert(sizeof(struct v_completion) == 64, "completion entry");
#endif
