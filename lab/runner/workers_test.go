// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
)

// runOf returns the output of a run: its summary and its counters without the folder's name, and its
// events.
func runOf(t *testing.T, l *lab.Lab, workers int) (digest, shown string, events []byte) {
	t.Helper()
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir(), Workers: workers, Say: say, eager: true})
	if r == nil {
		t.Fatal(err)
	}
	if len(said) > 0 {
		t.Fatalf("%d workers: %q", workers, said)
	}
	dir := r.RunDir
	r.Plots, r.RunDir = nil, ""
	b, jerr := json.Marshal(r)
	if jerr != nil {
		t.Fatal(jerr)
	}
	counters, rerr := os.ReadFile(filepath.Join(dir, "counters.json"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	events, rerr = os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	return r.Digest, fmt.Sprintf("%v\n%s\n%s", err, b, counters), events
}

// sameForAnyWorkers runs a lab with several numbers of workers and wants one digest, one report, one set of
// counters and one file of events.
func sameForAnyWorkers(t *testing.T, l *lab.Lab) {
	t.Helper()
	digest, want, events := runOf(t, l, 1)
	counts := []int{2, 3, 5, 8}
	switch {
	case testing.Short():
		counts = []int{3}
	case os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "":
		counts = []int{2, 5} // the others take their time
	}
	for _, workers := range counts {
		d, got, e := runOf(t, l, workers)
		if d != digest || got != want {
			t.Errorf("%d workers: digest %s and\n%s\nwith one %s and\n%s", workers, d, got, digest, want)
		}
		if !bytes.Equal(e, events) {
			a, b := strings.Split(string(events), "\n"), strings.Split(string(e), "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("%d workers: line %d of the events is\n%s\nand with one\n%s", workers, i+1, b[i], a[i])
					break
				}
			}
			t.Errorf("%d workers: %d lines of events, with one %d", workers, len(b), len(a))
		}
	}
}

// divisible gives the hosts of a star, which cannot be divided, two switches.
func divisible(text []byte) []byte {
	return regexp.MustCompile(`star: {hosts: (\d+)}`).ReplaceAll(text, []byte("leaf-spine: {leaves: 2, spines: 2, hosts: $1, total: $1}"))
}

// TestWorkers: whatever the number of workers, a run of an example is the same.
func TestWorkers(t *testing.T) {
	files := []string{"star", "alltoall", "quickstart", "all-schemes", "hpl", "ipv6", "tiers"}
	if testing.Short() {
		files = files[:2]
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join("../../examples", file+".mcl.yml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := lab.Parse(path, divisible(text))
			if err != nil {
				t.Fatal(err)
			}
			sameForAnyWorkers(t, l)
		})
	}
}

// TestWorkersCredits: a credit crosses a link in its delay alone, and parts wait for each other accordingly.
func TestWorkersCredits(t *testing.T) {
	l, err := lab.Parse("x.mcl.yml", []byte(`name: credits
topology: {fat-tree: {k: 4}}
links: {delay: 100ns}
switches: {queues: input, flow-control: credits}
workloads:
  - bcast: {schemes: [cepheus, binomial, unicast], sizes: [4KiB, 64KiB], iterations: 2}
  - alltoall: {schemes: [linear], sizes: [16KiB]}
`))
	if err != nil {
		t.Fatal(err)
	}
	sameForAnyWorkers(t, l)
}

// TestWorkersTroubled: faults are the same for any number of workers, those of each row and those of the
// whole run, and so are their recorded hits.
func TestWorkersTroubled(t *testing.T) {
	labs := []string{rowLab("", "cepheus, chain"), rowLab("in: run, ", "cepheus, unicast")}
	for i := range labs { // h2 and h3 are at the second switch
		labs[i] = strings.ReplaceAll(string(divisible([]byte(labs[i]))), "-leaf0", "-leaf1")
	}
	for _, faults := range []string{
		`
  - {loss: {links: "agg*-core*", rate: 1%}}
  - {at: 10us, for: 30us, every: 100us, link-down: {links: "tier:leaf-agg"}, probability: 0.2}
  - {at: 20us, for: 50us, pause: {node: h5}}
  - {at: 40us, for: 20us, rate-cut: {links: "h7-*", rate: 10Gbps}}`,
		`
  - {in: run, at: 50us, for: 200us, crash: {nodes: core1}}
  - {in: run, at: 30us, for: 100us, nic-stall: {nodes: h9}}
  - {in: run, delay: {links: "leaf*-agg*", delay: 3us}}
  - {in: run, duplicate: {links: "h*-leaf*", rate: 1%}}
  - {in: run, at: 100us, wipe-mft: {nodes: agg2}}`,
	} {
		labs = append(labs, `name: troubled
topology: {fat-tree: {k: 4}}
nics: {timeout: 131us}
workloads:
  - bcast: {schemes: [cepheus, binomial], sizes: [4KiB, 128KiB], iterations: 2}
faults:`+faults+"\n")
	}
	if testing.Short() {
		labs = labs[len(labs)-2:]
	}
	for i, text := range labs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			l, err := lab.Parse("x.mcl.yml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			sameForAnyWorkers(t, l)
		})
	}
}

// TestWorkersPauses: two switches end pauses at one instant, of which one learns by a timer that a frame has left,
// and in eight parts by the start of the next frame. Their events have one order all the same.
func TestWorkersPauses(t *testing.T) {
	path := "../../examples/papers/cepheus-pfc.mcl.yml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	_, _, one := runOf(t, l, 1)
	if _, _, e := runOf(t, l, 8); !bytes.Equal(e, one) {
		t.Error("8 workers: other events than with one")
	}
}

