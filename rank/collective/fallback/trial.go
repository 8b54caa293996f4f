// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Bounds of a test of a group.
const (
	testsMax     = 4096     // messages
	testBytesMax = 64 << 20 // of each message

	// testWindows is the number of windows that a test fills, all its senders together. Random loss
	// spares a window now and then, so one good window proves little.
	testWindows = 4
)

// testBytes is the largest size of the messages that a group is tested with: one window at
// line rate, but no less than 64 packets.
func (s *site) testBytes() int {
	n := int(float64(s.meter.rate) / 8 * s.meter.window.Seconds())
	return max(64*s.meter.mtu, min(n, testBytesMax))
}

// testOf returns the messages of each sender of a test after messages of the given size: as many
// messages of that size, one after the other, as normally fill its share of the windows. If only the
// ends of messages are at risk, a test has as many ends as real traffic.
func (s *site) testOf(bytes, senders int) (n, count int) {
	n = min(bytes, s.testBytes())
	windows := vtime.Duration((testWindows + senders - 1) / senders)
	return n, min(testsMax, int(windows*s.meter.window/s.meter.normal(n))+1)
}

// test has some members send test data to a group, and returns why the group is not good
// enough, or "".
func (b *Bcast) test(c *epoch) (why string, err error) {
	b.did.Probes++
	senders := c.senders(&b.members, b.epochs.backoff.Left)
	for _, i := range senders {
		if why, err = b.testFrom(c, i, len(senders)); err != nil || why != "" {
			return why, err
		}
	}
	return "", nil
}

// testFrom is the part of a test in which one member sends.
func (b *Bcast) testFrom(e *epoch, sender, senders int) (why string, err error) {
	n, count := b.testOf(b.msg.n, senders)
	st := step{Kind: kindProbe, Seq: b.msg.seq, Epoch: e.number, Sender: sender, Bytes: n, Count: count}
	c := b.protocol.tell(st)
	for _, i := range without(e.members, b.me()) {
		switch a := c.answer(i); {
		case !c.settled(i):
			return b.r.NameOf(i) + " does not answer", nil
		case c.unreachable(i) != "":
			return b.r.NameOf(i) + ": " + c.unreachable(i), nil
		case a == nil || a.Err != "":
			return b.r.NameOf(i) + " cannot take part", nil
		}
	}
	if err := b.expectTest(st); err != nil {
		return "", err
	}
	if sender == b.me() {
		return b.sendTest(e, n, count), nil
	}
	st.Kind = kindTest
	a := b.protocol.tell(st).answer(sender)
	if a == nil {
		return b.r.NameOf(sender) + " does not answer", nil
	}
	return a.Err, nil
}

// sendTest sends the messages of a test, one after the other.
func (b *Bcast) sendTest(e *epoch, n, count int) (why string) {
	whole := float64(count) * float64(b.meter.normal(n))
	limit := b.r.Now().Add(vtime.Picoseconds(whole / returnAbove))
	for k := range count {
		q, err := e.group.Send(b.scratch, 0, n)
		if err != nil {
			return err.Error()
		}
		if !rankrun.Of(b.r).LookOver(limit, "test of "+b.label, []*rank.Rank{e.view}, q.Done) {
			return fmt.Sprintf("a test had %.0f %% of normal throughput, %.0f are needed", 100*returnAbove*float64(k)/float64(count), 100*returnAbove)
		}
		if q.Err() != nil {
			return q.Err().Error()
		}
	}
	return ""
}

// expectTest prepares the rank for a test, as its sender or as a receiver. A rank that is not
// in the group does nothing.
func (b *Bcast) expectTest(st step) error {
	c := b.epochs.candidate
	if c == nil && (b.members.lost() || b.members.isApart(b.me())) {
		return nil
	}
	if c == nil || c.number != st.Epoch {
		return fmt.Errorf("there is no group of epoch %d", st.Epoch)
	}
	if err := c.group.SetSource(slices.Index(c.members, st.Sender)); err != nil {
		return err
	}
	for range st.Count {
		if st.Sender == b.me() {
			break
		}
		if _, err := c.group.Recv(b.scratch, 0, st.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// takeUp has all ranks use a group from the next message on.
func (b *Bcast) takeUp(e *epoch) error {
	apart := without(b.members.alive, e.members...)
	b.epochs.backoff.Returned = b.r.Now()
	b.did.Returns++
	var names []string
	for _, i := range apart {
		names = append(names, b.r.NameOf(i))
	}
	text := ""
	if len(names) > 0 {
		text = "without " + strings.Join(names, ", ")
	}
	rankrun.OfGroup(e.group).NoteReturn(e.number, text)
	_, err := b.replan(step{Epoch: e.number, Apart: apart})
	return err
}
