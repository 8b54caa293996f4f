// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// reorder keeps the request packets of a queue pair that came before their turn, by the
// low bits of their PSN.
type reorder struct {
	slot     []*wire.Frame // allocated when first needed
	received bitRing
	placed   bitRing // packets whose payload is in memory already
	n        int
	peer     bool // the requester repeats selectively
	owed     bool // a report waits for Placed
}

// takeRequest handles a request packet of a requester that repeats selectively. A packet that
// comes in its turn is handled as any request, and so is each that waited for it.
func (n *NIC) takeRequest(now vtime.Time, q *QP, f *wire.Frame) {
	r, o := &q.rq, q.order
	o.peer = f.Selective()
	d := f.PSN().Sub(r.epsn)
	switch {
	case d <= 0:
		psn := f.PSN()
		r.handleRequest(now, q, f)
		if d == 0 && o.n > 0 {
			n.drain(now, q, psn)
		}
		return
	case d >= irnSlots:
		n.stats.OutOfSeqRequest++
		n.drop(now, f, DropSequence)
		return
	case isReadOrAtomic(f.OpCode()):
		// A READ stands for as many packets as it has answers, which a report cannot express.
		n.stats.OutOfSeqRequest++
		n.drop(now, f, DropSequence)
		n.report(now, q, r.epsn)
		return
	case o.received.has(uint64(f.PSN())):
		n.stats.DuplicateRequest++
		n.drop(now, f, DropDuplicate)
		return
	}
	n.stats.OutOfSeqRequest++
	psn := f.PSN()
	o.keep(q, f, d)
	n.report(now, q, psn)
}

// keep stores a packet that is d packets early. If it belongs to the WRITE being received its
// payload is placed at once. Whether the packet is valid is checked when it is its turn, as
// for any other.
func (o *reorder) keep(q *QP, f *wire.Frame, d int) {
	if o.slot == nil {
		o.slot = make([]*wire.Frame, irnSlots)
	}
	i := uint64(f.PSN())
	o.slot[i%irnSlots] = f
	o.received.set(i)
	o.n++
	q.nic.reordered++
	r := &q.rq
	if !r.active || !r.write || f.PayloadLen() == 0 || r.mr.gone || r.mr.closed {
		return
	}
	off := uint64(d) * uint64(q.mtu)
	end := off + uint64(f.PayloadLen())
	whole := f.OpCode() == wire.OpWriteMiddle && f.PayloadLen() == q.mtu && end < r.left
	last := f.OpCode() == wire.OpWriteLast && end == r.left // with immediate it may be refused and come again
	if whole || last {
		r.mr.mem.store(f, r.off+off)
		o.placed.set(i)
	}
}

// pop takes the packet whose turn it is, or nil.
func (o *reorder) pop(n *NIC, psn wire.PSN) (f *wire.Frame, placed bool) {
	i := uint64(psn)
	if o.n == 0 || !o.received.has(i) {
		return nil, false
	}
	f, placed = o.slot[i%irnSlots], o.placed.has(i)
	o.slot[i%irnSlots] = nil
	o.received.clear(i)
	o.placed.clear(i)
	o.n--
	n.reordered--
	return f, placed
}

// skip drops stored packets whose numbers a READ has taken.
func (o *reorder) skip(now vtime.Time, n *NIC, taken, expected wire.PSN) {
	for psn, k := taken.Add(1), 0; psn.Before(expected) && k < irnSlots; psn, k = psn.Add(1), k+1 {
		if f, _ := o.pop(n, psn); f != nil {
			n.drop(now, f, DropSequence)
		}
	}
}

// drain handles the packets that waited for the one taken last. Of the acknowledgements that
// they ask for only the last is sent. If the very last packet did not ask for one, one more is
// sent, since the sender, which has repeated only the hole, waits for it. If there is another
// hole, it is reported.
func (n *NIC) drain(now vtime.Time, q *QP, taken wire.PSN) {
	r, o := &q.rq, q.order
	asked := true
	o.skip(now, n, taken, r.epsn)
	for q.receives() {
		expected := r.epsn
		f, placed := o.pop(n, expected)
		if f == nil {
			break
		}
		asked = f.AckReq()
		r.placed = placed
		r.handleRequest(now, q, f)
		r.placed = false
		if r.epsn == expected {
			return // the packet was refused, and the sender has a NAK
		}
	}
	switch {
	case !q.receives():
	case o.n > 0:
		r.nakSent = false
		n.report(now, q, r.epsn)
	case !asked:
		r.respond(now, q, n.pool.Get(), r.epsn.Add(-1), wire.SyndromeACK)
	}
}

// report sends a NAK with the missing packet and the bitmap of received ones. A report would overtake
// answers to READs, which the requester would then take for lost, so none is sent while such answers
// wait.
func (n *NIC) report(now vtime.Time, q *QP, cause wire.PSN) {
	r := &q.rq
	if after := n.fenced(q); after > 0 || r.out.Len() > 0 {
		q.order.owed = after > 0 // it acknowledges all before the hole
		return
	}
	f := n.pool.Get()
	f.StartNext(&q.env, wire.OpAcknowledge, r.epsn, wire.BitSelective)
	f.AddAETH(wire.AETH{Syndrome: wire.SyndromePSNSequence, MSN: r.msn})
	addSACK(f, &q.order.received, r.epsn, cause)
	f.Seal(uint16(r.epsn), n.trust)
	n.stats.Made++
	n.stats.SendNAK++
	if n.trace != nil && !r.nakSent { // the first for this hole
		n.trace.Trace(now, machine.Event{Kind: machine.EventNakSent, QP: q.num, PSN: r.epsn, Text: wire.SyndromePSNSequence.String()})
	}
	r.nakSent = true
	n.queue(now, f, q.prio)
}

// forget drops all stored packets.
func (o *reorder) forget(now vtime.Time, n *NIC) {
	for i := range o.slot {
		if f := o.slot[i]; f != nil {
			o.slot[i] = nil
			n.drop(now, f, DropFlushed)
		}
	}
	n.reordered -= o.n
	o.n, o.received, o.placed, o.owed = 0, bitRing{}, bitRing{}, false
}
