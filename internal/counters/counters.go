// SPDX-License-Identifier: Apache-2.0

// Package counters defines the report of a node about itself, on either clock: the frames that passed
// its ports, the counters of its machine, and the groups it holds. The names are part of the JSON of
// counters.json and inspect, and do not change.
package counters

import (
	"net/netip"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/external"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Schema names the format of counters.json.
const Schema = "mcastlab/counters/v1"

// File is counters.json.
type File struct {
	Schema string `json:"schema"`
	Nodes  []Node `json:"nodes"`
}

// Node is one node.
type Node struct {
	Node   string            `json:"node"`
	Kind   string            `json:"kind"` // switch, host or external; gone, if it does not answer
	LabUS  float64           `json:"lab_us"`
	Rate   *Rate             `json:"rate,omitempty"` // on a wall clock
	Ports  []Port            `json:"ports"`
	Counts map[string]uint64 `json:"counts"` // of the machine
	Drops  map[string]uint64 `json:"drops"`  // by reason, without zeros
	Groups []Group           `json:"groups,omitempty"`
	// Resting are the McstIDs of deleted groups that must not be reused yet.
	Resting []string `json:"resting,omitempty"`
	// Joined are the multicast groups of programs: those that a switch forwards, and those that programs of a host, or an external
	// host, have joined.
	Joined []Joined `json:"joined,omitempty"`
	// MFTBytes is the packed size of a switch's multicast forwarding tables.
	MFTBytes int      `json:"mft_bytes,omitempty"`
	Live     int      `json:"frames_held"` // not yet sent, delivered or dropped
	Wait     []string `json:"waiting,omitempty"`
	Device   *Device  `json:"device,omitempty"` // behind the port of an external host
	Held     *Held    `json:"held,omitempty"`   // of a running node
}

// Rate relates the node's clock to the machine's: at Mono nanoseconds of CLOCK_MONOTONIC the
// lab time was Lab picoseconds.
type Rate struct {
	Mono     int64   `json:"mono_ns"`
	Lab      int64   `json:"lab_ps"`
	Dilation float64 `json:"dilation"`
}

// Port holds the counters of a port.
type Port struct {
	Port          int    `json:"port"`
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Malformed     uint64 `json:"malformed,omitempty"`
	LostToFault   uint64 `json:"lost_to_fault,omitempty"`
	CopiedByFault uint64 `json:"copied_by_fault,omitempty"`
	HeldByFault   uint64 `json:"held_by_fault,omitempty"`
	KernelDrops   uint64 `json:"kernel_drops,omitempty"`
	Cut           uint64 `json:"cut,omitempty"`  // sent on a link that no longer exists
	Busy          uint64 `json:"busy,omitempty"` // sends that the kernel refused at first for lack of room
	// What follows counts groups' packets at a switch's port.
	AcksIn       uint64 `json:"acks_in,omitempty"`
	NaksIn       uint64 `json:"naks_in,omitempty"`
	CNPsIn       uint64 `json:"cnps_in,omitempty"`
	CNPsFiltered uint64 `json:"cnps_filtered,omitempty"`
	Filtered     uint64 `json:"filtered,omitempty"`
	// QueuePeak is the most bytes that one queue of a switch's port has held since the switch was
	// configured. It is no count: runs in a lab that stays up share it.
	QueuePeak int `json:"queue_peak_bytes,omitempty"`
}

// Group is a multicast group at a switch.
type Group struct {
	McstID    string `json:"mcst_id"`
	Active    bool   `json:"active"`
	AggAckPSN uint32 `json:"agg_ack_psn"`
	SourceOut int    `json:"source_out"` // port by which feedback leaves
	Paths     []Path `json:"paths"`
}

// Path is one path of a group.
type Path struct {
	Port   int    `json:"port"`
	Host   string `json:"host,omitempty"` // address of the member, at its leaf only
	QPN    uint32 `json:"qpn,omitempty"`
	AckPSN uint32 `json:"ack_psn"`

	Region *Region `json:"region,omitempty"` // at the member's leaf, if the group has regions
}

// Joined is a multicast group of programs.
type Joined struct {
	Group  string `json:"group"`
	Ports  []int  `json:"ports,omitempty"`  // of a switch: behind which there are members
	Uplink *int   `json:"uplink,omitempty"` // of a switch: toward the root of the group's tree; none at the root
}

// Region is the memory region for WRITEs of a group at a member: the one registered or announced last.
type Region struct {
	VA       uint64 `json:"va"`
	RKey     uint32 `json:"rkey"`
	Versions int    `json:"versions,omitempty"` // announced and not acknowledged
}

// Switch records the counters of a switch of a graph and the objects that it holds. Ports must be there
// before.
func (n *Node) Switch(sw *virtswitch.Switch, g *topo.Graph) {
	c := sw.Stats()
	n.Kind, n.MFTBytes = KindSwitch, sw.MFTBytes()
	for i := range n.Ports {
		p, s := &n.Ports[i], sw.PortStats(i)
		p.QueuePeak = sw.QueuePeak(i)
		p.AcksIn, p.NaksIn, p.CNPsIn, p.CNPsFiltered, p.Filtered = s.AcksIn, s.NaksIn, s.CNPsIn, s.CNPsFiltered, s.Filtered
	}
	n.Counts = make(map[string]uint64, len(switchCounts))
	put(n.Counts, switchCounts, c)
	n.Drops = map[string]uint64{}
	for _, r := range virtswitch.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] = v
		}
	}
	for _, m := range sw.Groups() {
		out := Group{McstID: wire.AddrOf(m.McstID).String(), Active: m.Active, AggAckPSN: uint32(m.AggAckPSN), SourceOut: m.SourceOut}
		for _, p := range m.Paths {
			ps := Path{Port: p.Port, AckPSN: uint32(p.AckPSN)}
			if p.Host {
				ps.Host, ps.QPN = g.Addr(p.IP).String(), uint32(p.QPN)
			}
			if p.HasRegion {
				ps.Region = &Region{p.Region.VA, p.Region.RKey, p.Versions}
			}
			out.Paths = append(out.Paths, ps)
		}
		n.Groups = append(n.Groups, out)
	}
	for _, m := range sw.Memberships() {
		out := Joined{Group: g.Addr(m.Group).String()}
		for _, p := range m.Ports {
			out.Ports = append(out.Ports, int(p))
		}
		if m.Uplink >= 0 {
			out.Uplink = &m.Uplink
		}
		n.Joined = append(n.Joined, out)
	}
	for _, id := range sw.Resting() {
		n.Resting = append(n.Resting, wire.AddrOf(id).String())
	}
}

