// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// census counts the objects of the process that programs could leave behind.
type census struct{ fds, maps, goroutines int }

func take(t *testing.T) (c census) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return census{len(fds), strings.Count(string(maps), "mcastlab-verbs"), runtime.NumGoroutine()}
}

// unharmed waits until all objects of programs are gone, and lets one show that the NICs serve others.
func unharmed(t *testing.T, h [2]*host, before census) {
	t.Helper()
	h[0].emptied(t)
	h[1].emptied(t)
	now := take(t)
	for range 12000 {
		if now.fds <= before.fds && now.maps <= before.maps && now.goroutines <= before.goroutines {
			break
		}
		<-time.After(10 * time.Millisecond)
		now = take(t)
	}
	if now.fds > before.fds || now.maps > before.maps || now.goroutines > before.goroutines {
		t.Errorf("before there were %+v, now there are %+v", before, now)
	}
	lib, program := verbsProgram(t)
	if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, "one-sided").CombinedOutput(); err != nil {
		t.Errorf("another program: %v\n%s", err, out)
	}
}

// rawClient speaks to the server without the library.
type rawClient struct {
	conn *net.UnixConn
	fds  []int
}

// dial connects. Without success there is no client: the server may have ended the connection.
func dial(path string) (*rawClient, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer unix.Close(mem)
	c := &rawClient{conn: conn}
	if _, _, err := conn.WriteMsgUnix(request(opHello, &hello{version}), unix.UnixRights(mem), nil); err != nil {
		c.close()
		return nil, err
	}
	_, err = c.answer()
	return c, err
}

func (c *rawClient) close() {
	_ = c.conn.Close()
	closeAll(c.fds)
}

// answer reads a reply, with the descriptors that came with it at the end of c.fds.
func (c *rawClient) answer() (r reply, err error) {
	b, fds, err := receive(c.conn)
	c.fds = append(c.fds, fds...)
	if err == nil && len(b) >= 16 {
		_, err = binary.Decode(b[:16], binary.LittleEndian, &r)
	}
	return r, err
}

func (c *rawClient) ask(o op, m any) (reply, error) {
	if _, err := c.conn.Write(request(o, m)); err != nil {
		return reply{}, err
	}
	return c.answer()
}

// memory maps the ring that came last.
func (c *rawClient) memory(t *testing.T) []byte {
	t.Helper()
	var st unix.Stat_t
	fd := c.fds[len(c.fds)-1]
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// scribble writes at random into a ring's header and entries, often with valid values.
func scribble(r *rand.Rand, b []byte, key uint32, at uint64) {
	for range 40 {
		i := 8 * r.IntN(len(b)/8)
		v := r.Uint64()
		switch r.IntN(5) {
		case 0:
			v = uint64(r.IntN(40))
		case 1:
			v = at + uint64(r.IntN(5000))
		case 2:
			v = uint64(key)<<32 | uint64(r.IntN(5000))
		case 3:
			i = ringHead
			v = binary.LittleEndian.Uint64(b) + uint64(r.IntN(3))
		}
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[i])), v)
	}
}

// TestHostileRings: a program writes anything to its rings and asks for anything. Another one at the same NICs notices nothing.
func TestHostileRings(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	before := take(t)
	buf := make([]byte, 1<<14) // all that the NIC may write to
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	var neighbour sync.WaitGroup
	neighbour.Add(1)
	go func() {
		defer neighbour.Done()
		for range 3 {
			if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, "one-sided").CombinedOutput(); err != nil {
				t.Errorf("the neighbour: %v\n%s", err, out)
			}
		}
	}()
	for seed := range uint64(seeds) {
		if err := hostile(t, rand.New(rand.NewPCG(seed, 17)), h, buf); err != nil {
			t.Errorf("seed %d: %v (go test ./nodeagent/verbs -run TestHostileRings draws seeds 0 to %d)", seed, err, seeds-1)
		}
	}
	neighbour.Wait()
	unharmed(t, h, before)
}

