// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// lockstepLab returns the file of an example that runs in virtual time, under a name of its own.
func lockstepLab(t *testing.T, example string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../examples", example+".mcl.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.HasPrefix(line, "runtime:"):
			continue
		case strings.HasPrefix(line, "name:"):
			line = "name: t-step-" + example + "\n"
		}
		lines = append(lines, line)
	}
	return write(t, strings.Join(lines, "")+"runtime: {clock: lockstep}\n")
}

// exact runs a lab and returns its report.
func exact(t *testing.T, runtime, file string, more ...string) *runner.Report {
	t.Helper()
	args := append([]string{"run", "-q", "--runtime", runtime, "--runs", t.TempDir(), "--format", "json"}, more...)
	o := must(t, append(args, file)...)
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// sameRun holds a run against the simulation of the same lab: the digest, every row and every text.
func sameRun(t *testing.T, got, want *runner.Report) {
	t.Helper()
	if got.Digest != want.Digest {
		t.Errorf("digest %s under %s, %s in the simulation", got.Digest, got.Runtime, want.Digest)
	}
	if len(want.Results) == 0 {
		t.Error("the lab measures nothing")
	}
	for _, r := range []*runner.Report{got, want} {
		for i := range r.Results {
			r.Results[i].Traffic = nil
		}
	}
	a, b := asJSON(t, got.Results, got.Texts, got.Counters), asJSON(t, want.Results, want.Texts, want.Counters)
	if a != b {
		t.Errorf("under %s\n%s\nin the simulation\n%s", got.Runtime, a, b)
	}
}

func asJSON(t *testing.T, all ...any) string {
	t.Helper()
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLockstep: what runs in virtual time is the simulation, to the bit: every scheme and workload,
// on the fat-tree of the quickstart and on a star, in processes and in containers.
func TestLockstep(t *testing.T) {
	for _, c := range []struct{ example, runtime string }{
		{"star", "netns"}, {"star", "docker"}, {"quickstart", "netns"}, {"quickstart", "docker"}, {"all-schemes", "netns"},
	} {
		t.Run(c.example+"/"+c.runtime, func(t *testing.T) {
			need(t, c.runtime)
			file := lockstepLab(t, c.example)
			before := snapshot(t)
			sameRun(t, exact(t, c.runtime, file), exact(t, "sim", file))
			same(t, before, snapshot(t))
		})
	}
}

// TestLockstepManyToMany: many hosts send to groups whose tables the run fills, in containers as in the
// simulation, and not on the wall clock.
func TestLockstepManyToMany(t *testing.T) {
	need(t, "docker")
	file := write(t, "name: t-step-many\ntopology: {m-port-n-tree: {m: 4, n: 2}}\nworkloads:\n"+
		"  - many-to-many: {sources: 4, group: 6, groups: per-source, schemes: [cyclic, cyclic-class, opensm, unicast], sizes: [32B, 4KiB], iterations: 3}\n")
	before := snapshot(t)
	sameRun(t, exact(t, "docker", file), exact(t, "sim", file))
	if o := invoke(t, nil, "run", "-q", "-r", "docker", "--dilation", "100", "--runs", t.TempDir(), file); o.code != exitLab || !strings.Contains(o.err, "in virtual time only") {
		t.Errorf("on the wall clock: exit %d, %s", o.code, o.err)
	}
	same(t, before, snapshot(t))
}

// TestLockstepFlows: flows that begin and end do so at the simulation's instants, on namespaces too.
func TestLockstepFlows(t *testing.T) {
	need(t, "netns")
	file := write(t, "name: t-step-flows\ntopology: {star: {hosts: 4}}\nswitches: {ecn: true}\nnics: {congestion: dcqcn}\nworkloads:\n"+
		"  - flows: {message: 4KiB, interval: 20us, flows: [{name: one, from: h0, to: h1..h2, end: 200us}, {name: two, from: h3, to: h1, begin: 50us, end: 150us}]}\n")
	before := snapshot(t)
	sameRun(t, exact(t, "netns", file), exact(t, "sim", file))
	same(t, before, snapshot(t))
}

// TestLockstepFaults: a fault of each kind comes at its exact instant, and the run ends as its
// simulation does: well, or with the same error.
func TestLockstepFaults(t *testing.T) {
	need(t)
	before := snapshot(t)
	for i, fault := range simlab.LabFaults() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			file := write(t, fmt.Sprintf(`name: t-step-fault%d
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
nics: {retries: 2, timeout: 67us}
runtime: {clock: lockstep}
faults: [%s]
workloads: [{bcast: {schemes: [cepheus, chain], sizes: [1B, 64KiB, 1MiB]}}, {storage: {schemes: [unicasts, multicast-shared], bs: [4KiB], size: 64KiB, on-failure: degrade, ranks: [h0, h1, h2, h3]}}]
`, i, fault))
			got, want := wholeRun(t, "netns", file), wholeRun(t, "sim", file)
			if got != want {
				t.Errorf("%s\nunder netns\n%s\nin the simulation\n%s", fault, got, want)
			}
		})
	}
	same(t, before, snapshot(t))
}

