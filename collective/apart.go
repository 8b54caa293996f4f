package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// sliceBytes is what a rank apart gets at a time, unless that were more than slicesMax
// slices. Two are under way at least, and so few that they fill no queue on the way.
const (
	sliceBytes = 64 << 10
	slicesMax  = 4096
)

// slices returns the pieces that a rank apart gets a message in.
func (s *safeguard) slices(n int) []piece {
	return cut(n, min(slicesMax, (n+sliceBytes-1)/sliceBytes), s.meter.mtu)
}

// line is a source's connection with a rank apart, in the class that waits for all others.
type line struct {
	source, apart int
	since         int // plan that made the rank apart
	sub           *rank.Rank
	up            bool
}

// line returns the connection of a source with a rank that is apart now; one of them is
// this rank.
func (s *safeguard) line(source, apart int) (*line, error) {
	i := slices.IndexFunc(s.lines, func(l *line) bool { return l.source == source && l.apart == apart })
	if i >= 0 {
		return s.lines[i], nil
	}
	l := &line{source: source, apart: apart, since: s.since[apart]}
	sub, err := s.r.Sub(s.key("line/%d/%d/%d", l.since, source, apart), []int{source, apart})
	if err != nil {
		return nil, err
	}
	sub.Survive()
	sub.SetTrafficClass(s.r.Params().LowClass)
	// A timeout that comes while the packets only wait sends them all again, behind themselves.
	sub.SetTimeout(s.meter.window << min(1+s.renewed[apart], 6))
	l.sub = sub
	s.lines = append(s.lines, l)
	return l, nil
}

// connect returns the connection itself; it waits for the other end.
func (l *line) connect(me int) (*rank.Conn, error) {
	peer := 0
	if me == l.source {
		peer = 1
	}
	c, err := l.sub.Connect(peer)
	l.up = err == nil
	return c, err
}

// cutLines ends the connections with ranks that are not apart any more.
func (s *safeguard) cutLines(keep func(l *line) bool) {
	s.lines = slices.DeleteFunc(s.lines, func(l *line) bool {
		if keep(l) {
			return false
		}
		l.sub.Break()
		l.sub.Close()
		return true
	})
}

// views returns the parts of the rank on whose requests the message in hand waits.
func (s *safeguard) views() (all []*rank.Rank) {
	if t := s.hand.tree; t != nil {
		all = append(all, t.sub)
	}
	for _, l := range s.lines {
		all = append(all, l.sub)
	}
	return all
}

