package rank

import (
	"fmt"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// What a group needs that leaves multicast while it does not work, and comes back to it
// (Cepheus §V-D; package collective decides when).

// Break ends what is under way over the rank's connections with an error, and does so with
// what is begun later. When it returns nothing lands in buffers any more. Peers are not
// told: they see silence.
func (r *Rank) Break() {
	r.broken, r.survives = true, true // who calls it knows what fails
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		for peer := range r.c.Size {
			if c := r.conns[peer]; c != nil {
				// Any state but RESET may go to ERR.
				_ = nic.ModifyQP(now, c.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState)
			}
		}
		r.take(nic)
	})
	for _, peer := range r.waiting { // nobody else reads the key
		r.c.Board.Put(fmt.Sprintf("conn/%d/%d", peer, r.c.ID), nil)
	}
	r.c.Host.Kick()
}

// SetTrafficClass chooses the class of connections that are made from now on.
func (r *Rank) SetTrafficClass(c uint8) { r.c.Params.TrafficClass = c }

// SetTimeout makes the retransmission timeout of connections that are made from now on at
// least d, if it is not that long.
func (r *Rank) SetTimeout(d vtime.Duration) {
	for p := &r.c.Params; p.Timeout != 0 && p.Timeout < 31 && virtrnic.Timeout(p.Timeout) < d; p.Timeout++ {
	}
}

// LookOver is Look for requests of several views of the rank (Sub); its own are not looked
// at unless it is among them.
func (r *Rank) LookOver(until vtime.Time, why string, views []*Rank, cond func() bool) bool {
	for {
		some := false
		// All in one look: what comes after it wakes the task.
		r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
			for _, v := range views {
				some = v.take(nic) || some
			}
			r.health.look(nic)
		})
		if some {
			r.c.Host.Kick()
		}
		if cond() {
			return true
		}
		if r.Now() >= until {
			return false
		}
		r.park(until, why)
	}
}

// OK says whether a request has ended well, as far as the rank has looked.
func (q *Request) OK() bool { return q.done && q.err == nil }

// Err returns what a request has ended with.
func (q *Request) Err() error { return q.err }

// Probe starts to find out whether the peer's adapter answers: by a WRITE of nothing, which
// takes no receive and changes no memory. It fails when the retries are used up.
func (c *Conn) Probe(b *Buffer) (*Request, error) {
	return c.r.post(&Request{conn: c, send: true, of: fmt.Sprintf("rank %d to answer", c.peer)}, c.qp,
		virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: b.sge(0, 0)}, virtrnic.RecvWR{})
}

// Acknowledged returns a count that goes up by one with each packet of the source that all
// members have acknowledged. It is the source's to ask.
func (g *Group) Acknowledged() (packets uint64) {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, _ *mrp.Agent) { packets = g.qp.Acknowledged() })
	return packets
}

// Expects returns the PSN of the packet that this member takes next.
func (g *Group) Expects() (psn uint32) {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, _ *mrp.Agent) { psn = uint32(g.qp.RQPSN()) })
	return psn
}

// Lag returns how many packets the second of two values of Expects is behind the first.
func Lag(ahead, behind uint32) int { return int(wire.PSN(ahead).Sub(wire.PSN(behind))) }

// Forget makes the first n bytes of a buffer as they were before a message was received
// into it that did not come to its end.
func (b *Buffer) Forget(n int) { b.Expect(b.seed, n) }

// NoteFallback puts into the run's events that the group has left multicast; epoch is the
// one that ended.
func (g *Group) NoteFallback(epoch int, cause string) {
	g.r.note(mrp.Fallback, machine.Event{Kind: machine.EventFallback, Group: g.id, Value: int64(epoch), Text: cause})
}

// NoteReturn puts there that it is used from now on; without says for whom not.
func (g *Group) NoteReturn(epoch int, without string) {
	g.r.note(mrp.Return, machine.Event{Kind: machine.EventReturn, Group: g.id, Value: int64(epoch), Text: without})
}

// NoteProbe puts there why it is not used although it was registered.
func (g *Group) NoteProbe(epoch int, why string) {
	g.r.note(mrp.ProbeFailed, machine.Event{Kind: machine.EventProbe, Group: g.id, Value: int64(epoch), Text: why})
}

// NoteLost puts into the run's events that a rank is given up.
func (r *Rank) NoteLost(rank int, why string) {
	r.note(mrp.MemberLost, machine.Event{Kind: machine.EventMemberLost, Value: int64(rank), Text: r.c.Names[rank] + ": " + why})
}

func (r *Rank) note(t mrp.Turn, e machine.Event) {
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) {
		a.Note(t)
		nic.Note(now, e)
	})
}
