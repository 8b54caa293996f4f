// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMeasuredAgain: a switch that stands still for a while, as on a host with a hiccup,
// spoils a row. The row is measured again on a slower clock, and the report says so; with
// a dilation that was asked for it is marked in every format, and the exit code is 5.
func TestMeasuredAgain(t *testing.T) {
	need(t)
	text := "name: t-again\ntopology: {star: {hosts: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [64KiB], iterations: 15}\n"
	file := write(t, text)
	hiccup := func(t *testing.T, lab, dir string) {
		events := filepath.Join(dir, lab+"-1", "events.jsonl")
		waitFor(t, func() bool {
			b, err := os.ReadFile(events)
			return err == nil && bytes.Contains(b, []byte(`"event":"workload"`))
		})
		pid := nodePID(t, lab, "leaf0")
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := range 16 {
			_ = syscall.Kill(pid, []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT}[i%2])
			<-tick.C
		}
	}
	unchanged(t)
	var s *started
	for _, slower := range []string{"1", "4"} { // as in runLab
		dir := t.TempDir()
		s = start(t.Context(), t, "run", "-q", "-r", "netns", "--slower", slower, "--runs", dir, file)
		hiccup(t, "t-again", dir)
		if _ = s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != exitFidelity {
			break
		}
	}
	code := s.cmd.ProcessState.ExitCode()
	if code != 0 && code != exitFidelity {
		t.Fatalf("%v\n%s%s", s.cmd.ProcessState, s.out.String(), s.all.String())
	}
	// A server with hiccups of its own may spoil the repeats as well.
	if out := s.out.String(); code == 0 && (!strings.Contains(out, "fidelity: ok") || !strings.Contains(out, "cepheus at 64KiB was measured again")) {
		t.Errorf("the report does not say that a row was repeated:\n%s", out)
	}
	for _, format := range []string{"table", "csv", "jsonl"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			lab, dir := "t-again-"+format, t.TempDir()
			file := write(t, strings.Replace(text, "name: t-again", "name: "+lab, 1))
			s := start(t.Context(), t, "run", "-q", "-r", "netns", "--dilation", "8000", "--format", format, "--runs", dir, file)
			hiccup(t, lab, dir)
			_ = s.cmd.Wait() // the exit code says it
			mark := map[string]string{"table": "NOT TRUE TO TIME", "csv": ",true,violated,", "jsonl": `"late":true`}[format]
			if s.cmd.ProcessState.ExitCode() != exitFidelity || !strings.Contains(s.out.String(), mark) {
				t.Errorf("%v, without %q:\n%s", s.cmd.ProcessState, mark, s.out.String())
			}
		})
	}
}
