// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// receive waits until the current message is here, by whatever path.
func (b *Bcast) receive() error {
	m := &b.msg
	for {
		if b.members.lost() {
			return fmt.Errorf("%w: %s of rank %d", ErrLost, b.label, m.source)
		}
		if m.have {
			b.awaitOverlay()
			return nil
		}
		seen := b.protocol.acted
		if err := b.post(true); err != nil {
			return err
		}
		if !b.epochs.current.has(m.source) && !b.members.isApart(b.me()) {
			if _, err := b.overlay.join(&b.members, m); err != nil {
				return err
			}
		}
		why := fmt.Sprintf("%s of rank %d", b.label, m.source)
		rankrun.Of(b.r).LookOver(vtime.Never, why, b.views(), func() bool { return b.protocol.acted != seen || b.hasArrived() })
		if err := b.take(); err != nil {
			return err
		}
	}
}

// views returns the views of the rank whose requests the current message waits for.
func (b *Bcast) views() (all []*rank.Rank) {
	if e := b.msg.epoch; e != nil {
		all = append(all, e.view)
	}
	for _, l := range b.stragglers.lines {
		all = append(all, l.view)
	}
	return all
}

// hasArrived reports whether the current message is here, as far as the rank has looked.
func (b *Bcast) hasArrived() bool {
	m := &b.msg
	return m.have || m.recv != nil && m.recv.OK() || m.slices != nil && allOK(m.slices) || b.overlay.run.received(m.seq)
}

func allOK(all []*rank.Request) bool {
	return !slices.ContainsFunc(all, func(q *rank.Request) bool { return !q.OK() })
}

// take records the message if it has arrived, and lets the cost of receiving it pass.
func (b *Bcast) take() error {
	m := &b.msg
	if m.have || !b.hasArrived() {
		return nil
	}
	m.have = true
	var err error
	switch {
	case m.recv != nil && m.recv.OK():
		err = m.epoch.view.Wait(m.recv)
	case m.slices != nil && allOK(m.slices):
		m.apart = true
		err = m.line.view.Wait(m.slices...)
	}
	b.cameAt(b.r.Now())
	return err
}

// cameAt records when the current message was complete.
func (b *Bcast) cameAt(now vtime.Time) {
	b.msg.at = now
	b.arrived = arrival{b.msg.seq, now}
}

// awaitOverlay waits until the rank has passed the current message on to its children in the
// overlay, or need not any more.
func (b *Bcast) awaitOverlay() {
	run := b.overlay.run
	if run == nil || run.seq != b.msg.seq {
		return
	}
	b.r.Until("the overlay of "+b.label, func() bool { return run.ended || b.overlay.run != run })
}

// post posts the receives of the current message where it is going to arrive. If wait is false
// it does not wait for the source.
func (b *Bcast) post(wait bool) error {
	m := &b.msg
	switch e := b.epochs.current; {
	case m.have || m.source == b.me() || b.members.lost() || b.members.halted:
	case b.members.isApart(b.me()):
		return b.stragglers.post(m, wait)
	case m.epoch != e && e.has(m.source):
		m.epoch, m.recv = e, nil
		q, err := e.group.Recv(m.buf, 0, m.n)
		if b.epochs.current != e {
			return nil // it was left meanwhile
		}
		m.recv = q
		return err
	}
	return nil
}

// act carries out a step of another rank and returns the answer.
func (b *Bcast) act(number int, st step) (a answer) {
	var err error
	switch st.Kind {
	case kindStop:
		a.Have = b.stop(st.Seq)
	case kindPlan:
		err = b.adopt(number, st)
		a.Have = b.has(st.Seq)
	case kindTry:
		err = b.epochs.register(st.Epoch, st.Members)
	case kindProbe:
		err = b.expectTest(st)
	case kindTest:
		if c := b.epochs.candidate; st.Sender == b.me() && c != nil && c.number == st.Epoch {
			a.Err = b.sendTest(c, st.Bytes, st.Count)
		}
	case kindDrop:
		b.epochs.drop()
	case kindSample:
		a.Expected = b.sample(st.At)
		if b.arrived.seq == st.Seq {
			a.Came = b.arrived.at
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// stop leaves the group and the overlay, and reports whether the message is here. When it
// returns nothing arrives any more, and a partly received message is forgotten.
func (b *Bcast) stop(seq int) (have bool) {
	m := &b.msg
	b.members.halted = true
	b.meter.forget() // the cause of the slowness is being dealt with
	b.epochs.leaveCurrent()
	relayed := b.overlay.run
	b.overlay.close()
	if m.seq != seq {
		m.epoch, m.recv = nil, nil
		return b.has(seq)
	}
	m.interruptions++
	if m.have {
		return true
	}
	if m.recv != nil && m.recv.OK() || relayed.received(seq) {
		m.have = true
		b.cameAt(b.r.Now())
		return true
	}
	m.epoch, m.recv = nil, nil
	if !b.members.isApart(b.me()) {
		rankrun.OfBuffer(m.buf).Forget(m.n)
	}
	return false
}

// has reports whether a message is here: it is before the current one, or is the current one
// and complete.
func (b *Bcast) has(seq int) bool { return b.msg.seq > seq || b.msg.seq == seq && b.msg.have }

// adopt takes over a plan.
func (b *Bcast) adopt(number int, st step) error {
	b.stragglers.adopt(number, &b.members, st)
	b.members.adopt(number, st)
	keep := func(l *line) bool { return b.stragglers.valid(l, &b.members) }
	b.stragglers.cut(keep)
	if m := &b.msg; m.line != nil && !keep(m.line) && !m.have {
		m.slices, m.line = nil, nil
		rankrun.OfBuffer(m.buf).Forget(m.n)
	}
	if st.Epoch >= 0 {
		b.meter.forget()
		b.overlay.close()
		b.epochs.leaveCurrent()
		// A rank that has begun the next message has not set the source of this group yet.
		if b.epochs.promote(st.Epoch) && b.msg.seq > st.Seq {
			if err := b.setSource(b.msg.source); err != nil {
				return err
			}
		}
	}
	return b.post(false)
}

// sample records how far the message has come, at instants that are the same on all ranks.
func (b *Bcast) sample(from vtime.Time) (expected []uint32) {
	for k := range samples {
		due := from.Add(vtime.Duration(k) * b.meter.rtt)
		b.r.Sleep(due.Sub(b.r.Now()))
		psn := uint32(missed)
		if e := b.epochs.current; e != nil && b.r.Now() <= due.Add(b.meter.rtt/2) {
			psn = rankrun.OfGroup(e.group).Expects()
		}
		expected = append(expected, psn)
	}
	return expected
}
