package collective

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// net is an overlay of unicast connections among some ranks. When one of them fails it is
// broken off at all, and the next one has connections of its own.
type net struct {
	key     string
	members []int
	sub     *rank.Rank
	run     *relaying // of the last message
}

// relaying is one message on its way over an overlay, which a worker passes on.
type relaying struct {
	seq   int
	alg   *relay
	ended bool
	err   error
	at    vtime.Time
}

// received says whether all of the message is here, as far as the rank has looked.
func (n *net) received(seq int) bool {
	return n.run != nil && n.run.seq == seq && n.run.alg.received()
}

// received says whether all pieces of the message are here.
func (t *relay) received() bool {
	for _, s := range t.streams {
		if len(s.recv) < len(s.pieces) && s.parent >= 0 {
			return false
		}
		for _, q := range s.recv {
			if !q.OK() {
				return false
			}
		}
	}
	return len(t.streams) > 0
}

// overlay begins to pass the message in hand on over the overlay that the plan is for, if
// this rank is in it and has not begun.
func (s *safeguard) overlay() (in bool, err error) {
	h := &s.hand
	if s.halted {
		return false, nil
	}
	key, members := fmt.Sprintf("over/%d", s.plan.number), others(s.alive, s.apart...)
	if s.plan.lacking != nil && s.plan.seq == h.seq {
		key, members = key+"/rest", s.plan.lacking
	}
	if !slices.Contains(members, s.me()) || !slices.Contains(members, h.root) || len(members) < 2 {
		return false, nil
	}
	if s.net == nil || s.net.key != key {
		s.breakNet()
		sub, err := s.r.Sub(s.key("%s", key), members)
		if err != nil {
			return false, err
		}
		sub.Survive()
		// What the group has left in queues may be long in going. Each time that is not
		// waited for adds to it.
		sub.SetTimeout(s.meter.window << min(h.breaks, 5))
		s.net = &net{key: key, members: members, sub: sub}
	}
	n := s.net
	if n.run != nil && n.run.seq == h.seq {
		return true, nil
	}
	form, o := shape(ring), Options{Slices: len(members)}
	if h.n < smallBelow {
		form, o = shape(binomial), Options{Slices: 1}
	}
	run := &relaying{seq: h.seq, alg: &relay{r: n.sub, o: o, shapes: []shape{form}}}
	n.run = run
	b, size, root := h.b, h.n, slices.Index(members, h.root)
	s.r.Go("overlay", func() error {
		var t Times
		if run.err = run.alg.Begin(b, size, root); run.err == nil {
			t, run.err = run.alg.Run()
		}
		run.at, run.ended = t.Received, true
		said := ""
		if run.err != nil {
			said = run.err.Error()
		}
		s.r.Put(s.done(n, run.seq, s.me()), []byte(said))
		return nil
	})
	return true, nil
}

// done names what a rank says when it has passed a message on.
func (s *safeguard) done(n *net, seq, rank int) string {
	return s.key("%s/done/%d/%d", n.key, seq, rank)
}

// breakNet ends the overlay. What was under way in it ends with an error.
func (s *safeguard) breakNet() {
	if s.net == nil {
		return
	}
	s.net.sub.Break()
	s.net.sub.Close()
	s.net = nil
}

// relayed is overlay at the source: it returns when all members have the message, or why
// that does not come about.
func (s *safeguard) relayed() (cause string, err error) {
	if in, err := s.overlay(); err != nil || !in {
		return "", err // nobody but the source is in it
	}
	n, run := s.net, s.net.run
	s.did.Overlay++
	c := s.newCall()
	c.to = others(n.members, s.me())
	for _, i := range c.to {
		c.heard[i] = s.hear(s.done(n, run.seq, i))
	}
	broken := func() string {
		if run.ended && run.err != nil {
			return run.err.Error()
		}
		for _, i := range c.to {
			if h := c.heard[i]; h.heard && len(h.value) > 0 {
				return fmt.Sprintf("%s: %s", s.r.NameOf(i), h.value)
			}
			if why := c.dead(i); why != "" {
				return fmt.Sprintf("%s: %s", s.r.NameOf(i), why)
			}
		}
		return ""
	}
	for {
		ended := s.r.LookOver(s.r.Now().Add(pulseWindows*s.meter.window), "the overlay of "+s.label, []*rank.Rank{s.base}, func() bool {
			return broken() != "" || run.ended && c.all(func(i int) bool { return c.heard[i].heard })
		})
		if ended {
			return broken(), nil
		}
		for _, i := range c.to { // who is silent, and gone?
			if q := c.probes[i]; !c.heard[i].heard && (q == nil || q.Done()) {
				c.probe(s, i)
			}
		}
	}
}

// pulseWindows is after how many windows a source asks whether ranks that have not passed
// a message on are still there.
const pulseWindows = 10
