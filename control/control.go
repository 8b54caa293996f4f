// Package control is what an orchestrator and the agents of nodes say to each other.
package control

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

//go:generate protoc --go_out=. --go-grpc_out=. --go_opt=paths=source_relative --go-grpc_opt=paths=source_relative control.proto

// Files in a node's directory.
const (
	AgentSocket    = "agent.sock"    // gRPC
	HandoverSocket = "handover.sock" // raw sockets
)

// EventOf returns the message of a machine's event.
func EventOf(now vtime.Time, e machine.Event) *Event {
	return &Event{
		Lab: int64(now), Kind: uint32(e.Kind), Port: int32(e.Port), Priority: uint32(e.Priority), Qp: uint32(e.QP),
		Psn: uint32(e.PSN), Group: e.Group, Value: e.Value, Text: e.Text,
	}
}

// Machine returns the event that a message stands for. ok is false if this version does
// not know its kind.
func (e *Event) Machine() (at vtime.Time, ev machine.Event, ok bool) {
	ev = machine.Event{
		Kind: machine.EventKind(e.Kind), Port: int(e.Port), Priority: uint8(e.Priority), QP: wire.QPN(e.Qp),
		PSN: wire.PSN(e.Psn), Group: e.Group, Value: e.Value, Text: e.Text,
	}
	return vtime.Time(e.Lab), ev, e.Kind < machine.EventKinds
}

// NodeState is what Inspect tells of a node.
type NodeState struct {
	Node   string            `json:"node"`
	Kind   string            `json:"kind"` // switch or host
	LabUS  float64           `json:"lab_us"`
	Rate   RateState         `json:"rate"`
	Ports  []PortState       `json:"ports"`
	Counts map[string]uint64 `json:"counts"` // of the machine
	Drops  map[string]uint64 `json:"drops"`  // by reason, without zeros
	Groups []GroupState      `json:"groups,omitempty"`
	Frames FrameState        `json:"frames"`
	Wait   []string          `json:"waiting,omitempty"`
}

// RateState says how the node's clock runs: at Mono nanoseconds of CLOCK_MONOTONIC it was
// Lab picoseconds of lab time.
type RateState struct {
	Mono     int64   `json:"mono_ns"`
	Lab      int64   `json:"lab_ps"`
	Dilation float64 `json:"dilation"`
}

// PortState is what passed a port.
type PortState struct {
	Port          int    `json:"port"`
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Malformed     uint64 `json:"malformed"`
	LostToFault   uint64 `json:"lost_to_fault"`
	CopiedByFault uint64 `json:"copied_by_fault"`
	KernelDrops   uint64 `json:"kernel_drops"`
	Busy          uint64 `json:"busy"`
}

// FrameState accounts for the frames a node has had in hand.
type FrameState struct {
	Live int `json:"live"` // not yet sent, delivered or dropped
}

// GroupState is a multicast group at a switch.
type GroupState struct {
	McstID    string      `json:"mcst_id"`
	Active    bool        `json:"active"`
	AggAckPSN uint32      `json:"agg_ack_psn"`
	SourceOut int         `json:"source_out"`
	Paths     []PathState `json:"paths"`
}

// PathState is one path of a group.
type PathState struct {
	Port   int    `json:"port"`
	Host   string `json:"host,omitempty"` // address of the member, at the leaf only
	QPN    uint32 `json:"qpn,omitempty"`
	AckPSN uint32 `json:"ack_psn"`
}

// Decode returns the state the reply carries.
func (r *InspectReply) Decode() (s NodeState, err error) {
	if err := json.Unmarshal(r.State, &s); err != nil {
		return s, fmt.Errorf("read state of node: %w", err)
	}
	return s, nil
}
