//go:build linux

package command

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/interop/rcpeer"
	"github.com/mcastlab/mcastlab/runner"
)

// tap makes a tap device that is up and returns its file: one read is one frame.
func tap(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v", err)
	}
	var req [40]byte
	copy(req[:15], name)
	*(*uint16)(unsafe.Pointer(&req[16])) = unix.IFF_TAP | unix.IFF_NO_PI
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req[0]))); e != 0 {
		t.Fatalf("make tap %s: %v", name, e)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = errors.Join(netlink.LinkSetMTU(l, 4200), netlink.LinkSetUp(l))
	}
	if err != nil {
		t.Fatalf("bring up tap %s: %v", name, err)
	}
	return f
}

// keepOpen lets several peers use one tap, one after the other.
type keepOpen struct {
	*os.File
}

// Close ends a read that waits, and leaves the device there.
func (k keepOpen) Close() error { return k.SetReadDeadline(time.Unix(1, 0)) }

// packets is how many a message of each test has.
const (
	externalPackets = 4096
	externalMTU     = 1024
	externalWait    = 30 * time.Second // for what takes half a second
)

func externalLab(name, more string) string {
	return "name: " + name + `
topology: {star: {hosts: 4}}
links: {rate: 20Mbps, delay: 20us}
nics: {mtu: 1024, timeout: 1s}
hosts:
  - {name: h3, kind: external, external: {qpn: 0x42, send-psn: 0xfff800, receive-psn: 0xfff800, timeout: 4s}}
workloads:
  - bcast: {sizes: [4MiB], iterations: 1, ` + more + "}\n"
}

// peer is the device of the tests: the endpoint that shares no code with ours.
func peer(t *testing.T, dev *os.File, remote string, qpn uint32) *rcpeer.Peer {
	t.Helper()
	if err := dev.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	to, own := netip.MustParseAddr(remote), netip.AddrFrom4([4]byte{10, 0, 0, 4})
	if to.Is6() {
		own = netip.MustParseAddr("fd6d:6361:7374::a00:4")
	}
	p, err := rcpeer.New(rcpeer.Config{
		MAC: net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}, IP: own, QPN: 0x42, PeerIP: to, PeerQPN: qpn,
		StartPSN: 0xfff800, PeerPSN: 0xfff800, MTU: externalMTU, Timeout: 4 * time.Second, RecvSize: externalPackets * externalMTU,
	}, keepOpen{dev})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clean ends a peer and demands that nothing was sent twice or refused.
func clean(t *testing.T, p *rcpeer.Peer) {
	t.Helper()
	s := p.Stats()
	if s.Retransmitted != 0 || s.Timeouts != 0 || s.NaksReceived != 0 || s.NaksSent != 0 || s.RNRsReceived != 0 || s.Duplicates != 0 || s.ICRCErrors != 0 || len(s.Rejects) != 0 {
		t.Errorf("the peer counted %+v", s)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close the peer: %v", err)
	}
}

// started is a run of the program under way.
type started struct {
	cmd *exec.Cmd
	out bytes.Buffer
	err *bufio.Reader
	all bytes.Buffer
}

func start(ctx context.Context, t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{cmd: exec.CommandContext(ctx, program1(t), args...)}
	s.cmd.Stdout = &s.out
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.err = bufio.NewReader(io.TeeReader(pipe, &s.all))
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// line waits for a line of standard error that fits.
func (s *started) line(t *testing.T, pattern string) []string {
	t.Helper()
	for re := regexp.MustCompile(pattern); ; {
		l, err := s.err.ReadString('\n')
		if m := re.FindStringSubmatch(l); m != nil {
			return m
		}
		if err != nil {
			t.Fatalf("the run ended without %q: %v\n%s", pattern, s.cmd.Wait(), s.all.String())
		}
	}
}

// report waits for the end of the run, which must be a good one.
func (s *started) report(t *testing.T) *runner.Report {
	t.Helper()
	_, _ = io.Copy(io.Discard, s.err) // to its end
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, s.all.String())
	}
	r := &runner.Report{}
	if err := json.Unmarshal(s.out.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	row := r.Results[0]
	if row.Verified == nil || !*row.Verified || len(row.External) != 1 || r.Fidelity.Verdict != "ok" {
		t.Errorf("row %+v, fidelity %+v", row, r.Fidelity)
	}
	return r
}

