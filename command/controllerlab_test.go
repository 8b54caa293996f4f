// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// planeOf returns a client of the controllers of the lab, whatever state that is in.
func planeOf(t *testing.T, lab string) *client.Client {
	t.Helper()
	var all []client.Replica
	for _, id := range []string{"controller0", "controller1", "controller2"} {
		all = append(all, client.Replica{ID: id, Target: "unix:" + filepath.Join(orchestrator.StateDir, lab, "n", id, nodeapi.AgentSocket)})
	}
	c, err := client.New(all, controller.Retry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// leaderOf waits for a controller to lead that is none of those given.
func leaderOf(t *testing.T, c *client.Client, not ...string) (id string) {
	t.Helper()
	waitLong(t, func() bool {
		id = ""
		term := uint64(0)
		for _, s := range c.Status(t.Context()) {
			if s.State == "leader" && s.Term > term && !slices.Contains(not, s.ID) {
				id, term = s.ID, s.Term
			}
		}
		return id != ""
	})
	return id
}

// waitLong waits for what takes an election or two, on a server that has other work.
func waitLong(t *testing.T, holds func() bool) {
	t.Helper()
	for late := time.After(2 * time.Minute); !holds(); {
		select {
		case <-late:
			t.Fatal("what was waited for does not come")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// controllerLs returns how controllers are, by their ids.
func controllerLs(t *testing.T, lab string) map[string]client.Status {
	t.Helper()
	var ls struct {
		Controllers []client.Status `json:"controllers"`
	}
	out := must(t, "controller", "ls", "--lab", lab, "--format", "json").out
	if err := json.Unmarshal([]byte(out), &ls); err != nil || len(ls.Controllers) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	by := map[string]client.Status{}
	for _, s := range ls.Controllers {
		by[s.ID] = s
	}
	return by
}

// underWay starts the program; wait returns its exit code and what it has said.
func underWay(t *testing.T, args ...string) (wait func() (int, string)) {
	t.Helper()
	cmd := exec.Command(program1(t), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() (int, string) {
		_ = cmd.Wait() // the exit code says it
		return cmd.ProcessState.ExitCode(), said.String()
	}
}

// ctlFile is a lab with controllers whose one row takes a while.
func ctlFile(t *testing.T, lab, iterations string) string {
	t.Helper()
	return write(t, "name: "+lab+"\ntopology: {star: {hosts: 4}}\ncontrollers: 3\nruntime: {clock: dilated}\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [64KiB], iterations: "+iterations+"}\n")
}

// TestControlPlane: in a lab whose controllers are nodes the leader is killed in the middle of a
// deployment, of a registration and run, and of a timeline; then a leader is stopped, and all are
// killed during a run. Each request takes effect, once; traffic never stops; destroy leaves
// nothing.
func TestControlPlane(t *testing.T) {
	need(t)
	unchanged(t)
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			t.Parallel()
			lab, rounds := "t-ctl-"+runtime, 1
			if os.Getenv("MCASTLAB_SOAK") != "" {
				rounds = 34 // of six kills and a stop
			}
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			for range rounds {
				controlPlane(t, lab, runtime)
			}
		})
	}
}

func controlPlane(t *testing.T, lab, runtime string) {
	c, file := planeOf(t, lab), ctlFile(t, lab, "200")

	// A deployment loses the leader as soon as there is one.
	deploy := underWay(t, "deploy", "-q", "-r", runtime, file)
	killed := leaderOf(t, c)
	killNode(t, lab, killed)
	if code, said := deploy(); code != exitOK || !strings.Contains(said, "5 nodes, 4 links, 3 controllers") {
		t.Fatalf("deploy: exit %d, %s", code, said)
	}
	if ls := controllerLs(t, lab); ls[killed].State != "gone" {
		t.Errorf("%s was killed, and is %+v", killed, ls[killed])
	}
	if o := must(t, "deploy", "-q", "-r", runtime, file); !strings.Contains(o.out, "is up again") {
		t.Errorf("deploy once more: %s", o.out)
	}

	t.Logf("%v: deployed", time.Now().UTC())

	// A run loses it before its group is registered.
	dir := t.TempDir()
	run := underWay(t, "run", "-q", "-r", runtime, "--dilation", "2000", "--runs", dir, file)
	waitLong(t, func() bool { return openRun(t, lab, c) != nil })
	killed = leaderOf(t, c)
	killNode(t, lab, killed)
	flows(t, lab, dir, "1")
	if code, said := run(); code != exitOK && code != exitFidelity {
		t.Fatalf("run: exit %d, %s", code, said)
	}
	if r := lastRun(t, lab, c); r.Ended == 0 || r.Error != "" {
		t.Errorf("the run is %+v", r)
	}
	must(t, "deploy", "-q", "-r", runtime, file)

	t.Logf("%v: the first run is over", time.Now().UTC())
	timelineKilled(t, lab, c, runtime, file)
	t.Logf("%v: the timeline is over", time.Now().UTC())
	leaderStopped(t, lab, c)
	planeFaults(t, lab, c)
	t.Logf("%v: the faults of controllers are over", time.Now().UTC())

	// All of them die, and a run continues to its end. Then they restart.
	run = underWay(t, "run", "-q", "-r", runtime, "--dilation", "2000", "--runs", dir, file)
	flows(t, lab, dir, "2")
	for _, id := range []string{"controller0", "controller1", "controller2"} {
		killNode(t, lab, id)
	}
	code, said := run()
	if code != exitOK && code != exitFidelity {
		t.Fatalf("run without controllers: exit %d, %s", code, said)
	}
	must(t, "deploy", "-q", "-r", runtime, file)
	if r := lastRun(t, lab, c); r.Ended != 0 && r.Error != "abandoned" {
		t.Errorf("a run whose end nobody heard is %+v", r)
	}
	run = underWay(t, "run", "-q", "-r", runtime, "--dilation", "2000", "--runs", dir, file)
	if code, said := run(); code != exitOK && code != exitFidelity {
		t.Fatalf("run after all were dead: exit %d, %s", code, said)
	}
	empty(t, lab)
	must(t, "destroy", lab)
}

// planeLab returns what the controllers know of the lab.
func planeLab(t *testing.T, lab string, c *client.Client) *controller.Lab {
	t.Helper()
	s, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Lab(lab)
}

func openRun(t *testing.T, lab string, c *client.Client) *controller.Run {
	t.Helper()
	if r := lastRun(t, lab, c); r != nil && r.Ended == 0 {
		return r
	}
	return nil
}

func lastRun(t *testing.T, lab string, c *client.Client) *controller.Run {
	t.Helper()
	l := planeLab(t, lab, c)
	if l == nil || len(l.Runs) == 0 {
		return nil
	}
	return &l.Runs[len(l.Runs)-1]
}

// flows waits until data flows in the run with this number: its group is active.
func flows(t *testing.T, lab, dir, number string) {
	t.Helper()
	events := filepath.Join(dir, lab+"-"+number, "events.jsonl")
	waitLong(t, func() bool {
		b, err := os.ReadFile(events)
		return err == nil && bytes.Contains(b, []byte(`"group-active"`))
	})
}

// timelineKilled adds faults, and the leader is killed while it receives them.
func timelineKilled(t *testing.T, lab string, c *client.Client, runtime, file string) {
	t.Helper()
	must(t, "fault", "add", "--lab", lab, "--link", "h1-leaf0", "--delay", "1us", "delay")
	add := underWay(t, "fault", "add", "--lab", lab, "--link", "h2-leaf0", "--delay", "1us", "delay")
	killed := leaderOf(t, c)
	killNode(t, lab, killed)
	if code, said := add(); code != exitOK {
		t.Fatalf("fault add: exit %d, %s", code, said)
	}
	must(t, "fault", "add", "--lab", lab, "--link", "h3-leaf0", "--delay", "1us", "delay")
	if !threeFaults(t, lab) {
		t.Errorf("faults:\n%s", must(t, "fault", "ls", "--lab", lab).out)
	}
	// A node that restarts gets its faults from the leader of that moment.
	killNode(t, lab, "h3")
	must(t, "deploy", "-q", "-r", runtime, file)
	waitLong(t, func() bool { return threeFaults(t, lab) })
	must(t, "fault", "reset", "--lab", lab)
	if l := planeLab(t, lab, c); len(l.Faults) != 0 {
		t.Errorf("after a reset the timeline is %+v", l.Faults)
	}
	if out := must(t, "fault", "ls", "--lab", lab, "--format", "json").out; strings.Contains(out, "h1-leaf0") {
		t.Errorf("after a reset nodes have\n%s", out)
	}
}

// threeFaults reports whether there are three faults, each at both ends of its link, once.
func threeFaults(t *testing.T, lab string) bool {
	t.Helper()
	var f faultStates
	out := must(t, "fault", "ls", "--lab", lab, "--format", "json").out
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, x := range f.Faults {
		if len(x.Applied) != 2 {
			return false
		}
	}
	return len(f.Faults) == 3
}

// leaderStopped stops the leader while it receives a fault; another applies the fault, and removes
// it. When the first resumes it changes nothing.
func leaderStopped(t *testing.T, lab string, c *client.Client) {
	t.Helper()
	old := leaderOf(t, c)
	pid := nodePIDs(t, lab)[old]
	add := underWay(t, "fault", "add", "--lab", lab, "--link", "h1-leaf0", "--delay", "1us", "delay")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, c, old)
	if code, said := add(); code != exitOK {
		t.Errorf("fault add: exit %d, %s", code, said)
	}
	must(t, "fault", "reset", "--lab", lab)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitLong(t, func() bool {
		s := controllerLs(t, lab)[old]
		return s.State == "leader" || s.State == "follower" && s.Leader != ""
	})
	if out := must(t, "fault", "ls", "--lab", lab, "--format", "json").out; strings.Contains(out, "h1-leaf0") {
		t.Errorf("a deposed leader has applied\n%s", out)
	}
}

// planeFaults crashes a controller and cuts another off by faults; both end by themselves or by
// a reset.
func planeFaults(t *testing.T, lab string, c *client.Client) {
	t.Helper()
	must(t, "fault", "add", "--lab", lab, "--controller", "controller0", "--for", "3ms", "controller-crash")
	waitLong(t, func() bool { return controllerLs(t, lab)["controller0"].State == "crashed" })
	waitLong(t, func() bool { return controllerLs(t, lab)["controller0"].State != "crashed" })
	old := leaderOf(t, c)
	must(t, "fault", "add", "--lab", lab, "--controller", old, "--set", "direction=out", "control-partition")
	leaderOf(t, c, old)
	var f faultStates
	if err := json.Unmarshal([]byte(must(t, "fault", "ls", "--lab", lab, "--format", "json").out), &f); err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Faults {
		if x.Seen != 1 || x.Hit == 0 {
			t.Errorf("%+v", x)
		}
	}
	if len(f.Faults) != 2 || !f.Faults[0].Over || !f.Faults[1].On {
		t.Errorf("faults: %+v", f.Faults)
	}
	must(t, "fault", "reset", "--lab", lab)
	waitLong(t, func() bool {
		s := controllerLs(t, lab)[old]
		return s.State == "leader" || s.State == "follower" && s.Leader != ""
	})
}