// wholeRun runs a lab and returns how that ended, with all that the report and the events tell.
func wholeRun(t *testing.T, runtime, file string) string {
	t.Helper()
	text, r := allOf(t, runtime, file)
	if len(r.Faults) == 0 {
		t.Errorf("under %s the run has no faults: %s", runtime, text)
	}
	return text
}

// allOf does that for a lab with or without faults, and returns the report, too.
func allOf(t *testing.T, runtime, file string) (text string, r *runner.Report) {
	t.Helper()
	runs := t.TempDir()
	o := invoke(t, nil, "run", "-q", "--runtime", runtime, "--runs", runs, file)
	if o.code != 0 && o.code != exitFailed && o.code != exitRuntime {
		t.Fatalf("exit %d: %s", o.code, o.err)
	}
	found, err := filepath.Glob(filepath.Join(runs, "*", "summary.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("summaries %v, %v: %s", found, err, o.err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	for i := range r.Results {
		r.Results[i].Traffic = nil
	}
	if r.Digest == "" {
		t.Errorf("under %s the run has no digest: %s", runtime, o.err)
	}
	errs := strings.Join(slices.DeleteFunc(strings.Split(o.err, "\n"), func(line string) bool { return !strings.HasPrefix(line, "mcastlab: ") }), "\n")
	events, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exit %d, digest %s, %s\n%s\n%s", o.code, r.Digest, errs, asJSON(t, r.Results, r.Faults, r.Texts, r.Counters), events), r
}

// TestLockstepCaptured: captures are those of the simulation, byte for byte, also where their room ends,
// and the trace of messages has the same lines.
func TestLockstepCaptured(t *testing.T) {
	need(t)
	file := lockstepLab(t, "star")
	for _, limit := range []string{"1GiB", "2MiB"} {
		files := map[string]map[string]string{}
		for _, runtime := range []string{"netns", "sim"} {
			runs := t.TempDir()
			o := must(t, "run", "-q", "--runtime", runtime, "--runs", runs, "--capture", "h0:0", "--capture", "leaf0:*", "--capture-limit", limit, "--trace", "messages", file)
			if cut := strings.Contains(o.err, "beyond the limit"); cut != (limit == "2MiB") {
				t.Errorf("under %s with %s: %s", runtime, limit, o.err)
			}
			found, err := filepath.Glob(filepath.Join(runs, "*", "*.pcapng"))
			if err != nil || len(found) < 3 {
				t.Fatalf("captures %v, %v", found, err)
			}
			files[runtime] = map[string]string{}
			for _, name := range append(found, filepath.Join(filepath.Dir(found[0]), runner.TraceFile)) {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if filepath.Base(name) == runner.TraceFile { // each node's lines have their order
					lines := strings.Split(regexp.MustCompile(`,"crc32c":"[0-9a-f]+"`).ReplaceAllString(string(b), ""), "\n") // of that order
					slices.Sort(lines)
					b = []byte(strings.Join(lines, "\n"))
				}
				files[runtime][filepath.Base(name)] = string(b)
			}
		}
		for name, want := range files["sim"] {
			if got := files["netns"][name]; got != want || len(want) < 1000 {
				t.Errorf("with %s, %s has %d bytes, in the simulation %d, and they are equal: %v", limit, name, len(got), len(want), got == want)
			}
		}
	}
}

// TestLockstepBusy: a server on which eight loops spin on each processor changes nothing but the
// wall time.
func TestLockstepBusy(t *testing.T) {
	need(t)
	file := lockstepLab(t, "star")
	want := exact(t, "sim", file)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 8 * runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { stop(); _ = cmd.Wait() }() // killed
	}
	sameRun(t, exact(t, "netns", file), want)
}

