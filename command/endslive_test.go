// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// namesBoth matches a text that names a rank and its peer.
var namesBoth = regexp.MustCompile(`rank \d, send to rank \d`)

// endWait is the time limit for a run that cannot continue to end.
const endWait = 30 * time.Second

// TestLiveEnds: runs in which all ranks wait for each other because something failed end, with
// exit code 4, and name rank, peer and the verbs' status.
func TestLiveEnds(t *testing.T) {
	need(t)
	before := snapshot(t)
	_ = program1(t) // is not made within the wait
	for name, fault := range map[string]string{"loss": "lab-0", "crash": "lab-0", "timeout": ""} {
		ctx, stop := context.WithTimeout(t.Context(), endWait)
		o := invokeCtx(ctx, t, nil, "run", "-q", "-r", "netns", "--runs", t.TempDir(), filepath.Join("testdata", "ends", name+".mcl.yml"))
		stop()
		if o.code != exitRuntime || !strings.Contains(o.err, "transport retry counter exceeded") || !namesBoth.MatchString(o.err) || !strings.Contains(o.err, fault) {
			t.Errorf("%s: exit %d, %s", name, o.code, o.err)
			_, _ = exec.Command(program1(t), "destroy", "t-ends-"+name).Output()
		}
	}
	same(t, before, snapshot(t))
}

// TestLiveOutside: of a live run, too, it is said who waits for whom; a rank that blocks
// outside package rank is named, an interrupt does not wait for it, and a lab that stays up can
// be used again.
func TestLiveOutside(t *testing.T) {
	need(t)
	before, bin := snapshot(t), buildOutside(t)
	run := func(name, how, when string, more ...string) []string {
		return append(append([]string{"run", "-r", "netns", "--runs", t.TempDir()}, more...), outsideLab(t, name, how, when))
	}
	out, err := exec.Command(bin, run("t-waits", "waits", "live", "-q")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), waitsForWhom) {
		t.Errorf("%v: %s", err, out)
	}
	file := outsideLab(t, "t-outside", "loop", "live")
	if out, err := exec.Command(bin, "deploy", "-q", "-r", "netns", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _, _ = exec.Command(bin, "destroy", "t-outside").Output() })
	const named = "mcastlab: rank 2 (h2) has not come back to package rank for "
	for range 2 { // the second has to bring the node back
		o := interruptAt(t, named, bin, "run", "-q", "-r", "netns", "--runs", t.TempDir(), file)
		if o.code != exitInterrupted || !strings.Contains(o.err, "mcastlab: interrupted: rank 2 (h2) has not come back") {
			t.Errorf("exit %d: %s", o.code, o.err)
		}
		waitFor(t, func() bool {
			out, err := exec.Command(bin, "inspect", "t-outside").Output()
			return err == nil && strings.Contains(string(out), "gone")
		})
	}
	if out, err := exec.Command(bin, "destroy", "t-outside").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	same(t, before, snapshot(t))
}

// TestFaultStays: a fault that was added by hand and stays ends a run that it keeps from going
// on; the error names it, and it is in the summary and the events.
func TestFaultStays(t *testing.T) {
	need(t)
	before, dir := snapshot(t), t.TempDir()
	text := "name: t-stays\ntopology: {star: {hosts: 4}}\nnics: {timeout: 262us, retries: 2}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 200}}]\n"
	file := write(t, text)
	must(t, "deploy", "-q", "-r", "netns", file)
	t.Cleanup(func() { _, _ = exec.Command(program1(t), "destroy", "t-stays").Output() })
	done := make(chan outcome, 1)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	go func() {
		done <- invokeCtx(ctx, t, nil, "run", "-q", "-r", "netns", "--dilation", "2000", "--runs", dir, file)
	}()
	waitFor(t, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "t-stays-1", "events.jsonl"))
		return err == nil && strings.Contains(string(b), `"group-active"`)
	})
	must(t, "fault", "add", "-l", "t-stays", "--node", "h0", "nic-stall")
	o := <-done
	if o.code != exitRuntime || !strings.Contains(o.err, "is in force: {nic-stall: {nodes: [h0]}}") {
		t.Errorf("exit %d: %s", o.code, o.err)
	}
	for file, want := range map[string]string{"summary.json": `"kind": "nic-stall"`, "events.jsonl": `"event":"fault-added"`} {
		if b, err := os.ReadFile(filepath.Join(dir, "t-stays-1", file)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s does not say %s: %v", file, want, err)
		}
	}
	must(t, "destroy", "t-stays")
	same(t, before, snapshot(t))
}
