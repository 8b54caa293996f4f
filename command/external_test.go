// SPDX-License-Identifier: Apache-2.0

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

	"github.com/mcastlab/mcastlab/internal/test/interop/rcpeer"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// tap makes a tap device, sets it up and returns its file: one read is one frame.
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

const externalWait = 90 * time.Second // for what takes half a second

// group and group6 are the groups in the labs of these tests.
const (
	group  = "10.254.255.7"
	group6 = "fd6d:6361:7374::afe:ff07"
)

// externalCase is a device in a lab: what it is there, and what the lab is like.
type externalCase struct {
	name, workload, remote string
	source                 bool
	write                  bool // by registered WRITEs
	atomics                bool // before the message
	mtu                    int  // default 1024
	size                   int  // default 1 MiB
	loss                   int  // one of so many packets is lost before the device, and one behind it
	topology, links        string
	device                 string // more keys of the external host
	nics                   string // more keys
	docker                 bool   // there, too: what differs is how nodes get their sockets
	own                    string // address of the device, as the lab says it
}

func (c *externalCase) complete() {
	if c.mtu == 0 {
		c.mtu = 1024
	}
	if c.size == 0 {
		c.size = 1 << 20
	}
	if c.topology == "" {
		c.topology = "star: {hosts: 4}"
	}
	if c.nics == "" {
		c.nics = "timeout: 16s" // where nothing is lost none fires, however busy the server is
	}
}

func (c *externalCase) packets() int { return c.size / c.mtu }

// start is the first PSN both ways: half the message is beyond the wrap.
func (c *externalCase) start() uint32 { return uint32(1<<24 - c.packets()/2) }

// The memory of a device that is written to.
const (
	deviceVA  = 0x7f0000001000
	deviceKey = 0xabcd
)

// lab returns a lab for the case. Its links are slow: a server that has other work has to carry them at dilation 1.
func (c *externalCase) lab(name string) string {
	more := c.workload
	if strings.Contains(c.workload, "cepheus") {
		more += ", group: " + group
	}
	if c.write {
		more += ", operation: write"
	}
	linger := "200ms" // where nothing is lost no device asks again
	if c.loss > 0 {
		linger = "3s"
	}
	return fmt.Sprintf(`name: %s
topology: {%s}
links: {%srate: 8Mbps, delay: 20us}
nics: {mtu: %d, %s}
hosts:
  - {name: h3, kind: external, external: {qpn: 0x42, send-psn: %d, receive-psn: %d, timeout: 16s, wait: 20s, linger: %s%s}}
workloads:
  - bcast: {sizes: [%dB], iterations: 1, %s}
`, name, c.topology, c.links, c.mtu, c.nics, c.start(), c.start(), linger, c.device, c.size, more)
}

// peer is the device of the tests: the endpoint that shares no code with ours.
func (c *externalCase) peer(t *testing.T, dev *os.File, qpn uint32, change func(*rcpeer.Config)) *rcpeer.Peer {
	t.Helper()
	if err := dev.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	x := rcpeer.Config{
		MAC: net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}, IP: netip.MustParseAddr(c.own), QPN: 0x42, PeerIP: netip.MustParseAddr(c.remote), PeerQPN: qpn, Eager: true,
		StartPSN: c.start(), PeerPSN: c.start(), MTU: c.mtu, Timeout: 16 * time.Second, RecvSize: c.size,
		VA: deviceVA, RKey: deviceKey,
	}
	if c.write {
		x.Memory = make([]byte, c.size)
	}
	if c.loss > 0 {
		x.Timeout = 300 * time.Millisecond
	}
	if change != nil {
		change(&x)
	}
	p, err := rcpeer.New(x, &lossy{ReadWriteCloser: keepOpen{dev}, every: c.loss})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lossy loses one of so many RoCE packets each way; 0 is none.
type lossy struct {
	io.ReadWriteCloser
	every, in, out int
}

func (l *lossy) lose(frame []byte, n *int) bool {
	if l.every == 0 || len(frame) < 60 || frame[12] == 8 && frame[13] == 6 {
		return false
	}
	*n++
	return *n%l.every == 0
}

// Read returns the next frame that is not lost.
func (l *lossy) Read(b []byte) (int, error) {
	for {
		n, err := l.ReadWriteCloser.Read(b)
		if err != nil || !l.lose(b[:n], &l.in) {
			return n, err
		}
	}
}

// Write sends a frame, or loses it.
func (l *lossy) Write(b []byte) (int, error) {
	if l.lose(b, &l.out) {
		return len(b), nil
	}
	return l.ReadWriteCloser.Write(b)
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
	return startIn(ctx, t, nil, args...)
}

