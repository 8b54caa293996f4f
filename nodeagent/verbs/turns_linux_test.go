// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// jumping is a host on which nothing happens: lab time jumps to where its task waits until. It is the loop of the server, too.
type jumping struct {
	t   *testing.T
	now vtime.Time
}

func (h *jumping) Now() vtime.Time { return h.now }
func (h *jumping) Kick()           {}

func (h *jumping) Park(until vtime.Time, why string) {
	if until == vtime.Never {
		panic("the program waits for ever, on " + why)
	}
	h.now = until
}

func (h *jumping) Call(_ vtime.Time, f func(now vtime.Time)) bool {
	f(h.now)
	return true
}

// TestTurnsOfThreads: threads run one at a time, in the order of their arrival, each at the instant that it waits for; and a
// program has ended when its guardian's connection is closed.
func TestTurnsOfThreads(t *testing.T) {
	h := &jumping{t: t}
	turns := NewTurns()
	pool := &wire.Pool{}
	links := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 1e9}})
	nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &links.Ports(0, 1)[0], Pool: pool})
	s := NewServer(Config{Loop: h, NIC: nic, Pool: pool, MTU: 1024, Turns: turns})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // until Close
	dial := func() *net.UnixConn {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	child := exec.Command("cat") // whose life is the program's
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := uint32(child.Process.Pid)
	const rank = 3
	guardian := dial()
	say := func(c *net.UnixConn, o op, m any) {
		if _, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(o)), encode(m)...)); err != nil {
			t.Error(err)
		}
	}
	var mu sync.Mutex
	var log []string // of turns, with mu: one thread at a time has one, but the race detector does not see that
	await := func(c *net.UnixConn, name string) {
		b := make([]byte, 64)
		n, err := c.Read(b)
		if want := binary.Size(turn{}); err != nil || n != want {
			t.Errorf("%s: %d bytes, %v", name, n, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		log = append(log, fmt.Sprint(name, " ", binary.LittleEndian.Uint64(b[8:])))
	}
	thread := func(announced uint32) *net.UnixConn {
		c := dial()
		fd, err := unix.PidfdOpen(int(pid), 0)
		if err != nil {
			t.Error(err)
			return c
		}
		hello := append(binary.LittleEndian.AppendUint32(nil, uint32(opThread)), encode(threadHello{rank, pid, announced})...)
		if _, _, err := c.WriteMsgUnix(hello, unix.UnixRights(fd), nil); err != nil {
			t.Error(err)
		}
		_ = unix.Close(fd) // sent
		return c
	}
	second := func() {
		c := thread(1)
		await(c, "b")
		say(c, opPark, park{Kind: parkPoll, Until: 3, Grid: 1})
		await(c, "b")
		say(c, opPark, park{Kind: parkSleep, Until: 20})
		await(c, "b")
		say(c, opBye, byID{})
		_ = c.Close()
	}
	go func() {
		say(guardian, opProgram, programHello{rank})
		say(guardian, opExpect, byID{pid})
		c := thread(0)
		await(c, "a")
		say(c, opExpect, byID{expectThread})
		go second()
		say(c, opPark, park{Kind: parkSleep, Until: 10})
		await(c, "a")
		say(c, opPark, park{Kind: parkBeside, Until: uint64(vtime.Never)})
		await(c, "a") // when b has had its turn, and has ended
		_, _ = in.Close(), child.Wait()
		_, _ = c.Close(), guardian.Close()
	}()
	if _, err := turns.Run(rank, h); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"a 0", "b 0", "b 3", "a 10", "b 20", "a 20"}
	if !slices.Equal(log, want) {
		t.Errorf("turns %q, and not %q", log, want)
	}
	if waiting, _ := turns.Outside(); waiting != 0 {
		t.Errorf("%d threads wait outside the lab, of a program that has ended", waiting)
	}
	turns.Stop()
	turns.End()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestTurnsNewWait: each new wait for an event outside the lab is checked, although no program has acted since: its bytes may have
// arrived before. A thread that has only checked is not checked again for that.
func TestTurnsNewWait(t *testing.T) {
	h := &jumping{t: t}
	turns := NewTurns()
	pool := &wire.Pool{}
	links := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 1e9}})
	nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &links.Ports(0, 1)[0], Pool: pool})
	NewServer(Config{Loop: h, NIC: nic, Pool: pool, MTU: 1024, Turns: turns})
	p, x := turns.program(0), &thread{proc: &proc{}}
	p.host, p.threads, x.process = h, []*thread{x}, &x.proc.process
	before := uint64(0)
	for range 2 {
		x.parked = false
		p.parks(x, park{Kind: parkOutside, Until: uint64(vtime.Never)})
		waiting, touched := turns.Outside()
		if waiting != 1 || touched <= before {
			t.Errorf("%d threads wait outside the lab, and the count is %d, as before this wait (%d)", waiting, touched, before)
		}
		before = touched
		x.asked = true
		p.parks(x, park{Kind: parkOutside, Until: uint64(vtime.Never)})
		if _, touched := turns.Outside(); touched != before {
			t.Errorf("a look that finds nothing counts as progress")
		}
	}
	for _, kind := range []uint32{parkSleep, parkPoll, parkBeside, parkMemory} {
		p.parks(x, park{Kind: kind, Until: uint64(vtime.Never)})
		if waiting, touched := turns.Outside(); waiting != 0 || touched != before {
			t.Errorf("a wait of kind %d in the lab has it looked at what is outside", kind)
		}
	}
}
