// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// spreadMPILab has hosts of all three servers on a management network.
const spreadMPILab = `name: t-spread-mpi
topology: {fat-tree: {k: 4}}
runtime: {hosts: auto, links: %s, clock: dilated, dilation: 400, management: true}
workloads:
  - command: {label: ranks, run: [sh, -c, 'echo $OMPI_COMM_WORLD_RANK $(hostname)'], ranks: [h0, h5, h9], launcher: mpirun}
`

// TestSpreadMPI: the hosts of a lab over three servers find each other by a management network, whatever carries it: programs of verbs, and
// members of a group, and the ranks of an MPI program, whose broadcasts the switches do. However a job ends, nothing of it is left on any server.
func TestSpreadMPI(t *testing.T) {
	needSwarmEngines(t)
	verbsTools(t, "mpicc", "mpirun", "ibv_rc_pingpong", "ping")
	l := &groupLab{verbsLab: verbsLab{t: t, name: "t-spread-mpi"}}
	l.plain, l.mpi = l.build("cc", "group", "-libverbs"), l.build("mpicc", "bcast")
	unchanged(t)
	e := testbed(t, 3)
	for _, v := range e.env(1) { // as if all commands ran on the first server
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for _, links := range []string{"vxlan", "userspace"} {
		l.overServers(e, links)
	}
	stepped := write(t, "name: t-spread-mpi\ntopology: {fat-tree: {k: 4}}\nruntime: {hosts: auto, management: true}\n")
	says(t, onServer(t, e, 1, exitRuntime, "deploy", "-q", stepped), "does not go over several servers: its time is virtual, and that of its management network is not")
	e.undeployed()
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// overServers deploys the lab with links of a kind, runs programs at its hosts, and destroys it.
func (l *groupLab) overServers(e *swarmEngines, links string) {
	t := l.t
	t.Helper()
	file := write(t, fmt.Sprintf(spreadMPILab, links))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) }) // before the engines end
	must(t, "deploy", "-q", file)
	l.fresh = held(t, l.name)
	for _, to := range []string{"h1", "h5", "h9", "h12"} {
		o := must(t, l.at("h0", "ping", "-c", "3", "-i", "0.2", "-s", "4000", "-W", "5", to)...)
		if !strings.Contains(o.out, " 3 received") || strings.Contains(o.out, "duplicates") {
			t.Errorf("%s: ping to %s:\n%s", links, to, o.out)
		}
	}
	server, said := e.begin(l.at("h9", "ibv_rc_pingpong", "-g", "0", "-n", "50")...)
	client := l.at("h5", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ibv_rc_pingpong -g 0 -n 50 h9 && exit 0; sleep 0.5; done; exit 1")
	if o := must(t, client...); !strings.Contains(o.out, "50 iters in ") {
		t.Errorf("%s: ibv_rc_pingpong says\n%s%s", links, o.out, o.err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("%s: ibv_rc_pingpong at h9: %v\n%s", links, err, said.String())
	}
	l.bound()
	l.jobsOverServers(links)
	runs := t.TempDir()
	o := invoke(t, nil, "run", "-q", "-r", "hosts", "--allow-programs", "--runs", runs, file)
	if o.code != exitOK && o.code != exitFidelity {
		t.Errorf("%s: exit %d\n%s%s", links, o.code, o.out, o.err)
	}
	for i, node := range []string{"h0", "h5", "h9"} {
		b, err := os.ReadFile(filepath.Join(runs, "t-spread-mpi-1", "programs", "ranks", fmt.Sprint(i, ".out")))
		if want := fmt.Sprintf("%d %s\n", i, node); err != nil || string(b) != want {
			t.Errorf("%s: rank %d has written %q, %v, want %q", links, i, b, err, want)
		}
	}
	must(t, "destroy", l.name)
	e.undeployed()
}

// jobsOverServers runs MPI programs on hosts of all servers, and ends some.
func (l *groupLab) jobsOverServers(links string) {
	t := l.t
	t.Helper()
	t.Setenv("MCASTLAB_MPI_VERBOSE", "1")
	t.Setenv("UCX_RC_TIMEOUT", "10ms")
	o := mustMPI(t, l.mpirun("h9,h0,h5,h13", "65536", "65536", "1")...)
	if !strings.Contains(o.out, "4 ranks, 0 wrong") || strings.Count(o.err, ": 2 broadcasts by groups, 2 the usual way, 0 groups lost") != 4 {
		t.Errorf("%s: exit %d\n%s%s", links, o.code, o.out, o.err)
	}
	rested(t, l.name, l.fresh)
	o = must(t, l.verbsLab.mpi("--map h5,h9,h0,h9", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")...)
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	slices.Sort(lines)
	if want := []string{"0 h5", "1 h9", "2 h0", "3 h9"}; !slices.Equal(lines, want) {
		t.Errorf("%s: ranks are at %q, not %q", links, lines, want)
	}
	if o := invoke(t, nil, l.verbsLab.mpi("--map h5,h9,h0", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK + 3))")...); o.code < 3 || o.code > 5 {
		t.Errorf("%s: exit codes 3 to 5 are %d\n%s", links, o.code, o.err)
	}
	for _, by := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		mark := fmt.Sprintf("T_MPI=%s-%d", links, by)
		cmd := exec.Command(program1(t), l.verbsLab.mpi("--map h9,h5,h0", "sleep", "600")...)
		cmd.Env = append(cmd.Environ(), mark)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return len(sleepers(t, mark)) == 3 })
		if err := cmd.Process.Signal(by); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code says it
		if code := cmd.ProcessState.ExitCode(); by == syscall.SIGINT && code != exitInterrupted {
			t.Errorf("%s: %v: exit %d", links, by, code)
		}
		waitFor(t, func() bool { return len(marks(t, mark)) == 0 })
	}
}
