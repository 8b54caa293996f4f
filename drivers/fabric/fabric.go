// SPDX-License-Identifier: Apache-2.0

// Package fabric turns a topology, and the settings that all switches and all NICs share, into the
// configuration of each switch, NIC and port. The simulator and the node agents build their
// machines from it, so that a lab is the same in virtual time and in wall time.
package fabric

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Spec describes all machines of a lab.
type Spec struct {
	Graph  *topo.Graph
	Seed   uint64
	Switch Switch
	NIC    virtrnic.Settings
	// VLAN is the 802.1Q VLAN ID of all packets, whose PCP is their priority. 0 means untagged.
	// It is not in the settings of NICs, since registration agents and adapters of external
	// hosts read it, too.
	VLAN uint16
	// TrustICRC carries the state of the ICRC as a flag instead of computing it. It is meant
	// for large runs with phantom payload. Here it is one value, since switches and NICs have
	// to agree on it; in the settings of both it would be set twice. The address family is
	// likewise one value, of the Graph, which gives the addresses.
	TrustICRC bool
	// Joins lets programs join multicast groups: switches have uplinks for the trees of their groups. A simulation runs no
	// programs.
	Joins bool
	// QueriesRest is that of virtswitch.Config: in virtual time, an unneeded timer would make the time pass in which
	// programs wait for something outside the lab.
	QueriesRest bool
}

// Switch holds the parameters that all switches share: the settings of their cores, which are passed
// on, and the inputs for the configuration of each port and switch.
type Switch struct {
	virtswitch.Settings
	Latency    vtime.Duration // pipeline, from the last (cut-through: header) bit on
	CutThrough bool
	Headroom   int // bytes per (port, priority); 0 computes it from the link
	MTU        int // RoCE path MTU of the lab, which headroom depends on; 0: 4096
	Marking    Marking
}

// Marking holds the thresholds of ECN at a port of one rate. Those of other ports are in
// proportion to their rates.
type Marking struct {
	Kmin, Kmax int   // bytes; 0 chooses by the rate of each port
	Rate       int64 // bit/s
}

func (s *Switch) mtu() int {
	if s.MTU == 0 {
		return 4096
	}
	return s.MTU
}

// Latency returns the pipeline latency of a node, which is 0 for a host.
func (s *Spec) Latency(node int) vtime.Duration {
	if s.Graph.Nodes[node].Kind == topo.Switch {
		return s.Switch.Latency
	}
	return 0
}

// Port returns the configuration of the transmitter at a node's port. Its delay includes the
// pipeline latency of the node at the far end, because a frame is delivered when that node's
// pipeline has made its forwarding decision.
func (s *Spec) Port(node, port int) machine.PortConfig {
	far := s.Graph.Peer(node, port)
	l := &s.Graph.Links[s.Graph.Nodes[node].Links[port]]
	return machine.PortConfig{
		BitsPerSec: l.Rate, Delay: l.Delay + s.Latency(far.Node), CutThrough: s.cutsThrough(far.Node, l.Rate),
	}
}

// cutsThrough reports whether a node begins to forward a frame that arrives at the given rate
// before its last bit has arrived. A switch in cut-through mode does so unless one of its ports is
// faster, because a faster port would run out of bits.
func (s *Spec) cutsThrough(node int, rate int64) bool {
	if !s.Switch.CutThrough || s.Graph.Nodes[node].Kind != topo.Switch {
		return false
	}
	for _, l := range s.Graph.Nodes[node].Links {
		if s.Graph.Links[l].Rate > rate {
			return false
		}
	}
	return true
}

// headroom returns the headroom of every port of a switch, in bytes.
func (s *Spec) headroom(node int) []int {
	n := &s.Graph.Nodes[node]
	all := make([]int, len(n.Links))
	for p := range all {
		all[p] = s.Switch.Headroom
		if all[p] == 0 {
			all[p] = s.headroomNeeded(node, p)
		}
	}
	return all
}

// headroomNeeded returns the bytes that still arrive at a port after XOFF was decided.
func (s *Spec) headroomNeeded(node, port int) int {
	l, far := &s.Graph.Links[s.Graph.Nodes[node].Links[port]], s.Graph.Peer(node, port).Node
	return virtswitch.Headroom(l.Rate, 2*l.Delay, s.Switch.Latency, s.Latency(far), s.Switch.mtu())
}

// HeadroomNeeded returns the most bytes that still arrive at one port of a switch after it has asked for a pause.
func (s *Spec) HeadroomNeeded(node int) (most int) {
	for p := range s.Graph.Nodes[node].Links {
		most = max(most, s.headroomNeeded(node, p))
	}
	return most
}

