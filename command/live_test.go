// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// built is the program as users have it, a process of its own.
var built struct {
	once sync.Once
	path string
	err  error
}

func program1(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "mcastlab-test-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "mcastlab")
		cmd := goBuild(built.path, "../cmd/mcastlab")
		if raceDetector { // what a test under the race detector starts is under it, too
			cmd = exec.Command("go", "build", "-race", "-pgo=off", "-o", built.path, "../cmd/mcastlab")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// need skips a test that brings labs up unless MCASTLAB_LIVE asks for it, as make test-live
// does: such tests take longer together than go test gives a package by default.
func need(t *testing.T, runtimes ...string) {
	t.Helper()
	if os.Getenv("MCASTLAB_LIVE") == "" {
		t.Skip("brings labs up: make test-live")
	}
	needRoot(t, runtimes...)
}

// needRoot skips a test where it cannot run, or fails it where it must.
func needRoot(t *testing.T, runtimes ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings labs up")
	}
	var why string
	switch {
	case os.Geteuid() != 0:
		why = "root is needed"
	case slices.Contains(runtimes, "docker") && exec.Command("docker", "version").Run() != nil:
		why = "no Docker engine answers"
	default:
		return
	}
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// needTshark returns the path of tshark, empty where it is not there and need not be.
func needTshark(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("tshark")
	if err != nil && os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
		t.Fatal(err)
	}
	return path
}

// invoke runs the program as a process.
func invoke(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return invokeCtx(t.Context(), t, env, args...)
}

func invokeCtx(ctx context.Context, t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program1(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// asNobody runs the program as a user who may read the lab file but nothing of root's.
func asNobody(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	const uid = 65534
	text, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(program1(t)), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program1(t), append(slices.Clone(args[:len(args)-1]), "-")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &errOut
	cmd.Env, cmd.Dir = append(os.Environ(), env...), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	_ = cmd.Run() // the exit code says it
	if cmd.ProcessState == nil {
		t.Fatal("the program did not run")
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// must runs the program and fails the test if it fails.
func must(t *testing.T, args ...string) outcome {
	t.Helper()
	o := invoke(t, nil, args...)
	if o.code != 0 {
		t.Fatalf("mcastlab %s: exit %d\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o
}

func starLab(name, more string) string {
	return "name: " + name + "\ntopology: {star: {hosts: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus, binomial, unicast], sizes: [64B, 64KiB, 1MiB], iterations: 2}\n" + more
}

// runLab runs a lab, more slowly if the server could not keep up, and returns its
// report. Where it still could not, times mean nothing and everything else counts.
func runLab(t *testing.T, runtime, file string, more ...string) *runner.Report {
	t.Helper()
	var o outcome
	for _, slower := range []string{"1", "4"} {
		args := append([]string{"run", "-q", "--runtime", runtime, "--runs", t.TempDir(), "--format", "json"}, more...)
		if b, err := os.ReadFile(file); err == nil && runtime != "sim" && !bytes.Contains(b, []byte("clock: lockstep")) {
			args = append(args, "--slower", slower)
		}
		o = invoke(t, nil, append(args, file)...)
		if o.code != exitFidelity {
			break
		}
		t.Logf("slower %s: %s", slower, o.err)
	}
	if o.code != 0 && o.code != exitFidelity {
		t.Fatalf("%s under %s: exit %d\n%s%s", file, runtime, o.code, o.out, o.err)
	}
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil {
		t.Fatal(err)
	}
	if (o.code == 0) != (r.Fidelity.Verdict == "ok") {
		t.Errorf("exit %d with fidelity %+v", o.code, r.Fidelity)
	}
	return r
}

// timely reports whether the times of a run mean anything. On a server that is too busy for
// the lab they do not, and the run says so, which is all that can be asked of it.
func timely(t *testing.T, r *runner.Report) bool {
	t.Helper()
	if r.Fidelity.Verdict != "ok" {
		t.Logf("the server could not keep up, times are not compared: %s", r.Fidelity.Reason)
	}
	return r.Fidelity.Verdict == "ok"
}

// compare holds a run against the same lab on the event clock: every byte right, the
// same rows, and from 1 MiB on the ratios between schemes within 10 %.
func compare(t *testing.T, real, sim *runner.Report) {
	t.Helper()
	if len(real.Results) != len(sim.Results) {
		t.Fatalf("%d rows of %d", len(real.Results), len(sim.Results))
	}
	inTime := timely(t, real)
	first := map[int]int{}
	for i, r := range real.Results {
		s := sim.Results[i]
		if r.Verified == nil || !*r.Verified || r.Scheme != s.Scheme || r.SizeBytes != s.SizeBytes || r.Iterations != s.Iterations {
			t.Errorf("row %+v, on the event clock %+v", r, s)
			continue
		}
		k, ok := first[r.SizeBytes]
		if !ok {
			first[r.SizeBytes], k = i, i
		}
		got, want := r.JCT.P50/real.Results[k].JCT.P50, s.JCT.P50/sim.Results[k].JCT.P50
		t.Logf("%s at %d: %.2f us, on the event clock %.2f us; ratio to %s %.3f and %.3f", r.Scheme, r.SizeBytes, r.JCT.P50, s.JCT.P50, real.Results[k].Scheme, got, want)
		if inTime && r.SizeBytes >= 1<<20 && math.Abs(got/want-1) > 0.1 {
			t.Errorf("%s at %d bytes takes %.3f times as long as %s, on the event clock %.3f times", r.Scheme, r.SizeBytes, got, real.Results[k].Scheme, want)
		}
	}
}

// TestLiveStar runs a star in processes and in containers.
func TestLiveStar(t *testing.T) {
	file := write(t, starLab("t-star", ""))
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			needRoot(t, runtime) // the one lab that go test ./... brings up, where it can
			before := snapshot(t)
			real := runLab(t, runtime, file)
			compare(t, real, runLab(t, "sim", file))
			if real.Runtime != runtime || len(real.Fidelity.Rows) != len(real.Results) {
				t.Errorf("runtime %q, %d rows judged", real.Runtime, len(real.Fidelity.Rows))
			}
			for _, name := range []string{"lab.resolved.yml", "meta.json", "events.jsonl", "summary.json", "counters.json"} {
				if _, err := os.Stat(filepath.Join(real.RunDir, name)); err != nil {
					t.Error(err)
				}
			}
			conserved(t, real.RunDir)
			same(t, before, snapshot(t))
		})
	}
}

// TestLiveTrains: in a hurry, frames of one queue pair cross links as trains, which the
// kernel counts as one packet each. Every byte is right, and a capture has the frames.
func TestLiveTrains(t *testing.T) {
	for _, ip := range []string{"4", "6"} {
		t.Run("IPv"+ip, func(t *testing.T) {
			need(t)
			liveTrains(t, starLab("t-trains", "runtime: {io: trains}\nlinks: {ip: "+ip+"}\n"))
		})
	}
}

func liveTrains(t *testing.T, text string) {
	before := snapshot(t)
	file := write(t, text)
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-trains") })
	must(t, "deploy", "-q", "-r", "netns", file)
	fresh := held(t, "t-trains")
	o := invoke(t, nil, "run", "-q", "-r", "netns", "--dilation", "10", "--capture", "leaf0:0", "--runs", t.TempDir(), "--format", "json", file)
	if o.code != 0 && o.code != exitFidelity {
		t.Fatalf("exit %d\n%s", o.code, o.err)
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
	conserved(t, r.RunDir)
	dev := must(t, "exec", "--lab", "t-trains", "--node", "leaf0", "--", "cat", "/proc/self/net/dev").out
	m := regexp.MustCompile(`p0: *\d+ +(\d+)`).FindStringSubmatch(dev)
	if m == nil {
		t.Fatalf("no p0 in\n%s", dev)
	}
	packets, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Nodes []struct {
			Node  string
			Ports []map[string]uint64
		}
	}
	if err := json.Unmarshal([]byte(must(t, "inspect", "--format", "json", "t-trains").out), &in); err != nil {
		t.Fatal(err)
	}
	frames := in.Nodes[len(in.Nodes)-1].Ports[0]["received"]
	t.Logf("%d frames came in %d packets of the kernel's", frames, packets)
	if frames < packets*3/2 {
		t.Errorf("%d frames came in %d packets: there were no trains", frames, packets)
	}
	if out, err := exec.Command("tshark", "-r", filepath.Join(r.RunDir, "leaf0_0.pcapng"), "-Y", "_ws.malformed || frame.len > 4400").Output(); err == nil && len(out) > 0 {
		t.Errorf("the capture has\n%s", out)
	}
	rested(t, "t-trains", fresh)
	must(t, "destroy", "t-trains")
	same(t, before, snapshot(t))
}

// conserved checks the counters of a run: what all nodes sent, all nodes received.
func conserved(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "counters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Nodes []struct {
			Node  string
			Ports []map[string]uint64
			Held  int `json:"frames_held"`
		}
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	var sent, received uint64
	for _, n := range c.Nodes {
		for _, p := range n.Ports {
			sent, received = sent+p["sent"], received+p["received"]+p["kernel_drops"]
		}
		if n.Held != 0 {
			t.Errorf("%s still holds %d frames at rest", n.Node, n.Held)
		}
	}
	if sent != received || sent == 0 {
		t.Errorf("%d frames were sent, %d received or dropped by the kernel", sent, received)
	}
}

// TestLiveQuickstart runs the sixteen hosts and twenty switches of the quickstart on a clock that
// follows the wall's. In virtual time TestLockstep does.
func TestLiveQuickstart(t *testing.T) {
	if os.Getenv("MCASTLAB_SOAK") == "" {
		t.Skip("takes minutes: set MCASTLAB_SOAK")
	}
	sim := runLab(t, "sim", quickstart)
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			compare(t, runLab(t, runtime, quickstart), sim)
		})
	}
}

