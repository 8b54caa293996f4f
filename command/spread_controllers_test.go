// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

const spreadPlaneLab = `name: t-spread-ctl
topology: {fat-tree: {k: 4}}
runtime: {hosts: auto, links: userspace}
controllers: 3
trace: messages
workloads:
  - bcast: {label: a, schemes: [cepheus, ud-multicast], sizes: [64B, 64KiB], iterations: 2}
  - bcast: {label: b, schemes: [cepheus], sizes: [64KiB], iterations: 2}
faults: [{at: 20us, for: 300us, controller-crash: {controllers: controller0}}, {at: 400us, for: 150us, control-partition: {controllers: controller1}}]
`

// spreadPlane is a client that calls each controller on its own server, whatever there is between the servers.
func spreadPlane(t *testing.T, e *swarmEngines, first int) *client.Client {
	t.Helper()
	var all []client.Replica
	for k := range 3 {
		i := (first + k) % 3
		id := fmt.Sprint("controller", i)
		root := fmt.Sprintf("/proc/%d/root", e.shim(i+1))
		all = append(all, client.Replica{ID: id, Target: "unix:" + filepath.Join(root, orchestrator.StateDir, "t-spread-ctl", "n", id, nodeapi.AgentSocket)})
	}
	c, err := client.New(all, controller.Retry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestSpreadControllers: controllers on three servers, all links between which are in user space, decide for a run that is its simulation. The server of the one that leads is lost
// in mid-run: another leads, all that was acknowledged is kept, and the server is cleaned when it is back.
func TestSpreadControllers(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := testbed(t, 3)
	file, runs := write(t, spreadPlaneLab), t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread-ctl") }) // before the engines end
	plan := onServer(t, e, 1, exitOK, "deploy", "-n", file).out
	for i := range 3 {
		if !strings.Contains(plan, fmt.Sprintf(" controller%d\n", i)) {
			t.Errorf("the plan has no server with controller%d:\n%s", i, plan)
		}
	}
	if strings.Count(plan, "links in user space (runtime.links), ") != 3 {
		t.Errorf("the plan has other links:\n%s", plan)
	}
	onServer(t, e, 1, exitOK, "deploy", "-q", file)
	if o := onServer(t, e, 1, exitOK, "deploy", "-q", file); !strings.Contains(o.out, "nothing changed") {
		t.Error(o.out)
	}
	o := onServer(t, e, 1, exitOK, "run", "-q", "-r", "docker", "--check-digest", "--runs", runs, file)
	if !strings.Contains(o.err, "which is the simulation's") || strings.Contains(o.out, "NO") {
		t.Errorf("%s%s", o.out, o.err)
	}
	if all := leasesOf(t, runs, "t-spread-ctl", "1"); len(all) < 2 {
		t.Errorf("the controllers have leased %v", all)
	}
	onlyKnownPorts(t, e)
	spreadPlaneAtRest(t, e)
	spreadLeaderKilled(t, e)
	spreadLeaderLost(t, e)
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// spreadLs lists the controllers as the command line sees them.
func spreadLs(t *testing.T, e *swarmEngines) []client.Status {
	t.Helper()
	var ls struct {
		Controllers []client.Status `json:"controllers"`
	}
	out := onServer(t, e, 1, exitOK, "controller", "ls", "--lab", "t-spread-ctl", "--format", "json").out
	if err := json.Unmarshal([]byte(out), &ls); err != nil || len(ls.Controllers) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	return ls.Controllers
}

// spreadPlaneAtRest: controllers lead and follow across servers, and the one that leads reaches nodes everywhere.
func spreadPlaneAtRest(t *testing.T, e *swarmEngines) {
	t.Helper()
	waitLong(t, func() bool { // the run's faults have ended
		return !slices.ContainsFunc(spreadLs(t, e), func(s client.Status) bool { return s.Leader == "" || s.State == "crashed" })
	})
	for i, s := range spreadLs(t, e) {
		if want := fmt.Sprintf("sw%d (10.201.0.%[1]d)", i+1); s.Address != want {
			t.Errorf("%s is at %s, want %s", s.ID, s.Address, want)
		}
	}
	onServer(t, e, 1, exitOK, "fault", "add", "--lab", "t-spread-ctl", "--link", "agg*-core*", "--rate", "0.01", "loss")
	if o := onServer(t, e, 1, exitOK, "fault", "ls", "--lab", "t-spread-ctl"); !strings.Contains(o.out, "loss") {
		t.Error(o.out)
	}
	onServer(t, e, 1, exitOK, "fault", "reset", "--lab", "t-spread-ctl")
}

// leaderElsewhere has a controller lead that is not on the server that manages the Swarm, and returns its number.
func leaderElsewhere(t *testing.T, e *swarmEngines, c *client.Client) (id string, server int) {
	t.Helper()
	if id = leaderOf(t, c); id == "controller0" {
		onServer(t, e, 1, exitOK, "fault", "add", "--lab", "t-spread-ctl", "--controller", "controller0", "controller-crash")
		id = leaderOf(t, c, "controller0")
		onServer(t, e, 1, exitOK, "fault", "reset", "--lab", "t-spread-ctl")
	}
	_, err := fmt.Sscanf(id, "controller%d", &server)
	if err != nil {
		t.Fatal(err)
	}
	return id, server + 1
}

// spreadLeaderKilled: the container of the controller that leads dies in mid-run. Another decides from then on, and the run is its
// simulation all the same.
func spreadLeaderKilled(t *testing.T, e *swarmEngines) {
	onServer(t, e, 1, exitOK, "destroy", "t-spread-ctl")
	e.undeployed()
	text, _, _ := strings.Cut(strings.Replace(spreadPlaneLab, "iterations: 2", "iterations: 60", 1), "faults:")
	file, runs := write(t, text), t.TempDir()
	onServer(t, e, 1, exitOK, "deploy", "-q", file)
	id, server := leaderElsewhere(t, e, spreadPlane(t, e, 0))
	cmd, said := e.begin("run", "-q", "-r", "docker", "--check-digest", "--runs", runs, file)
	waitLong(t, func() bool { return len(leasesOf(t, runs, "t-spread-ctl", "1")) > 0 })
	e.docker(server, "kill $(docker -H "+e.host(server)+" ps -q --filter label=mcastlab.node="+id+")")
	err := cmd.Wait()
	if err != nil || !strings.Contains(said.String(), "which is the simulation's") {
		t.Errorf("%v\n%s", err, said.String())
	}
	var epochs []uint64
	b, err := os.ReadFile(filepath.Join(runs, "t-spread-ctl-1", runner.LeasesFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var x runner.Lease
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		epochs = append(epochs, x.Epoch)
	}
	if len(epochs) < 2 || epochs[len(epochs)-1] <= epochs[0] {
		t.Errorf("epochs of leases %v: the same controller has led", epochs)
	}
	want := fmt.Sprintf("node %s on server sw%d (10.201.0.%[2]d) is gone", id, server)
	says(t, onServer(t, e, 1, exitRuntime, "deploy", "-q", file), want, "cannot be repaired")
}

// spreadLeaderLost: the server of the controller that leads is lost while clients ask for leases and faults of another lab.
func spreadLeaderLost(t *testing.T, e *swarmEngines) {
	onServer(t, e, 1, exitOK, "destroy", "t-spread-ctl")
	e.undeployed()
	text, _, _ := strings.Cut(strings.Replace(spreadPlaneLab, "iterations: 2", "iterations: 10000", 1), "faults:")
	long, runs := write(t, text), t.TempDir()
	onServer(t, e, 1, exitOK, "deploy", "-q", long)
	x := spreadPlane(t, e, 0)
	id, server := leaderElsewhere(t, e, x)
	name := fmt.Sprintf("server sw%d (10.201.0.%[1]d)", server)
	clients := beginClients(t, e, x)
	cmd, said := e.begin("run", "-q", "-r", "docker", "--runs", runs, long)
	waitLong(t, func() bool { return len(leasesOf(t, runs, "t-spread-ctl", "1")) > 0 })
	e.lose(server)
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != exitRuntime || !strings.Contains(said.String(), name) {
		t.Errorf("exit %d\n%s", code, said.String())
	}
	clients.end(t, id, "go test ./command -run SpreadControllers")
	s, err := x.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if all := s.Lab("t-spread-ctl").Runs; len(all) == 0 || !strings.Contains(all[len(all)-1].Error, name) {
		t.Errorf("the controllers know of the runs %+v", all)
	}
	for _, s := range spreadLs(t, e) {
		if (s.State == "gone") != (s.ID == id) {
			t.Errorf("without %s, %s is %s", name, s.ID, s.State)
		}
	}
	spreadBack(t, e, "t-spread-ctl", server)
}
