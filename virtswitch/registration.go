// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// mrpTraffic is DSCP 48: registration travels in class 6, so a pause of the data's class does
// not stop it.
const mrpTraffic = 48 << 2

// handleMRP runs one step of the registration protocol (Cepheus §III-C). Each packet is
// independent and may come twice: the table is the union of all packets of one attempt
// (CEP-16). The paths form a tree if every switch routes all packets of the attempt alike and
// gets them by one port: a member is then reached the same way each time, and once all have
// confirmed there are no other paths. A switch whose routes have changed, or that gets the
// packets by another port, makes the leader begin another attempt.
func (s *Switch) handleMRP(now vtime.Time, in int, f *wire.Frame) {
	dst := f.DstIP()
	if !s.groupRange.Has(dst) {
		s.forward(now, in, f, dst) // a confirmation or error report on its way to the leader
		return
	}
	var p wire.MRPPacket
	err := wire.ErrShort
	if b := f.Payload(); b != nil {
		p, err = wire.ParseMRP(b.Bytes())
	}
	switch {
	case err != nil:
		s.drop(now, in, f, DropMalformed)
	case (p.Flags&^wire.MRPMRUpdate == 0 || p.Flags == wire.MRPReduce) && p.Len() > leaderRecords(p):
		s.register(now, in, f, dst, p)
	case p.Flags == wire.MRPDelete:
		s.deleteGroup(now, in, f, dst, p.Attempt)
	case p.Flags == wire.MRPActivate:
		s.activate(now, in, f, dst, p)
	default:
		s.drop(now, in, f, DropMalformed)
	}
}

// register installs the nodes of one packet and passes each on by the port it was
// given (CEP-12..CEP-16).
func (s *Switch) register(now vtime.Time, in int, f *wire.Frame, id uint32, p wire.MRPPacket) {
	leader := f.SrcIP()
	s.Age(now) // groups that are not used must not take the room of this one, nor change its route
	g := s.groups.get(id)
	if g != nil && (p.Attempt < g.attempt || g.forgetAt != 0 && p.Attempt == g.attempt) {
		s.drop(now, in, f, DropNotActive) // the attempt is over, or the McstID still in quarantine
		return
	}
	if g != nil && p.Attempt > g.attempt {
		s.prune(now, in, f, g)
		g = nil
	}
	if !s.room(g, p) {
		s.refuse(now, in, f, id, p.Attempt, wire.MRPErrNoMemory)
		return
	}
	fresh := g == nil
	if fresh {
		g = &group{
			id: id, index: make([]uint8, len(s.ports)), traffic: mrpTraffic, ingress: in, attempt: p.Attempt, reroutes: s.reroutes,
			aggregation: aggregation{rules: s.rules},
		}
	}
	settled := g.active && s.rules.Activate
	if !settled && (in != g.ingress || g.reroutes != s.reroutes) {
		s.refuse(now, in, f, id, p.Attempt, wire.MRPErrRoutes)
		return
	}
	g.used = now
	out, why := s.route(g, in, p)
	if why != 0 {
		s.refuse(now, in, f, id, p.Attempt, why)
		return
	}
	if settled {
		// A repeat is passed on, but no path may join any more: data may have passed already.
		if in != g.ingress || !g.covers(out) {
			s.drop(now, in, f, DropNotInTree)
			return
		}
		s.widen(g, p)
		s.putRegions(now, in, g, p, out)
		s.passOn(now, in, f, g, p, out)
		return
	}
	if fresh {
		s.groups.put(g)
		s.ageAt = min(s.ageAt, now.Add(s.ageOf(g)))
		s.mftUsed += s.tableBytes(false)
		if p.Flags == wire.MRPReduce {
			g.reduce = newReduction()
			s.reductions++
		}
	}
	s.widen(g, p)
	s.addIngress(g, in, leader, p.LeaderQPN)
	for i := leaderRecords(p); i < len(out); i++ {
		s.addNode(g, out[i], p.Record(i))
	}
	s.putRegions(now, in, g, p, out)
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupAdded, Group: id, Port: in, Value: int64(len(g.path))})
	}
	s.passOn(now, in, f, g, p, out)
	if !s.rules.Activate && !g.active {
		s.open(now, g, 0)
	}
}

