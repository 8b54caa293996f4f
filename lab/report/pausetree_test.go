// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
)

// outline writes a tree of pauses in one line: h5(leaf1 29(spine0 20)).
func outline(f *fabric, all []*pauser) string {
	var words []string
	for _, x := range all {
		s := f.g.Nodes[x.node].Name
		if x.us > 0 {
			s += fmt.Sprintf(" %.0f", x.us)
		}
		if x.again {
			s += " again"
		}
		if len(x.below) > 0 {
			s += "(" + outline(f, x.below) + ")"
		}
		words = append(words, s)
	}
	return strings.Join(words, ", ")
}

// TestPauseTree: a storm at one host spreads over the switches to the hosts that send; a node that two have paused has its own pauses
// in one place; of switches that pause each other the first is the root. No pauses are no tree.
func TestPauseTree(t *testing.T) {
	r := simulated(t, t.TempDir(), `name: storm
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
switches: {buffer: 2MB}
workloads:
  - flows: {message: 64KiB, interval: 100us, flows: [{name: sick, from: h0, to: h3, end: 3ms}, {name: victim, from: h1, to: h2, end: 3ms}]}
faults:
  - {in: run, at: 1ms, for: 1ms, pause-storm: {node: h3, gap: 20us}}
`)
	got := outline(r.fabric, r.fabric.pauseTree())
	if !strings.HasPrefix(got, "h3(leaf1 1") || !strings.Contains(got, "(spine0 ") || !strings.Contains(got, "(leaf0 ") || !strings.Contains(got, "(h") {
		t.Errorf("a storm: %s", got)
	}
	page := HTML([]*Run{r})
	if at := strings.Index(page, "who paused whom"); at < 0 || !strings.Contains(page[at:], "<li>h3<ul>\n<li>leaf1, for 1") {
		t.Error("the page has no tree of pauses")
	}
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 2, Hosts: 2}, topo.LinkParams{Rate: 1e11})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pauses string // BY>OF us from, separated by semicolons
		want   string
	}{
		{"", ""},
		{"h0>leaf0 50 1", "h0(leaf0 50)"},
		{"h0>leaf0 50 1; h1>leaf0 60 2; leaf0>spine0 40 3", "h1(leaf0 60(spine0 40)), h0(leaf0 50 again)"},
		{"leaf0>spine0 30 5; spine0>leaf0 40 7", "leaf0(spine0 30(leaf0 40 again))"},
		{"spine0>leaf1 30 5; leaf1>spine0 40 7; h3>leaf1 9 9", "h3(leaf1 9(spine0 40(leaf1 30 again)))"},
	} {
		f := &fabric{g: g, ways: make([]way, 2*len(g.Links)), pauses: map[int][]span{}}
		for i, l := range g.Links {
			f.ways[2*i].from, f.ways[2*i].to, f.ways[2*i+1].from, f.ways[2*i+1].to = l.A, l.B, l.B, l.A
		}
		for _, p := range strings.Split(c.pauses, "; ") {
			var by, of string
			var us, from float64
			if _, err := fmt.Sscanf(strings.ReplaceAll(p, ">", " "), "%s %s %f %f", &by, &of, &us, &from); err != nil {
				continue
			}
			for k := range f.ways {
				if w := &f.ways[k]; g.Nodes[w.to.Node].Name == by && g.Nodes[w.from.Node].Name == of {
					w.pausedUS, f.pauses[k] = us, []span{{from, from + us}}
				}
			}
		}
		if got := outline(f, f.pauseTree()); got != c.want {
			t.Errorf("%s: %s, not %s", c.pauses, got, c.want)
		}
	}
}

// TestPausersShown: a page has the first nodes of a large tree, says how many it leaves out, and closes the lists that it opens.
func TestPausersShown(t *testing.T) {
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 1, Spines: 1, Hosts: 80}, topo.LinkParams{Rate: 1e11})
	if err != nil {
		t.Fatal(err)
	}
	f := &fabric{g: g, ways: make([]way, 2*len(g.Links)), pauses: map[int][]span{}}
	for i, l := range g.Links { // each switch has paused what is below it
		f.ways[2*i] = way{from: l.A, to: l.B, pausedUS: float64(1 + i)}
		f.pauses[2*i] = []span{{0, 1}}
	}
	var b page
	b.pausers(&Run{fabric: f}, "")
	text := b.String()
	if n := strings.Count(text, "<li>"); n != pausesShown || !strings.Contains(text, fmt.Sprintf("<p>Not shown: %d more.</p>", 82-pausesShown)) {
		t.Errorf("%d nodes of 82 are shown in\n%s", n, text)
	}
	if strings.Count(text, "<ul>") != strings.Count(text, "</ul>") || strings.Contains(text, "<ul>\n</ul>") {
		t.Errorf("lists are empty or open in\n%s", text)
	}
}
