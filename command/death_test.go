// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestNodeDies: when the switch on the tree or a member is killed in the middle of a
// run, the run ends with an error that names a node, the events up to the last second
// are there and the gap is named; nothing of the lab is left.
func TestNodeDies(t *testing.T) {
	need(t)
	unchanged(t)
	for node, want := range map[string]string{"leaf0": "transport retry counter exceeded", "h2": "h2"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			lab, dir := "t-dies-"+node, t.TempDir()
			text := strings.Replace(starLab(lab, "nics: {timeout: 262us, retries: 2}\n"), "iterations: 2", "iterations: 1000", 1)
			cmd := exec.Command(program1(t), "run", "-q", "-r", "netns", "--dilation", "2000", "--runs", dir, write(t, text))
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			events := filepath.Join(dir, lab+"-1", "events.jsonl")
			t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = exec.Command(program1(t), "destroy", lab).Output() })
			// Once the first group is active data flows.
			waitFor(t, func() bool {
				b, err := os.ReadFile(events)
				return err == nil && bytes.Contains(b, []byte(`"group-active"`)) && bytes.Contains(b, []byte(`"node":"`+node+`"`))
			})
			killNode(t, lab, node)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(5 * time.Minute):
				t.Fatal("the run does not end")
			}
			if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(said.String(), want) {
				t.Errorf("exit %d, %s", code, said.String())
			}
			b, err := os.ReadFile(events)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(b, []byte(`"event":"gap","data":{"node":"`+node+`"`)) {
				t.Error("events.jsonl does not name the gap")
			}
			if !bytes.Contains(b, []byte(`"node":"`+node+`"`)) || !bytes.Contains(b, []byte(`"group-active"`)) {
				t.Error("events from before are missing")
			}
		})
	}
}

// TestNodeStalls: a member that the server does not let run for longer than its peers wait
// is no failure of the network: the run fails, says which of the two was too short, and with
// the exit code of a run that is not true to time.
func TestNodeStalls(t *testing.T) {
	need(t)
	before := snapshot(t)
	dir := t.TempDir()
	text := strings.Replace(starLab("t-stalls", "nics: {timeout: 67us, retries: 1}\n"), "iterations: 2", "iterations: 1000", 1)
	cmd := exec.Command(program1(t), "run", "-q", "-r", "netns", "--dilation", "2000", "--runs", dir, write(t, text))
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = exec.Command(program1(t), "destroy", "t-stalls").Output() })
	waitFor(t, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "t-stalls-1", "events.jsonl"))
		return err == nil && bytes.Contains(b, []byte(`"group-active"`))
	})
	pid := nodePID(t, "t-stalls", "h2")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Two timers of 262 ms run out meanwhile.
	<-time.After(time.Second)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, want := range []string{"transport retry counter exceeded, but frames were up to ", "NICs wait 262ms for an answer", "--slower 4"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%s\ndoes not say %q", said.String(), want)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != exitFidelity {
		t.Errorf("exit %d, want %d", code, exitFidelity)
	}
	b, err := os.ReadFile(filepath.Join(dir, "t-stalls-1", "summary.json"))
	if err != nil || !bytes.Contains(b, []byte(`"verdict": "not judged"`)) {
		t.Errorf("the summary does not say that nothing was judged: %v\n%s", err, b)
	}
	same(t, before, snapshot(t))
}

// pollEvery is the interval of polls. Without a pause the test would take one of the cores that the
// lab needs to keep time.
const pollEvery = 5 * time.Millisecond

// waitFor waits until something holds, within the time a test may take.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); <-time.After(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatal("what was waited for does not come")
		}
	}
}

// TestRegistrationOnTheWire: on real interfaces of a fat-tree, registration lists get
// shorter from hop to hop, down to the one record of a member (CEP-12).
func TestRegistrationOnTheWire(t *testing.T) {
	need(t)
	text := "name: t-mrp\ntopology: {fat-tree: {k: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], iterations: 1}\n"
	r := verified(t, "-r", "netns", "--dilation", "100000", "--capture", "*:*", write(t, text))
	records := func(port string) (most int) {
		var p wire.Pool
		for _, b := range packetsOf(t, filepath.Join(r.RunDir, strings.ReplaceAll(port, ":", "_")+".pcapng")) {
			fr, err := p.Parse(b)
			if err != nil || fr.Kind() != wire.KindMRP || !(wire.GroupRange{}).Has(fr.DstIP()) {
				continue
			}
			most = max(most, (fr.PayloadLen()-wire.MRPHeaderLen)/wire.MRPRecordLen)
		}
		return most
	}
	hops := map[string]int{"h0:0": records("h0:0"), "h15:0": records("h15:0")}
	for _, tier := range []string{"core0", "core1", "core2", "core3"} {
		for _, port := range []string{":0", ":1", ":2", ":3"} {
			hops["core"] = max(hops["core"], records(tier+port))
		}
	}
	for _, leaf := range []string{"leaf6", "leaf7"} {
		for _, port := range []string{":2", ":3"} {
			hops["leaf"] = max(hops["leaf"], records(leaf+port))
		}
	}
	if hops["h0:0"] <= hops["core"] || hops["core"] <= hops["leaf"] || hops["leaf"] <= hops["h15:0"] || hops["h15:0"] != 1 {
		t.Errorf("records at the leader, a core, the last leaf and its member: %v", hops)
	}
}
