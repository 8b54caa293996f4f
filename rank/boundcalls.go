// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// postSend hands a work request to the NIC's send queue.
func (r *Rank) postSend(q *Request, qp *virtrnic.QP, wr *virtrnic.SendWR) (*Request, error) {
	d := &r.job.calls
	d.r, d.q, d.qp = r, q, qp
	d.send = *wr
	r.c.Host.Do(d.postSend)
	return r.posted(q, d.err)
}

// postRecv hands a piece of memory to the NIC's receive queue.
func (r *Rank) postRecv(to target, qp *virtrnic.QP, memory virtrnic.SGE) (*Request, error) {
	q, d := &Request{to: to}, &r.job.calls
	d.r, d.q, d.qp = r, q, qp
	d.recv = virtrnic.RecvWR{SGE: memory}
	r.c.Host.Do(d.postRecv)
	return r.posted(q, d.err)
}

// poll takes all completions of the view's queue, and reports whether there were any.
func (r *Rank) poll() (some bool) {
	d := &r.job.calls
	d.r = r
	r.c.Host.Do(d.look)
	if some = d.some; some {
		r.c.Host.Kick() // another worker's request may be among them
	}
	return some
}

// boundCalls are the calls that a rank makes most often to its NIC, made once: Host.Do takes a function, and one that is made
// for each call is garbage right after it, half of all that a large job leaves. Their arguments and results are the fields
// below them. One set serves all views of a rank: tasks of a host run one at a time, and none stops in such a call, so that
// no other call's arguments come between.
type boundCalls struct {
	postSend, postRecv, look func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent)

	// Arguments.
	r    *Rank // the view that calls
	q    *Request
	qp   *virtrnic.QP
	send virtrnic.SendWR
	recv virtrnic.RecvWR

	// Results.
	err  error
	some bool // completions were taken
}

func (d *boundCalls) bind() {
	d.postSend = func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		d.send.WRID = d.r.reqs.add(d.q)
		if d.err = nic.PostSendWR(now, d.qp, &d.send); d.err != nil {
			d.r.reqs.take(d.send.WRID)
		}
	}
	d.postRecv = func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		d.recv.WRID = d.r.reqs.add(d.q)
		if d.err = nic.PostRecv(now, d.qp, d.recv); d.err != nil {
			d.r.reqs.take(d.recv.WRID)
		}
	}
	d.look = func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		d.some = d.r.take(nic)
		d.r.health.look(nic)
	}
}
