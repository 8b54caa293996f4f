// SPDX-License-Identifier: Apache-2.0

// Package wire holds every byte layout mcastlab puts on a link: Ethernet,
// 802.1Q, IPv4, IPv6, UDP, the InfiniBand transport headers of RoCEv2, the
// congestion notification packet, the per-priority pause frame and MRP, the
// registration protocol of in-network multicast.
//
// There are two levels. Headers (BTH, RETH, MRPHeader and the others) are small value types
// with AppendTo(b) and ParseX(b): the plain path, used by tests, traces and all code that does
// not run once per frame. Frame is the hot path: the headers of one frame in wire order in one
// small array, next to a shared, immutable payload; its accessors read and rewrite fields in
// place without parsing or allocating.
//
// Sources: IEEE 802.3, 802.1Q and 802.1Qbb for the link layer, RFC 791, 768 and
// 8200 above it, the InfiniBand Architecture Specification annexes A16 and A17
// for RoCE, and the Cepheus paper §III for MRP (docs/wire.md draws them all).
//
// The package uses the standard library only and keeps no mutable state. All
// multi-byte fields are in network byte order except the ICRC, whose least
// significant byte comes first.
package wire