// Reserved returns the bytes of a switch's buffer that are reserved as PFC headroom.
func (s *Spec) Reserved(node int) int {
	return virtswitch.Reserved(s.pfc(node), len(s.Graph.Nodes[node].Links), s.Switch.Buffer)
}

// XOFF returns the static PFC threshold of a switch, in bytes.
func (s *Spec) XOFF(node int) int {
	return virtswitch.XOFF(s.pfc(node), len(s.Graph.Nodes[node].Links), s.Switch.Buffer)
}

// Kmin returns the bytes that wait at a port of a switch before any of its ports marks a packet, or those of
// virtswitch.ECNThresholds if the switch marks none. node is its number in Graph.Nodes.
func (s *Spec) Kmin(node int) int { return slices.Min(s.ecn(node).Kmin) }

// pfc returns the flow control of a switch.
func (s *Spec) pfc(node int) virtswitch.PFCConfig {
	c := s.Switch.PFC
	c.Headroom = s.headroom(node)
	return c
}

// ecn returns the marking of a switch's ports.
func (s *Spec) ecn(node int) virtswitch.ECNConfig {
	m, n, c := &s.Switch.Marking, &s.Graph.Nodes[node], s.Switch.ECN
	c.Kmin, c.Kmax, c.Random = nil, nil, s.stream("ecn/"+n.Name)
	for _, l := range n.Links {
		rate := s.Graph.Links[l].Rate
		kmin, kmax := virtswitch.ECNThresholds(rate)
		scale := float64(rate) / float64(max(1, m.Rate))
		if m.Kmin > 0 {
			kmin = int(float64(m.Kmin) * scale)
		}
		if m.Kmax > 0 {
			kmax = int(float64(m.Kmax) * scale)
		}
		c.Kmin, c.Kmax = append(c.Kmin, kmin), append(c.Kmax, kmax)
	}
	return c
}

// SwitchConfig returns the configuration of a switch without the fields that a driver adds: ports,
// pool, tracer. table is its row of topo.Graph.Routes.
func (s *Spec) SwitchConfig(node int, table *topo.Table) (virtswitch.Config, error) {
	n := &s.Graph.Nodes[node]
	if len(n.Links) > virtswitch.PortsMax {
		return virtswitch.Config{}, fmt.Errorf("switch %s has %d ports, the most is %d", n.Name, len(n.Links), virtswitch.PortsMax)
	}
	seed := s.stream("ecmp/" + n.Name)
	c := virtswitch.Config{
		Settings: s.Switch.Settings, IP: n.IP, GroupRange: s.Graph.Groups, FIB: s.FIB(node, table), Seed: seed.Uint64(), Up: s.Graph.Up(node), TrustICRC: s.TrustICRC,
		QueriesRest: s.QueriesRest,
	}
	if s.Switch.Input != nil && s.Switch.Input.Credits {
		for p := range n.Links {
			c.Hosts = append(c.Hosts, s.Graph.Peer(node, p).Node < s.Graph.Hosts)
		}
	}
	c.PFC, c.ECN = s.pfc(node), s.ecn(node)
	return c, nil
}

// FIB returns the forwarding table of a switch with the given routes, which avoid the links that have failed. In an m-port n-tree whose
// hosts have LIDs, the addresses of the LIDs keep the ports that the tree assigns to them (CYC-8).
func (s *Spec) FIB(node int, table *topo.Table, failed ...int) virtswitch.FIB {
	fib := virtswitch.FIB{Sets: table.Sets}
	if s.Joins {
		fib.Uplinks = s.Graph.Uplinks(node, failed...)
	}
	for b, set := range table.Set {
		if set >= 0 {
			fib.SetRoute(b, int(set))
		}
	}
	for _, a := range table.Attached {
		fib.SetHost(a.IP, a.Port)
	}
	if t, lids := s.lids(); t != nil {
		for lid := 1; lid <= lids*t.Hosts(); lid++ {
			fib.SetHost(topo.LIDAddress(lid), t.Port(node, lid))
		}
	}
	return fib
}

// lids returns the m-port n-tree whose hosts have LIDs, and the number of LIDs of each host. It
// returns nil if the hosts have none.
func (s *Spec) lids() (*topo.NTree, int) {
	t := s.Graph.NTree()
	if t == nil {
		return nil, 0
	}
	n, err := t.LIDs()
	if err != nil {
		return nil, 0
	}
	return t, n
}

