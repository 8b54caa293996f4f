// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// suitesLab brings up a star for programs of others, and returns it.
func suitesLab(t *testing.T, name, links, dilation string) *verbsLab {
	t.Helper()
	l := &verbsLab{t: t, name: name}
	file := write(t, "name: "+name+"\ntopology: {star: {hosts: 16}}\nlinks: {rate: "+links+"}\nruntime: {clock: dilated, dilation: "+dilation+", management: true}\n")
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", name) }) // what a failed test has left
	must(t, "deploy", "--runtime", "netns", file)
	l.fresh = held(t, name)
	return l
}

// TestLiveOneSided: one-sided MPI works as mpirun runs it. What it sets a user may set otherwise, and -v says what it is.
func TestLiveOneSided(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "mpicc", "mpirun")
	program := filepath.Join(t.TempDir(), "onesided")
	if out, err := exec.Command("mpicc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/onesided.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := suitesLab(t, "t-onesided", "5Gbps", "20")
	if o := mustMPI(t, l.mpi("-np 3", program)...); !strings.Contains(o.out, "3 ranks, 0 wrong") {
		t.Errorf("the program says:\n%s%s", o.out, o.err)
	}
	rested(t, l.name, l.fresh)
	o := must(t, "mpirun", "--lab", l.name, "-np", "1", "-v", "--", "sh", "-c", "echo osc=$OMPI_MCA_osc $UCX_IB_ROCE_REACHABILITY_MODE")
	if !strings.Contains(o.out, "osc=^rdma all\n") || !strings.Contains(o.err, ": --mca osc ^rdma\n") || !strings.Contains(o.err, ": UCX_TLS=rc,self\n") {
		t.Errorf("mpirun -v says:\n%s%s", o.out, o.err)
	}
	t.Setenv("OMPI_MCA_osc", "pt2pt")
	t.Setenv("UCX_TLS", "ud,self")
	t.Setenv("UCX_IB_ROCE_REACHABILITY_MODE", "route")
	o = must(t, "mpirun", "--lab", l.name, "-np", "1", "-v", "--", "sh", "-c", "echo osc=$OMPI_MCA_osc $UCX_TLS $UCX_IB_ROCE_REACHABILITY_MODE")
	if !strings.Contains(o.out, "osc=pt2pt ud,self route\n") || strings.Contains(o.err, "--mca osc") || strings.Contains(o.err, "UCX_TLS") {
		t.Errorf("where the user sets osc, mpirun -v says:\n%s%s", o.out, o.err)
	}
	o = must(t, "exec", "--lab", l.name, "--node", "h0", "-v", "--", "sh", "-c", "echo $UCX_IB_ROCE_REACHABILITY_MODE; ls /sys/class/infiniband/mcast0/device/net")
	if o.out != "route\nmgmt0\np0\n" || !strings.Contains(o.err, "DSCP 0") || strings.Contains(o.err, "REACHABILITY") {
		t.Errorf("exec -v says:\n%s%s", o.out, o.err)
	}
	must(t, "destroy", l.name)
}

// TestLiveLibfabric: fi_pingpong of Debian's libfabric, over reliable datagrams that it makes of connections (ofi_rxm), whose completion
// queues have the depth that the device advertises, in a dilated lab and in virtual time.
func TestLiveLibfabric(t *testing.T) {
	const pingpong = `fi_pingpong -p %s -e rdm -I 20 -S 1024`
	need(t, "netns")
	verbsTools(t, "fi_pingpong")
	l := suitesLab(t, "t-libfabric", "5Gbps", "20")
	command := fmt.Sprintf(pingpong, "verbs;ofi_rxm")
	if err := l.meet(command, command+" h0"); err != nil {
		t.Error(err)
	}
	rested(t, l.name, l.fresh)
	must(t, "destroy", l.name)

	command = fmt.Sprintf(pingpong, `"verbs;ofi_rxm"`)
	r := runTurns(t, write(t, "name: t-libfabric-turns\ntopology: {star: {hosts: 2}}\nruntime: {clock: lockstep, management: true}\nworkloads:\n"+
		"  - command: {label: rxm, run: [sh, -c, 'if [ $MCASTLAB_RANK = 1 ]; then exec "+command+"; fi; sleep 1; exec "+command+" h1'], timeout: 300s}\n"))
	if text := said(t, r, "rxm"); !strings.Contains(text, "1k") {
		t.Errorf("the client says:\n%s", text)
	}
}

// pyverbsFolder holds rdma-core's own tests, as Debian's python3-pyverbs installs them.
const pyverbsFolder = "/usr/share/doc/rdma-core/tests"

// TestLivePyverbs: rdma-core's own tests of devices pass, or are skipped for what the device says it does not have.
func TestLivePyverbs(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "/usr/bin/python3", "gunzip")
	if _, err := os.Stat(pyverbsFolder); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatalf("%v: apt-get install python3-pyverbs", err)
		}
		t.Skip(err)
	}
	folder := filepath.Join(t.TempDir(), "tests")
	if err := os.CopyFS(folder, os.DirFS(pyverbsFolder)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gunzip", "-r", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	suite, err := filepath.Abs("testdata/suite.py")
	if err != nil {
		t.Fatal(err)
	}
	// The tests wait for 10 s, and some meet a receiver that is not ready, which takes 655 ms of lab time (timer code 0).
	l := suitesLab(t, "t-pyverbs", "1Gbps", "2")
	out := must(t, l.at("h0", "/usr/bin/python3", suite, folder, "300")...).out // seconds, for one test
	rested(t, l.name, l.fresh)
	must(t, "destroy", l.name)
	count := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			continue // what a test says itself
		}
		count[f[0]]++
		if f[0] != "ok" && f[0] != "skip" {
			t.Errorf("%s: %s: %s", f[1], f[0], f[2])
		}
	}
	t.Logf("%v", count)
	if count["ok"] < 80 {
		t.Errorf("%d tests pass:\n%s", count["ok"], out)
	}
}
