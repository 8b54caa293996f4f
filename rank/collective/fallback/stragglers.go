// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// stragglers are the ranks apart. The source serves each of them over a connection of its own,
// in a traffic class of the lowest priority.
type stragglers struct {
	*site

	// of is the state of each rank while it is apart.
	of []straggler

	// lines are the connections there are, of this rank as a source or as a rank apart.
	// Invariant: no two are of the same source, rank apart and plan.
	lines []*line

	// deliveries are those of the current message. Only a source has any.
	deliveries []*delivery
}

// straggler is one rank apart.
type straggler struct {
	plan    int    // number of the plan that made the rank apart, or replaced its connection
	renewed int    // how often its connection was replaced since it became apart
	fast    bool   // its connection is fast enough for the return to the group
	meter   *meter // meter of the deliveries to it; nil: none was measured
}

// line is the connection between a source and a rank apart.
type line struct {
	source, apart int
	plan          int // as of the straggler
	view          *rank.Rank
	up            bool // the connection was made
}

// delivery is one message to a rank apart. A worker sends it.
type delivery struct {
	to          int
	size, acked int   // slices of the message, and those acknowledged
	line        *line // nil: the worker has not made it yet
	timed       bool  // it is measured: no other traffic precedes it
	ended       bool
	at          vtime.Time // when it ended
	err         error
}

// adopt takes over a plan before the membership does. It records which ranks are newly apart,
// and whose connections are replaced.
func (s *stragglers) adopt(number int, m *membership, st step) {
	for _, i := range without(st.Apart, m.apart...) {
		s.of[i].plan, s.of[i].renewed = number, 0
	}
	for _, i := range st.Renew {
		s.of[i].plan = number
	}
}

// valid reports whether a line belongs to the plans in force.
func (s *stragglers) valid(l *line, m *membership) bool {
	return m.isApart(l.apart) && l.plan == s.of[l.apart].plan && !m.lost()
}

// mayReturn reports whether a rank apart may return to the group.
func (s *stragglers) mayReturn(i int) bool { return s.of[i].fast }

// line returns the connection between a source and a rank that is apart now. This rank is one
// of the two.
func (s *stragglers) line(source, apart int) (*line, error) {
	i := slices.IndexFunc(s.lines, func(l *line) bool { return l.source == source && l.apart == apart })
	if i >= 0 {
		return s.lines[i], nil
	}
	it := &s.of[apart]
	l := &line{source: source, apart: apart, plan: it.plan}
	view, err := s.r.Sub(s.key("line/%d/%d/%d", l.plan, source, apart), []int{source, apart})
	if err != nil {
		return nil, err
	}
	view.Survive()
	rankrun.Of(view).SetTrafficClass(rankrun.Of(s.r).Params().LowClass)
	// A timeout that expires while the packets only wait would send them all again, behind
	// themselves.
	rankrun.Of(view).SetTimeout(s.meter.window << min(1+it.renewed, 6))
	l.view = view
	s.lines = append(s.lines, l)
	return l, nil
}

// connect makes the connection; it waits for the peer.
func (l *line) connect(me int) (*rank.Conn, error) {
	peer := 0
	if me == l.source {
		peer = 1
	}
	c, err := l.view.Connect(peer)
	l.up = err == nil
	return c, err
}

// cut closes the lines that are not to be kept.
func (s *stragglers) cut(keep func(l *line) bool) {
	s.lines = slices.DeleteFunc(s.lines, func(l *line) bool {
		if keep(l) {
			return false
		}
		rankrun.Of(l.view).Break()
		l.view.Close()
		return true
	})
}

// A rank apart gets a message in slices of sliceBytes, or in slicesMax larger ones. At least
// two are outstanding, and so few that they fill no queue on the path.
const (
	sliceBytes = 64 << 10
	slicesMax  = 4096
)

// sliceSize returns the bytes of each slice but the last of a message of n bytes: whole
// packets.
func sliceSize(n, mtu int) int {
	packets := max(1, (n+mtu-1)/mtu)
	count := max(1, min(packets, slicesMax, (n+sliceBytes-1)/sliceBytes))
	return (packets + count - 1) / count * mtu
}

// slicesOf returns the number of slices of a message of n bytes; an empty message has one.
func slicesOf(n, mtu int) int {
	size := sliceSize(n, mtu)
	return max(1, (n+size-1)/size)
}

// sliceAt returns where a slice begins in the message, and its bytes.
func sliceAt(k, n, mtu int) (off, bytes int) {
	size := sliceSize(n, mtu)
	return k * size, min(size, n-k*size)
}