// hostile is one such program. Its errors are those of its own set-up, which is correct.
func hostile(t *testing.T, r *rand.Rand, h [2]*host, buf []byte) error {
	c, err := dial(h[0].path)
	if err != nil {
		return err
	}
	defer c.close()
	at := uint64(uintptr(unsafe.Pointer(&buf[0])))
	ask := func(o op, m any) (rep reply) {
		if err == nil {
			if rep, err = c.ask(o, m); err == nil && rep.Status != 0 {
				err = fmt.Errorf("request %d: %w", o, unix.Errno(rep.Status))
			}
		}
		return rep
	}
	pd := ask(opAllocPD, &byID{}).ID
	key := ask(opRegMR, &regMR{PD: pd, Access: 15, Addr: at, Length: uint64(len(buf)), IOVA: at}).ID
	cq := ask(opCreateCQ, &createCQ{Depth: uint32(1 + r.IntN(50))}).ID
	if err != nil {
		return err
	}
	rings := [][]byte{c.memory(t)}
	srq := ask(opCreateSRQ, &createSRQ{PD: pd, WR: 8, SGE: 3}).ID
	if err != nil {
		return err
	}
	rings = append(rings, c.memory(t))
	defer func() {
		for _, b := range rings {
			_ = unix.Munmap(b)
		}
	}()
	for k := range 2 {
		q := createQP{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(virtrnic.TypeRC), SendWR: 8, RecvWR: 8, SendSGE: 4, RecvSGE: 4, SRQ: srq * uint32(k)}
		qpn := ask(opCreateQP, &q).ID
		if err != nil {
			return err
		}
		rings = append(rings, c.memory(t))
		init := virtrnic.AttrState | virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags
		rtr := virtrnic.AttrState | virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN | virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer
		rts := virtrnic.AttrState | virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrSQPSN | virtrnic.AttrMaxQPRdAtomic
		a := attr{Port: 1, Access: 15, PathMTU: 1024, DestQPN: qpn, Timeout: 1, RetryCnt: 1, RdAtomic: 2, DestRdAtomic: 2}
		h[1].loop.Call(vtime.Never, func(vtime.Time) { a.Path.GID = h[1].nic.Addr(h[1].nic.IP()).As16() })
		for i, mask := range []virtrnic.AttrMask{init, rtr, rts} {
			a.State = uint32(i + 1)
			ask(opModifyQP, &modifyQP{QPN: qpn, Mask: uint32(mask), Attr: a})
		}
		if err != nil {
			return err
		}
	}
	for range 100 {
		scribble(r, rings[r.IntN(len(rings))], key, at)
		if _, e := unix.Write(c.fds[1], []byte{0}); e != nil && e != unix.EAGAIN {
			return nil // the NIC has had enough
		}
		if r.IntN(4) == 0 {
			o := opAllocPD + op(r.IntN(int(opEnd)))
			if r.IntN(4) == 0 {
				o = opGroupWant + op(r.IntN(int(opGroupOffer-opGroupWant))) // an operator's would end the connection
			}
			if o == opRegMR || o == opReregMR {
				continue // it could write to registered memory, and this is the test's own
			}
			b := binary.LittleEndian.AppendUint32(nil, uint32(o))
			n := binary.Size(body(o))
			if r.IntN(16) == 0 {
				n = r.IntN(requestMax)
			}
			for ; n > 0; n-- {
				b = append(b, 0)
				if r.IntN(4) == 0 {
					b[len(b)-1] = byte(r.IntN(8))
				}
			}
			if _, e := c.conn.Write(b); e != nil {
				return nil
			}
			if _, e := c.answer(); e != nil {
				return nil
			}
		}
	}
	return nil
}

// TestConnectsAndExits: a thousand programs that come, make something and go without a word leave nothing.
func TestConnectsAndExits(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	for i := range n {
		c, err := dial(h[0].path)
		if err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		for _, m := range []struct {
			o op
			m any
		}{{opAllocPD, &byID{}}, {opCreateChannel, &byID{}}, {opCreateCQ, &createCQ{Channel: 2, Depth: 10}}, {opCreateSRQ, &createSRQ{PD: 1, WR: 4}}}[:i%5] {
			if r, err := c.ask(m.o, m.m); err != nil || r.Status != 0 {
				t.Fatalf("program %d: request %d: %v, %v", i, m.o, unix.Errno(r.Status), err)
			}
		}
		c.close()
	}
	unharmed(t, h, before)
}