// TestLiveFaults: loss on two links and a pause, in the lab file's timeline, in both
// kinds of node, with a dilated clock and in virtual time. Every byte is right, the faults hit, the pause is seen in
// each row.
func TestLiveFaults(t *testing.T) {
	text := starLab("t-faults", `faults:
  - {loss: {rate: 1e-3, links: h1-leaf0}}
  - {loss: {rate: 1e-3, links: leaf0-h2}}
  - {pause: {node: h3}, at: 1us, for: 50us}
nics: {timeout: 1ms}
`)
	text = strings.Replace(text, "sizes: [64B, 64KiB, 1MiB], iterations: 2", "sizes: [64KiB, 1MiB], iterations: 3", 1)
	for runtime, more := range map[string]string{"netns": "", "docker": "runtime: {clock: lockstep}\n"} { // by themselves
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			r := runLab(t, runtime, write(t, text+more))
			for _, row := range r.Results {
				if row.Verified == nil || !*row.Verified {
					t.Errorf("row %+v", row)
				}
			}
			b, err := os.ReadFile(filepath.Join(r.RunDir, "meta.json"))
			if err != nil {
				t.Fatal(err)
			}
			if regexp.MustCompile(`"frames_lost_to_faults": 0,`).Match(b) {
				t.Error("no frame was lost")
			}
			events, err := os.ReadFile(filepath.Join(r.RunDir, "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			times := regexp.MustCompile(`"t_us":([0-9.]+),"node":"leaf0","event":"pause-received","port":3,"priorities":8,"value":(\d+)`).FindAllSubmatch(events, -1)
			pauses, from := 0, -1.0 // from is when the pause that is on began
			for _, m := range times {
				at, _ := strconv.ParseFloat(string(m[1]), 64)
				if string(m[2]) != "0" {
					if from < 0 {
						from = at
					}
					continue
				}
				if pauses++; from < 0 || timely(t, r) && math.Abs(at-from-50) > 2.5 {
					t.Errorf("paused from %v to %v us, want 50 us", from, at)
				}
				from = -1
			}
			if pauses != len(r.Results) || from >= 0 {
				t.Errorf("%d pauses have ended in %d rows, and one is on since %v us", pauses, len(r.Results), from)
			}
		})
	}
}

