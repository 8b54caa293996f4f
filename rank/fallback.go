// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Here are the operations for groups that leave multicast while it does not work and return to
// it later (Cepheus §V-D). Package rank/collective/fallback decides when.

// Break ends all outstanding requests of the rank's connections with an error, and all later ones too.
// When it returns, nothing lands in buffers any more. Peers get no notice; to them the rank is silent.
func (r inside) Break() {
	r.broken, r.survives = true, true // the caller expects failures, so they do not end the rank
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		for peer := range r.c.Size {
			if c := r.conns[peer]; c != nil {
				// Any state but RESET may go to ERR.
				_ = nic.ModifyQP(now, c.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState)
			}
		}
		r.take(nic)
	})
	for _, peer := range r.waiting { // no other rank reads the key
		r.c.Board.Put(connKey(peer, r.c.ID), nil)
	}
	r.c.Host.Kick()
}

// SetTrafficClass sets the traffic class of connections made from now on.
func (r inside) SetTrafficClass(c uint8) { r.ownParams().TrafficClass = c }

// SetTimeout raises the retransmission timeout of connections made from now on to at least d.
func (r inside) SetTimeout(d vtime.Duration) {
	for p := r.ownParams(); p.Timeout != 0 && p.Timeout < 31 && virtrnic.Timeout(p.Timeout) < d; p.Timeout++ {
	}
}

// LookOver is Look for the requests of several views of the rank (Sub), and reports whether
// cond holds. It takes completions only of the views given; r itself counts only if it is one
// of them.
func (r inside) LookOver(until vtime.Time, why string, views []*Rank, cond func() bool) bool {
	for {
		some := false
		// All in one look: later completions wake the task.
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

// OK reports whether the request has completed without an error, as of the last look (see
// Done).
func (q *Request) OK() bool { return q.done && q.status == virtrnic.WCSuccess }

// Err returns the error that the request has completed with, or nil.
func (q *Request) Err() error {
	if q.status == virtrnic.WCSuccess {
		return nil
	}
	return statusError(q.status)
}

// probed is the target of a probe: the rank whose NIC is to answer.
type probed int

// what implements target.
func (p probed) what(bool) string { return fmt.Sprintf("rank %d to answer", int(p)) }

// Probe starts to find out whether the peer's NIC answers, by a WRITE of length zero, which
// takes no receive and changes no memory. The request fails when the NIC has used up its
// retries.
func (c insideConn) Probe(b *Buffer) (*Request, error) {
	return c.r.postSend(&Request{to: probed(c.peer), send: true}, c.qp,
		&virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: b.sge(0, 0)})
}

// Acknowledged returns the number of the source's packets that all members have acknowledged. Only the
// source may call it.
func (g insideGroup) Acknowledged() (packets uint64) {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, _ *mrp.Agent) { packets = g.qp.Acknowledged() })
	return packets
}

// Expects returns the PSN that this member expects next.
func (g insideGroup) Expects() (psn uint32) {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, _ *mrp.Agent) { psn = uint32(g.qp.RQPSN()) })
	return psn
}

// Forget undoes the partial receipt of a message: it clears the first n bytes of the buffer as
// before the message.
func (b insideBuffer) Forget(n int) { b.Expect(b.seed, n) }

// NoteFallback records in the run's events that the group has left multicast. epoch is the
// number of the epoch that ended.
func (g insideGroup) NoteFallback(epoch int, cause string) {
	g.r.note(mrp.Fallback, machine.Event{Kind: machine.EventFallback, Group: g.id, Value: int64(epoch), Text: cause})
}

// NoteReturn records that the group uses multicast again. without lists the ranks that are not
// served by it.
func (g insideGroup) NoteReturn(epoch int, without string) {
	g.r.note(mrp.Return, machine.Event{Kind: machine.EventReturn, Group: g.id, Value: int64(epoch), Text: without})
}

// NoteProbe records why a group that was registered again is not used.
func (g insideGroup) NoteProbe(epoch int, why string) {
	g.r.note(mrp.ProbeFailed, machine.Event{Kind: machine.EventProbe, Group: g.id, Value: int64(epoch), Text: why})
}

// NoteLost records in the run's events that a rank has been given up.
func (r inside) NoteLost(rank int, why string) {
	r.note(mrp.MemberLost, machine.Event{Kind: machine.EventMemberLost, Value: int64(rank), Text: r.NameOf(rank) + ": " + why})
}

func (r *Rank) note(t mrp.Turn, e machine.Event) {
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) {
		a.Note(t)
		nic.Note(now, e)
	})
}
