// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/test/patch"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// tape holds the frames sent on a link, as a capture file.
type tape struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func newTape() *tape {
	p := &tape{}
	for _, v := range []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 1 << 16, 1} {
		p.b.Write(binary.LittleEndian.AppendUint32(nil, v))
	}
	return p
}

func (p *tape) add(f []byte) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, v := range []uint32{uint32(now.Unix()), uint32(now.Nanosecond() / 1000), uint32(len(f)), uint32(len(f))} {
		p.b.Write(binary.LittleEndian.AppendUint32(nil, v))
	}
	p.b.Write(f)
}

// wireEnd is one end of a link in memory: a seqpacket socket pair carries whole frames as a veth does.
type wireEnd struct {
	fd   int
	buf  [4352]byte
	tape *tape
}

func (e *wireEnd) FD() int { return e.fd }

func (e *wireEnd) Receive(take func(wall int64, b []byte)) (got int, err error) {
	for got < 64 {
		n, err := unix.Read(e.fd, e.buf[:])
		if err == unix.EAGAIN {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		take(time.Now().UnixNano(), e.buf[:n])
		got++
	}
	return got, nil
}

func (e *wireEnd) Send(frames [][]byte) (sent int, err error) {
	for _, f := range frames {
		switch _, err := unix.Write(e.fd, f); err {
		case nil:
			e.tape.add(f)
			sent++
		case unix.EAGAIN:
			return sent, nil
		default:
			return sent, err
		}
	}
	return sent, nil
}

func (e *wireEnd) Drops() uint64 { return 0 }
func (e *wireEnd) Cut() uint64   { return 0 }

// host is a NIC with its loop, and the server of programs at it.
type host struct {
	loop   *live.Loop
	nic    *virtrnic.NIC
	server *Server
	path   string
}

// managed gives the hosts addresses 172.31.0.1 and 172.31.0.2 on a management network.
func managed(a netip.Addr) (ip uint32, ok bool) {
	b := a.As16()
	return 0x0a000000 + uint32(b[15]), a.Is4() && [2]byte(b[12:]) == [2]byte{172, 31}
}

// hosts starts two of them on one link.
func hosts(t testing.TB) (h [2]*host, sent *tape) {
	t.Helper()
	return hostsIn(t, false)
}

// hostsIn starts two of them in a fabric of either address family.
func hostsIn(t testing.TB, ipv6 bool) (h [2]*host, sent *tape) {
	t.Helper()
	return hostsAt(t, ipv6, ClockRate{}, machine.PortConfig{BitsPerSec: 100e9, Delay: 2 * vtime.Microsecond})
}

// hostsAt starts two of them on such a link whose clock has that rate, which programs get; without one it is the server's, and
// programs get none.
func hostsAt(t testing.TB, ipv6 bool, clock ClockRate, link machine.PortConfig) (h [2]*host, sent *tape) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := t.(*testing.B); !ok { // which sends too much to keep
		sent = newTape()
	}
	for i := range h {
		mono, err := live.NewMonotonic()
		if err != nil {
			t.Fatal(err)
		}
		h[i] = &host{path: filepath.Join(t.TempDir(), "s")}
		rate := live.Rate(clock)
		if clock.Dilation == 0 {
			rate = live.Rate{Mono: mono.Now(), Dilation: 1}
		}
		l, err := live.New(live.Config{
			Mono: mono, IO: []live.IO{&wireEnd{fd: fds[i], tape: sent}}, Delays: []vtime.Duration{link.Delay}, Rate: rate,
		})
		if err != nil {
			t.Fatal(err)
		}
		ports := l.Ports([]machine.PortConfig{link})
		nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001 + uint32(i), IPv6: ipv6, Port: &ports[0], Pool: l.Pool(), Keys: prng.New(uint64(i))})
		agent := mrp.New(mrp.Config{IP: nic.IP(), IPv6: ipv6, Pool: l.Pool(), Sender: nic})
		nic.SetStack(agent)
		s := NewServer(Config{Loop: l, NIC: nic, Pool: l.Pool(), MTU: 4096, Alias: managed, Agent: agent, Activate: true})
		h[i].loop, h[i].nic, h[i].server = l, nic, s
		if clock.Dilation != 0 {
			if err := s.ShowClock(func() []ClockRate { return []ClockRate{clock} }); err != nil {
				t.Fatal(err)
			}
		}
		l.Start(s.Gate(), s.News)
		ended := make(chan error, 2)
		go func() { ended <- l.Run() }()
		listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h[i].path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			drained(t, l)
			l.Stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			_ = unix.Close(fds[i])
		})
	}
	return h, sent
}

