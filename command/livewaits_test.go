//go:build linux

package command

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	{"follow", "sh", "sleep .5 & tail -f --pid=$! /dev/null", 1},
}

// TestLiveWaits: in a lab whose time is virtual all that shells and utilities wait in ends at its instant: for children, signals and timers,
// and with a mask of signals.
func TestLiveWaits(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "bash", "timeout", "xargs", "tail")
	dir := t.TempDir()
	program := filepath.Join(dir, "waits")
	if out, err := exec.Command("cc", "-O2", "-Wall", "-o", program, "testdata/waits.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) { // the program may not run as root
		if i, err := os.Stat(d); err == nil && i.Mode()&0o5 != 0o5 {
			_ = os.Chmod(d, i.Mode()|0o5)
		}
	}
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