// room reports whether there is memory for the table of the group, with regions if the packet
// adds them. There is memory for Config.Groups groups without regions, or for Config.GroupMemory bytes
// if that is less.
func (s *Switch) room(g *group, p wire.MRPPacket) bool {
	if g == nil && p.Flags == wire.MRPReduce && s.reductions == ReductionsMax {
		return false
	}
	need := 0
	switch regions := p.Flags&wire.MRPMRUpdate != 0; {
	case g == nil:
		need = s.tableBytes(regions)
	case regions && !g.regions:
		need = s.tableBytes(true) - s.tableBytes(false)
	}
	room := min(s.groupsMax, s.groupsRoom) * s.tableBytes(false)
	if s.groupMemory > 0 {
		room = min(room, s.groupMemory)
	}
	return s.mftUsed+need <= room
}

// widen makes room for regions in the table of a group, if the packet has some.
func (s *Switch) widen(g *group, p wire.MRPPacket) {
	if p.Flags&wire.MRPMRUpdate != 0 && !g.regions {
		g.regions = true
		s.mftUsed += s.tableBytes(true) - s.tableBytes(false)
	}
}

// covers reports whether all ports are paths of the group.
func (g *group) covers(ports []int) bool {
	for _, p := range ports {
		if p >= 0 && g.index[p] == 0 {
			return false
		}
	}
	return true
}

// prune removes the paths of an earlier attempt from the table, and sends the removal to the switches
// on them. Switches that the new attempt has already reached ignore that. The removal also goes up the
// port that the earlier attempt came by: if a switch or a link between the leader and here has failed
// meanwhile, nobody above it can reach the switches from there to here.
func (s *Switch) prune(now vtime.Time, in int, f *wire.Frame, g *group) {
	if g.forgetAt == 0 {
		for i := range g.path {
			if p := &g.path[i]; !p.host && p.port != in {
				b := s.pool.BlockFor(wire.MRPHeaderLen + wire.MRPRecordLen)
				buf := wire.MRPHeader{Total: 1, Flags: wire.MRPDelete, Attempt: g.attempt}.AppendTo(b.Fill(0))
				b.Fill(len(wire.MRPRecord{IP: g.id}.AppendTo(buf)))
				s.sendMRP(now, in, p, f, b)
			}
		}
		s.unload(g)
	}
	s.forgetGroup(g)
}

// route chooses a port for every record, or returns why one has none. A node's port is the
// one it is attached to, else the port of its unicast routes that the group has used
// longest, else the one that the fewest groups use (CEP-12, CEP-13). With this order a node
// gets the same port each time, and two paths that part at a switch do not meet again as
// long as all switches agree on the shortest paths. The port that the packet came by is never
// chosen. The leader's own record gets no port: -1.
func (s *Switch) route(g *group, in int, p wire.MRPPacket) (out []int, why wire.MRPErrorReason) {
	out = make([]int, p.Len())
	chosen := make([]uint8, len(s.ports)) // by port: 1 + the number chosen before
	fan := 0
	for i := range g.path {
		if g.path[i].port != in {
			fan++
			chosen[g.path[i].port] = uint8(fan)
		}
	}
	climb := s.climb(g, in, p)
	load := s.portLoad
	if s.rules.LoadPerNode {
		load = append([]int32(nil), load...) // Gleam counts the nodes of this packet as it goes
	}
	for i := range out {
		if i < leaderRecords(p) {
			out[i] = -1
			continue
		}
		port, set := s.fib.lookup(p.Record(i).IP)
		if port < 0 {
			port = s.pick(set, in, chosen, climb, load)
		}
		if port < 0 || port == in {
			return nil, wire.MRPErrNoRoute
		}
		if chosen[port] == 0 {
			fan++
			chosen[port] = uint8(fan)
		}
		if s.rules.LoadPerNode {
			load[port]++
		}
		out[i] = port
	}
	if s.fanOut > 0 && fan > s.fanOut {
		return nil, wire.MRPErrFanOut
	}
	return out, 0
}

