package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/internal/rankhost"
)

// Tell publishes a step for the operator of an external host. Each step of a job needs a key
// of its own.
func (r inside) Tell(key string, s rankhost.Step) { r.tell(key, s) }

func (r *Rank) tell(key string, s rankhost.Step) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen: a step has only numbers and strings
	}
	r.Put(rankhost.ExternalKey+key, b)
}

// AwaitExternal blocks until the external host is ready to receive from the address that it is
// connected to. If it never gets ready, the run ends.
func (r inside) AwaitExternal(rank int, address uint32) {
	name := r.NameOf(rank)
	r.get(rankhost.ExternalKey+rankhost.ReadyKey+name+"/"+r.addr(address).String(), "external "+name+" to be ready")
}

// tellConnect tells the operator what to connect the device's queue pair to.
func (r *Rank) tellConnect(key string, rank int, s rankhost.Step) {
	p := r.c.Peers[rank]
	s.Host, s.What, s.QPN, s.SendPSN, s.ReceivePSN = r.NameOf(rank), rankhost.StepConnect, uint32(p.QPN), uint32(p.SendPSN), uint32(p.ReceivePSN)
	r.tell(key, s)
}

// TellMemory tells the operator which memory of this rank the device may write to, read and do
// atomics on.
func (r inside) TellMemory(rank int, b *Buffer) {
	at := r.addr(r.ip(r.c.ID))
	r.tell(fmt.Sprintf("memory/%d/%d/%x", r.c.ID, rank, b.Addr()), rankhost.Step{
		Host: r.NameOf(rank), What: rankhost.StepMemory, Address: at.String(), VA: b.Addr(), RKey: b.RKey(), Bytes: b.Len(),
		Text: fmt.Sprintf("%s: %d bytes of %s are at VA %#x with key %#x, for WRITEs, READs and atomics", r.NameOf(rank), b.Len(), r.c.HostName, b.Addr(), b.RKey()),
	})
}

// Address returns the address of a rank's host.
func (r inside) Address(rank int) uint32 { return r.ip(rank) }
