// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestVerbs: a program that opens a device at both ends of a link gets the guarantees of the verbs, and
// leaves nothing at the NICs.
func TestVerbs(t *testing.T) {
	for _, what := range []string{"one-sided", "two-sided", "regions", "datagrams", "abandoned", "vain", "shared", "extended", "pieces"} {
		t.Run(what, func(t *testing.T) { runVerbs(t, what) })
	}
}

func runVerbs(t *testing.T, what string) {
	t.Helper()
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, what).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h[0].emptied(t)
	h[1].emptied(t)
}

// TestReadOfMemoryGone, TestSendOfMemoryGone and TestReceiveInMemoryGone: a program that unmaps registered
// memory gets errors, and never other bytes. The memory is gone before the request is posted, at an address
// where the kernel maps nothing of its own.
func TestReadOfMemoryGone(t *testing.T) { runVerbs(t, "read-gone") }

// TestSendOfMemoryGone is explained above.
func TestSendOfMemoryGone(t *testing.T) { runVerbs(t, "send-gone") }

// TestReceiveInMemoryGone is explained above.
func TestReceiveInMemoryGone(t *testing.T) { runVerbs(t, "recv-gone") }

// TestKilled: of a program that dies nothing is left at the NIC.
func TestKilled(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	cmd := h[0].at(t, lib, program, h[0].path, h[1].path, "linger")
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
	if m := h[1].made(t); m != (virtrnic.Made{QPs: 1, MRs: 1, CQs: 1, PDs: 1}) {
		t.Errorf("before it dies there are %+v", m)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h[0].emptied(t)
	h[1].emptied(t)
}

// TestSlowProgram: a program whose memory does not answer holds up itself, and no other at the
// same NIC.
func TestSlowProgram(t *testing.T) {
	lib, program := verbsProgram(t)
	h, _ := hosts(t)
	slow := h[0].at(t, lib, program, h[0].path, h[1].path, "linger")
	out, err := slow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	block := make(chan struct{})
	for _, h := range h {
		h.loop.Call(vtime.Never, func(vtime.Time) {
			for c := range h.server.clients {
				c.work.add(func() { <-block })
			}
		})
	}
	if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, "one-sided").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_ = slow.Process.Kill()
	_ = slow.Wait()
	h[0].emptied(t) // the NIC does not wait for a copy that does not end
	h[1].emptied(t)
	close(block)
}

// TestHeldFrames: frames for a program whose memory does not answer wait up to a bound, and are lost and
// counted beyond it.
func TestHeldFrames(t *testing.T) {
	lib, program := verbsProgram(t)
	h, sent := hosts(t)
	if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, "datagrams").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sent.mu.Lock()
	size := binary.LittleEndian.Uint32(sent.b.Bytes()[24+8:])
	frame := bytes.Clone(sent.b.Bytes()[24+16:][:size])
	sent.mu.Unlock()
	h, _ = hosts(t) // whose first queue pair has the same number
	slow := h[0].at(t, lib, program, h[0].path, h[1].path, "linger")
	out, err := slow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	const more = 3
	h[1].loop.Call(vtime.Never, func(now vtime.Time) {
		for c := range h[1].server.clients {
			c.fetching = true
		}
		for i := range heldMax + more {
			f, err := h[1].loop.Pool().Parse(frame)
			if err != nil {
				t.Error(err)
				return
			}
			if i == 0 { // one that the NIC has sent to itself
				gate{h[1].server}.returned(now, f)
				continue
			}
			h[1].server.Gate().HandleFrame(now, 0, f)
		}
		if n := h[1].nic.Stats().Drops[virtrnic.DropIntakeFull]; n != more {
			t.Errorf("%d frames are lost", n)
		}
	})
	_ = slow.Process.Kill()
	_ = slow.Wait()
	h[0].emptied(t)
	h[1].emptied(t)
	h[1].loop.Call(vtime.Never, func(vtime.Time) {
		if n := h[1].nic.Stats().RcvdPkts; n != heldMax-1 {
			t.Errorf("%d frames have come by the port, and not %d", n, heldMax-1)
		}
	})
}

// reader is a queue pair of a program that does without the library, and memory of this test that is registered for it.
type reader struct {
	*rawClient
	qpn, key uint32
	cq, sq   ring
	buf      []byte
}

