// SPDX-License-Identifier: Apache-2.0

// Package igmp is the hosts' side of IP multicast membership: it reports the groups that programs of
// a host have joined, by IGMPv3 or MLDv2, so that the switches between forward them.
//
// Package igmp is a protocol core without I/O. The NIC of the host calls it (virtrnic.Stack), and it
// hands other frames to the next stack.
package igmp

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Sender sends complete frames and takes ownership of them. A NIC is a Sender.
type Sender interface {
	SendFrame(now vtime.Time, f *wire.Frame)
}

// Stack handles the other frames of the host, as virtrnic.Stack does.
type Stack interface {
	HandleFrame(now vtime.Time, f *wire.Frame)
	HandleTimeout(now vtime.Time)
	NextTimeout() (vtime.Time, bool)
}

// Config describes a host.
type Config struct {
	Reporter wire.Reporter
	Pool     *wire.Pool
	Sender   Sender
	Next     Stack // nil: the host has no other; other frames are released
}

// Stats holds the counters of a host.
type Stats struct {
	Reports uint64 // sent
	Queries uint64 // received and answered
	Ignored uint64 // reports of others, and messages that do not parse
}

// Host is the state of one host. A host without groups sends nothing and has no timer.
type Host struct {
	c      Config
	groups []member // by group
	stats  Stats
	buf    []byte
}

// member is a group that the host has joined.
type member struct {
	group uint32
	users int // queue pairs
}

// New returns a host without groups.
func New(c Config) *Host { return &Host{c: c} }

// Stats returns the counters.
func (h *Host) Stats() Stats { return h.stats }

// Groups returns the groups that the host has joined, ascending.
func (h *Host) Groups() (all []uint32) {
	for _, m := range h.groups {
		all = append(all, m.group)
	}
	return all
}

func (h *Host) find(group uint32) (int, bool) {
	return slices.BinarySearchFunc(h.groups, group, func(m member, g uint32) int { return cmp.Compare(m.group, g) })
}

// Join adds a queue pair to a group. The first one makes the host report that it has joined.
func (h *Host) Join(now vtime.Time, group uint32) {
	i, ok := h.find(group)
	if ok {
		h.groups[i].users++
		return
	}
	h.groups = slices.Insert(h.groups, i, member{group, 1})
	h.changed(now, group)
}

// Leave undoes Join. The last one makes the host report that it has left.
func (h *Host) Leave(now vtime.Time, group uint32) {
	i, ok := h.find(group)
	if !ok {
		return // lost by a restart
	}
	if h.groups[i].users--; h.groups[i].users == 0 {
		h.groups = slices.Delete(h.groups, i, i+1)
		h.changed(now, group)
	}
}

// changed reports a change of state. It does so twice, since a report may get lost. RFC 3376 §5.1 lets the repeat wait for up to a
// second; a timer for that would make lab time pass where programs wait for something outside the lab.
func (h *Host) changed(now vtime.Time, group uint32) {
	r := wire.GroupRecord{Type: wire.ChangeToInclude, Group: group}
	if _, in := h.find(group); in {
		r.Type = wire.ChangeToExclude
	}
	for range wire.MembershipRobustness {
		h.send(now, []wire.GroupRecord{r})
	}
}

// Restart drops all groups, as a crash of the host does. Nothing is reported.
func (h *Host) Restart() { h.groups = nil }

// LinkUp implements virtrnic.LinkWatcher: the switch may have forgotten the host meanwhile.
func (h *Host) LinkUp(now vtime.Time) { h.report(now) }

// report sends the current state.
func (h *Host) report(now vtime.Time) {
	var records []wire.GroupRecord
	for _, m := range h.groups {
		records = append(records, wire.GroupRecord{Type: wire.ModeIsExclude, Group: m.group})
	}
	h.send(now, records)
}

func (h *Host) send(now vtime.Time, records []wire.GroupRecord) {
	for part := range slices.Chunk(records, wire.GroupRecordsMax) {
		h.stats.Reports++
		h.c.Sender.SendFrame(now, h.c.Reporter.Report(h.c.Pool, part))
	}
}

// HandleFrame implements virtrnic.Stack. A query is answered at once: the random wait of RFC 3376 §5.2 spreads the
// answers of hosts that share a wire, and a switch port has one host.
func (h *Host) HandleFrame(now vtime.Time, f *wire.Frame) {
	if !f.IsMembership() {
		if h.c.Next == nil {
			h.c.Pool.Put(f)
		} else {
			h.c.Next.HandleFrame(now, f)
		}
		return
	}
	var m wire.Membership
	var err error
	m, h.buf, err = f.Membership(h.buf)
	h.c.Pool.Put(f)
	if err != nil || !m.Query || m.IPv6 != h.c.Reporter.IPv6 {
		h.stats.Ignored++
		return
	}
	h.stats.Queries++
	if m.Group == 0 {
		h.report(now)
	} else if _, in := h.find(m.Group); in {
		h.send(now, []wire.GroupRecord{{Type: wire.ModeIsExclude, Group: m.Group}})
	}
}

// HandleTimeout implements virtrnic.Stack.
func (h *Host) HandleTimeout(now vtime.Time) {
	if h.c.Next != nil {
		h.c.Next.HandleTimeout(now)
	}
}

// NextTimeout implements virtrnic.Stack.
func (h *Host) NextTimeout() (vtime.Time, bool) {
	if h.c.Next == nil {
		return 0, false
	}
	return h.c.Next.NextTimeout()
}
