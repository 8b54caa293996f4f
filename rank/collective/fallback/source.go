// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// interruptionsMax bounds how often one message is interrupted and begun again.
const interruptionsMax = 64

// send is Run at the source: it returns when all reachable ranks have the message.
func (b *Bcast) send() error {
	b.msg.have, b.msg.at = true, b.r.Now()
	for _, i := range without(b.members.apart, b.me()) {
		b.deliver(i, nil)
	}
	for tries := 0; ; tries++ {
		cause, err := b.cast()
		if err != nil {
			return err
		}
		if cause == "" {
			break
		}
		if tries == interruptionsMax {
			return fmt.Errorf("broadcast with fallback: begun %d times and never ended, last because of %s", tries, cause)
		}
		if err := b.interrupt(cause); err != nil {
			return err
		}
	}
	if err := b.endDeliveries(); err != nil {
		return err
	}
	return b.nextEpoch() // at this point no rank waits for the source
}

// cast sends the message to all ranks that lack it and are not apart. If that fails, cause is the
// reason.
func (b *Bcast) cast() (cause string, err error) {
	m := &b.msg
	lacking := b.members.lacking(m.seq)
	switch {
	case b.members.isApart(b.me()) && b.members.plan.seq != m.seq:
		return b.sendWithoutGroup()
	case b.epochs.current == nil && lacking != nil && len(lacking) < 2:
		return "", nil // no rank lacks it
	case b.epochs.current == nil:
		return b.relay()
	}
	return b.multicast()
}

// sendWithoutGroup sends the message of a source that is apart itself. It uses the overlay
// among all ranks that are not apart, and leaves the group for the messages of other sources.
func (b *Bcast) sendWithoutGroup() (cause string, err error) {
	lacking := without(b.members.alive, without(b.members.apart, b.me())...)
	if _, err := b.replan(step{Apart: b.members.apart, Lacking: lacking}); err != nil {
		return "", err
	}
	return b.relay()
}

// multicast sends the message to the group and measures its progress.
func (b *Bcast) multicast() (cause string, err error) {
	e, msg, m := b.epochs.current, &b.msg, b.meter
	first := rankrun.OfGroup(e.group).Acknowledged()
	m.begin(b.r.Now(), msg.n)
	q, err := e.group.Send(msg.buf, 0, msg.n)
	if err != nil {
		return err.Error(), nil
	}
	packets := max(1, (msg.n+m.mtu-1)/m.mtu)
	slow := func(ratio float64, full bool) string {
		if !full || ratio >= leaveBelow {
			return ""
		}
		return fmt.Sprintf("%.0f %% of normal throughput over %v", 100*ratio, m.window)
	}
	for !rankrun.Of(b.r).LookOver(m.due(), "send to "+b.label, []*rank.Rank{e.view}, q.Done) {
		share := float64(rankrun.OfGroup(e.group).Acknowledged()-first) / float64(packets)
		if cause = slow(m.look(b.r.Now(), share)); cause != "" {
			return cause, nil
		}
	}
	if err := e.view.Wait(q); err != nil {
		return err.Error(), nil
	}
	return slow(m.end(b.r.Now())), nil
}

// relay sends the message over the overlay. It returns when all members have it, or the cause
// of a failure.
func (b *Bcast) relay() (cause string, err error) {
	if in, err := b.overlay.join(&b.members, &b.msg); err != nil || !in {
		return "", err // only the source is in it
	}
	o, run := &b.overlay, b.overlay.run
	b.did.Overlay++
	c := b.protocol.newCall(without(o.members, b.me()))
	for _, i := range c.to {
		c.replies[i] = b.protocol.await(o.done(run.seq, i))
	}
	broken := func() string {
		if run.ended && run.err != nil {
			return run.err.Error()
		}
		for _, i := range c.to {
			if a := c.replies[i]; a.came && len(a.value) > 0 {
				return fmt.Sprintf("%s: %s", b.r.NameOf(i), a.value)
			}
			if why := c.unreachable(i); why != "" {
				return fmt.Sprintf("%s: %s", b.r.NameOf(i), why)
			}
		}
		return ""
	}
	for {
		ended := rankrun.Of(b.r).LookOver(b.protocol.nextCheck(), "the overlay of "+b.label, []*rank.Rank{b.base}, func() bool {
			return broken() != "" || run.ended && c.all(func(i int) bool { return c.replies[i].came })
		})
		if ended {
			return broken(), nil
		}
		for _, i := range c.to {
			if !c.replies[i].came {
				c.probeSilent(i)
			}
		}
	}
}

// interrupt makes all ranks leave the group or the overlay, and plans how the ranks that lack
// the message get it.
func (b *Bcast) interrupt(cause string) error {
	left := b.epochs.current
	var slow []int
	if b.partial && left.has(b.me()) {
		slow = b.laggards()
	}
	todo := without(b.members.together(), b.me())
	b.stop(b.msg.seq)
	c := b.protocol.tell(step{Kind: kindStop, Seq: b.msg.seq})
	apart := slices.Clone(b.members.apart)
	lacking := []int{b.me()}
	var deliver []int
	for _, i := range c.to {
		a := c.answer(i)
		switch reached := c.reached(i); {
		case !slices.Contains(todo, i): // its own connection shows whether it is reachable
		case c.unreachable(i) != "":
			b.giveUp(i, c.unreachable(i))
		case !reached || slices.Contains(slow, i):
			apart = append(apart, i)
			if a == nil || !a.Have {
				deliver = append(deliver, i)
			}
		case !a.Have:
			lacking = append(lacking, i)
		}
	}
	if len(lacking)+len(deliver) > 1 {
		b.did.Restarted++
	}
	slices.Sort(apart)
	slices.Sort(lacking)
	if left != nil {
		b.noteFallback(left, cause)
		b.epochs.backoff.Left = b.me()
		b.epochs.backoff.left(b.r.Now(), b.meter.window, b.partial || len(apart) == 0)
	}
	for _, i := range apart {
		b.stragglers.of[i].fast = false
	}
	if _, err := b.replan(step{Apart: apart, Lacking: lacking}); err != nil {
		return err
	}
	for _, i := range deliver {
		b.deliver(i, c)
	}
	return b.tryNext()
}

