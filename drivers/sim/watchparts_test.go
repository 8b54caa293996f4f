// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/traces"
)

// TestPartsWatched: the traces of a lab in parts have the lines of the trace of the whole, for each
// node: of frames that leave a part, of those that stay, and of those that a fault drops at either end.
func TestPartsWatched(t *testing.T) {
	cfg := dividedConfig(t, 3)
	watched := func() (*Config, func() string) {
		c, lines := cfg, []string{}
		all := make([]*traces.Recorder, len(c.Graph.Nodes))
		for i := range all {
			all[i] = traces.NewRecorder(c.Graph.Nodes[i].Name, nil, func(l *traces.Line) {
				b, err := json.Marshal(l)
				if err != nil {
					t.Error(err)
				}
				lines = append(lines, string(b))
			})
		}
		c.Trace = func(node int) machine.Tracer { return all[node] }
		c.Watch = func(node int) machine.Watcher { return all[node] }
		return &c, func() string {
			for _, r := range all {
				r.Flush()
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
	}
	loss := func(n *Net) {
		for id := range n.Ports() {
			n.SetFault(id, &faults.Impairment{Window: faults.Window{From: vtime.Time(50 * vtime.Microsecond)}, Loss: 0.1, Random: n.random.Derive(fmt.Sprintf("fault/%d", id))})
		}
	}
	steps, leave := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{9, 9, 3, 9, 9, 9}
	c, want := watched()
	whole, err := New(*c)
	if err != nil {
		t.Fatal(err)
	}
	loss(whole)
	_, one := runDivided(whole, 0, steps, leave)
	all := want()
	for _, kind := range []string{traces.LineSent, traces.LineLost, traces.LinePosted} {
		if !strings.Contains(all, `"`+kind+`"`) {
			t.Errorf("the trace has no line of kind %q", kind)
		}
	}
	for _, of := range [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1}} {
		c, got := watched()
		parts, err := NewParts(*c, of, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts.parts {
			loss(p)
		}
		_, two := runDivided(parts, 0, steps, leave)
		if x := got(); fmt.Sprint(one) != fmt.Sprint(two) || x != all {
			t.Errorf("parts %v: %v, trace of %d bytes; whole: %v, %d bytes", of, two, len(x), one, len(all))
		}
	}
}