func newReader(t *testing.T, h *host) *reader {
	t.Helper()
	c, err := dial(h.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	r := &reader{rawClient: c, buf: make([]byte, 8)}
	var pin runtime.Pinner
	pin.Pin(&r.buf[0])
	t.Cleanup(pin.Unpin)
	pd := r.must(t, opAllocPD, &byID{}).ID
	r.key = r.must(t, opRegMR, &regMR{PD: pd, Access: 15, Addr: addressOfBytes(r.buf), Length: 8, IOVA: addressOfBytes(r.buf)}).ID
	cq := r.must(t, opCreateCQ, &createCQ{Depth: 1})
	r.cq = ring{r.memory(t), uint64(cq.Send), completionLen}
	q := r.must(t, opCreateQP, &createQP{PD: pd, SendCQ: cq.ID, RecvCQ: cq.ID, Type: uint32(virtrnic.TypeRC), SendWR: 2, RecvWR: 2, SendSGE: 1, RecvSGE: 1})
	r.qpn, r.sq = q.ID, ring{r.memory(t), uint64(q.Send), sendLen}
	t.Cleanup(func() { unmap(r.cq.mem); unmap(r.sq.mem) })
	return r
}

func addressOfBytes(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

func (r *reader) must(t *testing.T, o op, m any) reply {
	t.Helper()
	a, err := r.ask(o, m)
	if err != nil || a.Status != 0 {
		t.Fatalf("request %d: %v, %v", o, unix.Errno(a.Status), err)
	}
	return a
}

// connect brings the queue pair to RTS.
func (r *reader) connect(t *testing.T, to *host, qpn uint32) {
	t.Helper()
	a := attr{Port: 1, Access: 15, PathMTU: 1024, DestQPN: qpn, Timeout: 20, RetryCnt: 7, RdAtomic: 1, DestRdAtomic: 1}
	to.loop.Call(vtime.Never, func(vtime.Time) { a.Path.GID = to.nic.Addr(to.nic.IP()).As16() })
	for i, mask := range []virtrnic.AttrMask{
		virtrnic.AttrState | virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags,
		virtrnic.AttrState | virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN | virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer,
		virtrnic.AttrState | virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrSQPSN | virtrnic.AttrMaxQPRdAtomic,
	} {
		a.State = uint32(i + 1)
		r.must(t, opModifyQP, &modifyQP{QPN: r.qpn, Mask: uint32(mask), Attr: a})
	}
}

// TestReadBehindBacklog: a READ that waits until earlier bytes are written to the program's memory returns the bytes that are in
// that memory then.
func TestReadBehindBacklog(t *testing.T) {
	h, _ := hosts(t)
	from, to := newReader(t, h[0]), newReader(t, h[1])
	from.connect(t, h[1], to.qpn)
	to.connect(t, h[0], from.qpn)
	copy(to.buf, "in there")
	h[1].loop.Call(vtime.Never, func(vtime.Time) {
		for c := range h[1].server.clients {
			c.backlog.Add(backlogMax + 1)
		}
	})
	le, e := binary.LittleEndian, from.sq.entry(0)
	le.PutUint64(e[8:], addressOfBytes(to.buf))
	le.PutUint32(e[32:], uint32(virtrnic.WRRDMARead))
	le.PutUint32(e[36:], uint32(virtrnic.SendSignaled))
	le.PutUint32(e[40:], 1)
	le.PutUint32(e[52:], to.key)
	le.PutUint64(e[sendSGEs:], addressOfBytes(from.buf))
	le.PutUint32(e[sendSGEs+8:], 8)
	le.PutUint32(e[sendSGEs+12:], from.key)
	from.sq.setHead(1)
	if _, err := unix.Write(from.fds[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	h[0].waitFor(t, "the READ completes", func() bool { return from.cq.head() == 1 })
	if status := le.Uint32(from.cq.entry(0)[8:]); status != 0 || string(from.buf) != "in there" {
		t.Errorf("status %d, %q was read", status, from.buf)
	}
}

// TestMemoryDescriptor: only a descriptor of procfs that is open for both is taken for a program's memory.
func TestMemoryDescriptor(t *testing.T) {
	for _, c := range []struct {
		path  string
		flags int
		ok    bool
	}{
		{"/proc/self/mem", unix.O_RDWR, true},
		{"/proc/self/mem", unix.O_RDONLY, false},
		{"/dev/zero", unix.O_RDWR, false},
		{t.TempDir(), unix.O_RDONLY, false},
	} {
		fd, err := unix.Open(c.path, c.flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkMem(fd); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.path, err)
		}
		_ = unix.Close(fd)
	}
	if err := checkMem(-1); err == nil {
		t.Error("no descriptor is taken")
	}
}

// TestSealed: a program cannot take a ring's memory away under the NIC.
func TestSealed(t *testing.T) {
	mem, fd, err := share(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(mem)
	defer unix.Close(fd)
	for _, n := range []int64{0, 4096, 16384} {
		if err := unix.Ftruncate(fd, n); err != unix.EPERM {
			t.Errorf("to %d bytes: %v", n, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EPERM {
		t.Errorf("another seal: %v", err)
	}
}
