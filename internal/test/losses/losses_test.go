// SPDX-License-Identifier: Apache-2.0

// Package losses holds no code: its tests measure the cost of frame loss for broadcasts, and write
// docs/loss.md and its plot from the figures in testdata.
package losses

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

var (
	measure = flag.Bool("measure", false, "measure the points that testdata/measured.jsonl lacks, in the simulator")
	live    = flag.String("live", "", "measure the missing points of groups of 8 in this runtime: docker or netns (as root)")
	binary  = flag.String("binary", "", "with -live: the program mcastlab, built by make build")
)

// file holds the measured points.
const file = "testdata/measured.jsonl"

// point is one broadcast to measure.
type point struct {
	Runtime    string  `json:"runtime"`
	Hosts      int     `json:"hosts"`
	Scheme     string  `json:"scheme"`
	Retransmit string  `json:"retransmit"`
	Rate       float64 `json:"rate"` // loss of data packets, on every link
	Seed       int     `json:"seed"`
	Bytes      int     `json:"bytes"`
}

// result is the result of measuring a point.
type result struct {
	point
	JCT    float64 `json:"jct_us"`
	Source float64 `json:"source_us"`
	Lost   uint64  `json:"lost"`            // frames
	Error  string  `json:"error,omitempty"` // why it failed, if it did
	Digest string  `json:"digest"`
}

// seedsOf returns the number of seeds with which a point is measured; tables show the median. A run
// with 512 hosts takes a minute.
func seedsOf(hosts int) int {
	if hosts == 512 {
		return 1
	}
	return 3
}

var (
	simRates  = []float64{0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2}
	liveRates = []float64{0, 1e-4, 1e-3, 1e-2}
)

// shapes are the topologies, by the size of the group.
var shapes = map[int]string{
	8:   "leaf-spine: {leaves: 2, spines: 1, hosts: 4}",
	64:  "fat-tree: {k: 8}",
	512: "fat-tree: {k: 16}",
}

// bytesOf returns the size of the message. At high loss rates a quarter is enough: losses are
// frequent, and runs are long.
func bytesOf(hosts int, rate float64) int {
	switch {
	case hosts == 8:
		return 4 << 20
	case rate == 1e-2, rate == 1e-3 && hosts == 512:
		return 16 << 20
	}
	return 64 << 20
}

// points returns the points that are measured in a runtime.
func points(runtime string) (all []point) {
	hosts, rates := []int{8, 64, 512}, simRates
	if runtime != "sim" {
		hosts, rates = []int{8}, liveRates
	}
	for _, n := range hosts {
		if runtime == "sim" { // a message of one packet: its time to the source's completion is the round trip
			all = append(all, point{runtime, n, "cepheus", "go-back-n", 0, 1, 4096})
		}
		for _, rate := range rates {
			if n == 8 && rate != 0 && rate < liveRates[1] {
				continue
			}
			for _, scheme := range []string{"cepheus", "chain"} {
				for _, retransmit := range []string{"go-back-n", "irn"} {
					for seed := range seedsOf(n) {
						if rate == 0 && seed > 0 {
							continue
						}
						all = append(all, point{runtime, n, scheme, retransmit, rate, seed + 1, bytesOf(n, rate)})
						if n > 8 && rate == 0 {
							all = append(all, point{runtime, n, scheme, retransmit, rate, 1, bytesOf(n, 1e-2)})
						}
					}
				}
			}
		}
	}
	return all
}

// text returns the lab file of a point.
func (p point) text() string {
	memory, icrc := "phantom", "flag"
	if p.Runtime != "sim" {
		memory, icrc = "auto", "full"
	}
	loss := ""
	if p.Rate > 0 {
		loss = fmt.Sprintf("faults:\n  - {loss: {links: \"*-*\", rate: %g, frames: {kind: data}}}\n", p.Rate)
	}
	return fmt.Sprintf("name: loss\nseed: %d\ntopology: {%s}\nnics: {retransmit: %s, icrc: %s}\n"+
		"workloads:\n  - bcast: {schemes: [%s], sizes: [%dB], ranks: [h0..h%d], iterations: 1, memory: %s}\n%s",
		p.Seed, shapes[p.Hosts], p.Retransmit, icrc, p.Scheme, p.Bytes, p.Hosts-1, memory, loss)
}

// run measures a point.
func (p point) run(t *testing.T) result {
	t.Helper()
	if p.Runtime != "sim" {
		return p.runLive(t)
	}
	l, err := lab.Parse("loss.mcl.yml", []byte(p.text()))
	if err != nil {
		t.Fatalf("%v\n%s", err, p.text())
	}
	rep, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
	return p.result(t, rep, err)
}