// postSlices posts the receives of a rank apart. It may wait for the source to connect, but
// in Begin, where the source could not yet.
func (s *safeguard) postSlices(wait bool) error {
	h := &s.hand
	if h.slices != nil {
		return nil
	}
	l, err := s.line(h.root, s.me())
	if err != nil || !l.up && !wait {
		return err
	}
	c, err := l.connect(s.me())
	if errors.Is(err, rank.ErrBroken) {
		return nil // a step has ended it
	}
	if err != nil {
		return err
	}
	all := make([]*rank.Request, 0, 1)
	for _, p := range s.slices(h.n) {
		q, err := c.Recv(h.b, p.off, p.n)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	h.slices, h.line = all, l
	return nil
}

// feed is one message on its way to a rank apart.
type feed struct {
	to            int
	pieces, acked int
	line          *line
	timed         bool // its meter runs
	ended         bool
	at            vtime.Time
	err           error
}

// feed begins to send the message in hand to a rank apart. With a call it waits for the
// rank's answer to that first, which may be that it has the message.
func (s *safeguard) feed(i int, c *call) {
	f := &feed{to: i}
	s.feeds = append(s.feeds, f)
	s.did.Apart++
	b, n := s.hand.b, s.hand.n
	s.r.Go("apart", func() error {
		f.err = s.serve(f, b, n, c)
		f.at, f.ended = s.r.Now(), true
		return nil
	})
}

// serve sends a message in slices, few at a time.
func (s *safeguard) serve(f *feed, b *rank.Buffer, n int, c *call) error {
	if c != nil {
		s.r.LookOver(vtime.Never, s.r.NameOf(f.to)+" to answer", []*rank.Rank{s.base}, func() bool { return c.heard[f.to].heard || c.dead(f.to) != "" })
		if c.dead(f.to) != "" {
			return ErrLost
		}
		if a := c.answer(f.to); a != nil && a.Have {
			return nil
		}
	}
	var err error
	if f.line, err = s.line(s.me(), f.to); err != nil {
		return err
	}
	conn, err := f.line.connect(s.me())
	if err != nil {
		return err
	}
	pieces := s.slices(n)
	f.pieces = len(pieces)
	bdp := int(float64(s.meter.rate) / 8 * s.meter.rtt.Seconds())
	depth := max(2, 2*bdp/sliceBytes)
	var sent []*rank.Request
	for i := 0; i < len(pieces) || len(sent) > 0; {
		if i < len(pieces) && len(sent) < depth {
			q, err := conn.Send(b, pieces[i].off, pieces[i].n)
			if err != nil {
				return err
			}
			sent = append(sent, q)
			i++
			continue
		}
		if err := f.line.sub.Wait(sent[0]); err != nil {
			return err
		}
		sent = sent[1:]
		f.acked++
	}
	return nil
}

// joinFeeds returns when the ranks apart have the message, or are given up.
func (s *safeguard) joinFeeds() error {
	if len(s.feeds) == 0 {
		return nil
	}
	for _, f := range s.feeds { // from here on nothing goes before it
		if !f.ended {
			m := s.meterOf(f.to)
			m.begin(s.r.Now(), s.hand.n)
			m.share = float64(f.acked) / float64(max(1, f.pieces))
			f.timed = true
		}
	}
	lost := false
	for renewals := 0; ; renewals++ {
		s.awaitFeeds()
		again := s.failedFeeds(renewals < renewalsMax)
		for _, f := range s.feeds {
			switch {
			case slices.Contains(again, f.to):
			case f.err != nil:
				why := s.failed[f.to]
				if why == "" {
					why = "what is sent to it is not acknowledged"
				}
				s.lose(f.to, why)
				lost = true
			case renewals > 0:
				s.well[f.to] = false // it had to be sent again
			default:
				s.judge(f)
			}
		}
		s.feeds = nil
		if len(again) == 0 {
			break
		}
		// What failed may be that the source did not hear that all of it had come.
		c, err := s.replan(step{Apart: s.apart, Renew: again})
		if err != nil {
			return err
		}
		for _, i := range again {
			s.renewed[i]++
			s.feed(i, c)
		}
	}
	if !lost {
		return nil
	}
	_, err := s.replan(step{Apart: s.apart})
	return err
}

// renewalsMax bounds how often connections with ranks apart are made anew for one message.
const renewalsMax = 64

// failedFeeds returns the ranks that are to be sent the message again over a new connection:
// the one there was has given up, perhaps for want of patience with what waits before it,
// and their adapters answer.
func (s *safeguard) failedFeeds(may bool) (again []int) {
	c := s.newCall()
	for _, f := range s.feeds {
		if f.err != nil && may && s.failed[f.to] == "" {
			c.to = append(c.to, f.to)
			c.probe(s, f.to)
		}
	}
	s.r.LookOver(vtime.Never, "adapters to answer", []*rank.Rank{s.base}, func() bool {
		return c.all(func(i int) bool { return c.dead(i) != "" || c.probes[i].Done() })
	})
	for _, i := range c.to {
		if c.dead(i) == "" {
			again = append(again, i)
		}
	}
	return again
}

// judge takes down whether a rank apart is as fast as any.
func (s *safeguard) judge(f *feed) {
	if !f.timed {
		s.well[f.to] = true // while all others went before it
		return
	}
	if ratio, full := s.meterOf(f.to).look(f.at, 1); full {
		s.well[f.to] = ratio >= returnAbove
	}
}

func (s *safeguard) meterOf(i int) *meter {
	if s.meters[i] == nil {
		s.meters[i] = newMeter(s.r)
	}
	return s.meters[i]
}

// awaitFeeds waits for the ends of all feeds, and ends those that wait for a rank that is
// gone.
func (s *safeguard) awaitFeeds() {
	c := s.newCall()
	done := func() bool { return !slices.ContainsFunc(s.feeds, func(f *feed) bool { return !f.ended }) }
	for !s.r.LookOver(s.r.Now().Add(pulseWindows*s.meter.window), fmt.Sprintf("%d ranks that are served apart", len(s.feeds)), []*rank.Rank{s.base}, done) {
		for _, f := range s.feeds {
			switch q := c.probes[f.to]; {
			case f.ended:
			case c.dead(f.to) != "" && f.line != nil:
				f.line.sub.Break()
			case q == nil || q.Done():
				c.probe(s, f.to)
			}
		}
	}
}

// laggards returns the members of the group that hold up the others, if they are few: those
// that are behind at most of many looks at the message under way or, if it has arrived
// everywhere, those that got it last.
func (s *safeguard) laggards() (slow []int) {
	t, m := s.on, s.meter
	from := s.r.Now().Add(sampleLead * m.rtt)
	c := s.tell(step{Kind: stepSample, Seq: s.hand.seq, At: from})
	members := others(t.members, s.me())
	floor := max(2, float64(m.rate)/8*m.rtt.Seconds()/float64(m.mtu)/4)
	lag := c.lags(members)
	worst := slices.Max(append(slices.Clone(lag), 0))
	first, last := c.arrivals(members)
	for k, i := range members {
		a := c.answer(i)
		switch {
		case !c.settled(i) || c.dead(i) != "":
		case worst >= floor && lag[k] >= max(floor, worst/4):
		case worst < floor && last.Sub(first) >= m.normal(s.hand.n)/2 && a != nil && a.Came.Sub(first) >= last.Sub(first)/2:
		default:
			continue
		}
		slow = append(slow, i)
	}
	if len(slow) > max(1, len(members)/4) {
		return nil
	}
	return slow
}

// sampleLead is how many round trips after it is asked for the first sample is taken.
const sampleLead = 20

// lags returns how many packets each member was behind the foremost, on average.
func (c *call) lags(members []int) []float64 {
	sum, n := make([]float64, len(members)), make([]float64, len(members))
	for k := range samples {
		at := func(i int) (uint32, bool) {
			a := c.answer(i)
			if a == nil || k >= len(a.At) || a.At[k] == missed {
				return 0, false
			}
			return a.At[k], true
		}
		var top uint32
		some := false
		for _, i := range members {
			if v, ok := at(i); ok && (!some || rank.Lag(v, top) > 0) {
				top, some = v, true
			}
		}
		for j, i := range members {
			if v, ok := at(i); ok {
				sum[j] += float64(rank.Lag(top, v))
				n[j]++
			}
		}
	}
	for j := range sum {
		sum[j] /= max(1, n[j])
	}
	return sum
}

// arrivals returns when the first and the last of the members had the message, if all have.
func (c *call) arrivals(members []int) (first, last vtime.Time) {
	first = vtime.Never
	for _, i := range members {
		a := c.answer(i)
		if a == nil || a.Came == 0 {
			return 0, 0
		}
		first, last = min(first, a.Came), max(last, a.Came)
	}
	return first, last
}
