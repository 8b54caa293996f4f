package verbs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestVerbs: a program that opens a device at both ends of a link gets what the verbs promise, and
// leaves nothing at the NICs.
func TestVerbs(t *testing.T) {
	for _, what := range []string{"one-sided", "two-sided", "regions", "datagrams", "shared", "extended", "pieces"} {
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

// TestReadOfMemoryGone, TestSendOfMemoryGone and TestReceiveInMemoryGone: a program that unmaps what it has
// registered gets errors, and never other bytes. The memory is gone before the request is
// posted, at an address where the kernel maps nothing of its own.
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
		for range heldMax + more {
			f, err := h[1].loop.Pool().Parse(frame)
			if err != nil {
				t.Error(err)
				return
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
