// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// freePort returns a TCP port for the handshake of a pair of programs.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// both runs a server at the first host and a client at the second, and returns the client's output.
func both(t testing.TB, h [2]*host, lib string, args ...string) string {
	t.Helper()
	return bothBy(t, h, lib, (*host).at, args...)
}

// bothInLabTime is both for programs that see the lab's time.
func bothInLabTime(t testing.TB, h [2]*host, lib string, args ...string) string {
	t.Helper()
	return bothBy(t, h, lib, (*host).inLabTime, args...)
}

func bothBy(t testing.TB, h [2]*host, lib string, at func(h *host, t testing.TB, lib, name string, args ...string) *exec.Cmd, args ...string) string {
	t.Helper()
	port := freePort(t)
	args = append(args, "-p", port)
	if strings.HasPrefix(args[0], "ib_") && !slices.Contains(args, "-u") {
		// perftest's own timeout is 67 ms of wall time, and seven repeats of it are over while a busy server runs other tests.
		args = append(args, "-u", "20")
	}
	var said bytes.Buffer
	server := at(h[0], t, lib, args[0], args[1:]...)
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := retry(t, func() ([]byte, error) {
		return at(h[1], t, lib, args[0], append(args[1:], "127.0.0.1")...).CombinedOutput()
	})
	if err != nil {
		_ = server.Process.Kill()
		_ = server.Wait()
		t.Fatalf("%v: %v\n%s\nserver:\n%s", args, err, out, said.String())
	}
	if err := server.Wait(); err != nil {
		t.Fatalf("%v: server: %v\n%s", args, err, said.String())
	}
	return string(out)
}

