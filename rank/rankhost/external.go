// SPDX-License-Identifier: Apache-2.0

package rankhost

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/wire"
)

// Peer is the queue pair of an external host: a real device that takes part as a rank
// without running a program.
type Peer struct {
	QPN                 wire.QPN
	SendPSN, ReceivePSN wire.PSN // PSN of the first packet that the device sends, and of the first that it expects
	VA                  uint64   // address of the memory that the device lets others write to
	RKey                uint32
}

// ExternalKey is the prefix of the keys under which ranks publish Steps for the operators of
// external hosts.
const ExternalKey = "external/"

// ReadyKey is the prefix of the keys that get a value when an external host is ready to
// receive. The rest of the key is the host's name, a slash, and the address that the host is
// connected to.
const ReadyKey = "ready/"

// Kinds of steps (Step.What).
const (
	StepConnect = "connect" // connect the device's queue pair with the step's values
	StepMemory  = "memory"  // note the memory of a rank that the device may write, read, and do atomics on
	StepSend    = "send"    // send one message with SEND
	StepWrite   = "write"   // send one message as a WRITE with immediate data
)

// Step is one instruction to the operator of an external host.
type Step struct {
	Host       string `json:"host"`
	What       string `json:"what"`
	QPN        uint32 `json:"qpn,omitempty"`     // queue pair of the device
	Address    string `json:"address,omitempty"` // address to connect it to
	ToQPN      uint32 `json:"to_qpn,omitempty"`  // queue pair to connect it to; 0: any
	SendPSN    uint32 `json:"send_psn"`          // first PSN that the device sends
	ReceivePSN uint32 `json:"receive_psn"`       // first PSN that the device expects
	VA         uint64 `json:"va,omitempty"`
	RKey       uint32 `json:"rkey,omitempty"`
	Bytes      int    `json:"bytes,omitempty"`
	Text       string `json:"text"` // the whole step as one line
}

// ParseStep decodes a step that a rank has published.
func ParseStep(b []byte) (s Step, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read a step of an external host: %w", err)
	}
	return s, nil
}

// Prefixes of the keys by which ranks wait until external hosts have a message, or have it acknowledged. The rest of both
// is the same. Under the first a rank puts a Finish; the second gets Lacks.
const (
	FinishKey = "finish/"
	DoneKey   = "done/"
)

// Finish lists the acknowledgements that ranks wait for at the end of a message.
type Finish struct {
	// PSNs are the last PSN of the message by host: a receiver has to acknowledge it, and a source has to get it
	// acknowledged.
	PSNs map[string]uint32 `json:"psns"`
	// Last is set if queue pairs and group are about to be destroyed: a source may not ask again
	// afterwards.
	Last bool `json:"last,omitempty"`
}

// Lack is an external host of which it is not known that it has a message, or its acknowledgement.
type Lack struct {
	Host string `json:"host"`
	Why  string `json:"why"`
}