// TestLockstepAgain: runs on a lab that stays up are like runs on a new one.
func TestLockstepAgain(t *testing.T) {
	need(t)
	file := lockstepLab(t, "star")
	want := exact(t, "sim", file)
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-star")
	for range 2 {
		sameRun(t, exact(t, "netns", file), want)
	}
}

// TestLockstepChecked: --check-digest says that a run is its simulation, and is refused where it has
// no effect.
func TestLockstepChecked(t *testing.T) {
	need(t)
	file := lockstepLab(t, "star")
	o := must(t, "run", "--runtime", "netns", "--check-digest", "--runs", t.TempDir(), file)
	if !strings.Contains(o.err, "which is the simulation's") {
		t.Error(o.err)
	}
	for _, args := range [][]string{{"--runtime", "sim", file}, {"--runtime", "netns", "--dilation", "100", file}} {
		if o := invoke(t, nil, append([]string{"run", "--check-digest"}, args...)...); o.code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, o.code, o.err)
		}
	}
}

// longRun is a run in virtual time, of some seconds, on a lab that stays up.
type longRun struct {
	t    *testing.T
	cmd  *exec.Cmd
	said bytes.Buffer
	dir  string
}

const longLab = "name: t-step-long\ntopology: {star: {hosts: 4}}\nworkloads:\n" +
	"  - bcast: {schemes: [cepheus, chain, unicast], sizes: [1MiB], iterations: 60}\n"

// startLong starts such a run and returns when it has gone on for a while.
func startLong(t *testing.T, random *rand.Rand) *longRun {
	t.Helper()
	return startRun(t, longLab, random)
}

func startRun(t *testing.T, lab string, random *rand.Rand) *longRun {
	t.Helper()
	r := &longRun{t: t, dir: t.TempDir()}
	r.cmd = exec.Command(program1(t), "run", "-q", "-r", "netns", "--format", "json", "--runs", r.dir, write(t, lab))
	r.cmd.Stderr = &r.said
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	waitFor(t, func() bool {
		found, err := filepath.Glob(filepath.Join(r.dir, "*", "meta.json"))
		return err == nil && len(found) > 0
	})
	<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
	return r
}

// end waits for the end of the run, and returns its exit code.
func (r *longRun) end() int {
	r.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		r.t.Fatal("the run does not end")
	}
	return r.cmd.ProcessState.ExitCode()
}

// TestLockstepEnds: a node or the command line that is killed, and every signal, at random instants,
// end a run in bounded time, name the node, and leave the lab as it was: the next run on it is the
// simulation.
func TestLockstepEnds(t *testing.T) {
	need(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(15, seed))
	file := write(t, longLab)
	want := exact(t, "sim", file)
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-long")
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	heed(syscall.SIGHUP)
	for _, s := range append(signals, slices.Repeat([]syscall.Signal{syscall.SIGKILL}, 10)...) {
		r := startLong(t, random)
		_ = r.cmd.Process.Signal(s)
		if code := r.end(); s != syscall.SIGKILL && code != signalBase+int(s) {
			t.Errorf("%v: exit %d, %s", s, code, r.said.String())
		}
	}
	timed := 0 // a run that is still being handed over has no lab time
	for _, node := range slices.Repeat([]string{"h2", "leaf0"}, 10) {
		r := startLong(t, random)
		killNode(t, "t-step-long", node)
		if code := r.end(); code != exitRuntime || !strings.Contains(r.said.String(), "node "+node) {
			t.Errorf("%s is killed: exit %d, %s", node, code, r.said.String())
		}
		if regexp.MustCompile("node " + node + ", at [0-9.]+[mun]?s of lab time: ").MatchString(r.said.String()) {
			timed++
		}
		must(t, "deploy", "-q", "-r", "netns", file) // brings the node back
	}
	if timed < 15 {
		t.Errorf("%d of 20 runs name the lab time at which a node was killed", timed)
	}
	sameRun(t, exact(t, "netns", file), want)
}

