// SPDX-License-Identifier: Apache-2.0

// Command pgo writes cmd/mcastlab/default.pgo: which functions the simulator and the NIC spend their time in, and who calls them.
// go build takes it for that program (-pgo=auto), and inlines and lays out by it the functions that are called most. It never
// changes results. Run it in the folder of the module: make profile.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/pprof/profile"
)

// measured are benchmarks in which large labs spend their time: unicast and multicast, undivided and in parts, with and without
// digests and traces, and the work of a NIC and a switch on bytes.
var measured = []struct{ pkg, bench, time string }{
	{"drivers/sim", `^Benchmark(Permutation|Trace)$/(k=8|traced)`, "3x"},
	{"drivers/sim", `^BenchmarkBcastFT1024$`, "3x"},
	{"drivers/sim", `^BenchmarkParted$/^(k=16|bcast)$/^parts=16$`, "2x"},
	{"virtrnic", `^Benchmark(Requester|Responder|Message)$`, "0.1s"},
	{"virtswitch", `^BenchmarkHop$`, "0.3s"},
}

func main() {
	out := flag.String("out", filepath.Join("cmd", "mcastlab", "default.pgo"), "the profile")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "pgo:", err)
		os.Exit(1)
	}
}

func write(out string) error {
	dir, err := os.MkdirTemp("", "pgo")
	if err != nil {
		return fmt.Errorf("make a folder for programs and profiles: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder for temporary files
	var all []*profile.Profile
	for i, m := range measured {
		p, err := measure(dir, fmt.Sprint("p", i), m.pkg, m.bench, m.time)
		if err != nil {
			return fmt.Errorf("measure %s of %s: %w", m.bench, m.pkg, err)
		}
		all = append(all, p)
	}
	p, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("merge profiles: %w", err)
	}
	strip(p)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return fmt.Errorf("encode the profile: %w", err)
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}

// measure runs benchmarks of a package, each on one core, and returns where they spent their time.
func measure(dir, name, pkg, bench, time string) (*profile.Profile, error) {
	program, cpu := filepath.Join(dir, name), filepath.Join(dir, name+".cpu")
	build := exec.Command("go", "test", "-c", "-trimpath", "-o", program, "./"+pkg)
	run := exec.Command(program, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", time, "-test.cpu", "1", "-test.cpuprofile", cpu)
	run.Dir = pkg // where its files are
	for _, c := range []*exec.Cmd{build, run} {
		o, err := c.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(c.Path), err, o)
		}
		if c == run {
			if _, err := os.Stdout.Write(o); err != nil {
				return nil, err
			}
		}
	}
	b, err := os.ReadFile(cpu)
	if err != nil {
		return nil, fmt.Errorf("read what was measured: %w", err)
	}
	return profile.ParseData(b)
}

// strip removes fields that the compiler does not read: when, where and by which program it was
// measured.
func strip(p *profile.Profile) {
	p.TimeNanos, p.DurationNanos, p.Comments, p.Mapping = 0, 0, nil, nil
	for _, l := range p.Location {
		l.Mapping, l.Address = nil, 0
	}
	for _, s := range p.Sample {
		s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
	}
	*p = *p.Compact()
}
