// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestUnreadInOrder: a program reads events when it likes, in spells, while others come. It gets each of them once, in order, and read
// events no longer count. So it is on the wall clock, where a goroutine waits for room, and in virtual time, where none does.
func TestUnreadInOrder(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 5))
			s := &Server{quotas: quotas}
			if virtual {
				s.turns = NewTurns()
			}
			c := &client{s: s}
			p, far, err := c.newPipe()
			if err != nil {
				t.Fatal(err)
			}
			const events = 4000
			sent, got := uint32(0), uint32(0)
			b := make([]byte, 1000)
			for got < events {
				for n := r.IntN(600); n > 0 && sent < events; n-- {
					p.send(append(idBytes(sent), make([]byte, r.IntN(300))...), nil)
					sent++
				}
				for n := r.IntN(600); n > 0 && got < sent; n-- {
					if virtual {
						s.flushBehind()
					}
					k, err := unix.Read(far, b)
					if err != nil || k < 4 || binary.LittleEndian.Uint32(b) != got {
						t.Fatalf("virtual %v, seed %d: event %d comes as number %d: %v", virtual, seed, binary.LittleEndian.Uint32(b), got, err)
					}
					got++
				}
			}
			p.mu.Lock()
			p.mu.Unlock() //nolint:staticcheck // the last has been counted
			if n := s.used[useEvents].Load(); n != 0 || c.used[useEvents].Load() != 0 {
				t.Errorf("virtual %v, seed %d: %d bytes still count", virtual, seed, n)
			}
			if virtual && (s.told != events || len(s.behind) > 0) {
				t.Errorf("seed %d: programs are told %d times, and %d pipes are left", seed, s.told, len(s.behind))
			}
			p.close()
			_ = unix.Close(far)
		}
	}
}

// TestUnreadOnce: an event of a queue that waits unread stands for those that come after it.
func TestUnreadOnce(t *testing.T) {
	s := &Server{quotas: quotas, turns: NewTurns()}
	c := &client{s: s}
	p, far, err := c.newPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(far)
	defer p.close()
	for len(p.queue) == 0 {
		p.send(idBytes(7), nil)
	}
	full, waits := s.told, false
	for range 1000 {
		p.send(idBytes(9), &waits)
	}
	if len(p.queue) != 2 || !waits {
		t.Fatalf("%d events wait, %v", len(p.queue), waits)
	}
	b, last, n := make([]byte, 8), byte(0), uint64(0)
	for s.flushBehind(); waits || n < s.told; s.flushBehind() {
		if _, err := unix.Read(far, b); err != nil {
			t.Fatal(err)
		}
		last, n = b[0], n+1
	}
	if n != full+2 || last != 9 {
		t.Errorf("%d events have come, the last is %d, and %d were sent", n, last, full+2)
	}
	if p.send(idBytes(9), &waits); waits {
		t.Error("an event waits although there is room")
	}
}

// TestUnreadTurn: when programs have had a turn, in which they may have read, they get the waiting messages.
func TestUnreadTurn(t *testing.T) {
	h, turns, pool := &jumping{t: t}, NewTurns(), &wire.Pool{}
	links := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 1e9}})
	nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &links.Ports(0, 1)[0], Pool: pool})
	s := NewServer(Config{Loop: h, NIC: nic, Pool: pool, MTU: 1024, Turns: turns})
	p, far, err := (&client{s: s}).newPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(far)
	defer p.close()
	for len(p.queue) < 10 {
		p.send(idBytes(7), nil)
	}
	before := s.told
	if turns.drain(h.now); s.told != before || len(p.queue) != 10 {
		t.Fatalf("%d events have been sent although there was no room", s.told-before)
	}
	b := make([]byte, 8)
	for range before {
		if _, err := unix.Read(far, b); err != nil {
			t.Fatal(err)
		}
	}
	if turns.drain(h.now); s.told != before+10 || len(p.queue) > 0 || len(s.behind) > 0 {
		t.Errorf("%d events have been sent, %d wait", s.told-before, len(p.queue))
	}
}

