package collective

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// interruptsMax bounds how often one message is begun again.
const interruptsMax = 64

// receive returns when the message in hand is here, whatever way it comes.
func (s *safeguard) receive() error {
	h := &s.hand
	for {
		if s.lost {
			return fmt.Errorf("%w: %s of rank %d", ErrLost, s.label, h.root)
		}
		if h.have {
			return s.pass()
		}
		seen := s.step
		if err := s.post(true); err != nil {
			return err
		}
		if off := s.on == nil || !slices.Contains(s.on.members, h.root); off && !slices.Contains(s.apart, s.me()) {
			if _, err := s.overlay(); err != nil {
				return err
			}
		}
		s.r.LookOver(vtime.Never, fmt.Sprintf("%s of rank %d", s.label, h.root), s.views(), func() bool { return s.step != seen || s.arrived() })
		if err := s.take(); err != nil {
			return err
		}
	}
}

// arrived says whether the message is here, as far as the rank has looked.
func (s *safeguard) arrived() bool {
	h := &s.hand
	return h.have || h.recv != nil && h.recv.OK() || h.slices != nil && allOK(h.slices) || s.net != nil && s.net.received(h.seq)
}

func allOK(all []*rank.Request) bool {
	return !slices.ContainsFunc(all, func(q *rank.Request) bool { return !q.OK() })
}

// take notes that the message is here, if it is, and lets the cost of receiving it pass.
func (s *safeguard) take() error {
	h := &s.hand
	if h.have || !s.arrived() {
		return nil
	}
	h.have = true
	var err error
	switch {
	case h.recv != nil && h.recv.OK():
		err = h.tree.sub.Wait(h.recv)
	case h.slices != nil && allOK(h.slices):
		h.apart = true
		err = h.line.sub.Wait(h.slices...)
	}
	h.at = s.r.Now()
	s.came = arrival{h.seq, h.at}
	return err
}

// pass returns when the rank has passed the message on to those that get it from here, or
// need not any more.
func (s *safeguard) pass() error {
	n := s.net
	if n == nil || n.run == nil || n.run.seq != s.hand.seq {
		return nil
	}
	s.r.Until("the overlay of "+s.label, func() bool { return n.run.ended || s.net != n })
	return nil
}

// post posts the receives of the message in hand where it is to come. wait says that it may
// wait for the source.
func (s *safeguard) post(wait bool) (err error) {
	h := &s.hand
	switch t := s.on; {
	case h.have || h.root == s.me() || s.lost || s.halted:
	case slices.Contains(s.apart, s.me()):
		return s.postSlices(wait)
	case t != nil && h.tree != t && slices.Contains(t.members, h.root):
		h.tree, h.recv = t, nil
		q, err := t.g.Recv(h.b, 0, h.n)
		if s.on != t {
			return nil // it was left meanwhile
		}
		h.recv = q
		return err
	}
	return nil
}

// send is Run at the source: it returns when all have the message who can be reached.
func (s *safeguard) send() error {
	h := &s.hand
	h.have, h.at = true, s.r.Now()
	for _, i := range others(s.apart, s.me()) {
		s.feed(i, nil)
	}
	for tries := 0; ; tries++ {
		cause, err := s.cast()
		if err != nil {
			return err
		}
		if cause == "" {
			break
		}
		if tries == interruptsMax {
			return fmt.Errorf("broadcast with fallback: begun %d times and never ended, last because of %s", tries, cause)
		}
		if err := s.interrupt(cause); err != nil {
			return err
		}
	}
	if err := s.joinFeeds(); err != nil {
		return err
	}
	return s.settle() // now nobody waits for this
}

// cast sends the message to all that are not apart and lack it. A cause is why that did not
// work.
func (s *safeguard) cast() (cause string, err error) {
	switch {
	case slices.Contains(s.apart, s.me()) && s.plan.seq != s.hand.seq:
		return s.besides()
	case s.on == nil && s.plan.lacking != nil && s.plan.seq == s.hand.seq && len(s.plan.lacking) < 2:
		return "", nil // nobody
	case s.on == nil:
		return s.relayed()
	}
	return s.multicast()
}

// besides sends the message of a source that is apart itself: by the overlay, to all that are
// not. The group is left as it is, for the messages of others.
func (s *safeguard) besides() (cause string, err error) {
	if _, err := s.replan(step{Apart: s.apart, Lacking: others(s.alive, others(s.apart, s.me())...)}); err != nil {
		return "", err
	}
	return s.relayed()
}

// multicast sends the message to the group, and looks on.
func (s *safeguard) multicast() (cause string, err error) {
	t, h, m := s.on, &s.hand, s.meter
	first := t.g.Acknowledged()
	m.begin(s.r.Now(), h.n)
	q, err := t.g.Send(h.b, 0, h.n)
	if err != nil {
		return err.Error(), nil
	}
	packets := max(1, (h.n+m.mtu-1)/m.mtu)
	slow := func(ratio float64, full bool) string {
		if !full || ratio >= leaveBelow {
			return ""
		}
		return fmt.Sprintf("%.0f %% of normal throughput over %v", 100*ratio, m.window)
	}
	for !s.r.LookOver(m.due(), "send to "+s.label, []*rank.Rank{t.sub}, q.Done) {
		share := float64(t.g.Acknowledged()-first) / float64(packets)
		if cause = slow(m.look(s.r.Now(), share)); cause != "" {
			return cause, nil
		}
	}
	if err := t.sub.Wait(q); err != nil {
		return err.Error(), nil
	}
	return slow(m.end(s.r.Now())), nil
}