// TestDeploy: a second deploy changes nothing, another lab of that name is refused, a
// node that died is brought back, and two labs stand side by side.
func TestDeploy(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			before := snapshot(t)
			a, b := write(t, starLab("t-a", "")), write(t, starLab("t-a-b", ""))
			t.Cleanup(func() {
				invokeCtx(context.Background(), t, nil, "destroy", "t-a")
				invokeCtx(context.Background(), t, nil, "destroy", "t-a-b")
			})
			for _, c := range []struct{ file, want string }{
				{a, "t-a: 5 nodes, 4 links, " + runtime + ": is up\n"},
				{a, "t-a: 5 nodes, 4 links, " + runtime + ": was up already: nothing changed\n"},
				{b, "t-a-b: 5 nodes, 4 links, " + runtime + ": is up\n"},
			} {
				if o := must(t, "deploy", "-q", "-r", runtime, c.file); o.out != c.want || o.err != "" {
					t.Errorf("deploy says %q and %q, want %q", o.out, o.err, c.want)
				}
			}
			other := write(t, strings.Replace(starLab("t-a", ""), "hosts: 4", "hosts: 3", 1))
			if o := invoke(t, nil, "deploy", "-q", "-r", runtime, other); o.code != 4 || !strings.Contains(o.err, "is up with another lab file") {
				t.Errorf("another lab of the same name: exit %d, %s", o.code, o.err)
			}
			owned(t, runtime, "t-a")
			neighbours, fresh := nodePIDs(t, "t-a-b"), held(t, "t-a")
			// The runs of both labs do not disturb each other, and leave them up.
			runLab(t, runtime, a)
			rested(t, "t-a", fresh)
			killNode(t, "t-a", "h2")
			if o := must(t, "deploy", "-r", runtime, a); !strings.Contains(o.out, "is up again\n") || o.err != "node h2 is gone: it is started again\nlink h2:0-leaf0:2 is made again\n" {
				t.Errorf("after a node's death: %q %q", o.out, o.err)
			}
			if o := must(t, "inspect"); len(regexp.MustCompile(`(?m)^t-a(-b)? .* up `).FindAllString(o.out, -1)) != 2 {
				t.Errorf("inspect:\n%s", o.out)
			}
			must(t, "destroy", a)
			if now := nodePIDs(t, "t-a-b"); !maps.Equal(now, neighbours) {
				t.Errorf("the other lab had processes %v and has %v", neighbours, now)
			}
			runLab(t, runtime, b)
			if o := must(t, "destroy", "t-a"); o.out != "t-a: nothing was there\n" {
				t.Errorf("second destroy: %q", o.out)
			}
			must(t, "destroy", "t-a-b")
			same(t, before, snapshot(t))
		})
	}
}

