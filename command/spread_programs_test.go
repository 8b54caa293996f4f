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
	"syscall"
	"testing"
)

const spreadSlowLab = `name: t-spread-slow
topology: {fat-tree: {k: 4}}
runtime: {hosts: auto, clock: dilated, dilation: 4000}
workloads:
  - bcast: {schemes: [cepheus, {chain: {slices: 4}}], sizes: [64B, 64KiB], iterations: 2}
`

// spreadCommandLab has programs on hosts of all three servers.
const spreadCommandLab = `name: t-spread-slow
topology: {fat-tree: {k: 4}}
runtime: {hosts: auto, clock: dilated, dilation: 4000}
workloads:
  - command: {label: who, run: [sh, -c, 'hostname; echo $MCASTLAB_RANK of $MCASTLAB_RANKS'], ranks: [h0, h5, h9]}
  - command: {label: fails, run: [sh, -c, 'test $MCASTLAB_RANK != 1 || exit 3'], ranks: [h0, h9]}
`

// TestSpreadPrograms: a lab over three servers, whose clocks differ, in dilated time: its workloads deliver every byte, its frames are
// captured, and programs of each server run at its nodes, and end with their caller.
func TestSpreadPrograms(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := testbed(t, 3)
	file, runs := write(t, spreadSlowLab), t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread-slow") }) // before the engines end
	onServer(t, e, 1, exitOK, "deploy", "-q", file)
	spreadExec(t, e)
	spreadTap(t, e)
	o := invoke(t, e.env(1), "run", "-q", "-r", "docker", "--capture", "h0:0,h9:0", "--runs", runs, file)
	if o.code != exitOK && o.code != exitFidelity || strings.Count(o.out, "yes (bytes)") != 4 { // how busy this server is does not count
		t.Errorf("exit %d\n%s%s", o.code, o.out, o.err)
	}
	for _, name := range []string{"h0_0", "h9_0"} {
		if n := len(blocksOf(t, filepath.Join(runs, "t-spread-slow-1", name+".pcapng"))); n < 50 {
			t.Errorf("the run's capture of %s has %d blocks", name, n)
		}
	}
	if b, err := os.ReadFile(filepath.Join(runs, "t-spread-slow-1", "events.jsonl")); err != nil || !strings.Contains(string(b), `"apart"`) {
		t.Errorf("%v: the events do not say how far servers are apart", err)
	}
	onServer(t, e, 1, exitOK, "destroy", "t-spread-slow")
	e.undeployed()
	spreadCommands(t, e, runs)
	spreadAttach(t, e, runs)
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// atNode is a command that runs a program on a node.
func atNode(node string, argv ...string) []string {
	return append([]string{"exec", "-l", "t-spread-slow", "-n", node, "--clock", "wall", "--"}, argv...)
}

// spreadExec: programs on nodes of every server.
func spreadExec(t *testing.T, e *swarmEngines) {
	t.Helper()
	for server, node := range map[int]string{1: "h0", 2: "h5", 3: "h9"} {
		o := onServer(t, e, 1, exitOK, atNode(node, "sh", "-c", "hostname; ls -d /sys/class/net/../../../run/docker.sock; ip -br link show p0; pwd; echo error >&2")...)
		for _, want := range []string{node + "\n", "/run/docker.sock", "p0@", "/command\n"} {
			if !strings.Contains(o.out, want) {
				t.Errorf("at %s of server %d there is no %q in\n%s", node, server, want, o.out)
			}
		}
		if o.err != "error\n" {
			t.Errorf("standard error has %q", o.err)
		}
	}
	if o := onServer(t, e, 1, 7, atNode("h9", "sh", "-c", "exit 7")...); o.out != "" {
		t.Error(o.out)
	}
	if o := onServer(t, e, 1, signalBase+9, atNode("h9", "sh", "-c", "kill -9 $$")...); o.out != "" {
		t.Error(o.out)
	}
	o := onServer(t, e, 1, exitOK, atNode("h?", "hostname")...)
	for i := range 10 {
		if want := fmt.Sprintf("h%d: h%[1]d\n", i); !strings.Contains(o.out, want) {
			t.Errorf("no %q in\n%s", want, o.out)
		}
	}
	says(t, onServer(t, e, 1, exitRuntime, atNode("h5", "no-such-program")...), "exec no-such-program at h5: ", "is it installed on this server?", "(server sw2 (10.201.0.2))")
	// What it reads comes whole, and back.
	cmd := exec.Command(program1(t), atNode("h9", "sh", "-c", "wc -c; sleep 0.1; head -c 3000000 /dev/zero")...)
	cmd.Env, cmd.Stdin = append(os.Environ(), e.env(1)...), strings.NewReader(strings.Repeat("0123456789", 200_000))
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "2000000\n\x00") || len(out) != 3_000_008 {
		t.Errorf("%d bytes came, %v", len(out), err)
	}
	spreadEnds(t, e)
}

// spreadEnds: a program on another server gets its caller's signals, and ends with him.
func spreadEnds(t *testing.T, e *swarmEngines) {
	t.Helper()
	for _, by := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		mark := filepath.Join(t.TempDir(), "mark") // all servers of a test have this server's files
		const script = `trap 'echo ended > "$1"; kill $p; exit 3' INT TERM; sleep 4077 & p=$!; echo $$ $p > "$1"; wait`
		cmd, said := e.begin(atNode("h9", "sh", "-c", script, "sh", mark)...)
		waitFor(t, func() bool { b, err := os.ReadFile(mark); return err == nil && len(b) > 0 })
		waitFor(t, func() bool { return len(spreadSleepers(t)) == 1 })
		if err := cmd.Process.Signal(by); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code says it
		if b, _ := os.ReadFile(mark); by != syscall.SIGKILL && (cmd.ProcessState.ExitCode() != 3 && cmd.ProcessState.ExitCode() != signalBase+int(by) || string(b) != "ended\n") {
			t.Errorf("%v: exit %d, %q\n%s", by, cmd.ProcessState.ExitCode(), b, said.String())
		}
		waitFor(t, func() bool { return len(spreadSleepers(t)) == 0 })
	}
}

