// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Groups of programs. Hosts report the groups that they have joined (IGMPv3, MLDv2); a switch keeps, by group, the ports behind
// which there are members, and reports the group in its own name to its neighbour on the way to the root of the group's tree (as
// a proxy, RFC 4605). A packet leaves by the ports of members and by the one toward the root, but not by the one that it came
// by: it climbs to the root, from any sender, and goes down to members wherever it passes their branch (as in BIDIR-PIM, RFC
// 5015). Since every switch has one port toward the root at most, no packet reaches a switch twice.
//
// A switch is the querier of the ports below it: from the first report, packet or query of a switch above on, it queries every
// 125 s. A member that answers neither of two queries, 10 s apart, is removed. With Config.QueriesRest there is no timer for
// that: a query that is due is sent with the next packet, report or query.

// Membership is a switch's record of a group.
type Membership struct {
	Group  uint32
	Ports  []uint16 // behind which there are members, ascending
	Uplink int      // port toward the root of the group's tree, or negative
}

// snooping is the state of all groups of programs.
type snooping struct {
	groups  []joined   // by address
	members int        // sum over all groups of their ports
	began   vtime.Time // of the last round of queries
	due     vtime.Time // of the next query, or of the end of the round
	phase   uint8      // queries of the present round that have been sent; 0: there is no round
	ipv6    bool       // as the last report was
	tag     *wire.VLAN
	buf     []byte
}

// joined is a group with members below the switch.
type joined struct {
	ip    uint32
	ports []member // ascending; not empty
	up    int      // port that the group was reported by, or negative
}

// member is a port behind which there are members.
type member struct {
	port  uint16
	heard vtime.Time
}

const (
	queryInterval = wire.QueryInterval * vtime.Second
	queryResponse = wire.QueryResponse * vtime.Second
)

func (s *Switch) timerQuery() int { return timerPorts + 3*len(s.ports) + 1 }

// Memberships returns the groups of programs, by address.
func (s *Switch) Memberships() (all []Membership) {
	if s.snoop == nil {
		return nil
	}
	for _, g := range s.snoop.groups {
		m := Membership{Group: g.ip, Uplink: g.up}
		for _, p := range g.ports {
			m.Ports = append(m.Ports, p.port)
		}
		all = append(all, m)
	}
	return all
}

// Snooped holds the group memberships that a switch has snooped, for the switch that takes its place.
type Snooped struct {
	IPv6   bool
	Tag    *wire.VLAN // of reports; nil: they have none
	Groups []Membership
}

// Snooped returns the switch's table of groups of programs; nil: it has never received a report.
func (s *Switch) Snooped() *Snooped {
	if s.snoop == nil {
		return nil
	}
	return &Snooped{s.snoop.ipv6, s.snoop.tag, s.Memberships()}
}

// Resume gives the switch the table of its predecessor; nil: none. It begins a round of queries, since reports in between are lost. It
// is called before any input, with ports that the switch has.
func (s *Switch) Resume(now vtime.Time, x *Snooped) {
	if x == nil {
		return
	}
	n := s.newSnooping(x.IPv6, x.Tag)
	for _, m := range x.Groups {
		g := joined{ip: m.Group, up: m.Uplink}
		for _, p := range m.Ports {
			g.ports = append(g.ports, member{p, now})
		}
		n.groups = append(n.groups, g)
		n.members += len(g.ports)
	}
	s.setDue(now.Add(pauseGap))
}

// ofPrograms reports whether a group is formed by reports. The lab's own are installed by the driver.
func ofPrograms(ip uint32) bool { return wire.IsMulticast(ip) && !wire.IsLabGroup(ip) }

// uplink returns the port toward the root of a group's tree, or a negative number.
func (s *Switch) uplink(ip uint32) int {
	if n := uint64(len(s.fib.Uplinks)); n > 0 {
		return s.fib.Uplinks[prng.Mix(uint64(ip))%n]
	}
	return noUplink
}

// noUplink is the uplink of a switch that the tree does not reach.
const noUplink = -2

func (s *Switch) newSnooping(ipv6 bool, tag *wire.VLAN) *snooping {
	s.snoop = &snooping{ipv6: ipv6, tag: tag}
	s.timers.Grow(s.timerQuery() + 1)
	return s.snoop
}