// retry runs a client until its server listens.
func retry(t testing.TB, client func() ([]byte, error)) (out []byte, err error) {
	for began := time.Now(); time.Since(began) < limit(t); {
		out, err = client()
		if err == nil || !bytes.Contains(out, []byte("Couldn't connect")) && !bytes.Contains(out, []byte("refused")) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	return out, err
}

// TestDevinfo: ibv_devinfo shows the NIC, and without the socket no device.
func TestDevinfo(t *testing.T) {
	lib := library(t)
	tools(t, "ibv_devinfo")
	h, _ := hosts(t)
	out, err := h[1].at(t, lib, "ibv_devinfo", "-v").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"mcast0", "PORT_ACTIVE", "::ffff:10.0.0.2, RoCE v2", "25.0 Gbps", "Ethernet", "max_qp_wr:\t\t\t16384"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	h[1].emptied(t)
	lost := h[1].at(t, lib, "ibv_devinfo")
	lost.Env = append(lost.Env, "MCASTLAB_VERBS="+h[1].path+".not")
	if out, _ := lost.CombinedOutput(); !bytes.Contains(out, []byte("No IB devices found")) {
		t.Errorf("without a socket: %s", out)
	}
}

// TestDebian: Debian's programs run unchanged, packets on the link are well-formed RoCE, and nothing is
// left when they have ended.
func TestDebian(t *testing.T) {
	lib := library(t)
	for i, c := range []struct {
		args string
		ops  string // opcodes that must be on the link
	}{
		{"ibv_rc_pingpong -g 0 -n 50", "2 0 17"},
		{"ibv_rc_pingpong -g 0 -n 50 -e -s 1", "4 17"},
		{"ibv_uc_pingpong -g 0 -n 50", "32 34"},
		{"ibv_ud_pingpong -g 0 -n 50", "100"},
		{"ibv_srq_pingpong -g 0 -n 50 -q 4", "2 0 17"},
		{"ib_send_bw -n 50 -F --use-srq -q 2", "0 2 17"},
		{"ib_send_lat -n 50 -s 64 -F --use-srq -e", "4 17"},
		{"ib_write_bw -n 200 -s 65536 -F", "6 7 8 17"},
		{"ib_read_bw -n 100 -s 65536 -F", "12 13 14 15"},
		{"ib_send_lat -n 50 -s 64 -F", "4 17"},
		{"ib_send_lat -n 50 -s 512 -F -c UD", "100"},
		{"ib_send_bw -n 50 -e -F", "0 2 17"},
		{"ib_atomic_bw -n 50 -F -A FETCH_AND_ADD", "20 18"},
	} {
		t.Run(strings.ReplaceAll(c.args, " ", "_"), func(t *testing.T) {
			if i > 4 && i != 7 {
				thorough(t)
			}
			if testing.Short() && i > 1 {
				t.Skip("perftest and the rest are for longer runs")
			}
			args := strings.Fields(c.args)
			tools(t, args[0])
			h, sent := hosts(t)
			both(t, h, lib, args...)
			for _, h := range h {
				h.emptied(t)
			}
			seen := opcodes(t, sent)
			for _, op := range strings.Fields(c.ops) {
				if !seen[op] {
					t.Errorf("opcode %s is not on the link: %v", op, seen)
				}
			}
		})
	}
}

// TestIPv6: in a fabric of IPv6 the GID is the NIC's address, and datagrams are answered to the address they came from.
func TestIPv6(t *testing.T) {
	lib := library(t)
	tools(t, "ibv_devinfo", "ibv_rc_pingpong", "ibv_ud_pingpong")
	h, sent := hostsIn(t, true)
	var gid string
	h[0].loop.Call(vtime.Never, func(vtime.Time) { gid = h[0].nic.Addr(h[0].nic.IP()).String() })
	out, err := h[0].at(t, lib, "ibv_devinfo", "-v").CombinedOutput()
	if err != nil || strings.HasPrefix(gid, "10.") || !bytes.Contains(out, []byte(gid+", RoCE v2")) {
		t.Errorf("it does not say %s, RoCE v2: %v\n%s", gid, err, out)
	}
	both(t, h, lib, "ibv_rc_pingpong", "-g", "0", "-n", "20")
	both(t, h, lib, "ibv_ud_pingpong", "-g", "0", "-n", "20")
	if seen := opcodes(t, sent); !seen["17"] || !seen["100"] {
		t.Errorf("on the link are %v", seen)
	}
}

// opcodes returns the opcodes of a capture, none of whose frames tshark may find fault with. Without
// tshark it returns nothing and skips the rest of the test.
func opcodes(t *testing.T, sent *tape) map[string]bool {
	t.Helper()
	tools(t, "tshark")
	file := filepath.Join(t.TempDir(), "link.pcap")
	sent.mu.Lock()
	err := os.WriteFile(file, sent.b.Bytes(), 0o600)
	sent.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tshark", "-r", file, "--disable-protocol", "rpcordma", "-Y", "_ws.malformed", "-V")
	if bad, err := cmd.Output(); err != nil || len(bad) > 0 {
		t.Errorf("malformed frames: %v\n%s", err, bad)
	}
	out, err := exec.Command("tshark", "-r", file, "-T", "fields", "-e", "infiniband.bth.opcode").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, op := range strings.Fields(string(out)) {
		seen[op] = true
	}
	return seen
}

// TestOneNIC: programs that share a NIC reach each other by it, also by READs of each other's memory, and none
// of these packets is on the link.
func TestOneNIC(t *testing.T) {
	lib := library(t)
	for i, args := range []string{
		"ibv_rc_pingpong -g 0 -n 50 -c", "ibv_ud_pingpong -g 0 -n 50 -c", "ibv_uc_pingpong -g 0 -n 50 -c", "ibv_srq_pingpong -g 0 -n 50 -q 4 -c",
		"ib_write_bw -n 200 -s 65536 -F", "ib_read_bw -n 100 -s 65536 -F", "ib_atomic_bw -n 50 -F -A FETCH_AND_ADD", "ib_send_bw -n 50 -e -F",
	} {
		t.Run(strings.ReplaceAll(args, " ", "_"), func(t *testing.T) {
			if testing.Short() && i > 1 {
				t.Skip("perftest and the rest are for longer runs")
			}
			tools(t, strings.Fields(args)[0])
			h, _ := hosts(t)
			both(t, [2]*host{h[0], h[0]}, lib, strings.Fields(args)...)
			h[0].emptied(t)
			h[0].loop.Call(vtime.Never, func(vtime.Time) {
				if s := h[0].nic.Stats(); s.SentPkts != 0 || s.Loopback == 0 {
					t.Errorf("%d frames were sent, %d came back", s.SentPkts, s.Loopback)
				}
			})
		})
	}
}