// drained demands that all frames on their way arrive or are lost; those of a transfer that has ended may
// still be at the port.
func drained(t testing.TB, l *live.Loop) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
		left := 0
		l.Call(vtime.Never, func(vtime.Time) { left = l.Pool().Live })
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d frames are left", left)
			return
		}
	}
}

// made returns the numbers of objects at the host's NIC.
func (h *host) made(t testing.TB) (m virtrnic.Made) {
	t.Helper()
	if !h.loop.Call(vtime.Never, func(vtime.Time) { m = h.nic.Made() }) {
		t.Fatal("the loop has ended")
	}
	return m
}

// emptied waits until nothing that programs have made is left at the NIC.
func (h *host) emptied(t testing.TB) {
	t.Helper()
	var m virtrnic.Made
	ends, groups := 0, 0
	for range 12000 { // two minutes, and more on a busy server
		h.loop.Call(vtime.Never, func(vtime.Time) {
			member, led := h.server.agent.Groups()
			ends, groups = h.server.cm.Len(), len(h.server.groups)+member+led
		})
		if m = h.made(t); m == (virtrnic.Made{}) && ends == 0 && groups == 0 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("left at the NIC: %+v, %d endpoints of connections, and %d groups, memberships and registrations", m, ends, groups)
}

// limit bounds a program that hangs: two thirds of the time that go test has left, and ten minutes at most.
func limit(t testing.TB) time.Duration {
	most := 10 * time.Minute
	if t, ok := t.(*testing.T); ok {
		if end, ok := t.Deadline(); ok {
			most = min(most, time.Until(end)*2/3)
		}
	}
	return most
}

// at returns a command that uses the host's NIC.
func (h *host) at(t testing.TB, lib, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit(t))
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib, "MCASTLAB_VERBS="+h.path)
	return cmd
}

// tools returns the paths of the programs that a test needs, and skips the test on a machine that lacks
// one.
func tools(t testing.TB, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// library builds the library once, and skips the test where that cannot be done.
func library(t testing.TB) (dir string) {
	t.Helper()
	tools(t, "cc", "sh", "nm", "awk")
	if err := exec.Command("sh", "-c", "echo '#include <rdma/rdma_cma.h>' | cc -E - > /dev/null 2>&1").Run(); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal("the headers of rdma-core are missing: apt-get install librdmacm-dev")
		}
		t.Skip("the headers of rdma-core are missing")
	}
	built.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "mcastlab-verbs-")
		var src string
		if built.err == nil {
			src, built.err = patch.Sources(built.dir, "../../verbs")
		}
		if built.err == nil {
			built.out, built.err = exec.Command("sh", filepath.Join(src, "build.sh"), built.dir).CombinedOutput()
		}
	})
	if built.err != nil {
		t.Fatalf("build the library: %v\n%s", built.err, built.out)
	}
	return built.dir
}

// built is the library of this run of the tests.
var built struct {
	sync.Once
	dir string
	out []byte
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// verbsProgram builds testdata/verbs.c against the library, once.
func verbsProgram(t testing.TB) (lib, program string) {
	t.Helper()
	lib = library(t)
	program = filepath.Join(lib, "verbs")
	compiled.Do(func() {
		compiled.out, compiled.err = exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", "verbs.c"),
			filepath.Join(lib, "libibverbs.so.1")).CombinedOutput()
	})
	if compiled.err != nil {
		t.Fatalf("%v\n%s", compiled.err, compiled.out)
	}
	return lib, program
}

// compiled is the program of this run of the tests.
var compiled struct {
	sync.Once
	out []byte
	err error
}
