// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

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
	told    *virtrnic.CompChannel // has the solicited completions; nil without a channel
	queued  uint64                // completions handed to the worker; with the loop's lock
	written uint64                // of them, in the ring; the worker's
	unread  bool                  // an event of it waits in the channel's pipe; the pipe's
}

// room returns the number of completions that may be handed on.
func (q *cq) room() uint64 {
	if used := q.queued - q.ring.tail(); used <= q.ring.entries {
		return q.ring.entries - used
	}
	return 0 // the program has written nonsense
}

// collect hands the completions of all of a program's queues to its worker, and lets it try again
// requests for which the NIC had no room. It is called with the loop's lock.
func (c *client) collect(now vtime.Time) {
	retry := false
	for _, q := range c.qps { // independent of each other
		q.giveBack() // a program that sees a completion may post again
		retry = q.stalled.Swap(false) || retry
	}
	for _, q := range c.srqs { // independent of each other
		q.giveBack()
	}
	for _, q := range sorted(c.cqs) {
		q.collect(now)
	}
	if retry {
		c.work.wake()
	}
}

func (q *cq) collect(now vtime.Time) {
	var all []virtrnic.WC
	for starved := false; ; {
		if q.room() == 0 {
			q.ring.starve()
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
		if w.Status != virtrnic.WCSuccess {
			q.client.failed(&w, now)
		}
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
	q.client.work.add(func() { q.write(all, solicited, now) })
}

// listen arms the NIC for the next solicited completion.
func (q *cq) listen() {
	if err := q.client.s.nic.ReqNotifyCQ(q.cq, true); err != nil {
		panic(err) // the queue has a channel
	}
}

// write is the worker's: the NIC's earlier writes to memory are there by now.
func (q *cq) write(all []virtrnic.WC, solicited bool, now vtime.Time) {
	for i := range all {
		w := &all[i]
		if q.client.torn && w.Status == virtrnic.WCSuccess && w.Opcode >= virtrnic.WCRDMARead {
			w.Status = virtrnic.WCLocProtErr // its bytes are not where they should be
		}
		encodeWC((*[completionLen]byte)(q.ring.entry(q.written)), w, now)
		q.written++
	}
	q.ring.setHead(q.written)
	if q.channel != nil && q.ring.fire(solicited) {
		q.channel.pipe.send(idBytes(q.id), &q.unread)
	}
}

func (c *client) createCQ(m *createCQ) (r reply, fds []int, err error) {
	if m.Depth < 1 || m.Depth > cqesMax {
		return r, nil, fmt.Errorf("create completion queue: depth %d is not in 1..%d: %w", m.Depth, cqesMax, unix.EINVAL)
	}
	n := ringEntries(min(m.Depth+1, cqesMax))
	mem, fd, err := c.share(ringBytes(n, completionLen))
	if err != nil {
		return r, nil, err
	}
	q := &cq{client: c, ring: ring{mem, n, completionLen}}
	err = unix.EIO
	c.s.call(func(vtime.Time) {
		if err = c.s.room(ofCQ); err != nil {
			return
		}
		if q.channel = c.channels[m.Channel]; q.channel == nil && m.Channel != 0 {
			err = fmt.Errorf("create completion queue: there is no channel %d: %w", m.Channel, unix.EINVAL)
			return
		}
		if q.channel == nil {
			q.cq, err = c.s.nic.CreateCQ(int(n))
		} else {
			q.told = c.s.nic.CreateCompChannel()
			q.cq, err = c.s.nic.CreateCQOn(q.told, int(n))
		}
		if err != nil {
			return
		}
		if q.channel != nil {
			q.channel.users++
			q.listen()
		}
		q.id = c.nextID()
		c.cqs[q.id] = q
	})
	if err != nil {
		c.unshare(mem)
		return r, nil, errors.Join(err, unix.Close(fd))
	}
	return reply{ID: q.id, Send: uint32(n)}, []int{fd}, nil
}

// resizeCQ gives a completion queue another ring. The worker does it, so no completion is written meanwhile; the
// library lets no thread poll.
func (c *client) resizeCQ(m *resizeCQ) (r reply, fds []int, err error) {
	if m.Depth < 1 || m.Depth > cqesMax {
		return r, nil, fmt.Errorf("resize completion queue %d: depth %d is not in 1..%d: %w", m.ID, m.Depth, cqesMax, unix.EINVAL)
	}
	n := ringEntries(min(m.Depth+1, cqesMax))
	mem, fd, err := c.share(ringBytes(n, completionLen))
	if err != nil {
		return r, nil, err
	}
	done, err := error(unix.EIO), error(unix.EIO) // the loop has ended, or the server is being closed
	if c.ask(func() {
		c.s.call(func(vtime.Time) { mem, done = c.exchange(m.ID, ring{mem, n, completionLen}) })
		c.unshare(mem)
	}) {
		err = done
	}
	if err != nil {
		return r, nil, errors.Join(err, unix.Close(fd))
	}
	return reply{ID: m.ID, Send: uint32(n)}, []int{fd}, nil
}

// exchange moves completions that the program has not polled to another ring, and returns the memory that is of no use
// any more: of the former ring or, with an error, of the new one. It is the worker's, and called with the loop's lock.
func (c *client) exchange(id uint32, to ring) (useless []byte, err error) {
	q := c.cqs[id]
	if q == nil || c.gone {
		return to.mem, fmt.Errorf("resize completion queue %d: it does not exist: %w", id, unix.EINVAL)
	}
	tail := q.ring.tail()
	if q.queued-tail > to.entries || q.written-tail > to.entries {
		return to.mem, fmt.Errorf("resize completion queue %d: %d completions are in it, or its ring holds nonsense: %w", id, q.queued-tail, unix.EINVAL)
	}
	if err := c.s.nic.ResizeCQ(q.cq, int(to.entries)); err != nil {
		return to.mem, err
	}
	for i := tail; i != q.written; i++ {
		copy(to.entry(i), q.ring.entry(i))
	}
	to.setTail(tail)
	to.setHead(q.written)
	for _, at := range [...]int{ringArmed, ringStarved} {
		atomic.StoreUint32(to.half(at), atomic.LoadUint32(q.ring.half(at)))
	}
	useless, q.ring = q.ring.mem, to
	return useless, nil
}
