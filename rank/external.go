package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/wire"
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
	StepConnect = "connect" // connect the device's queue pair as the step says
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

// ParseStep decodes a step that Tell has published.
func ParseStep(b []byte) (s Step, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read a step of an external host: %w", err)
	}
	return s, nil
}

// Tell publishes a step for the operator of an external host. Each step of a job needs a key
// of its own.
func (r *Rank) Tell(key string, s Step) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen: a Step has only numbers and strings
	}
	r.Put(ExternalKey+key, b)
}

// AwaitExternal blocks until the external host is ready to receive from the address that it is
// connected to. If it never gets ready, the run ends.
func (r *Rank) AwaitExternal(rank int, address uint32) {
	name := r.c.Names[rank]
	r.get(ExternalKey+ReadyKey+name+"/"+r.addr(address).String(), "external "+name+" to be ready")
}

// tellConnect tells the operator what to connect the device's queue pair to.
func (r *Rank) tellConnect(key string, rank int, s Step) {
	p := r.c.Peers[rank]
	s.Host, s.What, s.QPN, s.SendPSN, s.ReceivePSN = r.c.Names[rank], StepConnect, uint32(p.QPN), uint32(p.SendPSN), uint32(p.ReceivePSN)
	r.Tell(key, s)
}

// TellMemory tells the operator which memory of this rank the device may write to, read and do
// atomics on.
func (r *Rank) TellMemory(rank int, b *Buffer) {
	at := r.addr(r.c.IPs[r.c.ID])
	r.Tell(fmt.Sprintf("memory/%d/%d/%x", r.c.ID, rank, b.Addr()), Step{
		Host: r.c.Names[rank], What: StepMemory, Address: at.String(), VA: b.Addr(), RKey: b.RKey(), Bytes: b.Len(),
		Text: fmt.Sprintf("%s: %d bytes of %s are at VA %#x with key %#x, for WRITEs, READs and atomics", r.c.Names[rank], b.Len(), r.c.HostName, b.Addr(), b.RKey()),
	})
}

// Address returns the address of a rank's host.
func (r *Rank) Address(rank int) uint32 { return r.c.IPs[rank] }
