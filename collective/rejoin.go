package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// comeback says when a group is tried again. It is what keeps ranks from going to and fro:
// each try that fails doubles the time to the next, and so does a group that was come back
// to and left again soon.
type comeback struct {
	Hold     vtime.Duration `json:"hold"`
	At       vtime.Time     `json:"at"`       // nothing is tried before
	Returned vtime.Time     `json:"returned"` // when the group was last come back to; 0: never
	Who      int            `json:"who"`      // the source that left it, whose tests count: what is slow from there may not be from elsewhere; -1: none
}

// The hold, in windows: at first, and at most. A group that was left within steadyHolds
// holds after it was come back to was left soon.
const (
	holdWindows    = 10
	holdWindowsMax = 1000
	steadyHolds    = 4
)

// failed says that a try came to nothing.
func (c *comeback) failed(now vtime.Time, window vtime.Duration) {
	c.At = now.Add(c.Hold)
	c.Hold = min(2*c.Hold, holdWindowsMax*window)
}

// left says that the group was left. The first try comes at once, if that makes sense.
func (c *comeback) left(now vtime.Time, window vtime.Duration, soon bool) {
	if c.Returned > 0 && now.Sub(c.Returned) < steadyHolds*c.Hold {
		c.Hold, soon = min(2*c.Hold, holdWindowsMax*window), false
	} else {
		c.Hold = holdWindows * window
	}
	c.At = now
	if !soon {
		c.At = now.Add(c.Hold)
	}
}

// stuckWindows is after how many windows a registration that has not ended is given up. The
// registrar itself gives up sooner, unless a member never joins.
const stuckWindows = 1000

// register begins to register a group of these ranks in a new epoch: with a new McstID and
// new queue pairs, so that nothing that is still under way in an old one can be taken for
// the new one's.
func (s *safeguard) register(epoch int, members []int) error {
	s.dropNext()
	s.epochs = epoch + 1
	if !slices.Contains(members, s.me()) {
		return nil
	}
	sub, err := s.r.Sub(s.key("epoch/%d", epoch), members)
	if err != nil {
		return err
	}
	sub.Survive()
	t := &tree{epoch: epoch, members: members, sub: sub, g: sub.PrepareGroup("tree", 0), since: s.r.Now()}
	s.next = t
	s.r.Go("registration", func() error {
		t.err = t.g.Join()
		t.over = true
		if t.dropped {
			s.leave(t) // now there is something to leave
		}
		return nil
	})
	return nil
}

// dropNext forgets the group that was to be used next.
func (s *safeguard) dropNext() {
	s.leave(s.next)
	s.next = nil
}

// wanted returns who is to be in the group, or nil if there is nothing to try.
func (s *safeguard) wanted() []int {
	members := s.alive
	if s.partial {
		members = slices.DeleteFunc(slices.Clone(members), func(i int) bool { return slices.Contains(s.apart, i) && !s.well[i] })
	}
	if len(members) < 2 || !slices.Contains(members, s.me()) || s.on != nil && slices.Equal(s.on.members, members) {
		return nil
	}
	return members
}

// tryNext begins to register a group if one is wanted and its time has come.
func (s *safeguard) tryNext() error {
	members := s.wanted()
	if s.next != nil || members == nil || s.r.Now() < s.back.At {
		return nil
	}
	epoch := s.epochs
	s.tell(step{Kind: stepTry, Seq: s.hand.seq, Epoch: epoch, Members: members})
	return s.register(epoch, members)
}

// settle is what the source does when all have the message: it takes a group into use that was
// registered meanwhile, if a test of it goes well, or has one registered.
func (s *safeguard) settle() error {
	t := s.next
	if t == nil {
		return s.tryNext()
	}
	why, stuck := "", s.r.Now() > t.since.Add(stuckWindows*s.meter.window)
	switch {
	case !t.over && !stuck:
		return nil
	case !t.over:
		why = "its registration does not end"
	case t.err != nil:
		why = t.err.Error()
	default:
		var err error
		if why, err = s.test(t); err != nil {
			return err
		}
	}
	if why == "" {
		return s.takeUp(t)
	}
	t.g.NoteProbe(t.epoch, why)
	s.back.failed(s.r.Now(), s.meter.window)
	s.tell(step{Kind: stepDrop, Seq: s.hand.seq, Epoch: t.epoch})
	s.dropNext()
	return nil
}

// testsMax bounds the messages of a test.
const testsMax = 4096

// probeBytes is the size of the messages that a group is tested with at the most: a window's
// worth at line rate, but no less than 64 packets and no more than 64 MiB.
func (s *safeguard) probeBytes() int {
	n := int(float64(s.meter.rate) / 8 * s.meter.window.Seconds())
	return max(64*s.meter.mtu, min(n, 64<<20))
}

