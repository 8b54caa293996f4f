// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// gate is the NIC with the steps before it handles a frame: receives that a program has posted are
// taken from its ring, and a READ or an atomic waits until the image of the memory is up to date.
// Frames for the same program meanwhile wait behind it, so frames keep their order.
type gate struct{ s *Server }

// Gate returns the machine that the loop is to drive.
func (s *Server) Gate() machine.Machine {
	if s.turns != nil {
		return prompt{gate{s}}
	}
	return gate{s}
}

// prompt is a gate whose workers have no goroutines: the work of an input is done with it.
type prompt struct{ gate }

// HandleFrame implements machine.Machine.
func (p prompt) HandleFrame(now vtime.Time, port int, f *wire.Frame) {
	p.gate.HandleFrame(now, port, f)
	p.s.doJobs()
	p.s.turns.tell()
}

// HandleTimeout implements machine.Machine.
func (p prompt) HandleTimeout(now vtime.Time) {
	p.gate.HandleTimeout(now)
	p.s.doJobs()
	p.s.turns.tell()
}

// Restart destroys the objects of programs, before the NIC does.
func (p prompt) Restart(now vtime.Time) {
	p.s.Restart(now)
	p.s.doJobs()
}

// doJobs has the programs' memory read and written as far as that is to be done.
func (s *Server) doJobs() {
	for again := true; again; {
		again = false
		for _, c := range s.inOrder() {
			if len(c.work.jobs) > 0 {
				again = true
				c.work.doJobs()
			}
		}
	}
}

// HandleFrame implements machine.Machine.
func (g gate) HandleFrame(now vtime.Time, port int, f *wire.Frame) {
	s := g.s
	if f.Kind() != wire.KindRoCE {
		s.deliver(now, port, f)
		return
	}
	if f.DestQP() == wire.QPNMulticast {
		for _, q := range sorted(s.qps) {
			q.takeReceives(now)
		}
		s.deliver(now, port, f)
		return
	}
	q := s.qps[f.DestQP()]
	if q == nil {
		s.deliver(now, port, f)
		return
	}
	if len(q.client.held) >= heldMax || q.client.take(useFrames, frameBytes(f)) != nil {
		s.nic.Stats().Drops[virtrnic.DropIntakeFull]++
		s.pool.Put(f)
		return
	}
	q.client.held = append(q.client.held, held{f, port})
	if len(q.client.held) == 1 && !q.client.fetching {
		q.client.release(now)
	}
	s.feed(now)
}

// loopback stands for a port by which the NIC's own frames come back to it.
const loopback = -1

// returned takes a frame that programs at the NIC send to each other.
func (g gate) returned(now vtime.Time, f *wire.Frame) { g.HandleFrame(now, loopback, f) }

// deliver gives a frame to the NIC.
func (s *Server) deliver(now vtime.Time, port int, f *wire.Frame) {
	if port == loopback {
		s.nic.HandleReturned(now, f)
		return
	}
	s.nic.HandleFrame(now, port, f)
}

// HandleTimeout implements machine.Machine.
func (g gate) HandleTimeout(now vtime.Time) {
	g.s.nic.HandleTimeout(now)
	if at, armed := g.s.cm.NextTimeout(); armed && at <= now {
		g.s.cm.HandleTimeout(now)
	}
	g.s.feed(now)
}

// Settle implements machine.Machine.
func (g gate) Settle(until vtime.Time, port int) { g.s.nic.Settle(until, port) }

// NextTimeout implements machine.Machine.
func (g gate) NextTimeout() (vtime.Time, bool) {
	at, armed := g.s.nic.NextTimeout()
	if t, ok := g.s.cm.NextTimeout(); ok && (!armed || t < at) {
		return t, true
	}
	return at, armed
}

// held is a frame in front of the NIC.
type held struct {
	f    *wire.Frame
	port int
}

// heldMax is the number of frames that may wait for one program. Later ones are lost as in a NIC whose
// receive buffer is full.
const heldMax = 4096