// nodePIDs returns the processes of a lab's nodes, by name.
func nodePIDs(t *testing.T, lab string) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, e := range engines() {
		found, err := e.Find(t.Context(), lab)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range found {
			pids[n.Name] = n.PID
		}
	}
	return pids
}

// nodePID returns the process of a node that runs. Signals to 0 would end the test and all
// that was started with it.
func nodePID(t *testing.T, lab, node string) int {
	t.Helper()
	pid := nodePIDs(t, lab)[node]
	if pid <= 0 {
		t.Fatalf("lab %s has no node %s that runs", lab, node)
	}
	return pid
}

func killNode(t *testing.T, lab, node string) {
	t.Helper()
	if err := syscall.Kill(nodePID(t, lab, node), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Until it has gone it is still there.
	for deadline := time.Now().Add(3 * time.Minute); nodePIDs(t, lab)[node] > 0; <-time.After(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not die", node)
		}
	}
}

// owned checks that each node does its own work and has nothing else: its packet sockets
// are in its namespace and in no other process, it holds no capability and is not root.
func owned(t *testing.T, runtime, lab string) {
	t.Helper()
	pids := nodePIDs(t, lab)
	if len(pids) != 5 {
		t.Fatalf("%d nodes", len(pids))
	}
	spaces := map[string]bool{}
	for name, pid := range pids { // independent of each other
		dir := fmt.Sprintf("/proc/%d/", pid)
		status, err := os.ReadFile(dir + "status")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", fmt.Sprintf("Uid:\t%d", engine.UID)} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s: status lacks %q", name, want)
			}
		}
		if runtime == "docker" && !strings.Contains(string(status), "CapBnd:\t0000000000000000") {
			t.Errorf("%s: the bounding set is not empty", name)
		}
		space, err := os.Readlink(dir + "ns/net")
		if err != nil || spaces[space] {
			t.Errorf("%s shares its network namespace (%v)", name, err)
		}
		spaces[space] = true
		table, err := os.ReadFile(dir + "net/packet")
		if err != nil {
			t.Fatal(err)
		}
		mine := map[string]bool{}
		links, err := filepath.Glob(dir + "fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			to, err := os.Readlink(l)
			if err == nil {
				mine[to] = true
			}
		}
		lines := strings.Split(strings.TrimSpace(string(table)), "\n")[1:]
		if len(lines) == 0 {
			t.Errorf("%s has no packet socket", name)
		}
		for _, line := range lines {
			f := strings.Fields(line)
			if !mine["socket:["+f[len(f)-1]+"]"] {
				t.Errorf("%s: packet socket %s is not its own", name, f[len(f)-1])
			}
		}
	}
}

