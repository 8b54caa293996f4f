// SPDX-License-Identifier: Apache-2.0

// Package nodeapi defines the messages between an orchestrator and the agents of nodes.
package nodeapi

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
)

//go:generate protoc --go_out=. --go-grpc_out=. --go_opt=paths=source_relative --go-grpc_opt=paths=source_relative nodeapi.proto

// Files in a node's directory.
const (
	AgentSocket    = "agent.sock"    // gRPC
	HandoverSocket = "handover.sock" // raw sockets
	MemorySocket   = "memory.sock"   // shared memory of a run in virtual time
	ProgramSocket  = "verbs.sock"    // of a host, for programs that use libibverbs
	PeerSocket     = "peer.sock"     // of controllers, for raft
	CallsSocket    = "calls.sock"    // of controllers, for calls of clients that another controller passes on
)

// Crashed is the prefix of the error of a rank whose host has crashed.
const Crashed = "host crashed: "

// Again is a gRPC service config that retries calls refused with codes.Aborted. An agent whose
// process ends refuses calls so before it has done anything; a new connection reaches its successor.
const Again = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 3, "retryableStatusCodes": ["ABORTED"]
}}]}`

// EventOf returns the message of a machine's event.
func EventOf(now vtime.Time, e machine.Event) *Event {
	return &Event{
		Lab: int64(now), Kind: uint32(e.Kind), Port: int32(e.Port), Priority: uint32(e.Priority), Qp: uint32(e.QP),
		Psn: uint32(e.PSN), Group: e.Group, Value: e.Value, Text: e.Text,
	}
}

// Machine returns the event in a message. ok is false if its kind is unknown to this version.
func (e *Event) Machine() (at vtime.Time, ev machine.Event, ok bool) {
	ev = machine.Event{
		Kind: machine.EventKind(e.Kind), Port: int(e.Port), Priority: uint8(e.Priority), QP: wire.QPN(e.Qp),
		PSN: wire.PSN(e.Psn), Group: e.Group, Value: e.Value, Text: e.Text,
	}
	return vtime.Time(e.Lab), ev, e.Kind < machine.EventKinds
}

// Decode returns the state the reply carries.
func (r *InspectReply) Decode() (s counters.Node, err error) {
	if err := json.Unmarshal(r.State, &s); err != nil {
		return s, fmt.Errorf("read state of node: %w", err)
	}
	return s, nil
}

// Messages of the guardian of a program at the socket of programs (ProgramSocket), in a run in virtual time; package nodeagent/verbs takes
// them. The numbers are those of its protocol.
const (
	programBegins  = 49
	programStarted = 53
)

// ProgramBegins announces the begin of a rank's program. It ends with the connection.
func ProgramBegins(rank uint32) []byte { return words(programBegins, rank) }

// ProgramStarted announces the process of the program, by the number that it has in its own namespace.
func ProgramStarted(pid uint32) []byte { return words(programStarted, pid) }

func words(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
