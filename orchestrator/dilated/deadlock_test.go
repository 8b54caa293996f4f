// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"errors"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// TestDeadlocked: a job is in a deadlock if all ranks that have not ended rest, with no answer
// on its way to any of them and none being made; of frames only pauses may move.
func TestDeadlocked(t *testing.T) {
	rests := func(i int, replies uint64) *nodeapi.Rest {
		return &nodeapi.Rest{Resting: true, Who: []string{"rank " + string(rune('0'+i)) + " on a word"}, Replies: replies}
	}
	for name, c := range map[string]struct {
		change func(r *rankActivity)
		want   string // empty: none
	}{
		"all rest":             {func(*rankActivity) {}, "rank 0 on a word; rank 1 on a word; rank 2 on a word"},
		"one has ended":        {func(r *rankActivity) { r.over[1], r.said[1] = true, nil }, "rank 0 on a word; rank 2 on a word"},
		"all have ended":       {func(r *rankActivity) { r.over = []bool{true, true, true} }, ""},
		"one does not":         {func(r *rankActivity) { r.said[2] = nil }, ""},
		"an answer is coming":  {func(r *rankActivity) { r.replies[0]++ }, ""},
		"an answer is made":    {func(r *rankActivity) { r.busy++ }, ""},
		"one was told in time": {func(r *rankActivity) { r.replies[0], r.said[0] = 5, rests(0, 5) }, "rank 0 on a word; rank 1 on a word; rank 2 on a word"},
	} {
		r := newRankActivity(3)
		for i := range r.said {
			r.said[i], r.replies[i] = rests(i, 4), 4
		}
		c.change(&r)
		err := r.deadlocked()
		if c.want == "" != (err == nil) || err != nil && (!errors.Is(err, rankhost.ErrDeadlock) || !strings.HasSuffix(err.Error(), ": "+c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	node := func(sent, pauses uint64, held int) []counters.Node {
		return []counters.Node{{Ports: []counters.Port{{Sent: sent}}, Counts: map[string]uint64{"pauses_sent": pauses}, Live: held}}
	}
	still, held := traffic(node(10, 2, 1), 7)
	if paused, _ := traffic(node(15, 7, 1), 7); held != 1 || still[0] != paused[0] || still[1] != paused[1] {
		t.Errorf("%d frames held; %v with pauses only, %v before", held, paused, still)
	}
	if moved, _ := traffic(node(16, 7, 1), 7); moved[1] == still[1] {
		t.Error("a frame that is sent does not count")
	}
}
