// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

// Command benchpage measures the simulator and writes speed.md: rates beside those of a bare loop over
// the same event queue, taken in turn, the cost of a run's options, and memory. Run it in the folder of
// the module: make bench-page.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	runs := flag.Int("runs", 8, "runs of everything, in turn; the page has medians")
	out := flag.String("out", "speed.md", "the page")
	quick := flag.Bool("quick", false, "small labs only, to try the command")
	flag.Parse()
	if err := write(*out, *runs, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "benchpage:", err)
		os.Exit(1)
	}
}

func write(page string, runs int, quick bool) error {
	dir, err := os.MkdirTemp("", "benchpage")
	if err != nil {
		return fmt.Errorf("make a folder for programs and runs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder for temporary files
	m := &bench{dir: dir, runs: runs, quick: quick}
	for _, build := range [][]string{
		{"build", "-o", m.path("mcastlab"), "./cmd/mcastlab"},
		{"test", "-c", "-pgo=cmd/mcastlab/default.pgo", "-o", m.path("sim"), "./drivers/sim"}, // as the program is built
	} {
		if o, err := exec.Command("go", build...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(build, " "), err, o)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, head, runtime.GOOS, runtime.GOARCH, processor(), runtime.NumCPU(), runtime.Version(), runs)
	for _, part := range []func(*bytes.Buffer) error{m.rates, m.cores, m.costs, m.memory} {
		if err := part(&b); err != nil {
			return err
		}
	}
	b.WriteString(peers)
	_, err = os.Stdout.Write(b.Bytes())
	return errors.Join(err, os.WriteFile(page, b.Bytes(), 0o644))
}

type bench struct {
	dir   string
	runs  int
	quick bool
}

func (m *bench) path(name string) string { return filepath.Join(m.dir, name) }

// rates runs the benchmarks of drivers/sim.
func (m *bench) rates(b *bytes.Buffer) error {
	rows := []struct{ name, bare, ours string }{
		{"permutation, 128 hosts (k=8), no digest", "BarePermutation/k=8", "Permutation/k=8"},
		{"permutation, 1,024 hosts (k=16), no digest, undivided", "BarePermutation/k=16", "Permutation/k=16"},
		{"the same in 16 parts, as labs of that size are divided", "BarePermutation/k=16", "Parted/k=16/parts=16"},
		{"broadcast to 511 hosts, an ACK for 16 packets, no digest", "BareBcastFT1024/ack=16", "BcastFT1024/ack=16/digest=false"},
		{"the same with the digest", "BareBcastFT1024/ack=16", "BcastFT1024/ack=16/digest=true"},
		{"broadcast to 127 hosts, no trace", "", "Trace/traced=false"},
		{"the same with `trace: messages`", "", "Trace/traced=true"},
	}
	if m.quick {
		rows = rows[:1]
	}
	all := map[string][]float64{}
	for range m.runs {
		for _, r := range rows {
			for _, name := range []string{r.bare, r.ours} {
				if name == "" {
					continue
				}
				v, err := m.rate(name)
				if err != nil {
					return err
				}
				all[r.name+name] = append(all[r.name+name], v)
			}
		}
	}
	b.WriteString("\n## Packet-hops\n\nMillions of arrivals at the end of a link (acknowledgements too) by second of processor time, one worker.\n\n" +
		"| work | bare loop | mcastlab | of the bare loop |\n|---|---|---|---|\n")
	for _, r := range rows {
		ours := median(all[r.name+r.ours])
		if r.bare == "" {
			fmt.Fprintf(b, "| %s | | %.2f | |\n", r.name, ours)
			continue
		}
		bare := median(all[r.name+r.bare])
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %.0f %% |\n", r.name, bare, ours, 100*ours/bare)
	}
	return nil
}

var perSecond = regexp.MustCompile(`([0-9.]+) Mhops/cpu-s`)

// rate runs one benchmark and returns its millions of packet-hops by second of processor time.
func (m *bench) rate(name string) (float64, error) {
	pattern := "^Benchmark" + strings.ReplaceAll(name, "/", "$/^") + "$"
	o, err := exec.Command(m.path("sim"), "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", "1x").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("benchmark %s: %w\n%s", name, err, o)
	}
	f := perSecond.FindSubmatch(o)
	if f == nil {
		return 0, fmt.Errorf("benchmark %s reports no rate:\n%s", name, o)
	}
	return strconv.ParseFloat(string(f[1]), 64)
}

// cores runs a lab that repeats little with one worker and with more.
func (m *bench) cores(b *bytes.Buffer) error {
	k, size := 16, "4MiB"
	if m.quick {
		k, size = 4, "64KiB"
	}
	lab := fmt.Sprintf("name: cores\nseed: 1\ntopology: {fat-tree: {k: %d}}\nlinks: {rate: 100Gbps, delay: 1us}\nnics: {mtu: 4096, icrc: flag}\n"+
		"workloads:\n  - bcast: {schemes: [binomial], sizes: [%s], iterations: 1, memory: phantom}\n", k, size)
	counts := []int{1}
	for n := 2; n <= runtime.NumCPU(); n *= 2 {
		counts = append(counts, n)
	}
	all := map[int][]usage{}
	for range m.runs {
		for _, n := range counts {
			u, err := m.run(lab, "--no-skip", "--workers", strconv.Itoa(n))
			if err != nil {
				return err
			}
			all[n] = append(all[n], u)
		}
	}
	fmt.Fprintf(b, "\n## All cores\n\nA binomial broadcast of %s in a fat-tree of %d hosts, lengths only, every packet simulated, `mcastlab run` from beginning to end.\n\n"+
		"| workers | wall, s | processor, s | packet-hops by second of wall clock, millions |\n|---|---|---|---|\n", size, k*k*k/4)
	for _, n := range counts {
		wall := median(field(all[n], usage.elapsed))
		fmt.Fprintf(b, "| %d | %.2f | %.2f | %.2f |\n", n, wall, median(field(all[n], usage.processor)), all[n][0].hops/wall/1e6)
	}
	return nil
}

// costs runs one lab in several ways.
func (m *bench) costs(b *bytes.Buffer) error {
	each := []string{"--no-skip", "--workers", "1"}
	rows := []struct {
		name, icrc, memory string
		args               []string
	}{
		{"lengths only, a flag in place of the ICRC, digest", "flag", "phantom", each},
		{"and the ICRC computed", "full", "phantom", each},
		{"and a hash of the bytes at every receiver", "full", "hashed", each},
		{"and real bytes, compared at every receiver", "full", "bytes", each},
		{"lengths only, `--trace messages`", "flag", "phantom", append([]string{"--trace", "messages"}, each...)},
		{"lengths only, `--check`", "flag", "phantom", append([]string{"--check"}, each...)},
		{"lengths only, what repeats left out", "flag", "phantom", nil},
	}
	size := "16MiB"
	if m.quick {
		size = "256KiB"
	}
	all := make([][]usage, len(rows))
	for range m.runs {
		for i, r := range rows {
			lab := fmt.Sprintf("name: cost\nseed: 1\ntopology: {fat-tree: {k: 8}}\nlinks: {rate: 100Gbps, delay: 1us}\n"+
				"switches: {buffer: 64MB, latency: 0}\nnics: {mtu: 4096, ack-every: 16, icrc: %s}\n"+
				"workloads:\n  - bcast: {schemes: [cepheus], sizes: [%s], iterations: 1, memory: %s}\n", r.icrc, size, r.memory)
			u, err := m.run(lab, r.args...)
			if err != nil {
				return err
			}
			all[i] = append(all[i], u)
		}
	}
	fmt.Fprintf(b, "\n## What a run costs\n\nA broadcast of %s to 127 hosts, `mcastlab run` from beginning to end: one worker, every packet simulated but in the last row.\n\n"+
		"| what | processor, s | wall, s |\n|---|---|---|\n", size)
	for i, r := range rows {
		fmt.Fprintf(b, "| %s | %.2f | %.2f |\n", r.name, median(field(all[i], usage.processor)), median(field(all[i], usage.elapsed)))
	}
	return nil
}

// memory runs broadcasts over fabrics of several sizes.
func (m *bench) memory(b *bytes.Buffer) error {
	presets := []struct {
		name  string
		hosts int
	}{{"ft1024", 1024}, {"ft16384", 16384}}
	if m.quick {
		presets = presets[:1]
	}
	b.WriteString("\n## Memory\n\nThe most memory that `mcastlab run` had for a broadcast of 1 MiB, lengths only, from one host to all others.\n\n" +
		"| hosts | MB | KB a host | processor, s | wall, s |\n|---|---|---|---|---|\n")
	for _, p := range presets {
		u, err := m.run(fmt.Sprintf("name: memory\nseed: 1\ntopology: {three-layer: {preset: %s}}\nlinks: {rate: 200Gbps, delay: 1us}\n"+
			"switches: {buffer: 64MB, latency: 0}\nnics: {mtu: 4096, icrc: flag}\n"+
			"workloads:\n  - bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 1, memory: phantom}\n", p.name))
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| %d | %.0f | %.0f | %.2f | %.2f |\n", p.hosts, u.bytes/1e6, u.bytes/1e3/float64(p.hosts), u.cpu, u.wall)
	}
	return nil
}

// processor returns the processor's name, if the system has it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	if f := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(info); f != nil {
		return string(f[1])
	}
	return "unknown"
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func field(all []usage, f func(usage) float64) (v []float64) {
	for _, u := range all {
		v = append(v, f(u))
	}
	return v
}