// TestLockstepStopped: a node that is stopped for a while stops the lab's time, and the run is what
// it would have been.
func TestLockstepStopped(t *testing.T) {
	need(t)
	want := exact(t, "sim", write(t, longLab))
	must(t, "deploy", "-q", "-r", "netns", write(t, longLab))
	defer must(t, "destroy", "t-step-long")
	r := startLong(t, rand.New(rand.NewPCG(16, 1)))
	pid := nodePID(t, "t-step-long", "h1")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(6500 * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := r.end(); code != 0 || !strings.Contains(r.said.String(), "node h1 is stopped, and lab time stays at") {
		t.Fatalf("exit %d, %s", code, r.said.String())
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "t-step-long-1", "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := &runner.Report{}
	if err := json.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if got.Digest != want.Digest {
		t.Errorf("digest %s, %s in the simulation", got.Digest, want.Digest)
	}
}

// TestLockstepByHand: faults that are added and taken away while a run is under way come at instants that
// its record has. A simulation that is given the record is the same run, and so is a second run.
func TestLockstepByHand(t *testing.T) {
	need(t)
	file := write(t, longLab)
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-long")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := startLong(t, rand.New(rand.NewPCG(17, seed)))
	by := func(args ...string) string {
		t.Helper()
		return must(t, append(args, "--lab", "t-step-long")...).out
	}
	by("fault", "add", "rate-cut", "--link", "h1-leaf0", "--rate", "40Gbps", "--for", "2ms")
	id := strings.TrimSpace(by("fault", "add", "loss", "--link", "h*-leaf0", "--rate", "0.001"))
	if o := invoke(t, nil, "fault", "add", "loss", "--link", "h9-*", "--rate", "1", "--lab", "t-step-long"); o.code != exitUsage {
		t.Errorf("a fault of a link that is not there: exit %d, %s", o.code, o.err)
	}
	if list := by("fault", "ls"); !strings.Contains(list, id) || !strings.Contains(list, "rate-cut") {
		t.Errorf("fault ls says %s", list)
	}
	if state := must(t, "inspect", "t-step-long", "--format", "json").out; !strings.Contains(state, `"h1"`) || strings.Contains(state, "gone") {
		t.Errorf("inspect says %s", state)
	}
	by("fault", "reset", id)
	if code := r.end(); code != exitOK {
		t.Fatalf("exit %d, %s", code, r.said.String())
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "t-step-long-1", "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := &runner.Report{}
	if err := json.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Acts) != 3 || len(got.Faults) != 1 || got.Faults[0].Hit == 0 {
		t.Errorf("acts %+v, faults %+v", got.Acts, got.Faults)
	}
	acts := filepath.Join(r.dir, "t-step-long-1", runner.ActsFile)
	for _, runtime := range []string{"sim", "netns"} {
		again := exact(t, runtime, file, "--acts", acts)
		sameRun(t, got, again)
		if a, b := asJSON(t, got.Faults, got.Acts), asJSON(t, again.Faults, again.Acts); a != b {
			t.Errorf("under netns\n%s\nagain under %s\n%s", a, runtime, b)
		}
	}
	if plain := exact(t, "sim", file); plain.Digest == got.Digest {
		t.Error("what was done by hand changes nothing")
	}
}

// TestLockstepWork: in containers HPL has the simulation's factors, and a replica that is killed at an
// instant of lab time leaves the simulation's acknowledged writes: every row, digest and counter is equal.
func TestLockstepWork(t *testing.T) {
	need(t, "docker")
	before := snapshot(t)
	t.Run("hpl", func(t *testing.T) {
		file := write(t, `name: t-step-hpl
topology: {star: {hosts: 4}}
runtime: {clock: lockstep}
workloads: [{hpl: {n: [256], nb: [32], grids: [2x2], bcast: [cepheus, long], swap: multicast, gflops: 50}}]
`)
		got := exact(t, "docker", file)
		sameRun(t, got, exact(t, "sim", file))
		if rows := asJSON(t, got.Results); strings.Count(rows, `"lu_sha256": "`) != 2 {
			t.Errorf("no row has the factors' hash: %s", rows)
		}
	})
	t.Run("storage", func(t *testing.T) {
		file := write(t, `name: t-step-store
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
nics: {retries: 2, timeout: 67us}
runtime: {clock: lockstep}
faults: [{at: 60us, crash: {nodes: h2}}]
workloads: [{storage: {schemes: [unicasts, multicast-shared], bs: [4KiB], size: 256KiB, on-failure: degrade, ranks: [h0, h1, h2, h3]}}]
`)
		got, want := wholeRun(t, "docker", file), wholeRun(t, "sim", file)
		if got != want || !strings.Contains(want, "every acknowledged write is there") {
			t.Errorf("in containers\n%s\nin the simulation\n%s", got, want)
		}
	})
	same(t, before, snapshot(t))
}

// TestLockstepCapturedLate: captures that begin while a run is under way have the simulation's frames, in its
// order and with its times, from where they begin: to the number asked for, to an interrupt, or to the end.
func TestLockstepCapturedLate(t *testing.T) {
	need(t)
	const text = "name: t-step-late\ntopology: {star: {hosts: 4}}\nnics: {mtu: 256}\nworkloads:\n" +
		"  - bcast: {schemes: [cepheus, chain, unicast], sizes: [64KiB], iterations: 60}\n"
	file := write(t, text)
	runs := t.TempDir()
	must(t, "run", "-q", "--runs", runs, "--capture", "h1:0", file)
	want := blocksOf(t, filepath.Join(runs, "t-step-late-1", "h1_0.pcapng"))
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-late")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := startRun(t, text, rand.New(rand.NewPCG(18, seed)))
	dir := t.TempDir()
	var all []*exec.Cmd
	for _, how := range []string{"count", "interrupt", "end"} {
		args := []string{"capture", "--lab", "t-step-late", "-w", filepath.Join(dir, how)}
		if how == "count" {
			args = append(args, "-c", "1500")
		}
		c := exec.Command(program1(t), append(args, "h1:0")...)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		all = append(all, c)
	}
	random := rand.New(rand.NewPCG(20, seed))
	for range 10 { // users who are gone before, while and after theirs begins
		c := exec.Command(program1(t), "capture", "--lab", "t-step-late", "-w", filepath.Join(t.TempDir(), "gone"), "leaf0:0")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(random.IntN(60)) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	<-time.After(time.Second)
	_ = all[1].Process.Signal(syscall.SIGINT)
	if code := r.end(); code != exitOK {
		t.Fatalf("exit %d, %s", code, r.said.String())
	}
	for i, how := range []string{"count", "interrupt", "end"} {
		if err := all[i].Wait(); err != nil && how != "interrupt" {
			t.Errorf("%s: %v", how, err)
		}
		got := blocksOf(t, filepath.Join(dir, how))
		if len(got) < 1000 || how == "count" && len(got) != 1502 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s: %d blocks of pcapng", how, len(got))
			continue
		}
		// Frames in flight when the capture began left before its first frame, and arrive later.
		middle := got[200:]
		if how != "end" {
			middle = got[200 : len(got)-200]
		}
		if k := slices.Index(want, middle[0]); k < 0 || len(want) < k+len(middle) || !slices.Equal(want[k:k+len(middle)], middle) {
			t.Errorf("%s: the %d frames are not those of the simulation", how, len(middle))
		}
	}
}
