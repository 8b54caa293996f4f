// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// startsPrograms is a lab file that runs programs of this server.
const startsPrograms = "name: %s\ntopology: {star: {hosts: 2}}\nruntime: {clock: %s, dilation: 100, management: true}\nworkloads:\n  - command: {run: [touch, %s], ranks: [h0]}\n"

// TestProgramsRefused: a lab file that runs programs is refused, before anything starts, where they are not allowed and
// where there is no lab for them.
func TestProgramsRefused(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made")
	dilated := write(t, fmt.Sprintf(startsPrograms, "t-refused", "dilated", made))
	auto := write(t, strings.Replace(fmt.Sprintf(startsPrograms, "t-refused", "dilated", made), "dilation: 100, ", "", 1))
	launched := write(t, strings.NewReplacer("dilation: 100, ", "", "dilated", "lockstep", "ranks: [h0]", "launcher: mpirun").Replace(fmt.Sprintf(startsPrograms, "t-refused", "dilated", made)))
	lockstep := write(t, strings.Replace(fmt.Sprintf(startsPrograms, "t-refused", "lockstep", made), "dilation: 100, ", "", 1))
	for _, c := range []struct{ args, want string }{
		{"run " + dilated, "use --runtime netns or docker"},
		{"run --allow-programs " + dilated, "use --runtime netns or docker"},
		{"run -r netns " + dilated, "runs touch on this server, as the user that calls mcastlab: read the file and, if you trust it, add --allow-programs"},
		{"run -r docker " + dilated, "add --allow-programs"},
		{"run -r netns --allow-programs " + auto, "set dilation under runtime"},
		{"run -r netns " + lockstep, "add --allow-programs"},
		{"run -r netns --allow-programs " + launched, "the processes that mpirun starts do not follow virtual time: set clock: dilated under runtime"},
	} {
		r := invoke(t, nil, append(strings.Fields(c.args), "--runs", t.TempDir(), "-q")...)
		if r.code != exitLab || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "workloads[0]") || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d: %s", c.args, r.code, r.err)
		}
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("the program has run")
	}
}

// hostPrograms is a lab whose programs end well, badly and not at all.
const hostPrograms = `name: %s
topology: {star: {hosts: 3}}
links: {rate: 2Gbps}
runtime: {clock: dilated, dilation: 10, management: true}
trace: messages
workloads:
  - command: {label: who, run: [sh, -c, 'echo $MCASTLAB_RANK/$MCASTLAB_RANKS $(hostname) $(id -u) $MCASTLAB_HOSTS $(grep NoNewPrivs /proc/self/status); echo $MCASTLAB_RANK >&2'], ranks: [h1, h0], per-host: 2}
  - command: {label: pair, run: [sh, -c, 'if [ $MCASTLAB_RANK = 0 ]; then exec ib_write_bw -F -n 50; fi; until ib_write_bw -F -n 50 h0; do sleep 1; done'], ranks: [h0, h2], timeout: 300s}
  - command: {label: mpi, run: [sh, -c, 'echo $OMPI_COMM_WORLD_RANK $(hostname) "<&>"'], launcher: mpirun, ranks: [h2, h1], per-host: 2, timeout: 300s}
  - command: {label: bad, run: [sh, -c, 'if [ $MCASTLAB_RANK = 0 ]; then exec sleep 600; fi; echo out of luck >&2; exit 7'], ranks: [h0, h1]}
  - command: {label: late, run: [sleep, "600"], ranks: [h1], timeout: 1s}
faults:
  - loss: {links: 'h2:0-*', rate: 1%%}
`

