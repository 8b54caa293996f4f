// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// stagingMax is the longest receive queue that ConnectX takes (AG-20).
const stagingMax = 8192

// castWorker is a receive worker. It alone takes the messages of its subgroups, and marks
// their chunks in a bitmap of its own (AG-5, AG-11).
type castWorker struct {
	c      *cast
	index  int
	inlets []*inlet
	groups []*rank.Multicast // of the inlets
	have   bitmap
	copies []copying
	idle   bool // the worker waits
}

// inlet is a subgroup at a receiver. Datagrams land in a ring of staging slots, because a
// datagram takes the next posted receive, wherever its chunk belongs (AG-6).
type inlet struct {
	m     *rank.Multicast
	kind  rank.MemoryKind // of the slots
	slots []rank.Receive  // receives that are posted, or about to be
	stage []*rank.Buffer  // buffers of the slots
	again []rank.Receive  // receives to be posted again
}

// copying is a slot whose chunk is being copied to the user's buffer (AG-5, step 4).
type copying struct {
	at    vtime.Time
	from  *inlet
	slot  int
	chunk int
}

// begin prepares the worker for an operation.
func (w *castWorker) begin() error {
	c := w.c
	w.have.reset(c.layout.count())
	if own := c.block(); own >= 0 {
		for i := range c.layout.per {
			w.have.set(own*c.layout.per + i)
		}
	}
	for _, in := range w.inlets {
		if err := in.stock(c); err != nil {
			return err
		}
		if c.kind == rank.Writes {
			if err := in.m.Open(c.b, uint8(c.round)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stock posts receives until there are as many as the operation can use. Slots that were
// registered and posted before stay so (AG-25).
func (in *inlet) stock(c *cast) error {
	kind := rank.MemoryBytes
	if c.b.Kind() == rank.MemoryPhantom {
		kind = rank.MemoryPhantom
	}
	if in.kind != kind && len(in.stage) > 0 { // slots of the other kind would lose the data
		if err := in.m.Clear(); err != nil {
			return err
		}
		if err := in.free(); err != nil {
			return err
		}
	}
	in.kind = kind
	want := min(c.o.Staging, stagingMax, c.layout.count()) - len(in.slots)
	if want <= 0 {
		return nil
	}
	var more []rank.Receive
	for i := range want {
		more = append(more, rank.Receive{Slot: len(in.slots) + i})
	}
	if c.kind == rank.Datagrams {
		size := rank.DatagramHeader + c.r.MTU()
		b, err := c.r.Alloc(want*size, kind)
		if err != nil {
			return err
		}
		in.stage = append(in.stage, b)
		for i := range more {
			more[i].B, more[i].Off, more[i].Len = b, i*size, size
		}
	}
	in.slots = append(in.slots, more...)
	return in.m.Post(more...)
}

// free deregisters the staging memory.
func (in *inlet) free() error {
	for _, b := range in.stage {
		if err := b.Free(); err != nil {
			return err
		}
	}
	in.stage, in.slots, in.again = nil, nil, nil
	return nil
}

func (w *castWorker) free() error {
	for _, in := range w.inlets {
		if err := in.free(); err != nil {
			return err
		}
	}
	return nil
}

// run is the worker's loop.
func (w *castWorker) run() error {
	c := w.c
	for !c.closing {
		if w.idle = true; c.settles {
			c.r.Notify()
		}
		// The deadline is computed again at each look: all messages may have arrived, or been
		// lost, before this rank has passed the barrier that sets it.
		until := w.deadline()
		c.r.Look(until, "multicast chunks", w.groups, func() bool { return w.ready() || w.deadline() < until })
		w.idle = false
		for _, in := range w.inlets {
			for _, a := range in.m.Arrivals() {
				if err := w.take(in, a); err != nil {
					return c.fail(err)
				}
			}
			if err := in.repost(); err != nil {
				return c.fail(err)
			}
		}
		if err := w.copied(); err != nil {
			return c.fail(err)
		}
		if w.index > 0 {
			continue
		}
		if err := c.ring.step(); err != nil {
			return c.fail(err)
		}
	}
	return nil
}

// ready reports whether the worker has something to do.
func (w *castWorker) ready() bool {
	for _, m := range w.groups {
		if m.Arrived() > 0 {
			return true
		}
	}
	return w.c.closing || w.index == 0 && w.c.ring.ready()
}

// deadline returns when the worker has something to do even if nothing arrives.
func (w *castWorker) deadline() vtime.Time {
	at := vtime.Never
	if len(w.copies) > 0 {
		at = w.copies[0].at
	}
	if w.index == 0 {
		at = min(at, w.c.ring.deadline())
	}
	return at
}

// take handles one arrival.
func (w *castWorker) take(in *inlet, a rank.Arrival) error {
	c := w.c
	if a.Err != nil {
		return a.Err
	}
	c.engine.spend(c.r, w.index)
	k := int(a.Imm & (chunksMax - 1))
	round := a.Imm >> 24
	switch {
	case round != c.round&0xff || k >= c.layout.count():
		c.counts.Stale++
	case w.have.has(k) || c.ring.fetching(k): // it has been fetched, or is being fetched (AG-17)
		c.counts.Duplicates++
	default:
		off, n := c.layout.at(k)
		if c.kind == rank.Datagrams {
			s := in.slots[a.Slot]
			c.b.Copy(off, s.B, s.Off+rank.DatagramHeader, n)
			w.copies = append(w.copies, copying{c.r.Now().Add(c.engine.copying), in, a.Slot, k})
			w.have.set(k)
			return nil
		}
		w.have.set(k)
		c.got(1)
	}
	return w.release(in, a.Slot)
}

// release frees a slot for the next post, and posts it at once if chunks take the worker time.
func (w *castWorker) release(in *inlet, slot int) error {
	in.again = append(in.again, in.slots[slot])
	if w.c.engine.perChunk > 0 {
		return in.repost()
	}
	return nil
}

// repost posts the slots that are free again.
func (in *inlet) repost() error {
	if len(in.again) == 0 {
		return nil
	}
	again := in.again
	in.again = in.again[:0]
	return in.m.Post(again...)
}

// copied handles the copies that have ended.
func (w *castWorker) copied() error {
	now, done := w.c.r.Now(), 0
	for done < len(w.copies) && w.copies[done].at <= now {
		k := w.copies[done]
		done++
		if err := w.release(k.from, k.slot); err != nil {
			return err
		}
	}
	if done == 0 {
		return nil
	}
	w.copies = append(w.copies[:0], w.copies[done:]...)
	w.c.got(done)
	for _, in := range w.inlets {
		if err := in.repost(); err != nil {
			return err
		}
	}
	return nil
}

// copying reports whether a chunk is being copied from staging.
func (w *castWorker) copying(chunk int) bool {
	return slices.ContainsFunc(w.copies, func(k copying) bool { return k.chunk == chunk })
}

// got counts chunks that have reached their place.
func (c *cast) got(n int) {
	if c.missing -= n; c.missing == 0 {
		c.flagged = c.r.Now().Add(c.engine.flag)
		c.movedAt = max(c.movedAt, c.flagged)
		c.r.Notify() // the first receive worker continues with the handshake
	}
}

// has reports whether a chunk is in its place or being copied there from staging.
func (c *cast) has(k int) bool {
	for _, w := range c.workers {
		if w.have.has(k) {
			return true
		}
	}
	return false
}
