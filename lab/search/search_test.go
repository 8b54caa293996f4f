// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
)

func parse(t *testing.T, text string) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const (
	star   = "name: star\ntopology: {star: {hosts: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus, chain], sizes: [4KiB, 64KiB]}\n"
	leaves = "name: leaves\ntopology: {leaf-spine: {leaves: 3, spines: 2, hosts: 2}}\nswitches: {reconverge: 20us}\nworkloads:\n  - bcast: {schemes: [cepheus, binomial], sizes: [32KiB]}\n"
	round  = "name: round\ntopology: {leaf-spine: {leaves: 2, spines: 2, hosts: 3}}\nlinks: {rate: 10Gbps}\nnics: {timeout: 262us, mtu: 1024}\nworkloads:\n" +
		"  - bcast: {schemes: [{cepheus: {label: full, fallback: full}}, {cepheus: {label: partial, fallback: partial}}], sizes: [64B, 64KiB], iterations: 12}\n"
)

// TestTimelines: 300 random timelines, of which a day tries a third, break no promise, and in
// half of them kinds overlap. A third of them meet broadcasts that go round multicast when it does not work.
func TestTimelines(t *testing.T) {
	from, n := simlab.DaySeeds(t, 100)
	for _, text := range []string{star, leaves, round} {
		res, err := Run(t.Context(), parse(t, text), Options{From: from, Seeds: n})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range res.Findings {
			t.Errorf("seed %d: %s: %s\n%s\nreplay: go test ./lab/search -run Timelines -from %[1]d -seeds 1", f.Seed, f.Class, f.Text, f.Lab.Compact())
		}
		if len(res.Findings) == 0 && (res.Seeds != n || res.Overlap < n/2 || n >= 33 && (res.Failed == 0 || res.Failed == n)) {
			t.Errorf("%+v: too few seeds, overlaps or kinds of outcome", res)
		}
		t.Logf("seeds %d..%d: %d with overlap, %d ended with an error, %d packet-hops", res.From, res.From+res.Seeds-1, res.Overlap, res.Failed, res.Hops)
	}
}

// TestDraw: the same seed draws the same timeline, all kinds are drawn, and each ends.
func TestDraw(t *testing.T) {
	l := parse(t, leaves)
	seen := map[faults.Kind]bool{}
	for seed := range uint64(200) {
		a, _, err := Draw(l, seed, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		b, _, _ := Draw(l, seed, 1e9)
		if string(a.Compact()) != string(b.Compact()) {
			t.Fatalf("seed %d draws two timelines:\n%s\n%s", seed, a.Compact(), b.Compact())
		}
		for i := range a.Faults {
			f := &a.Faults[i]
			if seen[f.Kind()] = true; f.Kind().Lasts() && f.For == nil {
				t.Errorf("seed %d: %s has no end", seed, f.Text())
			}
		}
	}
	for _, k := range faults.Kinds() {
		if !seen[k] && !k.OfControl() {
			t.Errorf("no seed draws %s", k)
		}
	}
}

// planted is a bug that shows only after two faults: a receiver that dropped a
// damaged packet, and whose switch was paused, gets a wrong byte.
func planted(n *sim.Net, r *rank.Rank, b *rank.Buffer) {
	node, _ := n.Graph().Find(r.NameOf(r.ID()))
	damaged := n.NIC(node).Stats().Drops[virtrnic.DropICRC] > 0
	paused := n.Switch(n.Graph().Hosts).Stats().PausesReceived > 0
	if damaged && paused && b.Len() > 0 {
		b.Bytes()[0] ^= 1
	}
}

// TestShrink: of six faults the two that a planted bug needs are left, as simple as can
// be, with as little work; the file that is written breaks the same promise.
func TestShrink(t *testing.T) {
	l := parse(t, star+`faults:
  - {at: 1us, for: 90us, loss: {rate: 0.002}}
  - {at: 2us, for: 80us, every: 100us, corrupt: {rate: 0.05}}
  - {at: 3us, for: 70us, delay: {delay: 2us}}
  - {at: 4us, for: 60us, pause: {node: h3}}
  - {at: 5us, for: 50us, rate-cut: {rate: 50Gbps}}
  - {at: 6us, for: 40us, nic-stall: {nodes: h1}}
`)
	out, err := Try(t.Context(), l, planted)
	if err != nil || out.Violation == nil || out.Violation.Class != "faulty, wrong bytes" {
		t.Fatalf("%+v, %v: the planted bug does not show", out, err)
	}
	least, err := Shrink(t.Context(), l, out.Violation, planted)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i := range least.Faults {
		kinds = append(kinds, string(least.Faults[i].Kind()))
	}
	slices.Sort(kinds)
	if !slices.Equal(kinds, []string{"corrupt", "pause"}) {
		t.Errorf("what is left is %v, want corrupt and pause", kinds)
	}
	b := least.Workloads[0].Bcast
	if len(b.Schemes) != 1 || len(b.Sizes) != 1 || b.Sizes[0] >= 64<<10 {
		t.Errorf("the work left is %v at %v, %v times", b.Schemes, b.Sizes, b.Iterations)
	}
	for i := range least.Faults {
		if f := &least.Faults[i]; f.Every != nil || f.Corrupt != nil && (slices.Equal(f.Corrupt.Links, lab.Names{"*"}) || f.Corrupt.Direction == "both") {
			t.Errorf("%s could be simpler", f.Text())
		}
	}
	file, err := Write(t.TempDir(), &Finding{Seed: 7, Class: out.Violation.Class, Text: out.Violation.Text, Lab: least})
	if err != nil {
		t.Fatal(err)
	}
	again, err := lab.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := Try(t.Context(), again, planted); err != nil || o.Violation == nil || o.Violation.Class != out.Violation.Class {
		t.Errorf("replay of %s: %+v, %v", file, o, err)
	}
	if o, err := Try(t.Context(), again, nil); err != nil || o.Violation != nil {
		t.Errorf("without the planted bug: %+v, %v", o, err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "# seed 7: faulty, wrong bytes") || filepath.Base(file) != "star-seed7.mcl.yml" {
		t.Errorf("%s: %v\n%s", file, err, text)
	}
	t.Logf("what is left:\n%s", text)
}

// TestFinds: a search by seed finds a planted bug, and one fault of it is left.
func TestFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one goroutine runs at a time")
	}
	hook := func(n *sim.Net, r *rank.Rank, b *rank.Buffer) {
		node, _ := n.Graph().Find(r.NameOf(r.ID()))
		if n.NIC(node).Stats().DuplicateRequest > 0 && b.Len() > 0 {
			b.Bytes()[0] ^= 1
		}
	}
	res, err := Run(t.Context(), parse(t, star), Options{Seeds: 40, Hook: hook})
	if err != nil || len(res.Findings) == 0 {
		t.Fatalf("%+v, %v: a bug in every duplicate is not found", res, err)
	}
	for _, f := range res.Findings {
		if !strings.HasSuffix(f.Class, "wrong bytes") || f.Left != 1 {
			t.Errorf("seed %d: %s, %d faults are left of %d: %s", f.Seed, f.Class, f.Left, f.Faults, fmt.Sprint(string(f.Lab.Compact())))
		}
	}
}
