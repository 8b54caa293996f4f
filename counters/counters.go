// Package counters is what a node tells of itself, on either clock: what passed its ports,
// what its machine counted, the groups it holds. Names are part of counters.json and
// inspect and are not changed.
package counters

import (
	"github.com/mcastlab/mcastlab/adapter"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/wire"
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
	Live   int               `json:"frames_held"` // not yet sent, delivered or dropped
	Wait   []string          `json:"waiting,omitempty"`
}

// Rate says how the node's clock runs: at Mono nanoseconds of CLOCK_MONOTONIC it was Lab
// picoseconds of lab time.
type Rate struct {
	Mono     int64   `json:"mono_ns"`
	Lab      int64   `json:"lab_ps"`
	Dilation float64 `json:"dilation"`
}

// Port is what passed a port.
type Port struct {
	Port          int    `json:"port"`
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Malformed     uint64 `json:"malformed,omitempty"`
	LostToFault   uint64 `json:"lost_to_fault,omitempty"`
	CopiedByFault uint64 `json:"copied_by_fault,omitempty"`
	KernelDrops   uint64 `json:"kernel_drops,omitempty"`
	Cut           uint64 `json:"cut,omitempty"`  // sent on a link that is no more
	Busy          uint64 `json:"busy,omitempty"` // sends the kernel had no room for at first
}

// Group is a multicast group at a switch.
type Group struct {
	McstID    string `json:"mcst_id"`
	Active    bool   `json:"active"`
	AggAckPSN uint32 `json:"agg_ack_psn"`
	SourceOut int    `json:"source_out"` // port feedback leaves by
	Paths     []Path `json:"paths"`
}

// Path is one path of a group.
type Path struct {
	Port   int    `json:"port"`
	Host   string `json:"host,omitempty"` // address of the member, at its leaf only
	QPN    uint32 `json:"qpn,omitempty"`
	AckPSN uint32 `json:"ack_psn"`
}

// Switch takes down what a switch counts and holds.
func (n *Node) Switch(sw *virtswitch.Switch) {
	c := sw.Stats()
	n.Kind = "switch"
	n.Counts = map[string]uint64{
		"received": c.Received, "forwarded": c.Forwarded, "cloned": c.Cloned, "made": c.Made, "absorbed": c.Absorbed,
		"pauses_sent": c.PausesSent, "pauses_received": c.PausesReceived, "acks_in": c.AcksIn, "acks_out": c.AcksOut,
		"naks_in": c.NaksIn, "naks_out": c.NaksOut, "acks_repeated": c.AcksRepeated, "filtered": c.Filtered, "source_switches": c.SourceSwitches,
		"marked": c.Marked, "pause_storms": c.PauseStorms, "cnps_in": c.CNPsIn, "cnps_out": c.CNPsOut,
	}
	n.Drops = map[string]uint64{}
	for _, r := range virtswitch.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] = v
		}
	}
	for _, g := range sw.Groups() {
		out := Group{McstID: wire.AddrOf(g.McstID).String(), Active: g.Active, AggAckPSN: uint32(g.AggAckPSN), SourceOut: g.SourceOut}
		for _, p := range g.Paths {
			ps := Path{Port: p.Port, AckPSN: uint32(p.AckPSN)}
			if p.Host {
				ps.Host, ps.QPN = wire.AddrOf(p.IP).String(), uint32(p.QPN)
			}
			out.Paths = append(out.Paths, ps)
		}
		n.Groups = append(n.Groups, out)
	}
}

// NIC takes down what a NIC counts.
func (n *Node) NIC(nic *virtrnic.NIC) {
	c := nic.Stats()
	n.Kind = "host"
	n.Counts = map[string]uint64{
		"sent": c.SentPkts, "received": c.RcvdPkts, "made": c.Made, "delivered": c.Delivered, "data_packets": c.DataPackets,
		"retransmitted": c.Retransmitted, "duplicate_requests": c.DuplicateRequest, "out_of_sequence": c.OutOfSeqRequest,
		"rnr_sent": c.SendRNR, "rnr_received": c.RcvdRNR, "naks_sent": c.SendNAK, "naks_received": c.RcvdNAK,
		"acks_sent": c.AcksSent, "acks_received": c.AcksRcvd, "go_backs": c.CompleterRetry, "timeouts": c.Timeouts,
		"ecn_marked": c.ECNMarked, "cnps_sent": c.CNPSent, "cnps_handled": c.CNPHandled,
		"pauses_sent": c.PausesSent, "pauses_received": c.PausesReceived, "messages_sent": c.MessagesSent, "messages_received": c.MessagesReceived,
		"implied_naks": c.ImpliedNAK, "responses_sent": c.ResponsesSent, "responses_received": c.ResponsesRcvd, "replayed": c.Replayed, "atomics": c.AtomicsExecuted,
	}
	n.Drops = map[string]uint64{}
	for _, r := range virtrnic.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] = v
		}
	}
}

// Adapter takes down what the port of an external host counts.
func (n *Node) Adapter(a *adapter.Adapter) {
	n.NIC(a.NIC())
	n.Kind = "external"
	c := a.Stats()
	for name, v := range map[string]uint64{ // each by itself
		"from_device": c.In, "to_device": c.Out, "answered": c.Answered, "ignored": c.Ignored, "asked": c.Asked, "told": c.Told,
	} {
		n.Counts[name] = v
	}
	for _, r := range adapter.DropReasons() {
		if v := c.Drops[r]; v > 0 {
			n.Drops[r.String()] = v
		}
	}
}

// Since takes away what had been counted before.
func (n *Node) Since(before *Node) {
	for i := range n.Ports {
		if i >= len(before.Ports) {
			break
		}
		p, q := &n.Ports[i], &before.Ports[i]
		p.Sent, p.SentBytes, p.Received, p.ReceivedBytes = p.Sent-q.Sent, p.SentBytes-q.SentBytes, p.Received-q.Received, p.ReceivedBytes-q.ReceivedBytes
		p.Malformed, p.LostToFault, p.CopiedByFault = p.Malformed-q.Malformed, p.LostToFault-q.LostToFault, p.CopiedByFault-q.CopiedByFault
		p.KernelDrops, p.Cut, p.Busy = p.KernelDrops-q.KernelDrops, p.Cut-q.Cut, p.Busy-q.Busy
	}
	for k := range n.Counts { // each by itself
		n.Counts[k] -= before.Counts[k]
	}
	for k := range n.Drops { // each by itself
		if n.Drops[k] -= before.Drops[k]; n.Drops[k] == 0 {
			delete(n.Drops, k)
		}
	}
}

// Total returns a count over all nodes.
func Total(all []Node, name string) (sum uint64) {
	for _, n := range all {
		sum += n.Counts[name]
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
