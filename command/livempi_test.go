// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestLiveMPI: an MPI program, whose every byte is compared, runs by Debian's Open MPI at all hosts of a fat-tree and at
// some, several ranks at one among them, and what it sends crosses the switches. However a job ends, nothing of it is left.
func TestLiveMPI(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			verbsTools(t, "mpicc", "mpirun")
			program := filepath.Join(t.TempDir(), "mpi")
			if out, err := exec.Command("mpicc", "-O1", "-o", program, "../nodeagent/verbs/testdata/mpi.c").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			l := &verbsLab{t: t, name: "t-mpi-" + runtime}
			file := write(t, "name: "+l.name+"\ntopology: {fat-tree: {k: 4}}\nruntime: {clock: dilated, dilation: 200, management: true}\n")
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) }) // what a failed test has left
			must(t, "deploy", "--runtime", runtime, file)
			l.fresh = held(t, l.name)
			l.everywhere(program)
			l.jobs(program)
			l.jobsEnd()
			spaces := nodeSpaces(t, l.name)
			must(t, "destroy", l.name)
			noLab(t, l.name, spaces)
		})
	}
}

// mpi returns the arguments that run a program on hosts.
func (l *verbsLab) mpi(where string, args ...string) []string {
	return append(append([]string{"mpirun", "--lab", l.name}, strings.Fields(where)...), append([]string{"--"}, args...)...)
}

// mustMPI is must for a program of UCX. Before its version 1.20 UD endpoints take late answers of others for their own when a number is used
// again, and an assertion ends the rank (openucx/ucx#6040 and #11107), the oftener the slower verbs are (#8743). Such a job is run again, twice at most.
func mustMPI(t *testing.T, args ...string) (o outcome) {
	t.Helper()
	for range 3 {
		if o = invoke(t, nil, args...); o.code == 0 {
			return o
		}
		if !udAssertion.MatchString(o.out + o.err) {
			break
		}
		t.Logf("UCX has ended the job by its own assertion, and it is run again:\n%s%s", o.out, o.err)
	}
	t.Fatalf("mcastlab %s: exit %d\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
	return o
}

// udAssertion are those of a late acknowledgement and of a late answer to a request for a connection.
var udAssertion = regexp.MustCompile("ud_ep\\.c:\\d+ +Assertion `.*(acked_psn|conn_rep\\.src_ep_id).*' failed")

// everywhere runs a rank at each of the 16 hosts: broadcasts and sums of 8 B to 4 MiB, and exchanges of all with all
// whose buffers reach 4 MiB, of 256 KiB for each.
func (l *verbsLab) everywhere(program string) {
	l.t.Helper()
	l.t.Setenv("UCX_RC_TIMEOUT", "10ms") // of lab time: on a server that loses frames the default of a second would be minutes
	if o := mustMPI(l.t, l.mpi("-np 16", program, "4194304", "1", "262144")...); !strings.Contains(o.out, "16 ranks, 0 wrong, 8 sizes up to 4194304\n") {
		l.t.Errorf("with 16 ranks the program says:\n%s%s", o.out, o.err)
	}
	rested(l.t, l.name, l.fresh)
}

// jobs runs jobs that come to their end.
func (l *verbsLab) jobs(program string) {
	t := l.t
	t.Helper()
	spread := []string{"h12", "h3", "h9", "h0"} // one in each pod
	before := l.sent("h9")
	if o := mustMPI(t, l.mpi("--map "+strings.Join(spread, ","), program)...); !strings.Contains(o.out, "4 ranks, 0 wrong") {
		t.Errorf("the program says:\n%s%s", o.out, o.err)
	}
	if n := l.sent("h9") - before; n < 10*(256>>2) { // of 256 KiB a rank gives four exchanges, four sums and broadcasts, in frames of at most 4 KiB
		t.Errorf("h9 has sent %d frames", n)
	}
	rested(t, l.name, l.fresh)
	shared := []string{"h2", "h5", "h2", "h2"} // whose first, third and fourth ranks speak by one NIC
	if o := mustMPI(t, l.mpi("--map "+strings.Join(shared, ","), program)...); !strings.Contains(o.out, "4 ranks, 0 wrong") {
		t.Errorf("with three ranks on a host the program says:\n%s%s", o.out, o.err)
	}
	if n := l.node("h2").Counts["loopback"]; n < 10*(256>>2) {
		t.Errorf("at the NIC of three ranks %d frames have come back", n)
	}
	rested(t, l.name, l.fresh)
	for where, hosts := range map[string][]string{"--map " + strings.Join(shared, ","): shared, "-np 4 --map h7,h1": {"h7", "h1", "h7", "h1"}, "-np 4": {"h0", "h1", "h2", "h3"}, "--map " + strings.Join(spread, ","): spread, "-np 1": {"h0"}} { // independent of each other
		lines := strings.Split(strings.TrimSpace(must(t, l.mpi(where, "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")...).out), "\n")
		slices.Sort(lines)
		var want []string
		for i, h := range hosts {
			want = append(want, fmt.Sprintf("%d %s", i, h))
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%s: ranks are at %q, not %q", where, lines, want)
		}
	}
	if r := invoke(t, nil, l.mpi("-np 4", "sh", "-c", "exit $OMPI_COMM_WORLD_RANK")...); r.code < 1 || r.code > 3 {
		t.Errorf("exit codes 0 to 3 are %d\n%s", r.code, r.err)
	}
	if r := invoke(t, nil, l.mpi("-np 0", "true")...); r.code != exitUsage || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "at least one rank") {
		t.Errorf("no rank: exit code %d: %s", r.code, r.err)
	}
}

// jobsEnd ends jobs while all their ranks run: the command by signals, a rank by a signal, a node.
func (l *verbsLab) jobsEnd() {
	t := l.t
	t.Helper()
	for _, w := range []struct {
		what string
		code int // of the command; -1 if a signal has ended it
		do   func(cmd *exec.Cmd, mark string)
	}{
		{"the command is killed", -1, func(cmd *exec.Cmd, _ string) { _ = cmd.Process.Kill() }},
		{"the command is interrupted", exitInterrupted, func(cmd *exec.Cmd, _ string) { _ = cmd.Process.Signal(syscall.SIGINT) }},
		{"a rank is killed", 137, func(_ *exec.Cmd, mark string) {
			if err := syscall.Kill(sleepers(t, mark)[0], syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}},
		{"a node dies", exitRuntime, func(*exec.Cmd, string) { killNode(t, l.name, "h2") }},
	} {
		mark := fmt.Sprintf("T_MPI=%s-%d", l.name, l.nextPort())
		s := l.startCommand([]string{mark}, l.mpi("-np 4", "sleep", "600")...)
		waitFor(t, func() bool { return len(sleepers(t, mark)) == 4 })
		w.do(s.Cmd, mark)
		_ = s.Wait() // its state says how it ended
		if code := s.ProcessState.ExitCode(); code != w.code {
			t.Errorf("%s: exit code %d\n%s", w.what, code, s.said.String())
		}
		waitFor(t, func() bool { return len(marks(t, mark)) == 0 && len(sleepers(t, mark)) == 0 })
	}
}

// sleepers returns the ranks of a job: what mpirun starts has the environment of what has started it.
func sleepers(t *testing.T, mark string) (pids []int) {
	t.Helper()
	for _, path := range marks(t, mark) {
		var pid int
		if line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")); string(line) == "sleep\x00600\x00" { // it may have ended
			if _, err := fmt.Sscan(filepath.Base(filepath.Dir(path)), &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
