// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
)

// hops is a lab in virtual time with 1, 3 and 5 switches between h0 and the other hosts.
const hops = `name: %s
topology: {custom: {hosts: [h0, h1, h2, h3], switches: [s0, s1, s2, s3, s4], links: [h0-s0, h1-s0, s0-s1, s1-s2, h2-s2, s2-s3, s3-s4, h3-s4]}}
links: {rate: 100Gbps, delay: 600ns}
runtime: {clock: lockstep, management: true}
workloads:
`

// pairOf is a workload in which a client at h0 sleeps for a second of lab time, while its server waits for it by TCP.
const pairOf = "  - command: {label: %s, run: [sh, -c, 'if [ $MCASTLAB_RANK = 1 ]; then exec %s; fi; sleep 1; exec %[2]s %[3]s'], ranks: [h0, %[3]s], timeout: 300s}\n"

// TestLiveTurns: in a lab whose time is virtual unmodified programs measure what a rank program measures in the simulation,
// and each run is the same run.
func TestLiveTurns(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "ibv_rc_pingpong", "ib_send_lat", "ib_write_bw", "ib_write_lat", "rping")
	measuring := trapsCounter(t)
	pingpong := fmt.Sprintf(hops, "t-turns") + fmt.Sprintf(pairOf, "pingpong", "ibv_rc_pingpong -g 0 -s 64 -n 200", "h3")
	text := pingpong
	for i := 1; measuring && i <= 3; i++ {
		host := fmt.Sprintf("h%d", i)
		text += fmt.Sprintf(pairOf, "lat-"+host, "ib_send_lat -F -n 100", host) + fmt.Sprintf(pairOf, "bw-"+host, "ib_write_bw -F -n 300", host)
	}
	text += "  - command: {label: threads, run: [sh, -c, 'if [ $MCASTLAB_RANK = 1 ]; then exec rping -s -a h1 -C 5; fi; sleep 1; exec rping -c -a h1 -C 5'], ranks: [h0, h1], timeout: 300s}\n"
	if measuring {
		text += fmt.Sprintf(pairOf, "memory", "ib_write_lat -F -n 20", "h1")
	}
	first := runTurns(t, write(t, text))
	for _, row := range first.Results {
		if row.Verified == nil || !*row.Verified || row.JCT.Max < 1e6 || row.JCT.Max > 10e6 {
			t.Errorf("%s takes %v us, verified %v: the client sleeps for a second first", row.Workload, row.JCT.Max, row.Verified)
		}
	}
	us := last(t, first, "pingpong", " = %f usec/iter")
	near(t, "ibv_rc_pingpong to h3", us/2, simulated(t, text, 3, 64, latencyOf), 3)
	for i := 1; measuring && i <= 3; i++ {
		host := fmt.Sprintf("h%d", i)
		near(t, "ib_send_lat to "+host, column(t, first, "lat-"+host, 4), simulated(t, text, i, 2, latencyOf), 3)
		near(t, "ib_write_bw to "+host, column(t, first, "bw-"+host, 3)*(1<<20)*8/1e9, simulated(t, text, i, 1<<16, bandwidthOf), 3)
	}
	if measuring {
		near(t, "ib_write_lat to h1", column(t, first, "memory", 4), simulated(t, text, 1, 2, latencyOf), 3)
	}
	small := write(t, pingpong)
	if measuring {
		small = write(t, pingpong+fmt.Sprintf(pairOf, "bw-h2", "ib_write_bw -F -n 100", "h2"))
	}
	var before *runner.Report
	for range 3 {
		r := runTurns(t, small)
		if before != nil && r.Digest != before.Digest {
			t.Errorf("digest %q, and in the run before %q", r.Digest, before.Digest)
		}
		for i := range r.Results {
			if before != nil && r.Results[i].JCT.Max != before.Results[i].JCT.Max {
				t.Errorf("%s takes %v us, and in the run before %v", r.Results[i].Workload, r.Results[i].JCT.Max, before.Results[i].JCT.Max)
			}
		}
		before = r
	}
	noLab(t, "t-turns", nil)
}

// trapsCounter reports whether a program's rdtsc can be made to fault here, which perftest needs.
func trapsCounter(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "tsc.c"), filepath.Join(dir, "tsc")
	const text = "#include <sys/prctl.h>\n#include <x86intrin.h>\nint main(void) { return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) || __rdtsc() == 1; }\n"
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-o", program, source).CombinedOutput(); err != nil {
		t.Logf("perftest is left out: its counter is not that of an x86-64 processor: %v\n%s", err, out)
		return false
	}
	err := exec.Command(program).Run()
	if err == nil || !strings.Contains(err.Error(), "segmentation fault") {
		t.Logf("perftest is left out: rdtsc does not fault on this server (%v), so it would show the server's time", err)
		return false
	}
	return true
}

