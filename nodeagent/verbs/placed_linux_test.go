// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// write has a WRITE of the 8 bytes of one queue pair's memory to another's posted.
func (r *reader) write(t *testing.T, to *reader) {
	t.Helper()
	le, e := binary.LittleEndian, r.sq.entry(0)
	le.PutUint64(e[8:], addressOfBytes(to.buf))
	le.PutUint32(e[32:], uint32(virtrnic.WRRDMAWrite))
	le.PutUint32(e[36:], uint32(virtrnic.SendSignaled))
	le.PutUint32(e[40:], 1)
	le.PutUint32(e[52:], to.key)
	le.PutUint64(e[sendSGEs:], addressOfBytes(r.buf))
	le.PutUint32(e[sendSGEs+8:], 8)
	le.PutUint32(e[sendSGEs+12:], r.key)
	r.sq.setHead(1)
	if _, err := unix.Write(r.fds[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
}

// TestWrittenBeforeAcknowledged: a WRITE whose bytes cannot be put into the program's memory yet has not completed at its sender, though the NIC
// has them; another program's has. When the bytes are there it completes.
func TestWrittenBeforeAcknowledged(t *testing.T) {
	h, _ := hosts(t)
	var from, to [2]*reader
	for i := range from {
		from[i], to[i] = newReader(t, h[0]), newReader(t, h[1])
		from[i].connect(t, h[1], to[i].qpn)
		to[i].connect(t, h[0], from[i].qpn)
		copy(from[i].buf, "in there")
	}
	first := func(f func(c *client)) {
		h[1].loop.Call(vtime.Never, func(vtime.Time) { f(h[1].server.inOrder()[0]) })
	}
	let := make(chan struct{})
	first(func(c *client) { c.work.add(func() { <-let }) }) // the memory of the first program does not answer
	from[0].write(t, to[0])
	h[1].waitFor(t, "the NIC has the bytes", func() bool { return h[1].nic.Stats().MessagesReceived == 1 })
	from[1].write(t, to[1])
	h[0].waitFor(t, "the other program's WRITE completes", func() bool { return from[1].cq.head() == 1 })
	if from[0].cq.head() != 0 || string(to[0].buf) == "in there" {
		t.Errorf("a WRITE has completed, and %q is there", to[0].buf)
	}
	close(let)
	h[0].waitFor(t, "the WRITE completes", func() bool { return from[0].cq.head() == 1 })
	for i := range to {
		if status := binary.LittleEndian.Uint32(from[i].cq.entry(0)[8:]); status != 0 || string(to[i].buf) != "in there" {
			t.Errorf("program %d: status %d, and %q is there", i, status, to[i].buf)
		}
	}
	first(func(c *client) {
		if c.placed.Load() != c.puts || len(c.fenced) > 0 {
			t.Errorf("%d of %d pieces are there, and answers of %d queue pairs wait", c.placed.Load(), c.puts, len(c.fenced))
		}
	})
}

// TestVisible: a program finds bytes in memory as soon as their sender's request has completed. TestLiveUnread looks in virtual time, too.
func TestVisible(t *testing.T) {
	lib := library(t)
	program := filepath.Join(t.TempDir(), "visible")
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", "visible.c"),
		filepath.Join(lib, "libibverbs.so.1")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h, _ := hosts(t)
	n := "2000"
	if testing.Short() {
		n = "300"
	}
	if out, err := h[0].at(t, lib, program, n).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	h[0].emptied(t)
}