// snapshot takes down all that a lab could leave behind.
func snapshot(t *testing.T) map[string]string {
	t.Helper()
	s := map[string]string{}
	run := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).Output(); err == nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			slices.Sort(lines)
			s[name+" "+strings.Join(args, " ")] = strings.Join(lines, "\n")
		}
	}
	run("docker", "ps", "-aq")
	run("docker", "network", "ls", "-q")
	run("docker", "volume", "ls", "-q")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	s["mounts"] = string(mounts)
	var own, spaces, files []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if to, err := os.Readlink(d + "/ns/net"); err == nil {
			spaces = append(spaces, to)
		}
		stat, _ := os.ReadFile(d + "/stat")
		if info, err := os.Stat(d); err == nil && info.Sys().(*syscall.Stat_t).Uid == engine.UID && !bytes.Contains(stat, []byte(") Z ")) {
			own = append(own, d)
		}
	}
	slices.Sort(spaces)
	s["processes"], s["namespaces"] = strings.Join(own, " "), strings.Join(slices.Compact(spaces), " ")
	links, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	s["links"] = strings.Join(regexp.MustCompile(`(?m)^ *[^ :]+:`).FindAllString(string(links), -1), "")
	err = filepath.Walk("/run/mcastlab", func(p string, _ os.FileInfo, err error) error {
		if err == nil {
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s["files"] = strings.Join(files, " ")
	return s
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	for k := range before { // independent of each other
		if before[k] != after[k] {
			t.Errorf("%s changed:\nbefore %s\nafter  %s", k, before[k], after[k])
		}
	}
}

// unchanged demands that the server is as it was before once a test and all its subtests have
// ended. Labs of subtests that run side by side are of different names; in between the server
// is that of several.
func unchanged(t *testing.T) {
	t.Helper()
	before := snapshot(t)
	t.Cleanup(func() { same(t, before, snapshot(t)) })
}

// TestResidue: a deploy that is interrupted, or killed and then destroyed, at a random
// moment leaves nothing.
func TestResidue(t *testing.T) {
	cycles, lab := 6, starLab("t-residue", "")
	if os.Getenv("MCASTLAB_SOAK") != "" {
		cycles, lab = 100, strings.Replace(lab, "star: {hosts: 4}", "fat-tree: {k: 4}", 1)
	}
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			file := write(t, lab)
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-residue") })
			must(t, "deploy", "-q", "-r", runtime, file) // the image is made
			must(t, "destroy", file)
			before := snapshot(t)
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 1))
			span := map[string]time.Duration{"netns": 80 * time.Millisecond, "docker": 900 * time.Millisecond}[runtime]
			for i := range cycles {
				sig := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}[i%2]
				cmd := exec.Command(program1(t), "deploy", "-q", "-r", runtime, file)
				var said bytes.Buffer
				cmd.Stderr = &said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				after := time.Duration(r.Int64N(int64(span)))
				<-time.After(after)
				_ = cmd.Process.Signal(sig) // it may have come to its end
				_ = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); sig == syscall.SIGINT && code != 130 && code != 0 && code != -1 { // -1: before it could listen to signals
					t.Errorf("interrupted deploy: exit %d\n%s", code, said.String())
				}
				if sig == syscall.SIGKILL || cmd.ProcessState.ExitCode() == 0 {
					must(t, "destroy", "t-residue")
				}
				if now := snapshot(t); !t.Failed() {
					same(t, before, now)
				}
				if t.Failed() {
					t.Fatalf("%v after %v, seed %d", sig, after, seed)
				}
			}
		})
	}
}

