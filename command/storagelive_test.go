// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// liveStorageText is the lab under a name, with a timer that leaves a server a second of wall
// time before a NIC asks again: its processes and their disks may stall for a good part of one.
func liveStorageText(name string) string {
	return strings.NewReplacer("name: t-store", "name: "+name, "timeout: 67us", "timeout: 524us").Replace(storageText)
}

// storageRun runs a running lab of storage; its times do not count.
func storageRun(t *testing.T, runtime, file string) *runner.Report {
	t.Helper()
	o := invoke(t, nil, "run", "-q", "-r", runtime, "--dilation", "2000", "--runs", t.TempDir(), "--format", "json", file)
	if o.code != 0 && o.code != exitFidelity {
		t.Fatalf("exit %d\n%s%s", o.code, o.out, o.err)
	}
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLiveStorage: stores on real file systems, one volume for each replica: every
// acknowledged write is on all of them, a second run finds what the first has left, and
// nothing of it is left after destroy.
func TestLiveStorage(t *testing.T) {
	need(t)
	unchanged(t)
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			t.Parallel()
			lab := "t-store-" + runtime
			file := write(t, liveStorageText(lab))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			must(t, "deploy", "-q", "-r", runtime, file)
			fresh := held(t, lab)
			for run := range 2 {
				for _, row := range storageRun(t, runtime, file).Results {
					if ios(row) == nil || !*row.Verified || ios(row).IOs != 50 || ios(row).Replicas != 3 || ios(row).Found != 50*run || ios(row).Copied != 0 {
						t.Errorf("run %d: %+v", run, ios(row))
					}
				}
				rested(t, lab, fresh)
			}
			if runtime == "docker" {
				out, err := exec.Command("docker", "volume", "ls", "-q", "--filter", "label=mcastlab.lab="+lab).Output()
				if want := "mcastlab-t-store-docker-h1-data\nmcastlab-t-store-docker-h2-data\nmcastlab-t-store-docker-h3-data"; err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("volumes %q (%v), want %q", out, err, want)
				}
			}
			must(t, "destroy", lab)
		})
	}
}

// TestStorageNodeDies: a replica is killed with SIGKILL at a random moment of a durable run. By
// policy the client continues or ends with an error that names the replica; acknowledged writes are
// on the others; restarted with its kept data, the replica becomes equal to them in the next run.
func TestStorageNodeDies(t *testing.T) {
	need(t)
	unchanged(t)
	kills := map[string]int{"netns": 2, "docker": 2}
	if os.Getenv("MCASTLAB_SOAK") != "" {
		kills["docker"] = 20
	}
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			t.Parallel()
			random := rand.New(rand.NewPCG(11, uint64(len(runtime))))
			for kill := range kills[runtime] {
				policy := []string{"degrade", "stop"}[kill%2]
				text := strings.Replace(liveStorageText("t-store-"+runtime), "on-failure: degrade", "on-failure: "+policy, 1)
				text = strings.Replace(strings.Replace(text, "number-ios: 50", "number-ios: 1500", 1), "[unicasts, multicast-registered]", "[multicast-registered]", 1)
				wait := time.Duration(random.IntN(1500)) * time.Millisecond
				t.Logf("%s, killed after %v", policy, wait)
				storageKill(t, runtime, write(t, text), policy, wait)
			}
		})
	}
}

// storageKill kills h2 some time after data began to flow, brings it back and runs the lab
// again.
func storageKill(t *testing.T, runtime, file, policy string, wait time.Duration) {
	t.Helper()
	lab, dir := "t-store-"+runtime, t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	must(t, "deploy", "-q", "-r", runtime, file)
	fresh := held(t, lab)
	cmd := exec.Command(program1(t), "run", "-q", "-r", runtime, "--dilation", "2000", "--runs", dir, "--format", "json", file)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	events := filepath.Join(dir, lab+"-1", "events.jsonl")
	waitFor(t, func() bool {
		b, err := os.ReadFile(events)
		return err == nil && bytes.Contains(b, []byte(`"group-active"`)) && bytes.Contains(b, []byte(`"node":"h2"`))
	})
	<-time.After(wait)
	killNode(t, lab, "h2")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(4 * time.Minute):
		t.Fatal("the run does not end")
	}
	r := &runner.Report{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil || len(r.Results) != 1 {
		t.Fatalf("%v: %s%s", err, out.String(), said.String())
	}
	row := r.Results[0]
	code := cmd.ProcessState.ExitCode()
	switch {
	case !*row.Verified || len(ios(row).Lost) != 1 || ios(row).Lost[0] != "h2" || ios(row).Replicas != 2:
		t.Errorf("row %+v", ios(row))
	case policy == "degrade" && (code != 0 && code != exitFidelity || ios(row).IOs != 1500):
		t.Errorf("degrade: exit %d, %d IOs\n%s", code, ios(row).IOs, said.String())
	case policy == "stop" && (code != exitRuntime || !strings.Contains(said.String(), "replica h2 failed after ") || ios(row).IOs >= 1500):
		t.Errorf("stop: exit %d, %d IOs\n%s", code, ios(row).IOs, said.String())
	}
	t.Logf("exit %d, %d IOs, %s", code, ios(row).IOs, strings.TrimSpace(said.String()))
	must(t, "deploy", "-q", "-r", runtime, file)
	rested(t, lab, fresh)
	again := ios(storageRun(t, runtime, file).Results[0])
	if again.Problem != "" || again.IOs != 1500 || again.Replicas != 3 || again.Found < ios(row).IOs || again.Copied == 0 {
		t.Errorf("the run after: %+v", again)
	}
	t.Logf("the run after found %d writes and copied %d blocks", again.Found, again.Copied)
	rested(t, lab, fresh)
	must(t, "destroy", lab)
}

// TestFailedStorage: a run of storage that ends with an error, because the link of a replica is
// down, leaves no group on a lab that stays up, nor anything else; and the lab works.
func TestFailedStorage(t *testing.T) {
	need(t)
	before := snapshot(t)
	text := strings.NewReplacer("on-failure: degrade", "on-failure: stop", "[unicasts, multicast-registered]", "[multicast-shared, multicast-registered]").Replace(liveStorageText("t-store"))
	file := write(t, text)
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-store") })
	must(t, "deploy", "-q", "-r", "netns", file)
	fresh := held(t, "t-store")
	for _, node := range []string{"h1", "h3"} {
		must(t, "fault", "add", "--lab", "t-store", "--link", node+"-*", "--set", "frames={kind: data}", "--rate", "1", "loss")
		o := invoke(t, nil, "run", "-q", "-r", "netns", "--dilation", "2000", "--runs", t.TempDir(), file)
		if o.code != exitRuntime && o.code != exitFidelity || !strings.Contains(o.err, node) {
			t.Errorf("without the link of %s: exit %d, %s", node, o.code, o.err)
		}
		must(t, "fault", "reset", "--lab", "t-store")
		rested(t, "t-store", fresh)
	}
	for _, row := range storageRun(t, "netns", file).Results {
		if ios(row) == nil || !*row.Verified || ios(row).IOs != 50 {
			t.Errorf("with all links: %+v", ios(row))
		}
	}
	rested(t, "t-store", fresh)
	must(t, "destroy", "t-store")
	same(t, before, snapshot(t))
}