// NIC records the counters of a NIC.
func (n *Node) NIC(nic *virtrnic.NIC) {
	c := nic.Stats()
	n.Kind = KindHost
	n.Counts = make(map[string]uint64, len(nicCounts)+len(agentCounts))
	put(n.Counts, nicCounts, c)
	n.Drops = map[string]uint64{}
	for _, r := range virtrnic.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] = v
		}
	}
}

// Adapter records the counters of the port of an external host.
func (n *Node) Adapter(a *external.Adapter) {
	n.NIC(a.NIC())
	n.Kind = KindExternal
	n.Device = deviceOf(a)
	c := a.Stats()
	put(n.Counts, adapterCounts, c)
	for _, j := range a.Joins() {
		n.Joined = append(n.Joined, Joined{Group: netip.AddrFrom16(j.Addr).Unmap().String()})
	}
	for _, r := range external.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] += v
		}
	}
}

// Agent records the counters of a host's registration agent. NIC must be called before.
func (n *Node) Agent(a *mrp.Agent) {
	c := a.Stats()
	put(n.Counts, agentCounts, &c)
}

// Since subtracts the counters of an earlier moment.
func (n *Node) Since(before *Node) {
	for i := range n.Ports {
		if i >= len(before.Ports) {
			break
		}
		p, q := &n.Ports[i], &before.Ports[i]
		p.Sent, p.SentBytes, p.Received, p.ReceivedBytes = p.Sent-q.Sent, p.SentBytes-q.SentBytes, p.Received-q.Received, p.ReceivedBytes-q.ReceivedBytes
		p.Malformed, p.LostToFault, p.CopiedByFault = p.Malformed-q.Malformed, p.LostToFault-q.LostToFault, p.CopiedByFault-q.CopiedByFault
		p.HeldByFault -= q.HeldByFault
		p.KernelDrops, p.Cut, p.Busy = p.KernelDrops-q.KernelDrops, p.Cut-q.Cut, p.Busy-q.Busy
		p.AcksIn, p.NaksIn, p.CNPsIn = p.AcksIn-q.AcksIn, p.NaksIn-q.NaksIn, p.CNPsIn-q.CNPsIn
		p.CNPsFiltered, p.Filtered = p.CNPsFiltered-q.CNPsFiltered, p.Filtered-q.Filtered
	}
	for k := range n.Counts { // independent of each other
		n.Counts[k] -= before.Counts[k]
	}
	for k := range n.Drops { // independent of each other
		if n.Drops[k] -= before.Drops[k]; n.Drops[k] == 0 {
			delete(n.Drops, k)
		}
	}
}