// usage holds the resources of one run.
type usage struct{ cpu, wall, bytes, hops float64 }

func (u usage) processor() float64 { return u.cpu }
func (u usage) elapsed() float64   { return u.wall }

// rssUnit is the unit of Maxrss in bytes.
func rssUnit() float64 {
	if runtime.GOOS == "darwin" {
		return 1
	}
	return 1024
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// run simulates a lab in a folder of its own.
func (m *bench) run(lab string, args ...string) (usage, error) {
	dir, err := os.MkdirTemp(m.dir, "run")
	if err != nil {
		return usage{}, fmt.Errorf("make a folder for a run: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder for temporary files
	file := filepath.Join(dir, "lab.mcl.yml")
	if err := os.WriteFile(file, []byte(lab), 0o644); err != nil {
		return usage{}, err
	}
	c := exec.Command(m.path("mcastlab"), append(append([]string{"run", "-q"}, args...), file)...)
	c.Dir = dir
	begin := time.Now()
	if o, err := c.CombinedOutput(); err != nil {
		return usage{}, fmt.Errorf("%s: %w\n%s%s", strings.Join(c.Args, " "), err, lab, o)
	}
	u := usage{wall: time.Since(begin).Seconds()}
	r, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return usage{}, fmt.Errorf("%s: the system does not tell what it used", c.Path)
	}
	if u.hops, err = hops(dir); err != nil {
		return usage{}, err
	}
	u.cpu, u.bytes = seconds(r.Utime)+seconds(r.Stime), float64(r.Maxrss)*rssUnit()
	return u, nil
}

// hops returns the packet-hops of the only run below a folder.
func hops(dir string) (float64, error) {
	all, err := filepath.Glob(filepath.Join(dir, "runs", "*", "meta.json"))
	if err != nil || len(all) != 1 {
		return 0, fmt.Errorf("%d runs in %s, want one: %w", len(all), dir, err)
	}
	text, err := os.ReadFile(all[0])
	if err != nil {
		return 0, err
	}
	var meta struct {
		Hops float64 `json:"packet_hops"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return 0, fmt.Errorf("read %s: %w", all[0], err)
	}
	return meta.Hops, nil
}

const head = `# Speed

Written by ` + "`make bench-page`" + ` on %s/%s, %s, %d cores, %s. Medians of %d runs, taken in turn; memory from one run. Time of the
processor is that of the process alone; on a machine that others use it still varies by a third and more, because caches are shared.

The *bare loop* is ` + "`drivers/sim/bare_test.go`" + `: the same event queue, links and paths, and no headers, queues, machines or checks. It is an upper bound for
the simulator, and it gains from a faster queue as the simulator does.
`

const peers = `
## The same work on other simulators

Rates of simulators differ by what they count. Count frames that arrive at the end of a link, and nothing else, with set-up left out:

* **htsim** (github.com/Broadcom/csg-htsim), ` + "`htsim_roce`" + `: add a counter to the receiving end of ` + "`Pipe::doNextEvent`" + `, not to its event loop, which has 1.6 to 2.9 events
  for a hop, and not to ` + "`CallbackPipe`" + `, which is no link. 128 hosts, 1000-byte packets, a permutation of 1 MB flows:
  ` + "`-nodes 128 -tiers 3 -linkspeed 100000 -mtu 1000 -hop_latency 1 -strat ecmp_host -paths 64 -q 100 -pfc_thresholds 12 15 -queue_type lossless_input -tm perm.tm -end 1000`" + `;
  1,024 hosts: ` + "`-nodes 1024 -end 100`" + `. Its hops have acknowledgements and pause frames in them, as ours have.
* **ns-3**: a fat-tree of ` + "`PointToPointNetDevice`" + ` at 100 Gb/s and 1 us, UDP at the same sizes, routes by ` + "`Ipv4StaticRouting`" + `, built with ` + "`-d optimized`" + `. Count the trace source
  ` + "`PhyRxEnd`" + ` of all devices.
* **mcastlab**: ` + "`packet_hops`" + ` of a run's ` + "`meta.json`" + `, or the benchmark ` + "`Permutation`" + ` of drivers/sim, whose packets are 1024 bytes, 64 in flight.

Run them in turn on one machine, one at a time, eight times each, and compare medians.
`
