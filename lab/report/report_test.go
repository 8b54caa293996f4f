// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

const twoSchemes = `name: shown
topology: {star: {hosts: 3}}
workloads:
  - bcast: {schemes: [cepheus, chain], sizes: [64B, 64KiB], iterations: 2}
  - bcast: {label: one, schemes: [unicast, cepheus], sizes: [4KiB]}
faults:
  - {loss: {rate: 0.01, frames: {kind: data}}}
expect:
  - PRED bcast.chain.64KiB.jct.p50 > bcast.cepheus.64KiB.jct.p50
  - bcast.chain.64B.jct.p50 < 0.001
`

// simulated runs a lab and reads its folder. It may fail: an expectation of the lab does not hold.
func simulated(t *testing.T, base, text string) *Run {
	t.Helper()
	l, err := lab.Parse("shown.mcl.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	report, _ := runner.Simulate(t.Context(), l, runner.Options{Base: base})
	if report == nil {
		t.Fatal("nothing was measured")
	}
	r, err := Read(report.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPage: a run's page has its rows with ratios, a picture per workload, and its expectations; that of two
// runs has them side by side.
func TestPage(t *testing.T) {
	base := t.TempDir()
	a := simulated(t, base, twoSchemes)
	b := simulated(t, base, strings.Replace(twoSchemes, "rate: 0.01", "rate: 0.2", 1))
	page := HTML([]*Run{a})
	for _, want := range []string{"<h2>bcast</h2>", "<h2>one</h2>", "64KiB", "p50 / best", ">shown<", a.Report.Digest, "what the lab expects", "data_packets", "loss", `class="no">no<`, `class="yes">yes<`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, want := range []string{">bcast: median time until", ">one: median time until", ">Load: ", ">Queue peaks: ", ">Drops: ", ">Pauses: time for which a link&#39;s sender was paused: none.<", ">Tree 1 of ", ">The run in steps"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("the page has %d times %q", strings.Count(page, want), want)
		}
	}
	if strings.Contains(page, "side by side") {
		t.Error("one run is compared")
	}
	both := HTML([]*Run{a, b})
	if !strings.Contains(both, "side by side") || !strings.Contains(both, "shown-2 / shown-1") || strings.Count(both, ">one: median time until") != 2 || !strings.Contains(both, "median JCT over the first") {
		t.Error("two runs are not compared")
	}
	for _, p := range []string{page, both} {
		for _, tag := range []string{"table", "tr", "td", "th", "h1", "h2", "svg", "text", "div", "body", "html"} {
			if open, closed := len(regexp.MustCompile("<"+tag+"[ >]").FindAllString(p, -1)), strings.Count(p, "</"+tag+">"); open != closed {
				t.Errorf("%d times <%s>, %d times </%s>", open, tag, closed, tag)
			}
		}
		if regexp.MustCompile(`NaN|Inf\b|https?://(?:[^w]|w[^w])`).MatchString(strings.ReplaceAll(p, "http://www.w3.org/2000/svg", "")) {
			t.Error("the page has a figure that is none, or an address")
		}
	}
}

// TestNoSummary: the page of a run that was killed has the known parts.
func TestNoSummary(t *testing.T) {
	r := simulated(t, t.TempDir(), twoSchemes)
	if err := os.Remove(filepath.Join(r.Dir, "summary.json")); err != nil {
		t.Fatal(err)
	}
	r, err := Read(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if page := HTML([]*Run{r}); !strings.Contains(page, "no row was measured") {
		t.Error(page)
	}
	for _, text := range []string{"", "{", `{"schema": "mcastlab/meta/v9"}`} {
		if err := os.WriteFile(filepath.Join(r.Dir, "meta.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(r.Dir); err == nil || !strings.Contains(err.Error(), "meta.json") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestHostile: text of a run's folder is text on the page.
func TestHostile(t *testing.T) {
	r := simulated(t, t.TempDir(), twoSchemes)
	const evil = `<script>alert("1")</script>`
	r.Dir, r.Meta.Lab, r.Meta.Error, r.Report.Digest = r.Dir+evil, evil, evil, evil
	r.Report.Texts = []string{evil}
	for i := range r.Report.Results {
		r.Report.Results[i].Workload, r.Report.Results[i].Scheme = evil, evil
	}
	for i := range r.Report.Expect {
		r.Report.Expect[i].Text = evil
	}
	for i := range r.Report.Faults {
		r.Report.Faults[i].What, r.Report.Faults[i].Kind = evil, evil
	}
	if page := HTML([]*Run{r, r}); strings.Contains(page, "<script") {
		t.Error("the page has a script that came with a run")
	}
}

// TestAnswer: page and film of a run with a pause storm begin with the iteration, the port and the fault.
func TestAnswer(t *testing.T) {
	r := simulated(t, t.TempDir(), `name: storm
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 4}}
workloads: [{allgather: {schemes: [ring], sizes: [1MiB], iterations: 3}}]
faults: [{pause-storm: {node: h5}, at: 100us, for: 500us}]
`)
	want := regexp.MustCompile(`^ring, 1MiB: slowest iteration 1 of 3 took [0-9.]+ us, [0-9.]+ times the median; leaf1:1 was paused for [0-9]+ % of it by h5 \(fault pause-storm lab-0\)\.$`)
	film, err := ReadFilm(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(film.Rows) != 2 || !want.MatchString(film.Rows[0]) {
		t.Errorf("the film has %q", film.Rows)
	}
	page := HTML([]*Run{r})
	if at := strings.Index(page, "<p>"+film.Rows[0]+"</p>"); at < 0 || at > strings.Index(page, "<table>") {
		t.Error("the page does not begin with the outlier")
	}
	if page := HTML([]*Run{r, r}); !strings.Contains(page, "<p>storm-1: "+film.Rows[0]) {
		t.Error("the page of two runs lacks the outlier")
	}
}
