// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// board is one rank's end of the out-of-band channel. It implements rankhost.Board and rankhost.Subnet.
type board struct {
	j    *job
	h    *host
	rank int
}

// Put implements rankhost.Board.
func (b board) Put(key string, value []byte) { b.j.resume(b.j.board.Put(key, value)) }

// Get implements rankhost.Board.
func (b board) Get(key, why string, over func() bool) ([]byte, bool) {
	return b.await(b.j.board.Get, key, why, over)
}

// Take implements rankhost.Board.
func (b board) Take(key, why string, over func() bool) ([]byte, bool) {
	return b.await(b.j.board.Take, key, why, over)
}

func (b board) await(get func(rank int, t *task, key string) ([]byte, bool), key, why string, over func() bool) ([]byte, bool) {
	t := b.j.net.running
	for {
		if v, ok := get(b.rank, t, key); ok {
			return v, true
		}
		if over() {
			b.j.board.Withdraw(b.rank, t, key)
			return nil, false
		}
		b.h.Park(vtime.Never, why)
	}
}

// Barrier implements rankhost.Board.
func (b board) Barrier(over func() bool) bool {
	if over() {
		return false
	}
	all, round := b.j.board, b.j.board.Round()
	b.j.resume(all.Arrive(b.rank, b.j.net.running))
	for all.Round() == round {
		if over() {
			return false
		}
		b.h.Park(vtime.Never, all.Missing())
	}
	return true
}

// Report implements rankhost.Board.
func (b board) Report(what string) {
	b.j.net.doing = what
	b.j.net.steps++
	if b.j.report != nil {
		b.j.report(what)
	}
}

// Emit implements rankhost.Board.
func (b board) Emit(record []byte) {
	if b.j.emit != nil {
		b.j.emit(b.rank, record)
	}
}

// SetBranches implements rankhost.Subnet.
func (b board) SetBranches(entries []wire.MulticastEntry) {
	b.j.net.setBranches(entries)
}

func (n *Net) setBranches(entries []wire.MulticastEntry) {
	for _, e := range n.branches {
		n.at(e.Switch).sw.SetMulticast(wire.MulticastEntry{Group: e.Group})
	}
	n.setEntries(entries)
	n.branches = entries
}

// setEntries changes entries of the multicast tables of switches.
func (n *Net) setEntries(entries []wire.MulticastEntry) {
	for _, e := range entries {
		n.at(e.Switch).sw.SetMulticast(e)
	}
}

// LeaseGroup implements rankhost.Board.
func (b board) LeaseGroup() (uint32, error) {
	n, err := b.j.net.leaseGroup()
	return b.j.net.graph.Groups.Net() | n, err
}

// Multicast implements rankhost.Board.
func (b board) Multicast(hosts []uint32) (uint32, error) {
	lease, err := b.j.net.leaseGroup()
	if err != nil {
		return 0, err
	}
	ip := wire.MulticastNet | lease
	nodes, err := b.j.net.graph.HostsAt(hosts)
	if err != nil {
		return 0, err
	}
	b.j.multicast = append(b.j.multicast, ip)
	return ip, b.j.net.SetMulticast(ip, nodes, nil)
}

// EndMulticast implements rankhost.Board.
func (b board) EndMulticast(group uint32) error {
	b.j.multicast = slices.DeleteFunc(b.j.multicast, func(ip uint32) bool { return ip == group })
	b.j.net.endMulticast(group)
	return nil
}

// Leased returns the number of group addresses that the run has used. It is also the lower 16 bits of
// the last of them, or 0 if there is none.
func (n *Net) Leased() uint32 { return n.lease }

// leaseGroup returns the lower 16 bits of a group address that the run has not used.
func (n *Net) leaseGroup() (uint32, error) { return nextLease(&n.lease) }

func nextLease(last *uint32) (uint32, error) {
	if *last >= 1<<16-1 {
		return 0, fmt.Errorf("all 65535 group addresses of the run are used")
	}
	*last++
	return *last, nil
}
