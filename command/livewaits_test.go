// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// shellWaits are scripts, and how many seconds of lab time each takes.
var shellWaits = []struct {
	name, shell, script string
	s                   float64
}{
	{"wait", "sh", "sleep 1 & wait", 1},
	{"wait-bash", "bash", "sleep 1 & wait", 1},
	{"wait-each", "bash", "sleep .4 & sleep .6 & wait -n; wait -n", .6},
	{"wait-one", "sh", "sleep .3 & p=$!; sleep .5 & wait $p", .3},
	{"timeout", "sh", "timeout 1 sleep 5; [ $? = 124 ]", 1},
	{"timeout-early", "sh", "timeout 5 sleep .2", .2},
	{"timeout-kill", "sh", "timeout -s KILL 1 sleep 5; [ $? = 137 ]", 1},
	{"timeout-after", "sh", `timeout -k 1 1 sh -c 'trap "" TERM; sleep 5 & wait'; [ $? = 137 ]`, 2},
	{"trap", "sh", `sh -c 'trap "exit 3" TERM; (sleep .5; kill $$) & sleep 5 & wait'; [ $? = 3 ]`, .5},
	{"trap-bash", "bash", `bash -c 'trap "exit 3" TERM; (sleep .5; kill $$) & sleep 5 & wait'; [ $? = 3 ]`, .5},
	{"kill", "sh", "sleep 5 & sleep .1; kill $!; wait $!; [ $? = 143 ]", .1},
	{"read", "sh", "(sleep .3; echo a) | (read x; [ $x = a ])", .3},
	{"read-timeout", "bash", "sleep .8 | { read -t .5 x; [ $? -gt 128 ]; }", .8},
	{"xargs", "sh", "echo .2 .3 | xargs -n1 -P2 sleep", .3},
	{"lock", "sh", "d=$(mktemp); (flock 9; sleep .5) 9>$d & sleep .1; flock $d true; rm $d; wait", .5},
	{"full", "sh", "head -c 300000 /dev/zero | (sleep .2; cat) | wc -c | grep -q 300000", .2},
	{"stdio", "sh", "(sleep 1; seq 3) | sed s/2/y/ | grep -q y", 1},
	{"fifo", "sh", "d=$(mktemp -d); mkfifo $d/f; sed s/e/a/ < $d/f > $d/o & sleep .5; echo hello > $d/f; wait; grep -q hallo $d/o", .5},
	{"output", "sh", "sleep .1; seq 200000; seq 200000 >&2", .1},
	{"follow", "sh", "sleep .5 & tail -f --pid=$! /dev/null", 1},
}

// TestLiveWaits: in a lab whose time is virtual all that shells and utilities wait in ends at its instant: for children, signals and timers,
// and with a mask of signals.
func TestLiveWaits(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "bash", "timeout", "xargs", "tail", "flock")
	dir := t.TempDir()
	program := compiled(t, dir, "waits")
	text := "name: t-waits\ntopology: {star: {hosts: 2}}\nruntime: {clock: lockstep}\nworkloads:\n"
	line := "  - command: {label: %s, run: [%s, -c, '%s'], ranks: [h0], timeout: 300s}\n"
	text += fmt.Sprintf("  - command: {label: calls, run: [%s], ranks: [h0], timeout: 300s}\n", program)
	for _, w := range shellWaits {
		text += fmt.Sprintf(line, w.name, w.shell, strings.ReplaceAll(w.script, "'", "''"))
	}
	var before []float64
	for range 2 {
		r := runTurns(t, write(t, text))
		var took []float64
		for i := range r.Results {
			took = append(took, r.Results[i].JCT.Max)
		}
		if len(took) != 1+len(shellWaits) {
			t.Fatalf("%d rows, and not %d", len(took), 1+len(shellWaits))
		}
		for i, w := range shellWaits {
			if s := took[i+1] / 1e6; math.Abs(s-w.s) > .001 {
				t.Errorf("%s takes %.6f s of lab time, and not %g", w.name, s, w.s)
			}
		}
		if before != nil && fmt.Sprint(took) != fmt.Sprint(before) {
			t.Errorf("rows take %v us, and in the run before %v", took, before)
		}
		before = took
	}
	noLab(t, "t-waits", nil)
}