// testWindows is how many windows a test fills, all its sources together. Random loss leaves
// a window alone now and then: one that went well says little.
const testWindows = 4

// testOf returns what a group is tested with by each of some sources: as many messages like
// the one in hand, one after the other, as normally fill so many windows. Where only the
// ends of messages are in danger, a test has as many of them as they would.
func (s *safeguard) testOf(sources int) (n, count int) {
	n = min(s.hand.n, s.probeBytes())
	windows := vtime.Duration((testWindows + sources - 1) / sources)
	return n, min(testsMax, int(windows*s.meter.window/s.meter.normal(n))+1)
}

// testers returns the members that test a group: the one that left multicast, and those
// that were sources lately. What works from here may not from elsewhere.
func (s *safeguard) testers(t *tree) (sources []int) {
	add := func(i int) {
		if slices.Contains(t.members, i) && !slices.Contains(sources, i) && len(sources) < testWindows {
			sources = append(sources, i)
		}
	}
	add(s.back.Who)
	add(s.me())
	for _, i := range slices.Backward(s.roots) {
		add(i)
	}
	return sources
}

// test has some members send to a group what does not matter, and returns why the group is
// not good enough.
func (s *safeguard) test(t *tree) (why string, err error) {
	s.did.Probes++
	sources := s.testers(t)
	for _, i := range sources {
		if why, err = s.testFrom(t, i, len(sources)); err != nil || why != "" {
			return why, err
		}
	}
	return "", nil
}

// testFrom is the part of a test in which one member is the source.
func (s *safeguard) testFrom(t *tree, source, sources int) (why string, err error) {
	n, count := s.testOf(sources)
	st := step{Kind: stepProbe, Seq: s.hand.seq, Epoch: t.epoch, Source: source, Bytes: n, Count: count}
	c := s.tell(st)
	for _, i := range others(t.members, s.me()) {
		switch a := c.answer(i); {
		case !c.settled(i):
			return s.r.NameOf(i) + " does not answer", nil
		case c.dead(i) != "":
			return s.r.NameOf(i) + ": " + c.dead(i), nil
		case a == nil || a.Err != "":
			return s.r.NameOf(i) + " cannot take part", nil
		}
	}
	if err := s.expectProbe(st); err != nil {
		return "", err
	}
	if source == s.me() {
		return s.sendTest(t, n, count), nil
	}
	st.Kind = stepTest
	a := s.tell(st).answer(source)
	if a == nil {
		return s.r.NameOf(source) + " does not answer", nil
	}
	return a.Err, nil
}

// sendTest sends the messages of a test, one after the other.
func (s *safeguard) sendTest(t *tree, n, count int) (why string) {
	whole := float64(count) * float64(s.meter.normal(n))
	limit := s.r.Now().Add(vtime.Picoseconds(whole / returnAbove))
	for k := range count {
		q, err := t.g.Send(s.scratch, 0, n)
		if err != nil {
			return err.Error()
		}
		if !s.r.LookOver(limit, "test of "+s.label, []*rank.Rank{t.sub}, q.Done) {
			return fmt.Sprintf("a test had %.0f %% of normal throughput, %.0f are needed", 100*returnAbove*float64(k)/float64(count), 100*returnAbove)
		}
		if q.Err() != nil {
			return q.Err().Error()
		}
	}
	return ""
}

// expectProbe makes the rank ready for a test, as its source or a receiver.
func (s *safeguard) expectProbe(st step) error {
	t := s.next
	if t == nil && !slices.Contains(s.alive, s.me()) || t == nil && slices.Contains(s.apart, s.me()) {
		return nil
	}
	if t == nil || t.epoch != st.Epoch {
		return fmt.Errorf("there is no group of epoch %d", st.Epoch)
	}
	if err := t.g.SetSource(slices.Index(t.members, st.Source)); err != nil {
		return err
	}
	for range st.Count {
		if st.Source == s.me() {
			break
		}
		if _, err := t.g.Recv(s.scratch, 0, st.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// takeUp has all ranks use a group from the next message on.
func (s *safeguard) takeUp(t *tree) error {
	apart := others(s.alive, t.members...)
	s.back.Returned = s.r.Now()
	s.did.Returns++
	var without []string
	for _, i := range apart {
		without = append(without, s.r.NameOf(i))
	}
	text := ""
	if len(without) > 0 {
		text = "without " + strings.Join(without, ", ")
	}
	t.g.NoteReturn(t.epoch, text)
	_, err := s.replan(step{Epoch: t.epoch, Apart: apart})
	return err
}
