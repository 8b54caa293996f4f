// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/test/patch"
)

// TestLiveVerbs: Debian's programs run on hosts of a fat-tree, across its switches, find each other by the management
// network, and leave nothing at their NICs, however they end.
func TestLiveVerbs(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			l := newVerbsLab(t, runtime)
			l.programs()
			l.atOnce()
			l.captured()
			l.labTime()
			l.exitCodes()
			l.killed()
			l.destroyed()
		})
	}
}

// verbsLab is a lab of 16 hosts with a management network.
type verbsLab struct {
	t     *testing.T
	name  string
	fresh census
	port  int // the last that a pair of programs has met at
}

// verbsTools skips a test where a program that it runs or what builds the library is missing, or fails it where it must not be.
func verbsTools(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range append(names, "cc", "nm", "awk") {
		if _, err := exec.LookPath(n); err != nil {
			if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	library := t.TempDir()
	src, err := patch.Sources(t.TempDir(), "../verbs")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", filepath.Join(src, "build.sh"), library).CombinedOutput(); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" || !bytes.Contains(out, []byte(".h: No such file")) {
			t.Fatalf("build the library: %v\n%s", err, out)
		}
		t.Skip("the headers of rdma-core are missing: apt-get install librdmacm-dev")
	}
	t.Setenv("MCASTLAB_VERBS_LIB", library)
}

func newVerbsLab(t *testing.T, runtime string) *verbsLab {
	t.Helper()
	verbsTools(t, "ib_write_bw", "ibv_rc_pingpong", "ucx_info", "ucx_perftest", "rping", "fi_pingpong", "ping", "tshark")
	l := &verbsLab{t: t, name: "t-verbs-" + runtime, port: 20000}
	file := write(t, "name: "+l.name+"\ntopology: {fat-tree: {k: 4}}\nruntime: {clock: dilated, dilation: 100, management: true}\n")
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) }) // what a failed test has left
	must(t, "deploy", "--runtime", runtime, file)
	l.fresh = held(t, l.name)
	return l
}

// at returns the arguments that run a program on a node. Its clocks show this server's time: perftest waits for a second or so of its
// own, which at the lab's dilation would take minutes.
func (l *verbsLab) at(node string, args ...string) []string {
	return append([]string{"exec", "--clock", "wall", "--lab", l.name, "--node", node, "--"}, args...)
}

// verbsServer is a program that has been started, and what it says.
type verbsServer struct {
	*exec.Cmd
	said bytes.Buffer
}

// start starts a program on a node.
func (l *verbsLab) start(node string, env []string, args ...string) *verbsServer {
	l.t.Helper()
	return l.startCommand(env, l.at(node, args...)...)
}