// runTurns runs a lab, and returns its report.
func runTurns(t *testing.T, file string) *runner.Report {
	t.Helper()
	r := invoke(t, nil, "run", "-q", "-r", "netns", "--allow-programs", "--format", "json", "--runs", t.TempDir(), file)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	var report runner.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err)
	}
	return &report
}

// said returns what the client of a pair has written.
func said(t *testing.T, r *runner.Report, label string) string {
	t.Helper()
	return saidBy(t, r, label, 0)
}

// saidBy returns what the program of a rank has written.
func saidBy(t *testing.T, r *runner.Report, label string, rank int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.RunDir, "programs", label, fmt.Sprint(rank, ".out")))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// last returns the number of the last place with a format.
func last(t *testing.T, r *runner.Report, label, format string) (v float64) {
	t.Helper()
	text := said(t, r, label)
	i := strings.LastIndex(text, format[:3])
	if i < 0 {
		t.Fatal(text)
	}
	if _, err := fmt.Sscanf(text[i:], format, &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

// column returns a number of the last line of perftest's table.
func column(t *testing.T, r *runner.Report, label string, i int) float64 {
	t.Helper()
	text := said(t, r, label)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 {
		t.Fatalf("%s: %s", label, text)
	}
	fields := strings.Fields(lines[len(lines)-2])
	if len(fields) <= i {
		t.Fatalf("%s: %s", label, text)
	}
	v, err := strconv.ParseFloat(fields[i], 64)
	if err != nil {
		t.Fatalf("%s: %v\n%s", label, err, text)
	}
	return v
}

func near(t *testing.T, what string, got, want, percent float64) {
	t.Helper()
	off := (got/want - 1) * 100
	t.Logf("%s: %.4g, in the simulation %.4g: %+.2f %%", what, got, want, off)
	if !(math.Abs(off) <= percent) {
		t.Errorf("%s: %.4g, in the simulation %.4g: they differ by %+.2f %%", what, got, want, off)
	}
}

// simulated returns what a rank program measures between h0 and another host of a lab in the simulation.
func simulated(t *testing.T, text string, host, size int, measure func(r *rank.Rank, size int) (float64, error)) (v float64) {
	t.Helper()
	l, err := lab.Parse("lab", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Spec: labspec.Fabric(l, g), OutOfBand: labspec.ChannelDelay(l)})
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(sim.Job{Name: "measure", Hosts: []int{0, host}, Params: labspec.RankParams(l), Program: func(r *rank.Rank) error {
		x, err := measure(r, size)
		if r.ID() == 0 {
			v = x
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// latencyOf returns half of what a message takes there and back, in microseconds.
func latencyOf(r *rank.Rank, size int) (us float64, err error) {
	const rounds = 50
	c, b, err := connected(r, size)
	if err != nil {
		return 0, err
	}
	var from vtime.Time
	for range rounds {
		in, err := c.Recv(b, 0, size)
		if err != nil {
			return 0, err
		}
		r.Sync() // the peer has posted its own
		from = r.Now()
		if r.ID() == 0 {
			if _, err = c.Send(b, 0, size); err == nil {
				err = r.Wait(in)
			}
			us = r.Now().Sub(from).Microseconds() / 2
		} else if err = r.Wait(in); err == nil {
			var out *rank.Request
			if out, err = c.Send(b, 0, size); err == nil {
				err = r.Wait(out)
			}
		}
		if err != nil {
			return 0, err
		}
	}
	return us, nil
}

// bandwidthOf returns what 300 WRITEs carry.
func bandwidthOf(r *rank.Rank, size int) (gbps float64, err error) { return bandwidth(r, size, 300) }

// bandwidth returns what WRITEs carry, in gigabits of payload per second.
func bandwidth(r *rank.Rank, size, writes int) (gbps float64, err error) {
	const depth = 128
	c, b, err := connected(r, size)
	if err != nil {
		return 0, err
	}
	if r.ID() == 1 {
		r.Put("memory", []byte(fmt.Sprint(b.Addr(), " ", b.RKey())))
		r.Sync()
		return 0, nil
	}
	var addr uint64
	var key uint32
	if _, err := fmt.Sscan(string(r.Get("memory")), &addr, &key); err != nil {
		return 0, err
	}
	from := r.Now()
	var all []*rank.Request
	for i := range writes {
		if i >= depth {
			if err := r.Wait(all[i-depth]); err != nil {
				return 0, err
			}
		}
		q, err := c.Write(b, 0, size, addr, key)
		if err != nil {
			return 0, err
		}
		all = append(all, q)
	}
	err = r.Wait(all...)
	gbps = float64(writes) * float64(size) * 8 / (r.Now().Sub(from).Microseconds() * 1e3)
	r.Sync()
	return gbps, err
}

func connected(r *rank.Rank, size int) (*rank.Conn, *rank.Buffer, error) {
	b, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return nil, nil, err
	}
	c, err := r.Connect(1 - r.ID())
	return c, b, err
}