// climb returns the ports up that the group's tree may use here: the one that it has, else
// those that lead to every node of the packet that is not below this switch. A tree with two
// ports up would send packets up again that came from above, and such turns can close rings of
// switches that pause each other (promise D11). It is called only if Config.Up is set.
func (s *Switch) climb(g *group, in int, p wire.MRPPacket) bitset {
	if s.up == nil {
		return nil
	}
	ok := newBitset(len(s.ports))
	if s.up.has(in) {
		return ok
	}
	for i := range g.path {
		if port := g.path[i].port; s.up.has(port) {
			ok.set(port)
			return ok
		}
	}
	copy(ok, s.up)
	var last []uint16
	for i := leaderRecords(p); i < p.Len(); i++ {
		_, set := s.fib.lookup(p.Record(i).IP)
		if len(set) == 0 || !s.up.has(int(set[0])) || len(last) > 0 && &set[0] == &last[0] {
			continue
		}
		last = set
		both := newBitset(len(s.ports))
		for _, q := range set {
			if ok.has(int(q)) {
				both.set(int(q))
			}
		}
		ok = both
	}
	return ok
}

// pick returns the port of set to use, or -1. Ties go to the lowest port.
func (s *Switch) pick(set []uint16, in int, chosen []uint8, climb bitset, load []int32) int {
	best, used := -1, -1
	for _, q := range set {
		port := int(q)
		switch {
		case port == in:
		case s.up != nil && s.up.has(port) && !climb.has(port):
		case chosen[port] != 0:
			if used < 0 || chosen[port] < chosen[used] {
				used = port
			}
		case best < 0 || load[port] < load[best]:
			best = port
		}
	}
	if used >= 0 {
		return used
	}
	return best
}

// addIngress makes the port the packet came from a path: the leader's own connection
// at its leaf, else the switch on the way to it (CEP-14).
func (s *Switch) addIngress(g *group, in int, leader uint32, qpn wire.QPN) {
	if port, _ := s.fib.lookup(leader); port == in {
		s.addNode(g, in, wire.MRPRecord{IP: leader, QPN: qpn})
		return
	}
	s.addPath(g, in)
}

// addNode makes the port a path of the group and, if the node is attached there,
// keeps its address and queue pair.
func (s *Switch) addNode(g *group, port int, r wire.MRPRecord) {
	p := s.addPath(g, port)
	if s.rules.LoadPerNode {
		p.nodes++
		s.portLoad[port]++
	}
	if at, _ := s.fib.lookup(r.IP); at != port {
		return
	}
	p.host, p.ip, p.qpn = true, r.IP, r.QPN
	p.bridge = wire.Bridge{
		Dst: r.IP, Src: g.id, DestQP: r.QPN,
		DstMAC: wire.HostMAC(r.IP), SrcMAC: wire.GroupMAC(g.id),
	}
}

func (s *Switch) addPath(g *group, port int) *path {
	if i := int(g.index[port]); i != 0 {
		return &g.path[i-1]
	}
	g.path = append(g.path, path{port: port})
	g.addPath()
	g.index[port] = uint8(len(g.path))
	if !s.rules.LoadPerNode {
		s.portLoad[port]++
	}
	return &g.path[len(g.path)-1]
}

// passOn sends each chosen port a packet with only the nodes behind it (CEP-15). f becomes the
// last of these packets.
func (s *Switch) passOn(now vtime.Time, in int, f *wire.Frame, g *group, p wire.MRPPacket, out []int) {
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	for port := range s.ports {
		var b *wire.Block
		var buf []byte
		for i, q := range out {
			if q != port {
				continue
			}
			if b == nil {
				b = s.pool.BlockFor(f.PayloadLen())
				buf = p.AppendTo(b.Fill(0))
				for k := range leaderRecords(p) {
					buf = p.AppendRecord(buf, k)
				}
			}
			buf = p.AppendRecord(buf, i)
		}
		if b != nil {
			b.Fill(len(buf))
			s.sendMRP(now, in, &g.path[g.index[port]-1], f, b)
		}
	}
	s.absorb(f)
}