// TestWorkersUndivided: a lab that needs all events in one order has one worker, and a line gives the
// reason, but only if the user has asked for workers.
func TestWorkersUndivided(t *testing.T) {
	instant, err := lab.Parse("x.mcl.yml", []byte(`name: instant
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
links: {delay: 0s}
switches: {queues: input, flow-control: credits, latency: 0s}
workloads:
  - bcast: {schemes: [unicast], sizes: [4KiB], iterations: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*lab.Lab, *Options)
		want   string
	}{
		{func(_ *lab.Lab, o *Options) { o.Check = true }, "1 worker instead of 3: --check "},
		{func(_ *lab.Lab, o *Options) { o.Captures = []string{"h0:0"} }, "1 worker instead of 3: captures "},
		{func(l *lab.Lab, _ *Options) { l.Trace = lab.TraceMessages }, "1 worker instead of 3: the trace "},
		{func(l *lab.Lab, _ *Options) { l.Runtime.Channel = 0 }, "1 worker instead of 3: runtime.channel-delay is 0"},
		{func(l *lab.Lab, o *Options) { l.Runtime.Channel, o.Workers = 0, WorkersAuto }, ""},
		{func(*lab.Lab, *Options) {}, "1 worker instead of 3: no two switches have hosts"},
		{func(l *lab.Lab, _ *Options) { *l = *instant }, "1 worker instead of 3: a credit takes no time "},
	} {
		l, err := lab.Read("../../examples/star.mcl.yml")
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		o := Options{Base: t.TempDir(), Workers: 3, Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }}
		c.change(l, &o)
		r, err := Simulate(t.Context(), l, o)
		if err != nil {
			t.Fatal(err)
		}
		var m Meta
		b, err := os.ReadFile(filepath.Join(r.RunDir, "meta.json"))
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil || m.Workers != 1 || !strings.HasPrefix(said, c.want) || (c.want == "") != (said == "") {
			t.Errorf("%d workers, said %q, want %q; %v", m.Workers, said, c.want, err)
		}
	}
}

// TestPartsOf: a worker has as many parts as others, one at least; large labs have parts of 64 hosts or more, and not too many.
func TestPartsOf(t *testing.T) {
	for _, c := range []struct{ hosts, workers, want int }{
		{2, 2, 2}, {128, 3, 3}, {511, 8, 8}, {512, 2, 8}, {1024, 2, 16}, {1024, 3, 15}, {1024, 12, 12}, {1024, 1, 16}, {2048, 2, 32}, {4096, 2, 64}, {16384, 2, 64}, {16384, 3, 63}, {16384, 64, 64},
	} {
		if got := partsOf(c.hosts, c.workers); got != c.want {
			t.Errorf("%d hosts, %d workers: %d parts, want %d", c.hosts, c.workers, got, c.want)
		}
	}
}

// TestWorkersAuto: by default all cores share a large lab, and a single core takes it in parts or whole, whichever is faster.
func TestWorkersAuto(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, c := range []struct {
		hosts, cores, want int
		workload           string
		o                  Options
	}{
		{64, 4, 0, "sizes: [4KiB]", Options{}},
		{128, 4, 2, "sizes: [4KiB]", Options{}},
		{512, 64, 8, "sizes: [4KiB]", Options{}},
		{128, 1, 0, "sizes: [4KiB]", Options{}},
		{512, 1, 1, "sizes: [4KiB]", Options{}},
		{512, 4, 4, "sizes: [4KiB], memory: phantom", Options{}},
		{512, 4, 0, "sizes: [4KiB, 4MiB], memory: phantom", Options{}},
		{512, 4, 4, "sizes: [4KiB, 4MiB], memory: phantom", Options{NoSkip: true}},
		{512, 4, 4, "sizes: [4MiB], memory: hashed", Options{}},
		{512, 4, 4, "sizes: [4MiB], memory: phantom}\nfaults:\n  - {loss: {rate: 1%}", Options{}},
		{512, 4, 0, "sizes: [4MiB], memory: phantom}\nfaults:\n  - {at: 1s, crash: {nodes: h1}", Options{}},
		{512, 4, 4, "sizes: [4MiB], memory: phantom}\nnics: {retransmit: irn", Options{}},
		{512, 4, 0, "sizes: [4KiB]", Options{Check: true}},
		{512, 1, 0, "sizes: [4KiB]", Options{Env: apps.Env{Programs: []rank.Program{{}}}}},
	} {
		l, err := lab.Parse("x.mcl.yml", fmt.Appendf(nil, "name: auto\ntopology: {leaf-spine: {leaves: %d, spines: 1, hosts: 8}}\nworkloads:\n"+
			"  - bcast: {schemes: [cepheus], %s}\n", c.hosts/8, c.workload))
		if err != nil {
			t.Fatal(err)
		}
		g, err := labspec.Graph(l)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GOMAXPROCS(c.cores)
		c.o.Workers = WorkersAuto
		if got := (&simulation{Record: &Record{}, lab: l, o: c.o}).workers(g); got != c.want {
			t.Errorf("%d hosts, %d cores, %s: %d workers, want %d", c.hosts, c.cores, c.workload, got, c.want)
		}
	}
}
