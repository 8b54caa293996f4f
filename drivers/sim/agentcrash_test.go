// SPDX-License-Identifier: Apache-2.0

package sim

// What the simulator does with the tasks of a host whose agent crashes, and when the next job begins.

import (
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
)

// TestAgentCrash: programs on a host whose agent crashes end with the reason, others continue; and no
// program begins while an agent is away, except on a host that is dead.
func TestAgentCrash(t *testing.T) {
	const begins, lasts, reconverge = 10 * vtime.Microsecond, 5 * vtime.Millisecond, vtime.Microsecond
	sleep := func(r *rank.Rank) error { r.Sleep(2 * begins); return nil }
	cross := func(r *rank.Rank) error { return simlab.Cross(r, 1<<20) }
	for _, c := range []struct {
		name  string
		kind  faults.Kind
		node  int // 0 and 1 are hosts
		hosts []int
		dies  bool
		until vtime.Duration // when the next program may begin
	}{
		{"its own host", faults.KindAgentCrash, 0, []int{0}, true, begins + lasts + reconverge},
		{"another host", faults.KindAgentCrash, 1, []int{0}, false, begins + lasts + reconverge},
		{"the switch", faults.KindAgentCrash, -1, []int{0, 1}, false, begins + lasts + reconverge},
		{"another host that is dead", faults.KindCrash, 1, []int{0}, false, 2 * begins},
	} {
		n := newStar(t)
		if c.node < 0 {
			c.node = n.Graph().Hosts
		}
		tl := n.NewTimeline(reconverge)
		tl.Add(0, faults.Spec{ID: "f", Kind: c.kind, Window: faults.Window{From: vtime.Time(begins), For: lasts}, Nodes: []int{c.node}})
		err := n.Run(Job{Name: "first", Hosts: c.hosts, Params: simlab.Params(), Program: sleep})
		if errors.Is(err, ErrCrashed) != c.dies || err != nil && !c.dies {
			t.Errorf("%s: %v", c.name, err)
		}
		if n.Now() != vtime.Time(c.until) {
			t.Errorf("%s: the next program may begin at %v, want %v", c.name, n.Now(), c.until)
		}
		if c.kind == faults.KindCrash {
			continue
		}
		if st := tl.List(n.Now())[0]; st.On || !st.Over || st.Seen != 1 {
			t.Errorf("%s: %+v", c.name, st)
		}
		if err := n.Run(Job{Name: "second", Hosts: []int{0, 1}, Params: simlab.Params(), Program: cross}); err != nil {
			t.Errorf("%s: afterwards: %v", c.name, err)
		}
	}
}