// TestConcurrent: many clients at once on one lab are served one after the other, and
// none is lost.
func TestConcurrent(t *testing.T) {
	need(t)
	before := snapshot(t)
	file := write(t, starLab("t-many", ""))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-many") })
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			args := [][]string{{"deploy", "-q", "-r", "netns", file}, {"inspect", "t-many"}, {"destroy", file}, {"deploy", "-q", "-r", "netns", file}}[i%4]
			o := invoke(t, nil, args...)
			// Between a destroy and a deploy there is nothing to look at, and a node may go
			// while it is being looked at.
			if o.code != 0 && (args[0] != "inspect" || strings.Count(o.err, "\n") > 5) {
				t.Errorf("%v: exit %d\n%s", args, o.code, o.err)
			}
		})
	}
	all.Wait()
	must(t, "deploy", "-q", "-r", "netns", file)
	must(t, "inspect", "t-many")
	must(t, "destroy", file)
	same(t, before, snapshot(t))
}

// TestEngineTrouble: what goes wrong with the engine is one line and exit code 4, and
// nothing is left.
func TestEngineTrouble(t *testing.T) {
	need(t, "docker")
	before := snapshot(t)
	file := write(t, starLab("t-trouble", ""))
	closed := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", closed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, c := range []struct {
		name string
		env  []string
		args []string
		code int
		want string
	}{
		{"no engine", []string{"DOCKER_HOST=unix:///no/such.sock"}, []string{"deploy", "-q", file}, 4, "start it, or use --runtime netns"},
		{"bad address", []string{"DOCKER_HOST=nonsense"}, []string{"deploy", "-q", file}, 4, "engine is not available"},
		{"unknown runtime", nil, []string{"run", "-q", "-r", "podman", file}, 2, `no runtime "podman"`},
		{"not up", nil, []string{"inspect", "t-trouble"}, 4, "is not up: mcastlab deploy it first"},
		{"no permission", []string{"DOCKER_HOST=unix://" + closed}, []string{"deploy", "-q", file}, 4, "permission denied: run as root"},
		{"nothing to fault", nil, []string{"fault", "ls"}, 2, "0 labs are up"},
	} {
		run := invoke
		if c.name == "no permission" {
			run = asNobody
		}
		o := run(t, c.env, c.args...)
		if o.code != c.code || !strings.Contains(o.err, c.want) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%s: exit %d\n%swant %s", c.name, o.code, o.err, c.want)
		}
	}
	same(t, before, snapshot(t))
}

// variants are the programs that variant has built, by how.
var variants struct {
	sync.Mutex
	paths map[string]string
}

// variant builds the program in another way, once for all tests.
func variant(t *testing.T, env string, flags ...string) string {
	t.Helper()
	variants.Lock()
	defer variants.Unlock()
	how := fmt.Sprint(env, flags)
	if path, ok := variants.paths[how]; ok {
		return path
	}
	path := fmt.Sprintf("%s-%d", program1(t), len(variants.paths)+1) // whose folder is removed at the end
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "../cmd/mcastlab")...)
	cmd.Env = append(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if variants.paths == nil {
		variants.paths = map[string]string{}
	}
	variants.paths[how] = path
	return path
}