// spreadSleepers returns the processes of programs of spreadEnds that sleep.
func spreadSleepers(t *testing.T) (all []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && string(b) == "sleep\x004077\x00" { // it may have ended
			all = append(all, name)
		}
	}
	return all
}

// spreadTap: a port of another server is captured outside any run: the frames of a program there.
func spreadTap(t *testing.T, e *swarmEngines) {
	t.Helper()
	for _, node := range []string{"h0", "h9"} {
		file := filepath.Join(t.TempDir(), "port.pcapng")
		cmd, said := e.begin("capture", "-l", "t-spread-slow", "-c", "3", "-w", file, node+":0")
		send := e.beginRoot(node)
		if err := cmd.Wait(); err != nil {
			t.Errorf("capture at %s: %v\n%s", node, err, said.String())
		}
		if err := send.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_ = send.Wait() // it was interrupted
		if got := len(blocksOf(t, file)); got != 5 {
			t.Errorf("capture of 3 frames at %s: %d blocks of pcapng, want 5", node, got)
		}
	}
	file := filepath.Join(t.TempDir(), "none.pcapng")
	cmd, said := e.begin("capture", "-l", "t-spread-slow", "-w", file, "h9:0")
	waitFor(t, func() bool { _, err := os.Stat(file); return err == nil })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != exitOK && code != exitInterrupted {
		t.Errorf("a capture that is interrupted: exit %d\n%s", code, said.String())
	}
}

// beginRoot starts a program on a node that sends frames.
func (e *swarmEngines) beginRoot(node string) *exec.Cmd {
	e.t.Helper()
	const script = `ip addr add 192.0.2.1/24 dev p0 2> /dev/null; ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:09 dev p0; while :; do echo x > /dev/udp/192.0.2.2/9; sleep 0.05; done`
	args := []string{"exec", "-l", "t-spread-slow", "-n", node, "--root", "--", "bash", "-c", script}
	cmd, _ := e.begin(args...)
	return cmd
}

// spreadCommands: workloads whose ranks are programs of the servers.
func spreadCommands(t *testing.T, e *swarmEngines, runs string) {
	t.Helper()
	file := write(t, spreadCommandLab)
	o := invoke(t, e.env(1), "run", "-q", "-r", "hosts", "--allow-programs", "--runs", runs, file)
	if o.code != exitFailed || !strings.Contains(o.err, "fails sh: rank 1 at h9 ended with exit code 3") {
		t.Errorf("exit %d\n%s%s", o.code, o.out, o.err)
	}
	for i, node := range []string{"h0", "h5", "h9"} {
		b, err := os.ReadFile(filepath.Join(runs, "t-spread-slow-2", "programs", "who", fmt.Sprint(i, ".out")))
		if want := fmt.Sprintf("%s\n%d of 3\n", node, i); err != nil || string(b) != want {
			t.Errorf("rank %d has written %q, %v, want %q", i, b, err, want)
		}
	}
	e.undeployed()
}

// spreadAttach: an external device behind an interface of the third server receives what a host of the first sends.
func spreadAttach(t *testing.T, e *swarmEngines, runs string) {
	t.Helper()
	c := externalCase{workload: "schemes: [cepheus], root: h0", remote: group, size: 256 << 10}
	c.complete()
	text := strings.Replace(c.lab("t-spread-slow"), "qpn: 0x42", "qpn: 17", 1)
	file := write(t, text)
	deploy := func(code int, at string) outcome {
		return onServer(t, e, 1, code, "deploy", "-q", "-r", "hosts", "--attach", "h3="+at, file)
	}
	says(t, deploy(exitRuntime, "rc1"), "attach h3=rc1: the lab is on several servers: write --attach h3=SERVER/INTERFACE")
	says(t, deploy(exitRuntime, "sw9/rc1"), "attach h3=sw9/rc1: the lab is not on a server sw9: its servers are sw1, sw2, sw3")
	says(t, deploy(exitRuntime, "sw3/rc1"), "server sw3 (10.201.0.3): interface rc1: there is none of that name on this host")
	e.undeployed()
	e.inside(3, "ip link add rc0 mtu 4200 type veth peer name rc1 mtu 4200; ip link set rc0 up; ip link set rc1 up")
	deploy(exitOK, "sw3/rc1")
	device := exec.CommandContext(t.Context(), "nsenter", "--net="+e.dir+"/net3", program1(t), "rc", "recv", "--interface", "rc0", "--ip", "10.0.0.4",
		"--remote-ip", group, "--mtu", "1024", "--size", "256KiB", "--send-psn", fmt.Sprint(c.start()), "--receive-psn", fmt.Sprint(c.start()), "--timeout", "16s")
	said := &strings.Builder{}
	device.Stdout, device.Stderr = said, said
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	o := invoke(t, e.env(1), "run", "-q", "-r", "hosts", "--runs", runs, file)
	if o.code != exitOK && o.code != exitFidelity || !strings.Contains(o.out, "yes (bytes)") {
		t.Errorf("exit %d\n%s%s", o.code, o.out, o.err)
		_ = device.Process.Kill()
	}
	if err := device.Wait(); err != nil || !strings.Contains(said.String(), "SHA-256 ") {
		t.Errorf("the device: %v\n%s", err, said.String())
	}
	onServer(t, e, 1, exitOK, "destroy", "t-spread-slow")
	e.undeployed()
}