// startCommand starts a command.
func (l *verbsLab) startCommand(env []string, args ...string) *verbsServer {
	l.t.Helper()
	s := &verbsServer{Cmd: exec.Command(program1(l.t), args...)}
	s.Stdout, s.Stderr, s.Env = &s.said, &s.said, append(os.Environ(), env...)
	if err := s.Start(); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// pair runs a server at h0 and a client at h15, and returns what is wrong.
func (l *verbsLab) pair(port int, command string) error {
	command += " -p " + fmt.Sprint(port)
	return l.meet(command, command+" h0")
}

// meet runs a server at h0 and, once it listens, its client at h15.
func (l *verbsLab) meet(command, client string) error {
	server := l.start("h0", nil, append([]string{"timeout", "60"}, strings.Fields(command)...)...)
	for deadline := time.Now().Add(time.Minute); ; { // until the server listens
		r := invoke(l.t, nil, l.at("h15", append([]string{"timeout", "60"}, strings.Fields(client)...)...)...)
		if r.code == 0 {
			break
		}
		if all := r.out + r.err; time.Now().After(deadline) || !strings.Contains(all, "connect") {
			_ = server.Process.Kill()
			_ = server.Wait()
			return fmt.Errorf("%s: exit code %d\n%s\nthe server:\n%s", command, r.code, all, server.said.String())
		}
	}
	if err := server.Wait(); err != nil {
		return fmt.Errorf("%s: the server: %w\n%s", command, err, server.said.String())
	}
	return nil
}

// nextPort returns a port of TCP that no pair has met at.
func (l *verbsLab) nextPort() int {
	l.port++
	return l.port
}

// programs runs programs of each kind, one after another.
func (l *verbsLab) programs() {
	t := l.t
	t.Helper()
	if out := must(t, l.at("h0", "ibv_devinfo", "-v")...).out; !strings.Contains(out, "PORT_ACTIVE") {
		t.Errorf("ibv_devinfo says:\n%s", out)
	}
	if out := must(t, l.at("h0", "ucx_info", "-d")...).out; !strings.Contains(out, "rc_verbs") || !strings.Contains(out, "mcast0:1") {
		t.Errorf("ucx_info says:\n%s", out)
	}
	must(t, l.at("h0", "ping", "-c", "1", "h15")...)
	for _, c := range []string{
		"ib_write_bw -F -n 100", "ib_write_bw -F -n 100 -q 8", "ib_send_bw -F -n 100", "ib_read_bw -F -n 50", "ib_send_lat -F -n 50", "ib_atomic_bw -F -n 50",
		"ib_send_bw -F -n 50 -c UD -s 1024", "ib_write_bw -F -n 50 -b", "ib_send_bw -F -n 50 -e", "ib_write_lat -F -n 50", "ib_read_lat -F -n 50", "ib_write_bw -F -n 50 -R",
		"ibv_rc_pingpong -g 0 -n 50 -c", "ibv_uc_pingpong -g 0 -n 50 -c", "ibv_ud_pingpong -g 0 -n 50 -c", "ibv_srq_pingpong -g 0 -n 50 -c",
	} {
		if err := l.pair(l.nextPort(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]string{
		{"rping -s -a h0 -C 5 -V", "rping -c -a h0 -C 5 -V"}, {"fi_pingpong -p verbs -e msg -I 20 -S 4096 -c", "fi_pingpong -p verbs -e msg -I 20 -S 4096 -c h0"},
		{"env UCX_TLS=rc UCX_NET_DEVICES=mcast0:1 ucx_perftest -p 18515", "env UCX_TLS=rc UCX_NET_DEVICES=mcast0:1 ucx_perftest h0 -p 18515 -t tag_bw -s 16384 -n 100 -w 10"},
	} {
		if err := l.meet(c[0], c[1]); err != nil {
			t.Error(err)
		}
	}
	rested(t, l.name, l.fresh)
}

// atOnce runs two pairs of programs at the same two NICs at the same time.
func (l *verbsLab) atOnce() {
	l.t.Helper()
	commands := []string{"ib_write_bw -F -D 2", "ib_send_bw -F -D 2"}
	errs := make(chan error, len(commands))
	for _, c := range commands {
		port := l.nextPort()
		go func() { errs <- l.pair(port, c) }()
	}
	for range commands {
		if err := <-errs; err != nil {
			l.t.Error(err)
		}
	}
	rested(l.t, l.name, l.fresh)
}

// sent returns how many frames a host has sent.
func (l *verbsLab) sent(host string) uint64 {
	l.t.Helper()
	if n := l.node(host); len(n.Ports) == 1 {
		return n.Ports[0].Sent
	}
	l.t.Fatalf("host %s does not say what it has sent", host)
	return 0
}

// node returns the counters of a node.
func (l *verbsLab) node(name string) counters.Node {
	l.t.Helper()
	var r struct{ Nodes []counters.Node }
	if err := json.Unmarshal([]byte(must(l.t, "inspect", "--format", "json", l.name).out), &r); err != nil {
		l.t.Fatal(err)
	}
	for _, n := range r.Nodes {
		if n.Node == name {
			return n
		}
	}
	l.t.Fatalf("no counters of %s", name)
	return counters.Node{}
}

// captured has tshark look at what programs send: all of it is RoCEv2 and whole.
func (l *verbsLab) captured() {
	t := l.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "h15.pcapng")
	const frames = 500
	capture := exec.Command(program1(t), "capture", "--lab", l.name, "-c", fmt.Sprint(frames), "-w", file, "h15:0")
	if err := capture.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- capture.Wait() }()
	for captured := false; !captured; { // the first may have come to its end before the capture began
		if err := l.pair(l.nextPort(), "ib_write_bw -F -n 400 -s 8192 -t 16"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if captured = true; err != nil {
				t.Fatalf("capture: %v", err)
			}
		default:
		}
	}
	tshark := func(filter string) int {
		out, err := exec.Command("tshark", "-r", file, "--disable-protocol", "rpcordma", "-Y", filter).Output()
		if err != nil {
			t.Fatalf("tshark %s: %v", filter, err)
		}
		return bytes.Count(out, []byte("\n"))
	}
	if all, bad := tshark("infiniband"), tshark("_ws.malformed"); all != frames || bad != 0 {
		t.Errorf("of %d frames %d are RoCEv2 and %d malformed", frames, all, bad)
	}
	if first, ack := tshark("infiniband.bth.opcode == 6"), tshark("infiniband.bth.opcode == 17"); first == 0 || ack == 0 {
		t.Errorf("%d begin a WRITE, %d acknowledge", first, ack)
	}
}
