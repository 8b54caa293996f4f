// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// isMulticast reports whether the address is an IPv4 multicast address (RFC 5771).
func isMulticast(ip uint32) bool { return ip>>28 == 0xe }

// SetMulticast installs an entry for the lab's own groups of unreliable datagram queue pairs (those of programs are formed by
// reports, snoop.go), in place of an earlier one for the same address. An entry
// without ports removes the earlier one. An address that is not multicast is ignored.
func (s *Switch) SetMulticast(m wire.MulticastEntry) {
	if !isMulticast(m.Group) {
		return
	}
	i, ok := s.findMulticast(m.Group)
	switch {
	case ok && len(m.Ports) == 0:
		s.multicast = slices.Delete(s.multicast, i, i+1)
	case ok:
		s.multicast[i] = m
	case len(m.Ports) > 0:
		s.multicast = slices.Insert(s.multicast, i, m)
	}
}

// Multicasts returns all entries, by address.
func (s *Switch) Multicasts() []wire.MulticastEntry { return slices.Clone(s.multicast) }

// WipeMulticast removes all entries and returns their number.
func (s *Switch) WipeMulticast() (entries int) {
	entries, s.multicast = len(s.multicast), nil
	return entries
}

func (s *Switch) findMulticast(ip uint32) (int, bool) {
	return slices.BinarySearchFunc(s.multicast, ip, func(m wire.MulticastEntry, ip uint32) int { return cmp.Compare(m.Group, ip) })
}

// forwardMulticast sends a packet to all ports of its group but the one it came by. Only its
// time to live changes.
func (s *Switch) forwardMulticast(now vtime.Time, in int, f *wire.Frame, dst uint32) {
	i, ok := s.findMulticast(dst)
	if !ok {
		if ofPrograms(dst) && (s.snoop != nil || len(s.fib.Uplinks) > 0) {
			s.forwardJoined(now, in, f, dst)
			return
		}
		s.drop(now, in, f, DropUnknownGroup)
		return
	}
	m := &s.multicast[i]
	member := slices.Contains(m.Ports, uint16(in))
	if !member && !slices.Contains(m.From, uint16(in)) {
		s.drop(now, in, f, DropNotInTree)
		return
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	var a arrival
	s.arrived(&a, f, in)
	copies := len(m.Ports)
	if member {
		copies--
	}
	a.shared = copies > 1
	for _, p := range m.Ports {
		if int(p) == in {
			continue
		}
		if copies--; copies == 0 {
			s.out(now, int(p), f, &a) // the original leaves last, which saves a copy
			return
		}
		s.stats.Cloned++
		s.out(now, int(p), s.pool.Clone(f), &a)
	}
	s.absorb(f) // the group has no other port
}
