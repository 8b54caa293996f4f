package verbs

import (
	"errors"
	"sync/atomic"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// cq is a completion queue of a program. Completions go from the NIC's queue to the ring as long
// as there is room; the rest stays where it is, until the NIC's own queue overruns.
type cq struct {
	client  *client
	id      uint32
	cq      *virtrnic.CQ
	ring    ring
	channel *channel              // nil: none
	told    *virtrnic.CompChannel // tells which completions are solicited; nil without a channel
	queued  uint64                // completions handed to the worker; with the loop's lock
	written uint64                // of them, in the ring; the worker's
}

// room returns how many completions may be handed on.
func (q *cq) room() uint64 {
	if used := q.queued - q.ring.tail(); used <= q.ring.entries {
		return q.ring.entries - used
	}
	return 0 // the program has written nonsense
}

// collect hands the completions of all of a program's queues to its worker, and lets it try again
// what the NIC had no room for. It is called with the loop's lock.
func (c *client) collect() {
	for _, q := range c.cqs { // independent of each other
		q.collect()
	}
	retry := false
	for _, q := range c.qps { // independent of each other
		retry = q.stalled.Swap(false) || retry
	}
	if retry {
		c.work.wake()
	}
}

func (q *cq) collect() {
	var all []virtrnic.WC
	for starved := false; ; {
		if q.room() == 0 {
			atomic.StoreUint32(q.ring.half(ringStarved), 1)
			if starved || q.room() == 0 {
				break
			}
			starved = true // the program has made room meanwhile
		}
		w, ok := q.client.s.nic.PollCQ(q.cq)
		if !ok {
			break
		}
		q.queued++
		all = append(all, w)
	}
	if len(all) == 0 {
		return
	}
	solicited := false
	if q.told != nil {
		if _, solicited = q.client.s.nic.GetCQEvent(q.told); solicited {
			q.listen()
		}
	}
	q.client.work.add(func() { q.write(all, solicited) })
}

// listen has the NIC tell of the next solicited completion.
func (q *cq) listen() {
	if err := q.client.s.nic.ReqNotifyCQ(q.cq, true); err != nil {
		panic(err) // the queue has a channel
	}
}

// write is the worker's: what the NIC has written to memory before is there by now.
func (q *cq) write(all []virtrnic.WC, solicited bool) {
	for i := range all {
		w := &all[i]
		if q.client.torn && w.Status == virtrnic.WCSuccess && w.Opcode >= virtrnic.WCRDMARead {
			w.Status = virtrnic.WCLocProtErr // its bytes are not where they should be
		}
		encodeWC((*[completionLen]byte)(q.ring.entry(q.written)), w)
		q.written++
	}
	q.ring.setHead(q.written)
	if q.channel != nil && q.ring.fire(solicited) {
		q.channel.pipe.send(idBytes(q.id))
	}
}

// qp is a queue pair of a program.
type qp struct {
	client   *client
	qp       *virtrnic.QP
	mem      []byte // of both rings
	sq, rq   ring
	sent     atomic.Uint64 // sends taken; changed with the loop's lock
	received uint64        // receives taken; with the loop's lock
	resets   int           // with the loop's lock
	groups   []uint32
	looked   uint64 // head of the receive ring at the last look; the worker's
	recv     recv
	stalled  atomic.Bool // the NIC's queue is full
	bad      atomic.Bool // an entry was nonsense, or the queue pair is destroyed: nothing is taken any more
}

// takeReceives posts the receives that wait in the ring. It is called with the loop's lock.
func (q *qp) takeReceives(now vtime.Time) {
	var b [recvLen]byte
	for n := q.rq.waiting(q.received); n > 0 && !q.bad.Load(); n-- {
		copy(b[:], q.rq.entry(q.received))
		err := q.recv.decode(&b)
		if err == nil {
			err = q.client.s.nic.PostRecv(now, q.qp, q.recv.wr)
		}
		if errors.Is(err, virtrnic.ErrNoMem) {
			break
		}
		if err != nil {
			q.fail(now)
			return
		}
		q.received++
	}
	q.rq.setTail(q.received)
}

// fail ends a queue pair whose program posts what its library would have refused.
func (q *qp) fail(now vtime.Time) {
	q.bad.Store(true)
	if q.qp.State() != virtrnic.StateReset {
		_ = q.client.s.nic.ModifyQP(now, q.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState) // any state but RESET may go there
	}
}

// forget drops what is in the rings, as going to RESET does.
func (q *qp) forget() {
	q.resets++
	if n := q.sq.waiting(q.sent.Load()); n > 0 {
		q.sent.Add(n)
	}
	if n := q.rq.waiting(q.received); n > 0 {
		q.received += n
	}
	q.sq.setTail(q.sent.Load())
	q.rq.setTail(q.received)
	q.stalled.Store(false)
}
