// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// TestNobodyLeft: a run ends soon after its last program, even with faults that never end: also those
// that always have a pause frame under way, or a timer of a pause that was lifted. A later program
// meets them again.
func TestNobodyLeft(t *testing.T) {
	const ms = vtime.Millisecond
	again := func(lasts, every vtime.Duration) faults.Window {
		return faults.Window{From: vtime.Time(5 * vtime.Microsecond), For: lasts, Every: every, Probability: 1}
	}
	for _, f := range []faults.Spec{
		{Kind: faults.KindPause, Priority: 3, Window: again(50*vtime.Microsecond, 100*vtime.Microsecond)},
		{Kind: faults.KindPause, Priority: 3, Window: again(400*vtime.Nanosecond, 500*vtime.Nanosecond)},
		{Kind: faults.KindPause, Priority: 3, Window: again(ms, 2*ms)},
		{Kind: faults.KindPause, Priority: 5, Window: again(100*vtime.Microsecond, 100*vtime.Microsecond)},
		{Kind: faults.KindPause, Priority: 5, Window: again(0, 0)},
		{Kind: faults.KindPauseStorm, Priority: 5, Gap: 100 * vtime.Nanosecond, Window: again(0, 0)},
		{Kind: faults.KindPauseStorm, Priority: 5, Gap: 10 * vtime.Microsecond, Window: again(20*vtime.Microsecond, 30*vtime.Microsecond)},
		{Kind: faults.KindStall, Window: again(vtime.Microsecond, 3*vtime.Microsecond)},
	} {
		f.ID = string(f.Kind)
		text := fmt.Sprintf("%s for %v every %v, gap %v", f.Kind, f.Window.For, f.Window.Every, f.Gap)
		n := checkedStar(t, 4)
		f.Nodes = []int{3}
		tl := n.NewTimeline(50 * vtime.Microsecond)
		tl.Add(0, f)
		seen := uint64(0)
		for round, hosts := range [][]int{{0, 3}, {0, 3}, {0}} {
			var ended vtime.Time
			n.Observe = func() error {
				if ended > 0 && n.now > ended.Add(50*ms) {
					return fmt.Errorf("it goes on 50 ms after the last program")
				}
				return nil
			}
			err := n.Run(Job{Name: fmt.Sprint(round), Hosts: hosts, Params: simlab.Params(), Program: func(r *rank.Rank) error {
				defer func() { ended = max(ended, r.Now()) }()
				if r.Size() == 1 { // later effects of programs before it reach no host
					r.Sleep(30 * ms)
					return nil
				}
				return sendOne(r)
			}})
			if err == nil {
				err = n.Leftover()
			}
			if err != nil {
				t.Fatalf("%s, round %d: %v", text, round, err)
			}
			if after := n.now.Sub(ended); after > ms {
				t.Errorf("%s, round %d: the run ended %v after its last program", text, round, after)
			}
			now := tl.List(n.now)[0].Seen
			if f.Window.Every > 0 && now < seen+2 {
				t.Errorf("%s, round %d: it came %d times, after %d", text, round, now, seen)
			}
			seen = now
		}
	}
}

// sendOne sends a message from rank 0 to rank 1, for which it would wait longer than that
// takes, and lets some time pass.
func sendOne(r *rank.Rank) error {
	b, err := r.Alloc(50_000, rank.MemoryBytes)
	if err != nil {
		return err
	}
	c, err := r.Connect(1 - r.ID())
	if err != nil {
		return err
	}
	do := c.Recv
	if r.ID() == 0 {
		do = c.Send
	}
	q, err := do(b, 0, b.Len())
	if err != nil {
		return err
	}
	if !r.Look(r.Now().Add(20*vtime.Millisecond), "message", nil, q.Done) {
		return fmt.Errorf("no message in 20 ms")
	}
	if err := r.Wait(q); err != nil {
		return err
	}
	r.Sleep(5 * vtime.Millisecond)
	return b.Free()
}

// TestChannelUnderWay: while a message of the out-of-band channel is under way, a run does not end,
// however often a fault comes meanwhile; and when nothing but faults is to come, it does.
func TestChannelUnderWay(t *testing.T) {
	for _, f := range []faults.Spec{
		{Kind: faults.KindStall, Window: faults.Window{For: vtime.Microsecond, Every: 3 * vtime.Microsecond, Probability: 1}},
		{Kind: faults.KindPause, Priority: 5, Window: faults.Window{For: 500 * vtime.Nanosecond, Every: 5 * vtime.Microsecond, Probability: 1}},
	} {
		f.ID, f.Nodes = string(f.Kind), []int{3}
		g, err := topo.Star(4, simlab.Link())
		if err != nil {
			t.Fatal(err)
		}
		c := labConfig(g)
		c.OutOfBand = 200 * vtime.Microsecond
		n := newLab(t, c)
		n.NewTimeline(50*vtime.Microsecond).Add(0, f)
		for _, forever := range []bool{false, true} {
			err := n.Run(Job{Name: fmt.Sprint(forever), Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
				key := fmt.Sprint(r.ID())
				r.Put(key, []byte("value"))
				r.Sync()
				if got := r.Get(fmt.Sprint(1 - r.ID())); string(got) != "value" {
					return fmt.Errorf("%q", got)
				}
				if forever {
					r.Get("what nobody puts")
				}
				return nil
			}})
			if forever != errors.Is(err, rankhost.ErrDeadlock) || !forever && err != nil {
				t.Errorf("%s, waiting for ever %v: %v", f.Kind, forever, err)
			}
		}
	}
}
