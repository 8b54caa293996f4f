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
	SendPSN, ReceivePSN wire.PSN // of the first packet it sends, and expects
	VA                  uint64   // of memory it lets others write to
	RKey                uint32
}

// ExternalKey begins the keys under which ranks publish what the operator of an external
// host has to know.
const ExternalKey = "external/"

// ReadyKey begins the keys that have a value when an external host can be sent to. Behind it
// are the host's name, a slash, and the address that it is connected to.
const ReadyKey = "ready/"

// Steps of an operator.
const (
	StepConnect = "connect" // the queue pair, to what is said
	StepMemory  = "memory"  // of a rank, which the device may write, read, and do atomics in
	StepSend    = "send"    // one message
	StepWrite   = "write"   // the same, as a WRITE with immediate data
)

// Step is what the operator of an external host has to know, and to do.
type Step struct {
	Host       string `json:"host"`
	What       string `json:"what"`
	QPN        uint32 `json:"qpn,omitempty"`     // of the device
	Address    string `json:"address,omitempty"` // that it is connected to
	ToQPN      uint32 `json:"to_qpn,omitempty"`  // and the queue pair there; 0: any
	SendPSN    uint32 `json:"send_psn"`          // where the device starts to send,
	ReceivePSN uint32 `json:"receive_psn"`       // and what it expects first
	VA         uint64 `json:"va,omitempty"`
	RKey       uint32 `json:"rkey,omitempty"`
	Bytes      int    `json:"bytes,omitempty"`
	Text       string `json:"text"` // all of it, as a line
}

// ParseStep undoes what Tell does.
func ParseStep(b []byte) (s Step, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read a step of an external host: %w", err)
	}
	return s, nil
}

// Tell tells the operator of an external host what to do. Each step of a job has a key of
// its own.
func (r *Rank) Tell(key string, s Step) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it is numbers and text
	}
	r.Put(ExternalKey+key, b)
}

// AwaitExternal blocks until the external host can be sent to from the address to which it is
// connected. The run ends if that does not come to pass.
func (r *Rank) AwaitExternal(rank int, address uint32) {
	name := r.c.Names[rank]
	r.get(ExternalKey+ReadyKey+name+"/"+r.addr(address).String(), "external "+name+" to be ready")
}

// tellConnect tells what the external host has to connect to.
func (r *Rank) tellConnect(key string, rank int, s Step) {
	p := r.c.Peers[rank]
	s.Host, s.What, s.QPN, s.SendPSN, s.ReceivePSN = r.c.Names[rank], StepConnect, uint32(p.QPN), uint32(p.SendPSN), uint32(p.ReceivePSN)
	r.Tell(key, s)
}

// TellMemory tells where the external host can write to, read and do atomics on this rank.
func (r *Rank) TellMemory(rank int, b *Buffer) {
	at := r.addr(r.c.IPs[r.c.ID])
	r.Tell(fmt.Sprintf("memory/%d/%d/%x", r.c.ID, rank, b.Addr()), Step{
		Host: r.c.Names[rank], What: StepMemory, Address: at.String(), VA: b.Addr(), RKey: b.RKey(), Bytes: b.Len(),
		Text: fmt.Sprintf("%s: %d bytes of %s are at VA %#x with key %#x, for WRITEs, READs and atomics", r.c.Names[rank], b.Len(), r.c.HostName, b.Addr(), b.RKey()),
	})
}

// Address returns the address of a rank's host.
func (r *Rank) Address(rank int) uint32 { return r.c.IPs[rank] }
