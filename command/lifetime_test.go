// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// census holds the objects of a lab's nodes, by name.
type census map[string]node

// node counts the objects of one node, frames included.
type node struct {
	counters.Held
	Frames int
}

// held takes the census of a running lab.
func held(t *testing.T, lab string) census {
	t.Helper()
	var r struct{ Nodes []counters.Node }
	if err := json.Unmarshal([]byte(must(t, "inspect", "--format", "json", lab).out), &r); err != nil {
		t.Fatal(err)
	}
	all := census{}
	for _, n := range r.Nodes {
		if n.Held == nil {
			t.Fatalf("node %s of %s is gone", n.Node, lab)
		}
		all[n.Node] = node{*n.Held, n.Live}
	}
	return all
}

// rested waits until a lab holds what it held when it was deployed: between runs nothing of
// them is left. Nobody is waited for but the nodes themselves.
func rested(t *testing.T, lab string, fresh census) {
	t.Helper()
	restedBut(t, lab, fresh, func(*node) {})
}

// restedBut is rested where something does not count.
func restedBut(t *testing.T, lab string, fresh census, but func(n *node)) {
	t.Helper()
	var differ []string
	for deadline := time.Now().Add(3 * time.Minute); ; <-time.After(pollEvery) {
		now := held(t, lab)
		differ = nil
		for name, want := range fresh { // sorted below
			got := now[name]
			// When the lab was fresh, the command that deployed it had perhaps not hung up, and a frame of a device's kernel
			// (an MLD report of its new interface) was perhaps passing an adapter.
			got.Goroutines, got.Files, got.Frames = max(got.Goroutines, want.Goroutines), max(got.Files, want.Files), max(got.Frames, want.Frames)
			if but(&got); !reflect.DeepEqual(got, want) {
				differ = append(differ, fmt.Sprintf("%s holds %+v\n\tfreshly deployed %+v", name, got, want))
			}
		}
		if len(differ) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	slices.Sort(differ)
	t.Errorf("lab %s is not as it was deployed:\n%s", lab, strings.Join(differ, "\n"))
}

// empty is rested where the process of a node may have more or less than when it was deployed:
// controllers come and go, and call it.
func empty(t *testing.T, lab string) {
	t.Helper()
	var left census
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); <-time.After(pollEvery) {
		if left = held(t, lab); left.empty() {
			return
		}
	}
	t.Errorf("lab %s holds %+v", lab, left)
}

func (c census) empty() bool {
	for _, n := range c { // independent of each other
		n.Goroutines, n.Files = 0, 0
		if !reflect.DeepEqual(n, node{}) {
			return false
		}
	}
	return true
}

// registering leaves out a group whose deletion the leader's host still repeats. Who was killed
// in the middle of a registration has no tree by which the members hear of its end: the host
// gives up after 630 ms of lab time, ten minutes here, or when the next run takes it back.
func registering(n *node) {
	if n.Registrations == 1 {
		n.Registrations = 0
		n.Timers--
	}
}

// interrupted is a run of a running lab that ends early.
type interrupted struct {
	t          *testing.T
	lab        string
	cmd        *exec.Cmd
	out, err   *os.File // our ends of its pipes
	said       bytes.Buffer
	read, over chan struct{}
	dir        string
}

// begin starts a run of a running lab.
func begin(t *testing.T, lab, file string) *interrupted {
	t.Helper()
	r := &interrupted{t: t, lab: lab, dir: t.TempDir(), read: make(chan struct{}), over: make(chan struct{})}
	r.cmd = exec.Command(program1(t), "run", "-r", "netns", "--dilation", "1000", "--runs", r.dir, file)
	var outs, errs *os.File
	var err error
	if r.out, outs, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if r.err, errs, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = outs, errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = outs.Close(), errs.Close() // they are the program's
	go func() {
		_, _ = io.Copy(&r.said, r.err) // until an end of the pipe is closed
		close(r.read)
	}()
	go func() {
		_ = r.cmd.Wait() // the exit code says it
		close(r.over)
	}()
	return r
}

// flows waits until data flows, or the run has ended.
func (r *interrupted) flows() {
	waitFor(r.t, func() bool {
		select {
		case <-r.over:
			return true
		default:
		}
		b, err := os.ReadFile(filepath.Join(r.dir, r.lab+"-1", "events.jsonl"))
		return err == nil && bytes.Contains(b, []byte(`"group-active"`))
	})
}

func (r *interrupted) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) } // it may have ended

// ended waits for the end of the run, and kills one that does not hear: which is another way
// for it to end, and has to leave as little.
func (r *interrupted) ended(patience time.Duration) {
	r.t.Helper()
	select {
	case <-r.over:
	case <-time.After(patience):
		r.t.Logf("after %v the run is killed", patience)
		r.signal(syscall.SIGKILL)
		<-r.over
	}
	_ = r.out.Close()
	_ = r.err.Close()
	<-r.read
}

