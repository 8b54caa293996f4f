// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// handOver continues a timeline from its saved state, as another process would.
func handOver(t *testing.T, old *Timeline, now vtime.Time, specs []Spec) (*script, *Timeline) {
	t.Helper()
	var b bytes.Buffer
	left, err := old.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := gob.NewEncoder(&b).Encode(left); err != nil {
		t.Fatal(err)
	}
	var st State
	if err := gob.NewDecoder(&b).Decode(&st); err != nil {
		t.Fatal(err)
	}
	s := &script{links: map[topo.End]Link{}, now: now}
	tl := NewTimeline(old.c, Target{s, s, s, s, s})
	tl.Resume(now, specs, st)
	return s, tl
}

// TestState: a timeline that is moved to another process at any instant has the same effects there as
// in its own, on frames too, and the same counters in the end.
func TestState(t *testing.T) {
	const end = 400
	specs := []Spec{
		{ID: "flap", Kind: KindLinkDown, Window: Window{From: 20, For: 15, Every: 60}, Links: []int{1}},
		{ID: "agent", Kind: KindAgentCrash, Window: Window{From: 50, For: 120}, Nodes: []int{1}},
		{ID: "lossy", Kind: KindLoss, Window: Window{From: 5, For: 30, Every: 40, Probability: 0.7}, Ends: []topo.End{{Node: 3}},
			Frames: Impairment{Burst: &Burst{ToBad: 0.3, ToGood: 0.3, LossGood: 0.2, LossBad: 0.7}}},
		{ID: "late", Kind: KindDelay, Window: Window{From: 10}, Ends: []topo.End{{Node: 3}}, Frames: Impairment{Hold: 3, Jitter: 20}},
		{ID: "slow", Kind: KindSlowReceiver, Window: Window{From: 30, For: 200}, Nodes: []int{2}, Rate: 7},
		{ID: "cut", Kind: KindRateCut, Window: Window{From: 60, For: 100}, Links: []int{0}, Rate: 5},
		{ID: "storm", Kind: KindPauseStorm, Window: Window{From: 7, For: 150}, Nodes: []int{0}, Gap: 11},
		{ID: "pause", Kind: KindPause, Window: Window{From: 90, For: 60}, Nodes: []int{2}},
		{ID: "stall", Kind: KindStall, Window: Window{From: 100}, Nodes: []int{0}},
		{ID: "wipe", Kind: KindWipe, Window: Window{From: 13, Every: 50}, Nodes: []int{3}},
	}
	arrive := func(s *script, from, to vtime.Time) {
		for at := from; at < to; at += 2 {
			s.until(at)
			for _, e := range []topo.End{{Node: 3}, {Node: 1}, {Node: 3, Port: 1}} {
				if l := s.links[e]; l != nil {
					s.say(at, "frame at %v: %+v", e, l.Arrive(at, frame()))
				}
			}
		}
	}
	for _, cut := range []vtime.Time{0, 6, 20, 27, 50, 64, 101, 144, 151, 170, 172, 250, 380} {
		whole, tl := play(t, 0, specs...)
		arrive(whole, 0, cut)
		done := len(whole.lines)
		now := whole.now
		second, went := handOver(t, tl, now, specs)
		resumed := second.lines
		second.lines = nil
		arrive(whole, cut, end)
		arrive(second, cut, end)
		if got, want := strings.Join(second.lines, "\n"), strings.Join(whole.lines[done:], "\n"); got != want {
			t.Errorf("after %v:\n%s\nwant\n%s", cut, got, want)
		}
		if got, want := went.List(end), tl.List(end); !reflect.DeepEqual(got, want) {
			t.Errorf("after %v it has counted\n%+v\nwant\n%+v", cut, got, want)
		}
		told := fmt.Sprint(resumed)
		for what, on := range map[string]bool{ // independent of each other
			"carrier 1:0 false": now >= 50 && now < 170 || (now+40)%60 < 15 && now >= 20, "intake 2 7": now >= 30 && now < 230,
			"rate 0:0 5": now >= 60 && now < 160, "stall 0 true": now >= 100,
		} {
			if strings.Contains(told, what) != on {
				t.Errorf("at %v the new target is told %s", now, told)
			}
		}
	}
}