// snooped makes the state when a frame needs it for the first time, and sends the query that is due.
func (s *Switch) snooped(now vtime.Time, f *wire.Frame) *snooping {
	if s.snoop == nil {
		s.newSnooping(f.IPv6(), f.Tag()).began = now
		s.setDue(now.Add(queryInterval))
	}
	if s.snoop.due <= now {
		s.queryDue(now)
	}
	return s.snoop
}

func (n *snooping) find(ip uint32) (int, bool) {
	return slices.BinarySearchFunc(n.groups, ip, func(g joined, ip uint32) int { return cmp.Compare(g.ip, ip) })
}

func (g *joined) find(port int) (int, bool) {
	return slices.BinarySearchFunc(g.ports, uint16(port), func(m member, p uint16) int { return cmp.Compare(m.port, p) })
}

// handleMembership takes a report of a host, or of a switch below, or a query of the switch above.
func (s *Switch) handleMembership(now vtime.Time, in int, f *wire.Frame) {
	n := s.snooped(now, f)
	m, buf, err := f.Membership(n.buf)
	n.buf = buf
	if err != nil {
		s.drop(now, in, f, DropMalformed)
		return
	}
	if m.Query {
		s.answerQuery(now, in, m.Group)
		s.absorb(f)
		return
	}
	full := false
	for r, ok := m.Next(); ok; r, ok = m.Next() {
		switch {
		case !ofPrograms(r.Group) || s.uplink(r.Group) == in:
		case r.Joins():
			full = !s.join(now, in, r.Group) || full
		case r.Leaves():
			s.quit(now, in, r.Group)
		}
	}
	if full {
		s.drop(now, in, f, DropMembershipsFull)
		return
	}
	s.absorb(f)
}

// join notes that there are members of a group behind a port. It returns false if there is no room to.
func (s *Switch) join(now vtime.Time, port int, ip uint32) bool {
	n := s.snoop
	i, known := n.find(ip)
	at := 0
	if known {
		g := &n.groups[i]
		var ok bool
		if at, ok = g.find(port); ok {
			g.ports[at].heard = now
			return true
		}
	}
	if n.members == MembershipsMax {
		return false
	}
	if !known {
		n.groups = slices.Insert(n.groups, i, joined{ip: ip, up: noUplink})
	}
	g := &n.groups[i]
	g.ports = slices.Insert(g.ports, at, member{uint16(port), now})
	n.members++
	if !known {
		s.climbs(now, g)
	}
	return true
}

// quit notes that there are no members of a group behind a port any more. A port has one host, or one switch that reports
// for all behind it, so no other host has to be queried.
func (s *Switch) quit(now vtime.Time, port int, ip uint32) {
	n := s.snoop
	i, known := n.find(ip)
	if !known {
		return
	}
	g := &n.groups[i]
	at, ok := g.find(port)
	if !ok {
		return
	}
	g.ports = slices.Delete(g.ports, at, at+1)
	n.members--
	if len(g.ports) == 0 {
		s.change(now, g.up, wire.ChangeToInclude, ip)
		n.groups = slices.Delete(n.groups, i, i+1)
	}
}

// climbs reports a group toward the root of its tree.
func (s *Switch) climbs(now vtime.Time, g *joined) {
	g.up = s.uplink(g.ip)
	s.change(now, g.up, wire.ChangeToExclude, g.ip)
}

// change reports a change of state. It does so twice, since a report may get lost. RFC 3376 lets the repeat wait for up to a second; a
// timer for that would make lab time pass where programs wait for something outside the lab.
func (s *Switch) change(now vtime.Time, port int, to wire.RecordType, ip uint32) {
	for range wire.MembershipRobustness {
		s.report(now, port, wire.GroupRecord{Type: to, Group: ip})
	}
}

// rejoin moves groups to the uplinks that the present routes give them.
func (s *Switch) rejoin(now vtime.Time) {
	if s.snoop == nil {
		return
	}
	for i := range s.snoop.groups {
		g := &s.snoop.groups[i]
		if up := s.uplink(g.ip); up != g.up {
			s.change(now, g.up, wire.ChangeToInclude, g.ip)
			s.climbs(now, g)
			s.quit(now, up, g.ip) // the port below is above now
			if i < len(s.snoop.groups) && s.snoop.groups[i].ip != g.ip {
				s.rejoin(now) // the group was deleted with its last port
				return
			}
		}
	}
}

