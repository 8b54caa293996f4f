// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

const outlierLab = `name: slow
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 4}}
workloads:
  - allgather: {schemes: [ring], sizes: [1MiB], iterations: 3}
`

// TestOutliers: the report names the slowest iteration of a row, the port that was paused, by whom and by which fault, in JSON, in
// the table and on the page; without a fault there is none, and without pauses the faults of the row stand in their place.
func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		name, faults string
		want         []string // in the line; none: no outlier
	}{
		{"none", "", nil},
		{"storm", "faults: [{pause-storm: {node: h5}, at: 100us, for: 500us}, {loss: {links: h0-*, nth: [3]}, for: 1us}]\n", []string{
			"ring, 1MiB: slowest iteration 1 of 3 took ", " times the median; leaf1:1 was paused for ", " % of it by h5 (fault pause-storm lab-0)."}},
		{"pause", "faults: [{pause: {node: h2}, at: 800us, for: 1ms, in: run}]\n", []string{
			"slowest iteration ", "leaf0:2 was paused for ", " % of it by h2 (fault pause lab-0)."}},
		{"loss", "faults: [{loss: {links: h0-*, rate: 5%, frames: {kind: data}}, for: 600us, in: run}]\n", []string{
			"slowest iteration 1 of 3 took ", "in force during the row: fault loss lab-0."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := lab.Parse("lab", []byte(outlierLab+c.faults))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			var table strings.Builder
			if err := r.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			if len(c.want) == 0 {
				if len(r.Outliers) > 0 || strings.Contains(table.String(), "slowest") {
					t.Errorf("%+v\n%s", r.Outliers, &table)
				}
				return
			}
			if len(r.Outliers) != 1 {
				t.Fatalf("%d outliers\n%s", len(r.Outliers), &table)
			}
			line, at := r.Outliers[0].String(), 0
			for _, w := range c.want {
				i := strings.Index(line[at:], w)
				if i < 0 {
					t.Fatalf("%q lacks %q", line, w)
				}
				at += i + len(w)
			}
			if !strings.HasSuffix(table.String(), line+"\n") {
				t.Errorf("the table does not end with %q:\n%s", line, &table)
			}
			o := &r.Outliers[0]
			if got := r.Results[0].JCT; o.JCTUS != got.Max || o.Factor != got.Max/got.P50 || o.PausedShare > 1 {
				t.Errorf("%+v beside %+v", o, got)
			}
			b, err := os.ReadFile(filepath.Join(r.RunDir, "summary.json"))
			var written struct{ Outliers []Outlier }
			if err != nil || json.Unmarshal(b, &written) != nil || len(written.Outliers) != 1 || written.Outliers[0].String() != line {
				t.Errorf("summary.json has %+v (%v)", written.Outliers, err)
			}
		})
	}
}

// TestPauses: a port is paused until its quanta have run out or a frame resumes it; of two that hosts paused the one that was
// paused longer counts, and a host's pause before a longer one of a switch.
func TestPauses(t *testing.T) {
	l, err := lab.Parse("lab", []byte(outlierLab))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	const us = vtime.Time(vtime.Microsecond)
	frame := func(p *pauses, node string, port int, at vtime.Time, quanta int64) {
		p.observe(node, at, machine.Event{Kind: machine.EventPauseReceived, Port: port, Priority: 8, Value: quanta})
	}
	p := newPauses(g)
	if x := p.longest(0, 1000*us); x.took != 0 {
		t.Errorf("paused without a frame: %+v", x)
	}
	frame(p, "spine0", 0, 0, 65535)   // 335.5 us of a 100 Gb/s link, by leaf0
	frame(p, "leaf0", 1, 10*us, 1000) // 5.12 us, by h1, refreshed before it ends, and then resumed
	frame(p, "leaf0", 1, 14*us, 65535)
	frame(p, "leaf0", 1, 50*us, 0)
	frame(p, "leaf0", 1, 60*us, 0)    // which is not paused any more
	frame(p, "leaf1", 2, 100*us, 100) // 0.512 us, by h6
	frame(p, "nobody", 0, 0, 65535)
	for at, priority := range []uint8{8, 16} { // 335.5 us of priority 3, by h4; then priority 4 is paused, and resumed
		p.observe("leaf1", 400*us+vtime.Time(at), machine.Event{Kind: machine.EventPauseReceived, Port: 0, Priority: priority, Value: 65535})
	}
	p.observe("leaf1", 402*us, machine.Event{Kind: machine.EventPauseReceived, Port: 0, Priority: 16})
	frame(p, "leaf0", 99, 0, 65535)
	p.observe("leaf1", 0, machine.Event{Kind: machine.EventDrop, Value: 65535})
	for _, c := range []struct {
		from, to vtime.Time
		port     string
		by       string
		took     vtime.Duration
	}{
		{0, 300 * us, "leaf0:1", "h1", vtime.Duration(40 * us)},
		{20 * us, 30 * us, "leaf0:1", "h1", vtime.Duration(10 * us)},
		{99 * us, 200 * us, "leaf1:2", "h6", 512 * vtime.Nanosecond},
		{400 * us, 420 * us, "leaf1:0", "h4", vtime.Duration(20 * us)},
		{200 * us, 300 * us, "spine0:0", "leaf0", vtime.Duration(100 * us)},
	} {
		x := p.longest(c.from, c.to)
		if got := g.PortName(x.port); got != c.port || g.Nodes[x.by].Name != c.by || x.took != c.took {
			t.Errorf("%v to %v: %s by %s for %v, want %s by %s for %v", c.from, c.to, got, g.Nodes[x.by].Name, x.took, c.port, c.by, c.took)
		}
	}
}

// TestOutlierOfRows: a row that is measured again replaces its outlier, and one of a single iteration has none.
func TestOutlierOfRows(t *testing.T) {
	r := &Record{}
	w := &Workload{}
	slow, steady := of(3, 12, row("b", "x", 64, 4, nil)), of(3, 4, row("b", "x", 64, 4, nil))
	for _, c := range []struct {
		rows []apps.Row
		want int
	}{
		{[]apps.Row{slow, of(1, 12, row("b", "y", 64, 4, nil))}, 1},
		{[]apps.Row{slow}, 1},
		{[]apps.Row{steady}, 0},
		{[]apps.Row{of(2, 4.8, row("b", "x", 64, 4, nil))}, 1},
		{[]apps.Row{of(2, 4.79, row("b", "x", 64, 4, nil))}, 0},
		{[]apps.Row{of(2, 4.79, row("b", "x", 64, 0, nil))}, 0},
	} {
		if err := r.enterSlow(w, c.rows, nil); err != nil {
			t.Fatal(err)
		}
		if got := r.outliers(); len(got) != c.want {
			t.Errorf("%+v: outliers %+v, want %d", c.rows, got, c.want)
		}
	}
}