func (p point) result(t *testing.T, rep *runner.Report, err error) result {
	t.Helper()
	r := result{point: p}
	switch {
	case rep == nil:
		t.Fatalf("%+v: %v", p, err)
	case err != nil:
		r.Error = err.Error()
	case len(rep.Results) != 1 || rep.Fidelity.Verdict != "ok":
		t.Fatalf("%+v: %d rows, fidelity %s: %s", p, len(rep.Results), rep.Fidelity.Verdict, rep.Fidelity.Reason)
	default:
		row := rep.Results[0]
		if row.Verified != nil && !*row.Verified {
			t.Errorf("%+v: wrong bytes", p)
		}
		r.JCT, r.Source = row.JCT.Avg, row.Source.Avg
	}
	for _, f := range rep.Faults {
		r.Lost += f.Hit
	}
	r.Digest = rep.Digest
	return r
}

// runLive measures a point with the program mcastlab.
func (p point) runLive(t *testing.T) result {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "loss.mcl.yml")
	if err := os.WriteFile(name, []byte(p.text()), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), *binary, "run", "-q", "--runtime", p.Runtime, "--format", "json", "--runs", dir, name)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	var rep runner.Report
	if jerr := json.Unmarshal(out, &rep); jerr != nil {
		t.Fatalf("%+v: %v\n%s", p, errors.Join(err, jerr), complaint.String())
	}
	return p.result(t, &rep, err)
}

// load reads the measured points.
func load(t *testing.T) (all []result) {
	t.Helper()
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		var r result
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, r)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// save writes the measured points, in order.
func save(t *testing.T, all []result) {
	t.Helper()
	slices.SortFunc(all, func(a, b result) int {
		return cmp.Or(cmp.Compare(b.Runtime, a.Runtime), cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Bytes, b.Bytes),
			cmp.Compare(a.Scheme, b.Scheme), cmp.Compare(a.Retransmit, b.Retransmit), cmp.Compare(a.Seed, b.Seed))
	})
	var b strings.Builder
	for _, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMeasure measures the points that are missing, if a flag asks for it. Each point is saved
// as soon as it is measured.
func TestMeasure(t *testing.T) {
	var want []point
	if *measure {
		want = points("sim")
	}
	if *live != "" {
		if *binary == "" {
			t.Fatal("-live needs -binary")
		}
		want = append(want, points(*live)...)
	}
	if want == nil {
		t.Skip("-measure, or -live with -binary")
	}
	all := load(t)
	for _, p := range want {
		if !slices.ContainsFunc(all, func(r result) bool { return r.point == p }) {
			r := p.run(t)
			t.Logf("%+v", r)
			all = append(all, r)
			save(t, all)
		}
	}
}

// TestMeasuredAgain: points of the page have the same result today, bit for bit. If they have
// not, the protocols have changed: delete the points and measure again.
func TestMeasuredAgain(t *testing.T) {
	again := 0
	for _, old := range load(t) {
		p := old.point
		small := p.Hosts == 64 && p.Bytes == 16<<20 && p.Retransmit == "irn" && p.Seed == 1 || p.Hosts == 8 && p.Seed == 1
		if p.Runtime != "sim" || !small {
			continue
		}
		again++
		if got := p.run(t); got != old {
			t.Errorf("now %+v\nwas %+v", got, old)
		}
	}
	if again < 10 {
		t.Errorf("only %d points were small enough to measure again", again)
	}
}

// find returns the results of a point's seeds that did not fail, ordered by JCT, and the errors
// of the others.
func find(all []result, p point) (ok []result, failed []string) {
	for _, r := range all {
		q := r.point
		q.Seed = 0
		p.Seed = 0
		switch {
		case q != p:
		case r.Error != "":
			failed = append(failed, r.Error)
		default:
			ok = append(ok, r)
		}
	}
	slices.SortFunc(ok, func(a, b result) int { return cmp.Compare(a.JCT, b.JCT) })
	return ok, failed
}

// goodput returns the median goodput in bit/s, its range, and the number of seeds that failed; NaN if
// it was not measured.
func goodput(all []result, p point) (median, low, high float64, failed int) {
	ok, bad := find(all, p)
	if len(ok) == 0 {
		return math.NaN(), math.NaN(), math.NaN(), len(bad)
	}
	of := func(r result) float64 { return float64(p.Bytes) * 8e6 / r.JCT }
	return of(ok[len(ok)/2]), of(ok[len(ok)-1]), of(ok[0]), len(bad)
}