// post posts the receives of a message at a rank apart. If wait is false it does not wait for
// the source to connect.
func (s *stragglers) post(msg *message, wait bool) error {
	if msg.slices != nil {
		return nil
	}
	l, err := s.line(msg.source, s.me())
	if err != nil || !l.up && !wait {
		return err
	}
	c, err := l.connect(s.me())
	if errors.Is(err, rankhost.ErrBroken) {
		return nil // a step has closed it
	}
	if err != nil {
		return err
	}
	all := make([]*rank.Request, 0, 1)
	for k := range slicesOf(msg.n, s.meter.mtu) {
		off, n := sliceAt(k, msg.n, s.meter.mtu)
		q, err := c.Recv(msg.buf, off, n)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	msg.slices, msg.line = all, l
	return nil
}

// deliver begins to send a message to a rank apart. If there is a call it first waits for the
// rank's answer to it, which may be that the rank has the message already.
func (s *stragglers) deliver(msg *message, to int, c *call) {
	d := &delivery{to: to}
	s.deliveries = append(s.deliveries, d)
	buf, n := msg.buf, msg.n
	s.r.Go("apart", func() error {
		d.err = s.send(d, buf, n, c)
		d.at, d.ended = s.r.Now(), true
		return nil
	})
}

// send sends a message in slices, few at a time.
func (s *stragglers) send(d *delivery, buf *rank.Buffer, n int, c *call) error {
	if c != nil {
		rankrun.Of(s.r).LookOver(vtime.Never, s.r.NameOf(d.to)+" to answer", []*rank.Rank{s.base}, func() bool {
			return c.replies[d.to].came || c.unreachable(d.to) != ""
		})
		if c.unreachable(d.to) != "" {
			return ErrLost
		}
		if a := c.answer(d.to); a != nil && a.Have {
			return nil
		}
	}
	var err error
	if d.line, err = s.line(s.me(), d.to); err != nil {
		return err
	}
	conn, err := d.line.connect(s.me())
	if err != nil {
		return err
	}
	d.size = slicesOf(n, s.meter.mtu)
	bdp := int(float64(s.meter.rate) / 8 * s.meter.rtt.Seconds())
	depth := max(2, 2*bdp/sliceBytes)
	var sent []*rank.Request
	for k := 0; k < d.size || len(sent) > 0; {
		if k < d.size && len(sent) < depth {
			off, bytes := sliceAt(k, n, s.meter.mtu)
			q, err := conn.Send(buf, off, bytes)
			if err != nil {
				return err
			}
			sent = append(sent, q)
			k++
			continue
		}
		if err := d.line.view.Wait(sent[0]); err != nil {
			return err
		}
		sent = sent[1:]
		d.acked++
	}
	return nil
}

// measure begins to measure the deliveries that have not ended: from now on no other traffic
// precedes them.
func (s *stragglers) measure(n int) {
	for _, d := range s.deliveries {
		if !d.ended {
			m := s.meterOf(d.to)
			m.begin(s.r.Now(), n)
			m.share = float64(d.acked) / float64(max(1, d.size))
			d.timed = true
		}
	}
}

// await waits for the ends of all deliveries, and cancels those to unreachable ranks.
func (s *stragglers) await(c *call) {
	done := func() bool { return !slices.ContainsFunc(s.deliveries, func(d *delivery) bool { return !d.ended }) }
	for !rankrun.Of(s.r).LookOver(c.nextCheck(), fmt.Sprintf("%d ranks that are served apart", len(s.deliveries)), []*rank.Rank{s.base}, done) {
		for _, d := range s.deliveries {
			switch {
			case d.ended:
			case c.unreachable(d.to) != "" && d.line != nil:
				rankrun.Of(d.line.view).Break()
			default:
				c.probeSilent(d.to)
			}
		}
	}
}

// failed returns the ranks whose deliveries have failed although their NICs answer. The
// connection has given up, perhaps because its timeout was too short for the traffic before
// it. If may is false, deliveries may not be repeated and the result is empty.
func (s *stragglers) failed(c *call, may bool) (again []int) {
	for _, d := range s.deliveries {
		if may && d.err != nil && c.members.unreachable[d.to] == "" {
			c.to = append(c.to, d.to)
			c.probe(d.to)
		}
	}
	rankrun.Of(s.r).LookOver(vtime.Never, "adapters to answer", []*rank.Rank{s.base}, func() bool {
		return c.all(func(i int) bool { return c.unreachable(i) != "" || c.probes[i].Done() })
	})
	for _, i := range c.to {
		if c.unreachable(i) == "" {
			again = append(again, i)
		}
	}
	return again
}

// judge decides, after a delivery, whether the rank is fast enough to return to the group.
func (s *stragglers) judge(d *delivery) {
	if !d.timed {
		s.of[d.to].fast = true // although all other traffic preceded it
		return
	}
	if ratio, full := s.meterOf(d.to).look(d.at, 1); full {
		s.of[d.to].fast = ratio >= returnAbove
	}
}

func (s *stragglers) meterOf(i int) *meter {
	if s.of[i].meter == nil {
		s.of[i].meter = newMeter(s.r)
	}
	return s.of[i].meter
}