// compiled returns the path of a program of testdata.
func compiled(t *testing.T, dir, name string) string {
	t.Helper()
	program := filepath.Join(dir, name)
	if out, err := exec.Command("cc", "-O2", "-Wall", "-o", program, filepath.Join("testdata", name+".c"), "-lrdmacm", "-libverbs", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestLiveEnded: what is said of a program of virtual time that does not end by itself: what its threads waited for, and which of its queue
// pairs have failed; a rank that fails is not taken for the deadlock of another; and the rows that follow run.
func TestLiveEnded(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "rping")
	file := write(t, `name: t-ended
topology: {star: {hosts: 2}}
runtime: {clock: lockstep, management: true}
workloads:
  - command: {label: error, run: [`+compiled(t, t.TempDir(), "waiter")+`], timeout: 300s}
  - command: {label: masked, run: [sh, -c, 'if [ $MCASTLAB_RANK = 0 ]; then exec rping -s -a 0.0.0.0 -C 1; fi; sleep 1; echo my own failure >&2; exit 7'], timeout: 300s}
  - command: {label: stuck, run: [rping, -s, -a, 0.0.0.0, -C, '1'], timeout: 300s}
  - command: {label: late, run: [tail, -f, /dev/null], ranks: [h1], timeout: 2s}
  - command: {label: later, run: [echo, hello], timeout: 300s}
faults:
  - at: 120ms
    link-down: {links: 'h0:0-*'}
    for: 500ms
`)
	r := invoke(t, nil, "run", "-q", "-r", "netns", "--allow-programs", "--format", "json", "--runs", t.TempDir(), file)
	var report runner.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != exitFailed {
		t.Fatalf("exit code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	for _, want := range []string{
		"error waiter: rank 0 at h0 ended with exit code 7\n",
		`error waiter: rank 1 at h1 ended with exit code 143, because another rank had failed; QP \d+ completed with "transport retry counter exceeded" at 124\.\d+ms; a thread waited for completions since 124\.\d+ms\n`,
		"masked sh: rank 0 at h0 ended with exit code 143, because another rank had failed; a thread waited for an event of its NIC since [\\d.]+m?s; a thread waited for another of its threads since [\\d.]+m?s\n",
		"masked sh: rank 1 at h1 ended with exit code 7: my own failure\n",
		"stuck rping: rank 1 at h1 ended with exit code 143, because nothing that it waited for could happen any more; a thread waited for an event of its NIC since",
		`late tail: rank 0 at h1 ended with exit code 143, because its timeout was over \(timeout: 2s\)`, // between two sleeps, or in one
	} {
		if !regexp.MustCompile(want).MatchString(r.err) {
			t.Errorf("nothing says %q:\n%s", want, r.err)
		}
	}
	var outcomes []string
	for i := range report.Results {
		outcomes = append(outcomes, apps.DetailsOf[apps.Exits](report.Results[i]).Outcome())
	}
	if want := []string{"exit 7 (2 of 2)", "exit 7 (2 of 2)", "ended (2 of 2)", "killed after 2s (timeout)", "exit 0"}; !slices.Equal(outcomes, want) {
		t.Errorf("rows ended as %q, and not as %q", outcomes, want)
	}
	if report.Fidelity.Reason != "virtual time, in lockstep" {
		t.Errorf("fidelity %q", report.Fidelity.Reason)
	}
	noLab(t, "t-ended", nil)
}

// TestLiveUCX: UCX over two hosts in virtual time, whose ranks poll a socket and then receive from it, while timers of its own thread run.
func TestLiveUCX(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "ucx_perftest")
	text := "name: t-ucx\ntopology: {star: {hosts: 2}}\nruntime: {clock: lockstep, management: true}\nworkloads:\n"
	for _, w := range [][2]string{{"tag_lat", "rc"}, {"ucp_put_bw", "rc"}, {"tag_lat", "ud"}} {
		text += fmt.Sprintf("  - command: {label: %s-%s, run: [sh, -c, 'X=\"env UCX_TLS=%[2]s,self UCX_NET_DEVICES=mcast0:1 ucx_perftest -n 50 -w 5 -t %[1]s -s 64\"; "+
			"if [ $MCASTLAB_RANK = 0 ]; then exec $X; fi; sleep 1; exec $X h0'], timeout: 300s}\n", w[0], w[1])
	}
	r := runTurns(t, write(t, text))
	for _, row := range r.Results {
		if row.JCT.Max < 1e6 || row.JCT.Max > 2e6 {
			t.Errorf("%s takes %v us: its client sleeps for a second first", row.Workload, row.JCT.Max)
		}
	}
	noLab(t, "t-ucx", nil)
}