// TestNodeTrouble: a program that an image cannot be made of, and a node that dies at its
// start, are said in one line, and nothing is left.
func TestNodeTrouble(t *testing.T) {
	need(t, "docker")
	dynamic := variant(t, "CGO_ENABLED=1")
	dying := variant(t, "CGO_ENABLED=0", "-tags", "failpoint")
	before := snapshot(t)
	text := "name: t-dying\ntopology:\n  custom:\n    hosts: [h0, dies-at-start-1]\n    switches: [s0]\n    links: [h0-s0, dies-at-start-1-s0]\n"
	file := write(t, text)
	for _, c := range []struct{ name, program, runtime, want string }{
		{"not static", dynamic, "docker", "this program is dynamically linked"},
		{"dies in a container", dying, "docker", "node dies-at-start-1 did not start: mcastlab node: failpoint dies-at-start"},
		{"dies as a process", dying, "netns", "node dies-at-start-1 did not start: mcastlab node: failpoint dies-at-start"},
	} {
		out, err := exec.Command(c.program, "deploy", "-q", "-r", c.runtime, file).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitRuntime || !strings.Contains(string(out), c.want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v\n%swant %s", c.name, err, out, c.want)
		}
	}
	same(t, before, snapshot(t))
}

// TestForeignImage: an image that has our name but is not ours is not used.
func TestForeignImage(t *testing.T) {
	need(t, "docker")
	before := snapshot(t)
	file := write(t, starLab("t-image", ""))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-image") })
	must(t, "deploy", "-q", file)
	must(t, "destroy", "t-image")
	out, err := exec.Command("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "label=mcastlab.image").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range strings.Fields(string(out)) {
		if err := exec.Command("docker", "rmi", "-f", ref).Run(); err != nil {
			t.Fatal(err)
		}
		empty := exec.Command("docker", "import", "-", ref)
		empty.Stdin = bytes.NewReader(make([]byte, 1024)) // a tar of nothing
		if out, err := empty.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	must(t, "deploy", "-q", file)
	must(t, "destroy", "t-image")
	for _, ref := range strings.Fields(string(out)) { // also those of other builds
		_ = exec.Command("docker", "rmi", "-f", ref).Run() // they are made when they are needed
	}
	same(t, before, snapshot(t))
}

// TestDrift: deploy restores the missing parts of a running lab and does not touch the rest; a dry
// run prints them and does nothing.
func TestDrift(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			before := snapshot(t)
			file := write(t, starLab("t-drift", ""))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-drift") })
			dry := func(want ...string) {
				t.Helper()
				if o := must(t, "deploy", "--dry-run", "-r", runtime, file); o.out != strings.Join(want, "\n")+"\n" {
					t.Errorf("dry run says %q, want %q", o.out, want)
				}
			}
			dry("+ node h0", "+ node h1", "+ node h2", "+ node h3", "+ node leaf0",
				"+ link h0:0-leaf0:0", "+ link h1:0-leaf0:1", "+ link h2:0-leaf0:2", "+ link h3:0-leaf0:3")
			same(t, before, snapshot(t))
			must(t, "deploy", "-q", "-r", runtime, file)
			dry("t-drift is up: nothing to do")
			pids := nodePIDs(t, "t-drift")
			killNode(t, "t-drift", "h2")
			must(t, "exec", "--lab", "t-drift", "--node", "h1", "--", "ip", "link", "del", "p0")
			dry("+ node h2", "+ link h1:0-leaf0:1", "+ link h2:0-leaf0:2")
			if o := must(t, "deploy", "-q", "-r", runtime, file); !strings.HasSuffix(o.out, ": is up again\n") {
				t.Errorf("deploy says %q", o.out)
			}
			for name, pid := range nodePIDs(t, "t-drift") { // independent of each other
				if (pid == pids[name]) != (name != "h2") {
					t.Errorf("%s had process %d and has %d", name, pids[name], pid)
				}
			}
			dry("t-drift is up: nothing to do")
			runLab(t, runtime, file)
			must(t, "destroy", "t-drift")
			same(t, before, snapshot(t))
		})
	}
}