// answerQuery answers a query of the switch above, for one group or for all, and is a querier itself from now on: the
// reports of the hosts below may all have got lost.
func (s *Switch) answerQuery(now vtime.Time, in int, group uint32) {
	if !slices.Contains(s.fib.Uplinks, in) {
		return
	}
	var records []wire.GroupRecord
	for _, g := range s.snoop.groups {
		if g.up == in && (group == 0 || g.ip == group) {
			records = append(records, wire.GroupRecord{Type: wire.ModeIsExclude, Group: g.ip})
		}
	}
	s.report(now, in, records...)
}

// report sends records by a port; a port that is none, or has no carrier, is not used.
func (s *Switch) report(now vtime.Time, port int, records ...wire.GroupRecord) {
	if port < 0 || s.noCarrier.has(port) {
		return
	}
	w := wire.Reporter{IP: s.ip, IPv6: s.snoop.ipv6, VLAN: s.snoop.tag}
	for part := range slices.Chunk(records, wire.GroupRecordsMax) {
		s.sendMembership(now, port, w.Report(s.pool, part))
	}
}

func (s *Switch) query(now vtime.Time, port int) {
	w := wire.Reporter{IP: s.ip, IPv6: s.snoop.ipv6, VLAN: s.snoop.tag}
	s.sendMembership(now, port, w.Query(s.pool))
}

func (s *Switch) sendMembership(now vtime.Time, port int, f *wire.Frame) {
	s.stats.Made++
	var a arrival
	s.arrived(&a, f, port)
	s.out(now, port, f, &a)
}

func (s *Switch) setDue(at vtime.Time) {
	s.snoop.due = at
	if !s.queriesRest {
		s.timers.Set(s.timerQuery(), at)
	}
}

// queryDue begins a round of queries, repeats the query where a member has not answered, or removes
// who has answered neither.
func (s *Switch) queryDue(now vtime.Time) {
	n := s.snoop
	ask := newBitset(len(s.ports))
	switch n.phase {
	case 0:
		n.began = now
		for p := range s.ports {
			if !slices.Contains(s.fib.Uplinks, p) && (s.up == nil || !s.up.has(p)) {
				ask.set(p)
			}
		}
	case wire.MembershipRobustness:
		s.expire(now)
	default:
		for _, g := range n.groups {
			for _, m := range g.ports {
				if m.heard < n.began {
					ask.set(int(m.port))
				}
			}
		}
	}
	if ask.next(0) < 0 {
		n.phase = 0
		s.setDue(max(now.Add(pauseGap), n.began.Add(queryInterval)))
		return
	}
	n.phase++
	s.setDue(now.Add(queryResponse))
	for p := ask.next(0); p >= 0; p = ask.next(p + 1) {
		if !s.noCarrier.has(p) {
			s.query(now, p)
		}
	}
}

// expire removes the members without a report since the round began.
func (s *Switch) expire(now vtime.Time) {
	type at struct {
		port int
		ip   uint32
	}
	var gone []at
	for _, g := range s.snoop.groups {
		for _, m := range g.ports {
			if m.heard < s.snoop.began {
				gone = append(gone, at{int(m.port), g.ip})
			}
		}
	}
	for _, x := range gone {
		s.quit(now, x.port, x.ip)
	}
	s.stats.MembershipsExpired += uint64(len(gone))
}

// forgetMemberships loses all groups, as a reboot does, and asks the hosts for theirs.
func (s *Switch) forgetMemberships(now vtime.Time) {
	if n := s.snoop; n != nil {
		*n = snooping{ipv6: n.ipv6, tag: n.tag, buf: n.buf}
		s.queryDue(now)
	}
}

// forwardJoined sends a packet of a program's group to the ports of its members and toward the root of its tree.
func (s *Switch) forwardJoined(now vtime.Time, in int, f *wire.Frame, dst uint32) {
	s.snooped(now, f)
	up := s.uplink(dst)
	var ports []member
	if i, ok := s.snoop.find(dst); ok {
		ports = s.snoop.groups[i].ports
	} else if up < 0 || up == in {
		s.drop(now, in, f, DropUnknownGroup)
		return
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	last := -1
	if up >= 0 && up != in {
		last = up
	}
	var a arrival
	s.arrived(&a, f, in)
	a.shared = len(ports) > 1 || len(ports) == 1 && last >= 0
	for _, m := range ports {
		p := int(m.port)
		if p == in || p == up {
			continue
		}
		if last >= 0 { // the original leaves last, which saves a copy
			s.stats.Cloned++
			s.out(now, last, s.pool.Clone(f), &a)
		}
		last = p
	}
	if last < 0 {
		s.absorb(f)
		return
	}
	s.out(now, last, f, &a)
}