// startIn is start with more of an environment.
func startIn(ctx context.Context, t *testing.T, env []string, args ...string) *started {
	t.Helper()
	s := &started{cmd: exec.CommandContext(ctx, program1(t), args...)}
	s.cmd.Env = append(os.Environ(), env...)
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

// report waits for the end of the run, with an exit code.
func (s *started) report(t *testing.T, code int) *runner.Report {
	t.Helper()
	_, _ = io.Copy(io.Discard, s.err) // to its end
	err := s.cmd.Wait()
	if s.cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%v, want exit %d\n%s", err, code, s.all.String())
	}
	r := &runner.Report{}
	if err := json.Unmarshal(s.out.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	row := r.Results[0]
	if row.Verified == nil || !*row.Verified || len(row.External) != 1 || len(r.External) == 0 || r.External[0].What != rankhost.StepConnect {
		t.Errorf("row %+v, steps %+v", row, r.External)
	}
	return r
}

// TestExternal: a RoCE device that knows nothing of mcastlab is receiver and source of a
// group, by SENDs and by WRITEs, and unicast peer of a rank, with a wrap of the PSN, over IPv4
// and over IPv6 in a VLAN, with small packets and large, in a star and in a leaf-spine. Nothing
// is sent twice on either side; and if packets are lost, all arrives, and the verdict says so.
func TestExternal(t *testing.T) {
	const (
		spine = "leaf-spine: {leaves: 2, spines: 2, hosts: 2}"
		v6    = "ip: 6, vlan: 9, "
		short = "timeout: 268ms"
		to    = "schemes: [cepheus], root: h0"
		from  = "schemes: [cepheus], root: h3"
		uniTo = "schemes: [unicast], ranks: [h1, h3], root: h1"
		uniFr = "schemes: [unicast], ranks: [h1, h3], root: h3"
		h1    = "10.0.0.2"
	)
	need(t)
	unchanged(t)
	for i, c := range []externalCase{
		{name: "receiver", workload: to, remote: group, size: 4 << 20},
		{name: "source", workload: from, remote: group, source: true, size: 4 << 20, docker: true},
		{name: "unicast-to", workload: uniTo, remote: h1, docker: true},
		{name: "unicast-from", workload: uniFr, remote: h1, source: true, atomics: true},
		{name: "ipv6-receiver", workload: to, remote: group6, links: v6},
		{name: "ipv6-source", workload: from, remote: group6, source: true, links: v6},
		{name: "ipv6-unicast-to", workload: uniTo, remote: "fd6d:6361:7374::a00:2", links: v6},
		{name: "large-receiver", workload: to, remote: group, mtu: 4096},
		{name: "large-source", workload: from, remote: group, mtu: 4096, source: true},
		{name: "large-unicast-to", workload: uniTo, remote: h1, mtu: 4096},
		{name: "large-unicast-from", workload: uniFr, remote: h1, mtu: 4096, source: true},
		{name: "spine-receiver", workload: to, remote: group, topology: spine},
		{name: "spine-source", workload: from, remote: group, topology: spine, source: true},
		{name: "write-receiver", workload: to, remote: group, write: true, device: fmt.Sprintf(", va: %#x, rkey: %#x", deviceVA, deviceKey)},
		{name: "write-source", workload: from, remote: group, write: true, source: true, topology: spine},
		{name: "lossy-receiver", workload: to, remote: group, loss: 101, nics: short, size: 256 << 10},
		{name: "lossy-source", workload: from, remote: group, loss: 101, nics: short, size: 256 << 10, source: true},
		{name: "lossy-unicast-to", workload: uniTo, remote: h1, loss: 101, nics: short, size: 256 << 10},
		{name: "lossy-unicast-from", workload: uniFr, remote: h1, loss: 101, nics: short, size: 256 << 10, source: true},
		{name: "lossy-write-receiver", workload: to, remote: group, loss: 101, nics: short, size: 256 << 10, write: true, topology: spine,
			device: fmt.Sprintf(", va: %#x, rkey: %#x", deviceVA, deviceKey)},
	} {
		for _, runtime := range []string{"netns", "docker"} {
			if runtime == "docker" && !c.docker {
				continue
			}
			t.Run(c.name+"/"+runtime, func(t *testing.T) {
				need(t, runtime)
				t.Parallel()
				c := c // its own in each runtime
				c.complete()
				testExternal(t, &c, runtime, fmt.Sprintf("mcl%s%d", runtime, i))
			})
		}
	}
}

// testExternal runs a case with a device on an interface of this name.
func testExternal(t *testing.T, c *externalCase, runtime, iface string) {
	lab := "t-ext-" + c.name + "-" + runtime
	message := make([]byte, c.size)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(message)
	program1(t) // its making takes time of its own
	ctx, stop := context.WithTimeout(t.Context(), externalWait)
	defer stop()
	dev := tap(t, iface)
	file := write(t, c.lab(lab))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	must(t, "deploy", "-q", "-r", runtime, "--attach", "h3="+iface, file)
	fresh := held(t, lab)
	o := must(t, "group", "add-member", "--lab", lab, "h3")
	c.own = regexp.MustCompile(`^h3: address ([0-9a-f.:]+)/`).FindStringSubmatch(o.out)[1]
	var p *rcpeer.Peer
	if c.remote == group || c.remote == group6 {
		p = c.peer(t, dev, 17, nil) // any queue pair would do
		p.PostRecv(1)
	}
	run := start(ctx, t, "run", "-q", "-r", runtime, "--runs", t.TempDir(), "--format", "json", file)
	if p == nil {
		qp, err := strconv.ParseUint(run.line(t, `^h3: .* connect QP 66 to QP (\d+) at `+regexp.QuoteMeta(c.remote))[1], 10, 24)
		if err != nil {
			t.Fatal(err)
		}
		p = c.peer(t, dev, uint32(qp), nil)
		p.PostRecv(1)
	}
	if c.atomics {
		testAtomics(ctx, t, p, run)
	}
	want, code := sha256.Sum256(message), 0
	switch {
	case c.write && c.source:
		run.line(t, fmt.Sprintf(`^h3: write %d bytes with immediate data to VA 0, with any key, now`, c.size))
		if err := p.Do(ctx, rcpeer.Request{Data: message, Write: true, Imm: 7, HasImm: true}); err != nil {
			t.Fatalf("%v; the peer counted %+v", err, p.Stats())
		}
	case c.source:
		run.line(t, fmt.Sprintf(`^h3: send %d bytes now`, c.size))
		if err := p.Send(ctx, message); err != nil {
			t.Fatalf("%v; the peer counted %+v", err, p.Stats())
		}
	default:
		if err := p.WaitMessages(ctx, 1); err != nil {
			t.Fatalf("%v; the peer counted %+v", err, p.Stats())
		}
	}
	if c.loss > 0 {
		code = 5
	}
	rep := run.report(t, code)
	if c.write && !c.source {
		p.ReadMemory(message, deviceVA)
		want = sha256.Sum256(message)
	} else if !c.source {
		m, err := p.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want = sha256.Sum256(m.Data)
	}
	if got := rep.Results[0].Sum; got != fmt.Sprintf("%x", want) {
		t.Errorf("the lab has %s, the peer %x", got, want)
	}
	c.counted(t, p, rep)
	rested(t, lab, fresh)
	must(t, "destroy", lab)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// counted looks at what both sides have counted: each packet once, or more if some were lost.
func (c *externalCase) counted(t *testing.T, p *rcpeer.Peer, rep *runner.Report) {
	s, again := p.Stats(), count(t, rep.RunDir, "retransmitted")+count(t, rep.RunDir, "timeouts")
	if c.loss > 0 {
		if s.Retransmitted+again == 0 || !strings.Contains(rep.Fidelity.Reason, "although") {
			t.Errorf("nothing was sent again, or the verdict does not say so: %+v, the peer counted %+v", rep.Fidelity, s)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close the peer: %v", err)
		}
		return
	}
	n := s.DataReceived
	if c.source {
		n = s.DataSent
	}
	if c.atomics {
		n -= 2
	}
	if n != uint64(c.packets()) || again != 0 {
		t.Errorf("the peer counted %+v, and the lab sent %d packets again", s, again)
	}
	clean(t, p)
}

// testAtomics adds to memory of a rank, which works, and to memory that nobody has, which would
// end the connection: that is left to the tests of the NIC.
func testAtomics(ctx context.Context, t *testing.T, p *rcpeer.Peer, run *started) {
	t.Helper()
	m := run.line(t, `^h3: 1048576 bytes of h1 are at VA (0x[0-9a-f]+) with key (0x[0-9a-f]+)`)
	va, err := strconv.ParseUint(m[1], 0, 64)
	key, err2 := strconv.ParseUint(m[2], 0, 32)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	first, err := p.FetchAdd(ctx, 5, va+16, uint32(key))
	second, err2 := p.FetchAdd(ctx, 7, va+16, uint32(key))
	if err := errors.Join(err, err2); err != nil || second != first+5 {
		t.Fatalf("8 bytes were %#x, and after 5 was added %#x: %v", first, second, err)
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
	lab := externalCase{workload: "schemes: [cepheus]", remote: group}
	lab.complete()
	file := write(t, lab.lab("t-ext"))
	for _, c := range []struct {
		attach []string
		code   int
		want   string
	}{
		{nil, 4, "host h3 of lab t-ext is external: name its interface with --attach h3=INTERFACE"},
		{[]string{"h3=nosuch"}, 4, "interface nosuch: there is none of that name on this host"},
		{[]string{"h3=lo"}, 4, "interface lo: it is the loopback interface"},
		{[]string{"h3=mcltap1"}, 4, "interface mcltap1: it has the address 192.0.2.1/24, so this host uses it"},
		{[]string{"h0=mcltap0"}, 4, "attach h0=mcltap0: h0 is not an external host of lab t-ext (external: h3)"},
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
