// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// cnpTraffic is the traffic class of CNPs: DSCP 48, which is priority 6 and overtakes
// data, as ConnectX adapters send them (captured as 0xc2).
const cnpTraffic = 48<<2 | wire.ECNECT0

// congestion is the state of DCQCN for a queue pair: the reaction point of its sending half, and for
// its receiving half the instant at which the notification point may send the next CNP.
type congestion struct {
	reactionPoint
	quiet vtime.Time    // no CNP before
	env   wire.Envelope // of CNPs
}

// control sets up a queue pair's congestion control for its path, new or changed.
func (n *NIC) control(q *QP) {
	if n.dcqcn == nil || q.service == wire.UD {
		return // senders of datagrams get no CNPs
	}
	if q.cc == nil {
		q.cc = &congestion{reactionPoint: newReactionPoint(n.dcqcn, n.line)}
	}
	n.layOut(&q.cc.env, q, cnpTraffic)
}

// congested passes an arriving packet's signal to congestion control: a CNP, or the mark that switches
// set on packets that may carry payload, which are requests and answers to READs. It reports whether
// the packet was a CNP, which is then used up.
func (n *NIC) congested(now vtime.Time, q *QP, f *wire.Frame) (ends bool) {
	if f.OpCode() == wire.OpCNP {
		n.stats.CNPHandled++
		q.cc.notified(now)
		n.consume(f)
		return true
	}
	if f.ECN() == wire.ECNCE && f.OpCode().Is(wire.OpPayload) {
		n.notify(now, q)
	}
	return false
}

// notify is the notification point. A marked packet of a flow causes a CNP, even if the packet
// is dropped later, unless the flow has had one within the interval. The CNP goes where
// acknowledgements go: from a group's member, to the group (CEP-43).
func (n *NIC) notify(now vtime.Time, q *QP) {
	n.stats.ECNMarked++
	if now < q.cc.quiet {
		return
	}
	q.cc.quiet = now.Add(n.dcqcn.CNPInterval)
	f := n.pool.Get()
	f.Start(&q.cc.env, wire.BTH{OpCode: wire.OpCNP, PKey: wire.PKeyDefault, BECN: true, DestQP: q.attr.DestQPN})
	f.AddCNP()
	f.Seal(0, n.trust)
	n.stats.Made++
	n.stats.CNPSent++
	n.queue(now, f, n.priority(cnpTraffic))
}