// TestExternal: a RoCE device that knows nothing of mcastlab is receiver and source of a
// group and unicast peer of a rank, 4,096 packets each, with a wrap of the PSN, over IPv4 and
// over IPv6 in a VLAN. Nothing is sent twice on either side.
func TestExternal(t *testing.T) {
	message := make([]byte, externalPackets*externalMTU)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(message)
	const group, group6 = "10.254.0.1", "fd6d:6361:7374::afe:1"
	for _, c := range []struct {
		name, workload, remote string
		source                 bool
	}{
		{"receiver", "schemes: [cepheus], root: h0", group, false},
		{"source", "schemes: [cepheus], root: h3", group, true},
		{"unicast-to", "schemes: [unicast], ranks: [h1, h3], root: h1", "10.0.0.2", false},
		{"unicast-from", "schemes: [unicast], ranks: [h1, h3], root: h3", "10.0.0.2", true},
		{"ipv6-receiver", "schemes: [cepheus], root: h0", group6, false},
		{"ipv6-source", "schemes: [cepheus], root: h3", group6, true},
		{"ipv6-unicast-to", "schemes: [unicast], ranks: [h1, h3], root: h1", "fd6d:6361:7374::a00:2", false},
	} {
		for _, runtime := range []string{"netns", "docker"} {
			if runtime == "docker" && c.name != "source" && c.name != "unicast-to" {
				continue // what is different is how nodes get their sockets
			}
			t.Run(c.name+"/"+runtime, func(t *testing.T) {
				need(t, runtime)
				program1(t) // its making takes time of its own
				ctx, stop := context.WithTimeout(t.Context(), externalWait)
				defer stop()
				before := snapshot(t)
				dev := tap(t, "mcltap0")
				text := externalLab("t-ext", c.workload)
				if netip.MustParseAddr(c.remote).Is6() {
					text = strings.Replace(text, "links: {", "links: {ip: 6, vlan: 9, ", 1)
				}
				file := write(t, text)
				t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-ext") })
				must(t, "deploy", "-q", "-r", runtime, "--attach", "h3=mcltap0", file)
				fresh := held(t, "t-ext")
				var p *rcpeer.Peer
				if c.remote == group || c.remote == group6 {
					p = peer(t, dev, c.remote, 17) // any queue pair would do
					p.PostRecv(1)
				}
				run := start(ctx, t, "run", "-r", runtime, "--runs", t.TempDir(), "--format", "json", file)
				if p == nil {
					qp, err := strconv.ParseUint(run.line(t, `^h3: .* connect QP 66 to QP (\d+) at `+regexp.QuoteMeta(c.remote))[1], 10, 24)
					if err != nil {
						t.Fatal(err)
					}
					p = peer(t, dev, c.remote, uint32(qp))
					p.PostRecv(1)
				}
				want := sha256.Sum256(message)
				if c.source {
					run.line(t, `^h3: send 4194304 bytes now`)
					if err := p.Send(ctx, message); err != nil {
						t.Fatalf("%v; the peer counted %+v", err, p.Stats())
					}
				} else if err := p.WaitMessages(ctx, 1); err != nil {
					t.Fatalf("%v; the peer counted %+v", err, p.Stats())
				}
				rep := run.report(t)
				if !c.source {
					m, err := p.Recv(ctx)
					if err != nil {
						t.Fatal(err)
					}
					want = sha256.Sum256(m.Data)
					if s := p.Stats(); s.DataReceived != externalPackets {
						t.Errorf("the peer received %d packets", s.DataReceived)
					}
				} else if s := p.Stats(); s.DataSent != externalPackets {
					t.Errorf("the peer sent %d packets", s.DataSent)
				}
				if got := rep.Results[0].Sum; got != fmt.Sprintf("%x", want) {
					t.Errorf("the lab has %s, the peer %x", got, want)
				}
				clean(t, p)
				if n := count(t, rep.RunDir, "retransmitted") + count(t, rep.RunDir, "timeouts"); n != 0 {
					t.Errorf("the lab sent %d packets again", n)
				}
				rested(t, "t-ext", fresh)
				must(t, "destroy", "t-ext")
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
				same(t, before, snapshot(t))
			})
		}
	}
}

// count adds a counter up over all nodes of a run.
func count(t *testing.T, dir, name string) (sum uint64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "counters.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"`+name+`": (\d+)`).FindAllSubmatch(b, -1) {
		n, err := strconv.ParseUint(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestExternalRefused: what cannot be the port of an external host is refused before
// anything is made.
func TestExternalRefused(t *testing.T) {
	need(t)
	tap(t, "mcltap0")
	used := tap(t, "mcltap1")
	l, err := netlink.LinkByName(used.Name())
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t)
	file := write(t, externalLab("t-ext", "schemes: [cepheus]"))
	for _, c := range []struct {
		attach []string
		code   int
		want   string
	}{
		{nil, 4, "host h3 of lab t-ext is external: name its interface with --attach h3=INTERFACE"},
		{[]string{"h3=nosuch"}, 4, "interface nosuch: there is none of that name on this host"},
		{[]string{"h3=lo"}, 4, "interface lo: it is the loopback interface"},
		{[]string{"h3=mcltap1"}, 4, "interface mcltap1: it has the address 192.0.2.1/24"},
		{[]string{"h0=mcltap0"}, 4, "attach h0=mcltap0: h0 is no external host of lab t-ext (external: h3)"},
		{[]string{"h3"}, 2, `attach "h3": write --attach HOST=INTERFACE`},
	} {
		args := []string{"deploy", "-q", "-r", "netns"}
		for _, x := range c.attach {
			args = append(args, "--attach", x)
		}
		if o := invoke(t, nil, append(args, file)...); o.code != c.code || !strings.Contains(o.err, c.want) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("attach %v: exit %d, %s", c.attach, o.code, o.err)
		}
	}
	same(t, before, snapshot(t))
}
