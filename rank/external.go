// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
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

// Finish blocks until the external hosts have all packets that f names, or make no more progress, and returns those that make
// none. All ranks call it with the same key, which no other call of the job uses; one of them passes f, and the others nil.
func (r inside) Finish(key string, f *rankhost.Finish) (lacks []rankhost.Lack) {
	if f != nil {
		b, err := json.Marshal(f)
		if err != nil {
			panic(err) // cannot happen: it has only numbers and strings
		}
		r.Put(rankhost.ExternalKey+rankhost.FinishKey+key, b)
	}
	b := r.get(rankhost.ExternalKey+rankhost.DoneKey+key, "external hosts to have the message")
	if err := json.Unmarshal(b, &lacks); err != nil {
		panic(err) // the orchestrator is of this build
	}
	return lacks
}

// tellConnect gives the operator the queue pair and PSNs to connect the device to.
func (r *Rank) tellConnect(key string, rank int, s rankhost.Step) {
	p := r.c.Peers[rank]
	s.Host, s.What, s.QPN, s.SendPSN, s.ReceivePSN = r.NameOf(rank), rankhost.StepConnect, uint32(p.QPN), uint32(p.SendPSN), uint32(p.ReceivePSN)
	r.tell(key, s)
}

// TellMemory gives the operator the memory of this rank that the device may write to, read and do
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

// Sent returns the PSN of the last packet that the source has posted. Only the source may call it.
func (g insideGroup) Sent() (psn uint32) { return g.r.lastPSN(g.qp, (*virtrnic.QP).SQPSN) }

// Received returns the PSN of the last packet that this member has got in order.
func (g insideGroup) Received() (psn uint32) { return g.r.lastPSN(g.qp, (*virtrnic.QP).RQPSN) }

// Sent returns the PSN of the last packet posted.
func (c insideConn) Sent() (psn uint32) { return c.r.lastPSN(c.qp, (*virtrnic.QP).SQPSN) }

// Received returns the PSN of the last packet of the peer that arrived in order.
func (c insideConn) Received() (psn uint32) { return c.r.lastPSN(c.qp, (*virtrnic.QP).RQPSN) }

// lastPSN returns the PSN before the next one of a direction.
func (r *Rank) lastPSN(qp *virtrnic.QP, next func(*virtrnic.QP) wire.PSN) (psn uint32) {
	r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, _ *mrp.Agent) { psn = uint32((next(qp) - 1) & wire.PSNMask) })
	return psn
}