// sendMRP sends a datagram like f with another payload. The source stays that of f, the leader, so that
// members send their answers there.
func (s *Switch) sendMRP(now vtime.Time, in int, to *path, f *wire.Frame, b *wire.Block) {
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(s.ip), DstMAC: to.mac(f.DstIP()), VLAN: f.Tag(), IPv6: f.IPv6(), Src: f.SrcIP(), Dst: f.DstIP(),
		Traffic: f.Traffic(), TTL: f.TTL(), SrcPort: f.SrcPort(), DstPort: wire.PortMRP,
	})
	c := s.pool.Get()
	c.StartDatagram(&e)
	c.SetPayload(b)
	c.Seal(0, s.trust)
	s.stats.Made++
	var a arrival
	s.arrived(&a, c, in)
	s.out(now, to.port, c, &a)
}

// mac returns the destination of control packets on this path.
func (p *path) mac(mcstID uint32) wire.MAC {
	if p.host {
		return wire.HostMAC(p.ip)
	}
	return wire.GroupMAC(mcstID)
}

// refuse sends the leader the reason why the group cannot be installed here (CEP-18).
func (s *Switch) refuse(now vtime.Time, in int, f *wire.Frame, id, attempt uint32, why wire.MRPErrorReason) {
	s.stats.Refused++
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupFailed, Group: id, Port: in, Text: why.String()})
	}
	leader := f.SrcIP()
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(s.ip), DstMAC: wire.HostMAC(leader), VLAN: f.Tag(), IPv6: f.IPv6(), Src: s.ip, Dst: leader,
		Traffic: mrpTraffic, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP,
	})
	s.absorb(f)
	c := s.pool.Get()
	c.StartDatagram(&e)
	b := s.pool.BlockFor(wire.MRPHeaderLen + wire.MRPRecordLen)
	buf := wire.MRPHeader{Total: 1, Flags: wire.MRPError, Attempt: attempt}.AppendTo(b.Fill(0))
	b.Fill(len(wire.MRPRecord{IP: id, Flags: uint8(why)}.AppendTo(buf)))
	c.SetPayload(b)
	c.Seal(0, s.trust)
	s.stats.Made++
	s.forward(now, in, c, leader)
}

// activate opens the group for data from the given start PSN on, and passes the packet to every other
// path. A repeat is only passed on: to open the group again would lose later acknowledgements.
func (s *Switch) activate(now vtime.Time, in int, f *wire.Frame, id uint32, p wire.MRPPacket) {
	g := s.groups.get(id)
	switch {
	case g == nil:
		s.drop(now, in, f, DropUnknownGroup)
		return
	case in != g.ingress:
		s.drop(now, in, f, DropNotInTree)
		return
	case g.forgetAt != 0 || len(g.path) < 2 || !s.rules.Activate || p.Attempt != g.attempt:
		s.drop(now, in, f, DropNotActive)
		return
	case s.severed(g):
		s.refuse(now, in, f, id, g.attempt, wire.MRPErrRoutes)
		return
	}
	g.used = now
	if !g.active {
		s.open(now, g, wire.PSN(p.Record(0).QPN))
	}
	s.flood(now, in, f, g)
}

// severed reports whether the link of some path of the group is down.
func (s *Switch) severed(g *group) bool {
	for i := range g.path {
		if s.noCarrier.has(g.path[i].port) {
			return true
		}
	}
	return false
}

// open lets data pass from the packet with the given PSN on. Feedback leaves by the path that
// the registration came from until data comes from another one.
func (s *Switch) open(now vtime.Time, g *group, start wire.PSN) {
	g.active = true
	g.aggregation.open(start)
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupActive, Group: g.id, PSN: start, Value: int64(len(g.path))})
	}
}

// flood sends a control packet to every path but the one it came from.
func (s *Switch) flood(now vtime.Time, in int, f *wire.Frame, g *group) {
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	var a arrival
	s.arrived(&a, f, in)
	a.shared = len(g.path) > 2
	for i := range g.path {
		if p := &g.path[i]; p.port != in {
			s.stats.Cloned++
			c := s.pool.Clone(f)
			c.SetDstMAC(p.mac(g.id))
			s.out(now, p.port, c, &a)
		}
	}
	s.absorb(f)
}