// ways returns the ways to end a run early. Each returns when the run has ended.
func ways(file string) map[string]func(r *interrupted) {
	bySignal := func(s syscall.Signal) func(*interrupted) {
		return func(r *interrupted) { r.signal(s); r.ended(30 * time.Second) }
	}
	dead := func(r *interrupted, node string, alone bool) {
		if !alone {
			r.signal(syscall.SIGKILL)
		}
		killNode(r.t, r.lab, node)
		r.ended(60 * time.Second)
		must(r.t, "deploy", "-q", "-r", "netns", file)
	}
	return map[string]func(r *interrupted){
		"SIGINT":  bySignal(syscall.SIGINT),
		"SIGTERM": bySignal(syscall.SIGTERM),
		"SIGHUP":  bySignal(syscall.SIGHUP),
		"SIGQUIT": bySignal(syscall.SIGQUIT),
		"kill -9": bySignal(syscall.SIGKILL),
		"closed pipe": func(r *interrupted) {
			_ = r.out.Close()
			_ = r.err.Close()
			r.ended(3 * time.Second) // unless it has something to say it does not notice
		},
		"member killed":             func(r *interrupted) { dead(r, "h2", true) },
		"leader killed":             func(r *interrupted) { dead(r, "h0", true) },
		"leader killed, and kill-9": func(r *interrupted) { dead(r, "h0", false) },
		"failed send": func(r *interrupted) {
			must(r.t, "fault", "add", "--lab", r.lab, "--link", "h2-*", "link-down")
			r.ended(60 * time.Second)
			must(r.t, "fault", "reset", "--lab", r.lab)
		},
	}
}

// TestInterruptedRuns: on a lab that stays up runs end in every way before their time, at
// moments of a seed. After each the lab is as it was deployed, whether it is given time for
// that or the next run comes at once; and what a clean run then measures is what it measured
// on the fresh lab.
func TestInterruptedRuns(t *testing.T) {
	need(t)
	runs, seed := 20, uint64(13)
	if os.Getenv("MCASTLAB_SOAK") != "" {
		runs, seed = 500, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(13, seed))
	before := snapshot(t)
	const lab = "t-dirty"
	file := write(t, dirtyLab(lab))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	must(t, "deploy", "-q", "-r", "netns", file)
	fresh := held(t, lab)
	first := cleanRun(t, file)
	rested(t, lab, fresh)

	all := ways(file)
	var names []string
	for i := range runs {
		if len(names) == 0 {
			for name := range all { // sorted
				names = append(names, name)
			}
			slices.Sort(names)
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		}
		name := names[0]
		names = names[1:]
		flowing, wait := random.IntN(4) > 0, time.Duration(random.IntN(1000))*time.Millisecond
		t.Logf("%d: %s, %v after the start (of data: %v)", i, name, wait, flowing)
		r := begin(t, lab, file)
		if flowing {
			r.flows()
		}
		<-time.After(wait)
		all[name](r)
		switch rest := random.IntN(3) > 0; {
		case rest && r.cmd.ProcessState.ExitCode() < 0: // killed
			restedBut(t, lab, fresh, registering)
		case rest:
			rested(t, lab, fresh)
		}
		if t.Failed() {
			t.Fatalf("after %s; the run said:\n%s", name, r.said.String())
		}
	}
	sameTimes(t, first, cleanRun(t, file))
	rested(t, lab, fresh)
	must(t, "destroy", lab)
	same(t, before, snapshot(t))
}

// dirtyLab is a lab with a switch that is nobody's neighbour but switches'.
func dirtyLab(name string) string {
	return "name: " + name + `
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
nics: {timeout: 524us, retries: 2}
workloads:
  - bcast: {schemes: [cepheus, binomial], sizes: [4MiB], iterations: 2}
`
}

// TestLeftovers: what nobody is left to give back, since the leader of a group was killed and so
// was the run, the next run takes away.
func TestLeftovers(t *testing.T) {
	need(t)
	before := snapshot(t)
	const lab = "t-dirty"
	file := write(t, dirtyLab(lab))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	must(t, "deploy", "-q", "-r", "netns", file)
	fresh := held(t, lab)
	r := begin(t, lab, file)
	r.flows()
	r.signal(syscall.SIGKILL)
	killNode(t, lab, "h0")
	r.ended(30 * time.Second)
	cleanRun(t, file)
	rested(t, lab, fresh)
	must(t, "destroy", lab)
	same(t, before, snapshot(t))
}

// cleanRun runs a running lab: every byte is correct on any server.
func cleanRun(t *testing.T, file string) *runner.Report {
	t.Helper()
	o := invoke(t, nil, "run", "-q", "-r", "netns", "--dilation", "1000", "--runs", t.TempDir(), "--format", "json", file)
	if o.code != exitOK && o.code != exitFidelity {
		t.Fatalf("a clean run: exit %d\n%s%s", o.code, o.out, o.err)
	}
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Results {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("row %+v", row)
		}
	}
	return r
}

// sameTimes compares the times of two runs of a lab, where both are true to time: each may be
// wrong by the share of the verdict.
func sameTimes(t *testing.T, a, b *runner.Report) {
	t.Helper()
	if len(a.Results) != len(b.Results) {
		t.Fatalf("%d rows and %d", len(a.Results), len(b.Results))
	}
	true2 := timely(t, a) && timely(t, b)
	const verdict = 0.05
	for i := range a.Results {
		x, y := a.Results[i].JCT.P50, b.Results[i].JCT.P50
		t.Logf("%s: %.2f us on a fresh lab, %.2f us after all", a.Results[i].Scheme, x, y)
		if true2 && math.Abs(y/x-1) > 2*verdict {
			t.Errorf("%s takes %.2f us, and took %.2f us on the fresh lab", a.Results[i].Scheme, y, x)
		}
	}
}