// interrupt makes all ranks leave the group, or the overlay, and plans how those that lack
// the message get it.
func (s *safeguard) interrupt(cause string) error {
	h, left := &s.hand, s.on
	var slow []int
	if s.partial && left != nil && slices.Contains(left.members, s.me()) {
		slow = s.laggards()
	}
	todo := others(s.alive, append(slices.Clone(s.apart), s.me())...)
	s.stop(h.seq)
	c := s.tell(step{Kind: stepStop, Seq: h.seq})
	apart := slices.Clone(s.apart)
	lacking := []int{s.me()}
	var feeds []int
	for _, i := range c.to {
		a := c.answer(i)
		switch reached := c.settled(i) && c.dead(i) == ""; {
		case !slices.Contains(todo, i): // its own connection tells
		case c.dead(i) != "":
			s.lose(i, c.dead(i))
		case !reached || slices.Contains(slow, i):
			apart = append(apart, i)
			if a == nil || !a.Have {
				feeds = append(feeds, i)
			}
		case !a.Have:
			lacking = append(lacking, i)
		}
	}
	if len(lacking)+len(feeds) > 1 {
		s.did.Restarted++
	}
	slices.Sort(apart)
	slices.Sort(lacking)
	if left != nil {
		s.fell(left, cause)
		s.back.Who = s.me()
		s.back.left(s.r.Now(), s.meter.window, s.partial || len(apart) == 0)
	}
	for _, i := range apart {
		s.well[i] = false
	}
	if _, err := s.replan(step{Apart: apart, Lacking: lacking}); err != nil {
		return err
	}
	for _, i := range feeds {
		s.feed(i, c)
	}
	return s.tryNext()
}

// replan has all ranks take over a plan for what is alive now. Their answers say who has the
// message in hand.
func (s *safeguard) replan(st step) (*call, error) {
	st.Kind, st.Seq, st.Alive = stepPlan, s.hand.seq, s.alive
	if st.Epoch == 0 {
		st.Epoch = -1
	}
	number := s.step
	c := s.tell(st)
	return c, s.adopt(number, st)
}

// fell notes that the group was left.
func (s *safeguard) fell(t *tree, cause string) {
	s.did.Fallbacks++
	s.did.Causes = append(s.did.Causes, cause)
	t.g.NoteFallback(t.epoch, cause)
}

// lose gives a rank up.
func (s *safeguard) lose(i int, why string) {
	s.alive, s.apart = others(s.alive, i), others(s.apart, i)
	s.did.Lost = append(s.did.Lost, Lost{i, s.r.NameOf(i), why})
	s.r.NoteLost(i, why)
}

// stop leaves the group and the overlay. It says whether a message is here. When it returns
// nothing comes any more, and what came of one that is not here is forgotten.
func (s *safeguard) stop(seq int) (have bool) {
	h := &s.hand
	s.halted = true
	s.meter.forget() // what was slow is dealt with
	s.leave(s.on)
	s.on = nil
	n := s.net
	s.breakNet()
	if h.seq != seq {
		h.tree, h.recv = nil, nil
		return s.has(seq)
	}
	h.breaks++
	if h.have {
		return true
	}
	if h.recv != nil && h.recv.OK() || n != nil && n.received(seq) {
		h.have, h.at = true, s.r.Now()
		s.came = arrival{seq, h.at}
		return true
	}
	h.tree, h.recv = nil, nil
	if !slices.Contains(s.apart, s.me()) {
		h.b.Forget(h.n)
	}
	return false
}

// has says whether a message is here: it is of those before the one in hand.
func (s *safeguard) has(seq int) bool { return s.hand.seq > seq || s.hand.seq == seq && s.hand.have }

// leave takes the rank out of a group: its queue pair is gone, and what it had received is
// known.
func (s *safeguard) leave(t *tree) {
	if t == nil {
		return
	}
	t.dropped = true
	if s.me() == t.members[0] {
		_ = t.g.Drop() // switches that cannot be told keep it, and nothing is sent to it any more
	} else {
		t.g.Abandon()
	}
	s.r.LookOver(0, "", []*rank.Rank{t.sub}, func() bool { return true })
	if t.over { // else its registration goes on, and leaves it at its end
		t.sub.Close()
	}
}

// adopt takes a plan over.
func (s *safeguard) adopt(number int, st step) error {
	for _, i := range append(others(st.Apart, s.apart...), st.Renew...) {
		s.since[i] = number
	}
	for _, i := range others(st.Apart, s.apart...) {
		s.renewed[i] = 0
	}
	s.alive, s.apart = st.Alive, st.Apart
	s.lost, s.halted = !slices.Contains(s.alive, s.me()), false
	keep := func(l *line) bool { return slices.Contains(s.apart, l.apart) && l.since == s.since[l.apart] && !s.lost }
	s.cutLines(keep)
	if h := &s.hand; h.line != nil && !keep(h.line) && !h.have {
		h.slices, h.line = nil, nil
		h.b.Forget(h.n)
	}
	s.plan = plan{number: number, seq: st.Seq, lacking: st.Lacking}
	if st.Epoch >= 0 {
		s.meter.forget()
		s.breakNet()
		s.leave(s.on)
		s.on = nil
		if t := s.next; t != nil && t.epoch == st.Epoch {
			s.on, s.next = t, nil
			// Who has begun the next message has not told this group of its source.
			if at := slices.Index(t.members, s.hand.root); s.hand.seq > st.Seq && at >= 0 {
				if err := t.g.SetSource(at); err != nil {
					return err
				}
			}
		}
	}
	return s.post(false)
}