// TestUnreadHurtsItself: a program that reads no events loses its connection in the end, with all that it has. What it asks for itself is
// refused before. Others have their share, and notice nothing.
func TestUnreadHurtsItself(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	s := h[0].server
	h[0].loop.Call(vtime.Never, func(vtime.Time) { s.quotas[useEvents] = quota{4 << 10, 100 << 10, 60 << 10} })
	good, err := dial(h[0].path)
	if err != nil {
		t.Fatal(err)
	}
	var lazy [3]*rawClient
	for i := range lazy {
		if lazy[i], err = dial(h[0].path); err != nil {
			t.Fatal(err)
		}
	}
	// By requests of its own it does not get so far.
	if r, err := lazy[0].ask(opCreateChannel, &byID{}); err != nil || r.Status != 0 {
		t.Fatal(r, err)
	}
	refused := unix.Errno(0)
	for range 2000 {
		r, err := lazy[0].ask(opCMCreate, &cmCreate{Channel: 1, Space: 0x106})
		if err != nil || r.Status != 0 {
			t.Fatal(unix.Errno(r.Status), err)
		}
		peer := cmAddr{GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, Port: 7}
		if r, err = lazy[0].ask(opCMResolve, &cmAddress{ID: r.ID, Addr: peer}); err != nil {
			t.Fatal(err)
		}
		if refused = unix.Errno(r.Status); refused != 0 {
			break
		}
	}
	if refused != unix.ENOMEM {
		t.Errorf("in the end it is refused with %v", refused)
	}
	// What others make happen it cannot refuse.
	for i, c := range lazy {
		gone := false
		for n := 0; !gone && n < 20000; n++ {
			h[0].loop.Call(vtime.Never, func(vtime.Time) {
				if all := s.inOrder(); len(all) == len(lazy)+1-i {
					all[1].tell(event{1, 1})
				} else {
					gone = true
				}
			})
		}
		if _, err := c.ask(opAllocPD, &byID{}); !gone || err == nil {
			t.Errorf("program %d is still there", i)
		}
		c.close()
	}
	if r, err := good.ask(opAllocPD, &byID{}); err != nil || r.Status != 0 {
		t.Errorf("another program: %v, %v", unix.Errno(r.Status), err)
	}
	good.close()
	unharmed(t, h, before)
	if n := s.used[useEvents].Load(); n != 0 {
		t.Errorf("%d bytes still count", n)
	}
}

// TestUnreadWaits: sending never waits, also while the goroutine of the pipe waits for room, and after the end.
func TestUnreadWaits(t *testing.T) {
	s := &Server{quotas: quotas}
	c := &client{s: s}
	for range 50 {
		p, far, err := c.newPipe()
		if err != nil {
			t.Fatal(err)
		}
		for c.used[useEvents].Load() < 100<<10 { // no program reads
			p.send(idBytes(1), nil)
		}
		p.close()
		p.send(idBytes(1), nil)
		_ = unix.Close(far)
	}
	if n := s.used[useEvents].Load(); n != 0 {
		t.Errorf("%d bytes still count", n)
	}
}

// unreadProgram builds testdata/unread.c.
func unreadProgram(t *testing.T, lib string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "unread")
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", "unread.c"),
		filepath.Join(lib, "librdmacm.so.1"), filepath.Join(lib, "libibverbs.so.1")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestUnread: programs raise many more events than a socket holds, and then read them. TestLiveUnread does so in virtual time.
func TestUnread(t *testing.T) {
	lib := library(t)
	program := unreadProgram(t, lib)
	h, _ := hosts(t)
	for _, args := range [][]string{{"resolve", "1000", "10.0.0.1"}, {"queues", "1000"}} {
		if out, err := h[0].at(t, lib, program, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	listening(t, h, lib, []string{program, "serve", "500"}, []string{program, "ask", "500", "10.0.0.1"})
	h[0].emptied(t)
	h[1].emptied(t)
}