// TestKilledAmid: a program is killed while READs, WRITEs and SENDs of its own are under way.
func TestKilledAmid(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	before := take(t)
	for i := range 5 {
		cmd := h[0].at(t, lib, program, h[0].path, h[1].path, "stream")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("it says %q: %v", line, err)
		}
		done := h[0].nic.Completions
		for start, now := uint64(0), uint64(0); now < start+uint64(10*i+3); { // until that many have completed
			h[0].loop.Call(vtime.Never, func(vtime.Time) { now = done() })
			if start == 0 {
				start = max(now, 1)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	unharmed(t, h, before)
}

// TestUnmappedAmid: memory goes while it is read from and written to.
func TestUnmappedAmid(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	before := take(t)
	for range 5 {
		if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, "amid-gone").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	unharmed(t, h, before)
}

// TestChannelsMax: a program gets the largest number of channels and no more.
func TestChannelsMax(t *testing.T) {
	h, _ := hosts(t)
	c, err := dial(h[0].path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for i := range channelsMax + 1 {
		r, err := c.ask(opCreateChannel, &byID{})
		if want := i == channelsMax; err != nil || (r.Status != 0) != want || want && r.Status != uint32(unix.ENOMEM) {
			t.Fatalf("channel %d: status %d, %v", i, r.Status, err)
		}
	}
}

// TestRoom: programs together get the largest number of objects of each kind, whatever they have of others, and more when
// some are destroyed.
func TestRoom(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	h[0].loop.Call(vtime.Never, func(vtime.Time) { h[0].server.most = [kinds]int{ofQP: 1, ofCQ: 2, ofSRQ: 1, ofMR: 1, ofPD: 1, ofAH: 1} })
	a, err := dial(h[0].path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := dial(h[0].path)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	at := uint64(uintptr(unsafe.Pointer(&buf[0])))
	to := &createAH{PD: 1, Path: path{GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}}}
	for i, c := range []struct {
		c    *rawClient
		o    op
		m    any
		want unix.Errno
	}{
		{a, opAllocPD, &byID{}, 0}, {b, opAllocPD, &byID{}, 0}, {b, opAllocPD, &byID{}, unix.ENOMEM},
		{a, opCreateAH, to, 0}, {a, opCreateAH, to, unix.ENOMEM}, {b, opCreateAH, to, 0},
		{a, opCreateCQ, &createCQ{Depth: 1}, 0}, {b, opCreateCQ, &createCQ{Depth: 1}, 0}, {a, opCreateSRQ, &createSRQ{PD: 1, WR: 1}, 0},
		{b, opCreateQP, &createQP{PD: 1, SendCQ: 3, RecvCQ: 3, Type: 2}, 0}, {b, opRegMR, &regMR{PD: 1, Addr: at, Length: 8}, 0},
		{a, opRegMR, &regMR{PD: 1, Addr: at, Length: 8}, unix.ENOMEM}, {a, opCreateCQ, &createCQ{Depth: 1}, unix.ENOMEM},
		{b, opCreateSRQ, &createSRQ{PD: 1, WR: 1}, unix.ENOMEM}, {b, opCreateQP, &createQP{PD: 1, SendCQ: 3, RecvCQ: 3, Type: 2}, unix.ENOMEM},
		{a, opDestroySRQ, &byID{4}, 0}, {b, opCreateSRQ, &createSRQ{PD: 1, WR: 1}, 0},
	} {
		if r, err := c.c.ask(c.o, c.m); err != nil || unix.Errno(r.Status) != c.want {
			t.Errorf("request %d: %v, not %v: %v", i, unix.Errno(r.Status), c.want, err)
		}
	}
	runtime.KeepAlive(buf)
	a.close()
	b.close()
	unharmed(t, h, before)
}

// TestOrphaned: a program whose NIC is removed gets one event, as of a device that failed.
func TestOrphaned(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	cmd := h[0].at(t, lib, program, h[0].path, h[1].path, "orphaned")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	s := h[1].server
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	h[0].emptied(t)
	h[1].emptied(t)
}
