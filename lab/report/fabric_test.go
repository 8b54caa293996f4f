// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
)

const paused = `name: shown
topology: {fat-tree: {k: 4}}
trace: messages
workloads:
  - bcast: {schemes: [cepheus, unicast], sizes: [1MiB], iterations: 2}
faults:
  - {at: 20us, for: 150us, pause: {node: [h3]}}
  - {loss: {rate: 0.002, frames: {kind: data}}}
`

// TestFabric: the pictures show the values of the counters and the events.
func TestFabric(t *testing.T) {
	r := simulated(t, t.TempDir(), paused)
	f := r.fabric
	if f == nil || r.history == nil || r.explained == nil || len(r.missing) > 0 {
		t.Fatal(r.missing)
	}
	var c counters.File
	if err := runner.ReadJSON(filepath.Join(r.Dir, "counters.json"), &c); err != nil {
		t.Fatal(err)
	}
	var bytes, got, lost uint64
	peak, most := 0, 0
	for _, n := range c.Nodes {
		for _, p := range n.Ports {
			bytes, peak = bytes+p.SentBytes, max(peak, p.QueuePeak)
		}
	}
	for k := range f.ways {
		w := &f.ways[k]
		got, lost, most = got+w.bytes, lost+w.lost, max(most, w.peak)
		if w.busyUS > f.spanUS || w.bytes > 0 && w.busyUS <= 0 {
			t.Errorf("%s was busy for %v us of %v", f.wayName(w), w.busyUS, f.spanUS)
		}
		if w.pausedUS > 0 && w.from.Node < f.g.Hosts && w.to.Node < f.g.Hosts {
			t.Errorf("%s was paused", f.wayName(w))
		}
	}
	if got != bytes || lost != r.Meta.FramesLost || most != peak || peak == 0 || lost == 0 {
		t.Errorf("%d bytes of %d, %d frames lost of %d, queue peak %d of %d", got, bytes, lost, r.Meta.FramesLost, most, peak)
	}
	h3, _ := f.g.Find("h3")
	far := f.g.Peer(h3, 0)
	if us := f.way(far.Node, far.Port).pausedUS; math.Abs(us-2*150) > 4 { // in each of two rows
		t.Errorf("the port to h3 was paused for %v us and not 300", us)
	}
	bands := f.bands(0, bandsMax)
	if len(bands) != 2 || bands[0] != (span{20, 170}) || bands[1].from != f.rows[1].from+20 || bands[1].from < f.rows[0].to || bands[1].to != bands[1].from+150 {
		t.Errorf("the pause is drawn at %v in rows at %v", bands, f.rows)
	}
	if whole := f.bands(1, bandsMax); !slices.Equal(whole, f.rows) {
		t.Errorf("the loss is drawn at %v in rows at %v", whole, f.rows)
	}
	sum := 0.0
	for _, v := range r.history.arrived {
		sum += v * r.history.stepUS * 1e3 / 8
	}
	if least := float64(2 * 2 * 15 << 20); sum < least || sum > 2*least { // iterations, schemes, receivers; repeats are in it
		t.Errorf("%v bytes came to hosts, and at least %v were to", sum, least)
	}
	for _, g := range r.history.groups {
		edges, root := f.tree(g)
		if root != "h0" || len(edges) != len(g.in) || len(edges) < 3 {
			t.Errorf("the tree of %s begins at %q and has %d links to %d switches", g.name, root, len(edges), len(g.in))
		}
	}
	page := HTML([]*Run{r})
	for _, want := range []string{"over the receivers", "where the time went", "data to hosts", "lab-0 pause", "Pauses: time", "Drops: frames"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestByHand: manual faults are drawn from their start until they ended or were reset, and a reset ends faults
// of the lab file, too.
func TestByHand(t *testing.T) {
	l, err := lab.Parse("shown.mcl.yml", []byte(strings.Replace(paused, "- {loss", "- {in: run, loss", 1)))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	h5, _ := g.Find("h5")
	encode := func(s faults.Spec) json.RawMessage {
		b, err := faults.Encode(&s, g)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := func(us int64) vtime.Time { return vtime.Time(us * int64(vtime.Microsecond)) }
	stall := faults.Spec{Kind: faults.KindPause, Nodes: []int{h5}}
	stall.From = at(5)
	short := stall
	short.For = 10 * vtime.Microsecond
	hand, all := "hand-", ""
	acts := []faults.Act{
		{At: at(30), ID: "hand-0", Text: "pause h5", Fault: encode(stall)},
		{At: at(40), ID: "hand-1", Text: "pause h5 for 10us", Fault: encode(short)},
		{At: at(100), Reset: &hand},
		{At: at(120), Reset: &all},
	}
	report, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Acts: acts})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(report.RunDir)
	if err != nil || r.fabric == nil || len(r.missing) > 0 {
		t.Fatal(err, r.missing)
	}
	f := r.fabric
	for i, want := range [][]span{
		{{20, 120}, {f.rows[1].from + 20, f.rows[1].from + 170}}, {{0, 120}}, {{35, 100}}, {{45, 55}},
	} {
		if got := f.bands(i, bandsMax); !slices.Equal(got, want) {
			t.Errorf("fault %d is drawn at %v and not %v", i, got, want)
		}
	}
	if page := HTML([]*Run{r}); !strings.Contains(page, "hand-1 pause<") {
		t.Error("the page does not show what was done by hand")
	}
}

// TestQuiet: a run without messages, packets or time has a page, too.
func TestQuiet(t *testing.T) {
	r := simulated(t, t.TempDir(), "name: shown\ntopology: {star: {hosts: 2}}\nworkloads: [{bcast: {schemes: [chain], sizes: [0B]}}]\n")
	r.Meta.LabUS, r.Meta.Status = 0, runner.StatusRunning
	text, err := json.Marshal(r.Meta)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"meta.json": string(text), "events.jsonl": "", "counters.json": fmt.Sprintf(`{"schema":%q}`, counters.Schema)} {
		if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = Read(r.Dir); err != nil || len(r.missing) > 0 {
		t.Fatal(err, r.missing)
	}
	if page := HTML([]*Run{r}); !strings.Contains(page, "Load: time for which a link was busy: none.") {
		t.Error(page)
	}
}

// TestMap: every link and switch of large fabrics of each shape is on the map, within its width, and nothing on
// anything else.
func TestMap(t *testing.T) {
	for _, shape := range []string{"fat-tree: {k: 16}", "fat-tree: {k: 8}", "star: {hosts: 254}", "leaf-spine: {leaves: 70, spines: 4, hosts: 8}", "leaf-spine: {leaves: 2, spines: 100, hosts: 100}", "m-port-n-tree: {m: 8, n: 3}"} {
		l, err := lab.Parse("x.mcl.yml", []byte("name: x\ntopology: {"+shape+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := labspec.Graph(l)
		if err != nil {
			t.Fatal(err)
		}
		f := &fabric{g: g, ways: make([]way, 2*len(g.Links)), drops: make([]uint64, len(g.Nodes)), spanUS: 1}
		for i := range g.Links {
			f.ways[2*i], f.ways[2*i+1] = way{from: g.Links[i].A, to: g.Links[i].B, lost: uint64(i % 7)}, way{from: g.Links[i].B, to: g.Links[i].A, busyUS: 1}
		}
		p := f.paints()[2]
		svg := f.topology(&p)
		type spot struct{ x, y int }
		seen, cells := map[spot]bool{}, 0
		for _, m := range regexp.MustCompile(`M(\d+) (\d+)h(\d+)v`).FindAllStringSubmatch(svg, -1) {
			var s spot
			var wide int
			if _, err := fmt.Sscan(m[1]+" "+m[2]+" "+m[3], &s.x, &s.y, &wide); err != nil {
				t.Fatal(err)
			}
			if seen[s] || s.x+wide > plot.PageWidth {
				t.Fatalf("%s: two cells at %v, or beyond the edge", shape, s)
			}
			seen[s] = true
			cells++
		}
		if want := 2*len(g.Links) + g.Switches(); cells != want {
			t.Errorf("%s: %d cells of %d", shape, cells, want)
		}
		if len(svg) > 1<<20 {
			t.Errorf("%s: the picture has %d bytes", shape, len(svg))
		}
	}
}

// TestSteps: any run has at most 240 steps, and instants outside it are in its first or last.
func TestSteps(t *testing.T) {
	for _, us := range []float64{0, 1e-6, 1, 239, 241, 9999, 1e4, 2.4e5, 2.5e5, 8.64e10, 1e300} {
		h := newHistory(us)
		if h.steps < 1 || h.steps > 241 || h.at(-1) != 0 || h.at(math.Inf(1)) != h.steps-1 || h.at(us) != h.steps-1 {
			t.Errorf("%v us: %d steps of %v us", us, h.steps, h.stepUS)
		}
	}
}

// TestDamaged: whatever is in a run's files, the page names the parts that it cannot show, and nothing on it comes from them
// as markup.
func TestDamaged(t *testing.T) {
	const evil = `<img src=x>`
	ports := fmt.Sprintf(`{"schema":%q,"nodes":[{"node":"nobody","ports":[{"port":0}]},{"node":"h0","ports":[{"port":-1},{"port":99,"sent":1}],"drops":{%q:3}}]}`, counters.Schema, evil)
	events := strings.Join([]string{
		"{", `{"t_us":1,"node":"h0","event":"pause-received","port":-4,"priorities":255,"value":65535}`,
		`{"t_us":1,"node":"h0","event":"pause-received","port":0,"priorities":8,"value":-1}`, `{"t_us":-5e300,"node":"leaf0","event":"drop"}`,
		`{"t_us":1,"node":"leaf0","event":"group-added","port":77,"group":"` + evil + `","value":9}`, `{"t_us":2,"node":"nobody","event":"group-deleted"}`,
	}, "\n")
	trace := `{"schema":"mcastlab/trace/v1"}` + "\n" + `{"k":"sent","n":"h0","p":-1,"w":"data","t":1}` + "\n" +
		`{"k":"sent","n":"leaf0","p":0,"w":"data","t":-9223372036854775808,"c":16777215,"g":9223372036854775807,"d":1}` + "\n"
	whole := simulated(t, t.TempDir(), paused)
	for name, texts := range map[string][]string{
		"lab.resolved.yml": {"", "name: [", "name: " + evil}, "counters.json": {"", "[]", "{}", ports}, "events.jsonl": {"", events}, "trace.jsonl": {"", "{}", trace},
	} {
		for _, text := range texts {
			dir := filepath.Join(t.TempDir(), "shown-1")
			if err := os.CopyFS(dir, os.DirFS(whole.Dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			r, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			page := HTML([]*Run{r})
			if strings.Contains(page, evil) || !strings.Contains(page, "median JCT") || strings.Contains(page, "NaN") {
				t.Errorf("%s %q: the page has markup of the run, or a figure that is none, or no results", name, text)
			}
			if name != "events.jsonl" && !strings.Contains(page, "Not shown: ") && text != ports {
				t.Errorf("%s %q: the page does not say that something is missing", name, text)
			}
		}
	}
}