// Plus adds the counters of the process that was this node before it was started again.
func (n *Node) Plus(before *Node) {
	for i := range min(len(n.Ports), len(before.Ports)) {
		p, q := &n.Ports[i], &before.Ports[i]
		p.Sent, p.SentBytes, p.Received, p.ReceivedBytes = p.Sent+q.Sent, p.SentBytes+q.SentBytes, p.Received+q.Received, p.ReceivedBytes+q.ReceivedBytes
		p.Malformed, p.LostToFault, p.CopiedByFault = p.Malformed+q.Malformed, p.LostToFault+q.LostToFault, p.CopiedByFault+q.CopiedByFault
		p.HeldByFault += q.HeldByFault
		p.KernelDrops, p.Cut, p.Busy = p.KernelDrops+q.KernelDrops, p.Cut+q.Cut, p.Busy+q.Busy
		p.AcksIn, p.NaksIn, p.CNPsIn = p.AcksIn+q.AcksIn, p.NaksIn+q.NaksIn, p.CNPsIn+q.CNPsIn
		p.CNPsFiltered, p.Filtered = p.CNPsFiltered+q.CNPsFiltered, p.Filtered+q.Filtered
		p.QueuePeak = max(p.QueuePeak, q.QueuePeak)
	}
	for k, v := range before.Counts { // a sum
		n.Counts[k] += v
	}
	for k, v := range before.Drops { // a sum
		n.Drops[k] += v
	}
}

// Totals are the counts of all nodes of a kind together.
type Totals struct {
	Counts map[string]uint64 `json:"counts"`
	Drops  map[string]uint64 `json:"drops"` // by reason, without zeros
}

// Sum returns the totals by kind of node.
func Sum(all []Node) map[string]Totals {
	sum := map[string]Totals{}
	for i := range all {
		t, ok := sum[all[i].Kind]
		if !ok {
			t = Totals{map[string]uint64{}, map[string]uint64{}}
			sum[all[i].Kind] = t
		}
		for k, v := range all[i].Counts { // a sum
			t.Counts[k] += v
		}
		for k, v := range all[i].Drops { // a sum
			t.Drops[k] += v
		}
	}
	return sum
}

// Total returns a count over all nodes.
func Total(all []Node, name string) (sum uint64) {
	for _, n := range all {
		sum += n.Counts[name]
	}
	return sum
}

// Dropped returns the frames that nodes have dropped for one of the reasons.
func Dropped(all []Node, reasons []string) (sum uint64) {
	for _, n := range all {
		for _, r := range reasons {
			sum += n.Drops[r]
		}
	}
	return sum
}

// Sent returns the frames that all nodes have sent.
func Sent(all []Node) (sum uint64) {
	for _, n := range all {
		for _, p := range n.Ports {
			sum += p.Sent
		}
	}
	return sum
}

// KernelDrops returns the frames that the kernel has dropped at all nodes.
func KernelDrops(all []Node) (sum uint64) {
	for _, n := range all {
		for _, p := range n.Ports {
			sum += p.KernelDrops
		}
	}
	return sum
}