// TestLongPause: a receiver pauses for 5 ms in a message many times as large as what the
// path can buffer. The source's link is silent for as long, nothing is dropped, and no
// timer fires.
func TestLongPause(t *testing.T) {
	need(t)
	const pause, buffered = 5000.0, 200 << 10 // us; bytes
	file := write(t, `name: t-pause
topology: {star: {hosts: 4}}
links: {rate: 10Gbps}
nics: {timeout: 67ms, window: 64, mtu: 1024}
switches: {buffer: 1MB, pfc: {xoff: 64KiB}}
workloads:
  - bcast: {schemes: [cepheus], sizes: [8MiB], iterations: 1}
faults:
  - {pause: {node: h3}, at: 2ms, for: 5ms}
runtime: {dilation: 400}
`)
	r := runLab(t, "netns", file, "--capture", "h0:0")
	if row := r.Results[0]; row.Verified == nil || !*row.Verified {
		t.Errorf("row %+v", row)
	}
	tshark := needTshark(t)
	if tshark == "" {
		return
	}
	out, err := exec.Command(tshark, "-r", filepath.Join(r.RunDir, "h0_0.pcapng"), "-Y", "infiniband.bth.opcode <= 5 && ip.src == 10.0.0.1", "-T", "fields", "-e", "frame.time_epoch").Output()
	if err != nil {
		t.Fatal(err)
	}
	silence, last := 0.0, 0.0
	for _, l := range strings.Fields(string(out)) {
		at, err := strconv.ParseFloat(l, 64)
		if err != nil {
			t.Fatal(err)
		}
		if last > 0 {
			silence = max(silence, at-last)
		}
		last = at
	}
	slack := buffered * 8 / 10e9 * 1e6
	t.Logf("the source was silent for %.1f us; timers fired: %d", silence*1e6, count(t, r.RunDir, "timeouts"))
	if got := silence * 1e6; timely(t, r) && (got < pause-slack || got > pause+slack) {
		t.Errorf("the source's port was silent for %.1f us, want %v give or take %.0f", got, pause, slack)
	}
	b, err := os.ReadFile(filepath.Join(r.RunDir, "counters.json"))
	if err != nil {
		t.Fatal(err)
	}
	if drops := regexp.MustCompile(`"drops": \{[^}]+\}`).FindAll(b, -1); len(drops) > 0 {
		t.Errorf("frames were dropped: %s", drops)
	}
}

// TestLiveCommands: faults by hand hit and go, a capture on an interface is what
// Wireshark and tcpdump see.
func TestLiveCommands(t *testing.T) {
	need(t)
	before := snapshot(t)
	file := write(t, starLab("t-hand", "nics: {timeout: 1ms}\n"))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-hand") })
	must(t, "deploy", "-q", "-r", "netns", file)
	must(t, "fault", "add", "--lab", "t-hand", "--link", "h1-leaf0", "--rate", "0.02", "loss")
	o := runFaulty(t, file, "--dilation", "1000", "--capture", "leaf0:*")
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil || o.code != exitOK && o.code != exitFidelity {
		t.Fatalf("exit %d, %v\n%s", o.code, err, o.err)
	}
	ls := must(t, "fault", "ls", "--format", "json").out
	var f struct {
		Faults []struct {
			Kind      string
			Seen, Hit uint64
			Applied   []string
		}
	}
	if err := json.Unmarshal([]byte(ls), &f); err != nil || len(f.Faults) != 1 || f.Faults[0].Hit == 0 || len(f.Faults[0].Applied) != 2 {
		t.Errorf("fault ls: %v\n%s", err, ls)
	}
	must(t, "fault", "reset")
	if o := must(t, "fault", "ls", "--format", "json"); !strings.Contains(o.out, `"faults": null`) && !strings.Contains(o.out, `"faults": []`) {
		t.Errorf("after reset: %s", o.out)
	}
	captured(t, r.RunDir)
	must(t, "destroy", file)
	same(t, before, snapshot(t))
}

// captured asks tshark and scapy about the captures of a run, if they are there.
func captured(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.pcapng"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	tshark := needTshark(t)
	if tshark == "" {
		return
	}
	for _, f := range files {
		out, err := exec.Command(tshark, "-r", f, "--disable-protocol", "rpcordma", "-Y", "_ws.malformed").Output()
		if err != nil || len(out) > 0 {
			t.Errorf("tshark on %s: %v\n%s", f, err, out)
		}
		out, err = exec.Command("/usr/bin/python3", "../internal/test/interop/testdata/icrc.py", f, "500").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "checked 500 wrong 0" {
			t.Errorf("scapy on %s: %v\n%s", f, err, out)
		}
	}
}
