package virtrnic

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// cnpTraffic is the traffic class of CNPs: DSCP 48, which is priority 6 and overtakes
// data, as ConnectX adapters send them (captured as 0xc2).
const cnpTraffic = 48<<2 | wire.ECNECT0

// congestion is what DCQCN keeps for a queue pair: as sender, the reaction point; as
// receiver, when the notification point may speak again.
type congestion struct {
	reactionPoint
	quiet vtime.Time    // no CNP before
	env   wire.Envelope // of CNPs
}

// control sets a queue pair's congestion control up for its path, new or changed.
func (n *NIC) control(q *QP) {
	if n.dcqcn == nil || q.service == wire.UD {
		return // a datagram's sender is not told
	}
	if q.cc == nil {
		q.cc = &congestion{reactionPoint: newReactionPoint(n.dcqcn, n.line)}
	}
	q.cc.env = n.envelopeOf(q, cnpTraffic)
}

// congested takes what congestion control reads of an arriving packet: CNPs, which end
// here, and the mark of switches on whatever may carry payload, requests and answers to READs.
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

// notify is the notification point: a marked packet of a flow, whatever becomes of it
// otherwise, makes a CNP, unless the flow has had one within the interval. It goes the
// way of acknowledgements; of a group's members, to the group (CEP-43).
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