// sampleLead is the number of round trips from the request of a sample to the first sample.
const sampleLead = 20

// laggards returns the members of the group that hold up the others, if they are few.
func (b *Bcast) laggards() (slow []int) {
	m := b.meter
	from := b.r.Now().Add(sampleLead * m.rtt)
	c := b.protocol.tell(step{Kind: kindSample, Seq: b.msg.seq, At: from})
	members := without(b.epochs.current.members, b.me())
	floor := max(2, float64(m.rate)/8*m.rtt.Seconds()/float64(m.mtu)/4) // packets: a quarter of those in flight
	for _, place := range reportsOf(c, members).laggards(floor, m.normal(b.msg.n)) {
		slow = append(slow, members[place])
	}
	return slow
}

// replan has all ranks adopt a plan for the ranks that are alive now. Their answers show which of them
// have the current message.
func (b *Bcast) replan(st step) (*call, error) {
	st.Kind, st.Seq, st.Alive = kindPlan, b.msg.seq, b.members.alive
	if st.Epoch == 0 {
		st.Epoch = -1
	}
	number := b.protocol.acted
	c := b.protocol.tell(st)
	return c, b.adopt(number, st)
}

// noteFallback records that a group was left.
func (b *Bcast) noteFallback(e *epoch, cause string) {
	b.did.Fallbacks++
	b.did.Causes = append(b.did.Causes, cause)
	rankrun.OfGroup(e.group).NoteFallback(e.number, cause)
}

// giveUp gives a rank up.
func (b *Bcast) giveUp(i int, why string) {
	b.members.lose(i)
	b.did.Lost = append(b.did.Lost, Lost{i, b.r.NameOf(i), why})
	rankrun.Of(b.r).NoteLost(i, why)
}

// deliver begins to send the current message to a rank apart; see stragglers.deliver.
func (b *Bcast) deliver(to int, c *call) {
	b.did.Apart++
	b.stragglers.deliver(&b.msg, to, c)
}

// renewalsMax bounds how often connections with ranks apart are replaced for one message.
const renewalsMax = 64

// endDeliveries waits until the ranks apart have the message or have been given up.
func (b *Bcast) endDeliveries() error {
	s := &b.stragglers
	if len(s.deliveries) == 0 {
		return nil
	}
	s.measure(b.msg.n)
	lost := false
	for renewals := 0; ; renewals++ {
		s.await(b.protocol.newCall(nil))
		again := s.failed(b.protocol.newCall(nil), renewals < renewalsMax)
		for _, d := range s.deliveries {
			switch {
			case slices.Contains(again, d.to):
			case d.err != nil:
				why := b.members.unreachable[d.to]
				if why == "" {
					why = "what is sent to it is not acknowledged"
				}
				b.giveUp(d.to, why)
				lost = true
			case renewals > 0:
				s.of[d.to].fast = false // it had to be sent again
			default:
				s.judge(d)
			}
		}
		s.deliveries = nil
		if len(again) == 0 {
			break
		}
		// A delivery may have failed only because its last acknowledgement was lost.
		c, err := b.replan(step{Apart: b.members.apart, Renew: again})
		if err != nil {
			return err
		}
		for _, i := range again {
			s.of[i].renewed++
			b.deliver(i, c)
		}
	}
	if !lost {
		return nil
	}
	_, err := b.replan(step{Apart: b.members.apart})
	return err
}

// tryNext begins to register a group if one is wanted and its time has come.
func (b *Bcast) tryNext() error {
	members := b.epochs.wanted(&b.members, b.partial, b.stragglers.mayReturn)
	if members == nil || !b.epochs.due(b.r.Now()) {
		return nil
	}
	number := b.epochs.begun
	b.protocol.tell(step{Kind: kindTry, Seq: b.msg.seq, Epoch: number, Members: members})
	return b.epochs.register(number, members)
}

// nextEpoch runs when all ranks have the message. If a group that was registered meanwhile
// passes a test, it takes that group into use; otherwise it begins to register one.
func (b *Bcast) nextEpoch() error {
	c := b.epochs.candidate
	if c == nil {
		return b.tryNext()
	}
	how, why := c.ready(b.r.Now(), b.meter.window)
	switch how {
	case registering:
		return nil
	case registered:
		var err error
		if why, err = b.test(c); err != nil {
			return err
		}
	}
	if why == "" {
		return b.takeUp(c)
	}
	rankrun.OfGroup(c.group).NoteProbe(c.number, why)
	b.epochs.backoff.failed(b.r.Now(), b.meter.window)
	b.protocol.tell(step{Kind: kindDrop, Seq: b.msg.seq, Epoch: c.number})
	b.epochs.drop()
	return nil
}