// irn returns the selective repeat of all NICs.
func (s *Spec) irn() *virtrnic.IRN {
	if s.NIC.IRN == nil || s.NIC.IRN.Cap > 0 {
		return s.NIC.IRN
	}
	irn := *s.NIC.IRN
	irn.Cap = s.BDP()
	return &irn
}

// BDP returns the bandwidth-delay product of the fabric in bytes: RTT times the rate of the fastest
// link. IRN allows that many bytes in flight.
func (s *Spec) BDP() int {
	fast := s.Graph.Links[0].Rate
	for _, l := range s.Graph.Links {
		fast = max(fast, l.Rate)
	}
	return int(int64(s.RTT()/vtime.Nanosecond) * (fast / 1e6) / 8000)
}

// UnderWay returns the largest number of unacknowledged payload bytes of a queue pair with the
// given MTU, or 0 if there is no limit.
func (s *Spec) UnderWay(mtu int) int {
	most := s.NIC.Window * mtu
	if irn := s.irn(); irn != nil && (most == 0 || irn.Cap < most) {
		most = irn.Cap
	}
	return most
}

// Far returns the number of links between the first host and the host furthest from it.
func (s *Spec) Far() (links int) {
	g, seen := s.Graph, map[int]bool{}
	for h := 1; h < g.Hosts; h++ {
		if leaf := g.Peer(h, 0).Node; !seen[leaf] {
			seen[leaf] = true
			links = max(links, g.Hops(0, h))
		}
	}
	return links
}

// RTT returns how long a frame of full size and its acknowledgement take between the first host and
// the host furthest from it in an idle fabric. It takes the longest delay and the slowest rate of
// all links for each link.
func (s *Spec) RTT() vtime.Duration {
	g, links := s.Graph, s.Far()
	var delay vtime.Duration
	slow := g.Links[0].Rate
	for _, l := range g.Links {
		delay, slow = max(delay, l.Delay), min(slow, l.Rate)
	}
	frame, ack := 4096+98, 86 // bytes on the wire, with all headers, preamble and interframe gap
	if g.IPv6 {
		frame, ack = frame+wire.IPv6Len-wire.IPv4Len, ack+wire.IPv6Len-wire.IPv4Len
	}
	if s.VLAN != 0 {
		frame, ack = frame+wire.VLANLen, ack+wire.VLANLen
	}
	serial := vtime.Duration(frame+ack) * 8 * vtime.Second / vtime.Duration(slow)
	return vtime.Duration(links)*(2*delay+serial) + 2*vtime.Duration(links-1)*s.Switch.Latency
}

// NICConfig returns the configuration of a host's NIC. The driver adds port, pool and tracer.
func (s *Spec) NICConfig(node int) virtrnic.Config {
	n := &s.Graph.Nodes[node]
	c := virtrnic.Config{
		Settings: s.NIC, IP: n.IP, IPv6: s.Graph.IPv6, Groups: s.Graph.Groups, VLAN: s.VLAN,
		TrustICRC: s.TrustICRC, Lossy: ^s.Switch.PFC.Lossless,
		Keys: s.stream("keys/" + n.Name),
	}
	c.Credits = s.Switch.Input != nil && s.Switch.Input.Credits && s.toSwitch(node)
	c.IRN = s.irn()
	if t, lids := s.lids(); t != nil {
		c.Alias, c.Aliases = topo.LIDAddress(t.BaseLID(node)), lids
	}
	if s.Switch.Classes != nil {
		c.Classes = &s.Switch.Classes.DSCP
	}
	return c
}

// toSwitch reports whether a host's link leads to a switch. Two hosts may be back to back, and each takes packets at any time.
func (s *Spec) toSwitch(host int) bool {
	return len(s.Graph.Nodes[host].Links) > 0 && s.Graph.Peer(host, 0).Node >= s.Graph.Hosts
}

// RegistrationTag returns the 802.1Q tag of registration packets, whose DSCP is 48. It is nil in a
// fabric without a VLAN.
func (s *Spec) RegistrationTag() *wire.VLAN {
	if s.VLAN == 0 {
		return nil
	}
	classes := s.Switch.Classes
	if classes == nil {
		classes = virtswitch.DefaultClasses()
	}
	return &wire.VLAN{PCP: classes.DSCP[48], ID: s.VLAN}
}

// stream returns the random stream with the given name.
func (s *Spec) stream(name string) prng.Stream {
	root := prng.New(s.Seed)
	return root.Derive(name)
}