// TestLivePrograms: programs of a lab file run as the user that called sudo, without a way to privileges; what each rank
// writes is kept, how it has ended is judged, and the run has what all runs have.
func TestLivePrograms(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			verbsTools(t, "ib_write_bw", "mpirun")
			if err := os.Chmod(filepath.Dir(os.Getenv("MCASTLAB_VERBS_LIB")), 0o755); err != nil { // the user reads the library
				t.Fatal(err)
			}
			t.Setenv("SUDO_UID", "12345")
			t.Setenv("SUDO_GID", "12345")
			runs := t.TempDir()
			file := write(t, fmt.Sprintf(hostPrograms, "t-programs-"+runtime))
			r := invoke(t, nil, "run", "-q", "-r", runtime, "--allow-programs", "--capture", "h2:0", "--format", "json", "--runs", runs, file)
			if r.code != exitFailed || strings.Count(r.err, "ended with exit code") != 3 || !strings.Contains(r.err, "bad sh: rank 1 at h1 ended with exit code 7: out of luck") ||
				!strings.Contains(r.err, "bad sh: rank 0 at h0 ended with exit code 143, because another rank had failed") ||
				!strings.Contains(r.err, "late sleep: rank 0 at h1 ended with exit code 143, because its timeout was over (timeout: 1s)") {
				t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
			}
			var report runner.Report
			if err := json.Unmarshal([]byte(r.out), &report); err != nil {
				t.Fatal(err)
			}
			kept(t, report.RunDir)
			for i, want := range []bool{true, true, true, false, false} {
				row := report.Results[i]
				if exits := apps.DetailsOf[apps.Exits](row); row.Verified == nil || *row.Verified != want || exits == nil || len(row.Faults) != 1 || row.JCT.Max <= 0 {
					t.Errorf("row %d: %+v", i, row)
				}
			}
			if hit := report.Results[1].Faults[0].Hit; hit == nil || *hit == 0 {
				t.Error("the fault has hit nothing of what the pair has sent")
			}
			var table strings.Builder
			if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "exit 7 (2 of 2)") || strings.Contains(table.String(), "WRONG") {
				t.Errorf("%v:\n%s", err, table.String())
			}
			leaves(t, report.RunDir)
			noLab(t, "t-programs-"+runtime, nil)
		})
	}
}

// TestLiveProgramsInterrupted: a run that is interrupted while its programs run ends them, reports nothing of them, and
// takes the lab away.
func TestLiveProgramsInterrupted(t *testing.T) {
	need(t, "netns")
	const name, mark = "t-programs-end", "T_PROGRAMS=interrupted"
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", name) }) // what a failed test has left
	runs := t.TempDir()
	file := write(t, "name: "+name+"\ntopology: {star: {hosts: 2}}\nruntime: {clock: dilated, dilation: 100}\nworkloads:\n  - command: {run: [sleep, '600']}\n")
	s := (&verbsLab{t: t, name: name}).startCommand([]string{mark}, "run", "-q", "-r", "netns", "--allow-programs", "--runs", runs, file)
	waitFor(t, func() bool { return len(sleepers(t, mark)) == 2 })
	if err := s.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait() // its state says how it ended
	if code := s.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, s.said.String())
	}
	waitFor(t, func() bool { return len(sleepers(t, mark)) == 0 })
	noLab(t, name, nil)
	b, err := os.ReadFile(filepath.Join(runs, name+"-1", "summary.json"))
	var report runner.Report
	if err == nil {
		err = json.Unmarshal(b, &report)
	}
	if err != nil || len(report.Results) != 0 {
		t.Errorf("%v, results %+v", err, report.Results)
	}
}

// kept checks what ranks have written.
func kept(t *testing.T, run string) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(run, "programs", name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	for i, host := range []string{"h1", "h0", "h1", "h0"} {
		if got, want := read(fmt.Sprintf("who/%d.out", i)), fmt.Sprintf("%d/4 %s 12345 h1,h0,h1,h0 NoNewPrivs: 1\n", i, host); got != want {
			t.Errorf("rank %d writes %q, not %q", i, got, want)
		}
		if got := read(fmt.Sprintf("who/%d.err", i)); got != fmt.Sprintln(i) {
			t.Errorf("rank %d writes %q to standard error", i, got)
		}
	}
	for i, host := range []string{"h2", "h1", "h2", "h1"} {
		if got, want := read(fmt.Sprintf("mpi/%d.out", i)), fmt.Sprintf("%d %s <&>\n", i, host); got != want {
			t.Errorf("rank %d of MPI writes %q, not %q", i, got, want)
		}
	}
	for i := range 2 {
		if got := read(fmt.Sprintf("pair/%d.out", i)); !strings.Contains(got, "BW average") {
			t.Errorf("rank %d of the pair writes\n%s", i, got)
		}
	}
}

// leaves checks that a run of programs has left what runs leave.
func leaves(t *testing.T, run string) {
	t.Helper()
	var c counters.File
	b, err := os.ReadFile(filepath.Join(run, "counters.json"))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if i := slices.IndexFunc(c.Nodes, func(n counters.Node) bool { return n.Node == "h2" }); err != nil || i < 0 || c.Nodes[i].Counts["messages_sent"] < 50 {
		t.Errorf("the counters of h2 do not have its WRITEs: %v", err)
	}
	for _, name := range []string{"events.jsonl", "h2_0.pcapng", "report.html", "lab.resolved.yml"} {
		if s, err := os.Stat(filepath.Join(run, name)); err != nil || s.Size() < 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o := must(t, "trace", run); strings.Count(o.out, "WRITE") < 50 {
		t.Errorf("the trace has\n%.2000s", o.out)
	}
}