// backlogMax is the number of bytes that may wait to be written to a program's memory before frames
// wait in front of the NIC.
const backlogMax = 16 << 20

// backlogAll is the same bound for all programs together; beyond it frames wait of those that have more than backlogShare.
const backlogAll, backlogShare = 256 << 20, 1 << 20

// release passes the frames that wait for a program to the NIC, up to one that something has to be done for first. It is called
// with the loop's lock, when no memory is being read for the gate.
func (c *client) release(now vtime.Time) {
	for len(c.held) > 0 && !c.fetching {
		if own := c.backlog.Load(); own > backlogMax || own > backlogShare && c.s.backlog.Load() > backlogAll {
			c.wait(func() error { return nil }, nil)
			return
		}
		c.prepare(now)
	}
}

// prepare hands the first frame to the NIC, or has the memory read first that it reads.
func (c *client) prepare(now vtime.Time) {
	if r, off, n := c.reads(c.held[0].f); r != nil {
		c.wait(func() (err error) {
			full := c.load([]part{{r, off, n}}, func(int) { err = unix.EFAULT })
			return errors.Join(full, err)
		}, r)
		return
	}
	c.pass(now)
}

// next takes the first frame out.
func (c *client) next() held {
	h := c.held[0]
	c.held[0] = held{}
	if c.held = c.held[1:]; len(c.held) == 0 {
		c.held = nil
	}
	c.give(useFrames, frameBytes(h.f))
	return h
}

// discard drops the first frame, as a NIC does that has no room for it.
func (c *client) discard() {
	c.s.nic.Stats().Drops[virtrnic.DropIntakeFull]++
	c.s.pool.Put(c.next().f)
}

// frameBytes returns the number of bytes that a waiting frame counts.
func frameBytes(f *wire.Frame) int64 { return 256 + int64(f.PayloadLen()) }

// pass hands the first frame to the NIC.
func (c *client) pass(now vtime.Time) {
	h := c.next()
	if q := c.s.qps[h.f.DestQP()]; q != nil {
		q.takeReceives(now)
	}
	c.s.deliver(now, h.port, h.f)
}

// wait has the worker call f, after which the first frame proceeds: to the NIC once its region, if r is one, was read. If that
// cannot be done, the NIC loses the region, so that the peer gets the NIC's own answer: a remote access error.
func (c *client) wait(f func() error, r *region) {
	c.fetching = true
	c.work.add(func() {
		err := f()
		c.s.call(func(now vtime.Time) {
			c.fetching = false
			if c.gone {
				return
			}
			if len(c.held) == 0 {
				return
			}
			switch {
			case errors.Is(err, errFull):
				c.discard()
			case r != nil:
				if err != nil {
					c.lose(r)
				}
				c.pass(now)
			default:
				c.prepare(now)
			}
			c.release(now)
			c.s.feed(now)
		})
	})
}

// reads returns the region that a request of the peer reads, and which part; nil if it reads
// none, or none that exists, which is the NIC's to answer.
func (c *client) reads(f *wire.Frame) (r *region, off, n uint64) {
	var va uint64
	var key uint32
	switch f.OpCode() {
	case wire.OpReadRequest:
		h := f.RETH()
		va, key, n = h.VA, h.RKey, uint64(h.DMALen)
	case wire.OpCompareSwap, wire.OpFetchAdd:
		h := f.AtomicETH()
		va, key, n = h.VA, h.RKey, 8
	}
	if n == 0 || c.s.owners[key] != c {
		return nil, 0, 0
	}
	r = c.s.regions[key]
	off, ok := r.span(va, n)
	if !ok || r.mr == nil || !c.s.nic.LoadsFor(f, key, va, n) {
		return nil, 0, 0
	}
	return r, off, n
}

// lose takes a region from the NIC whose memory the program has unmapped.
func (c *client) lose(r *region) {
	if r.mr != nil && c.s.nic.DeregMR(r.mr) == nil {
		r.mr = nil
	}
}
