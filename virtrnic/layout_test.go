// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"
	"unsafe"
)

// TestHotFields: the fields that every packet needs of a NIC and of a queue pair are in few cache lines. A field that is put among
// them costs a miss at each of a group's members. A queue pair, of which a lab has hundreds of thousands, fits a size in which
// memory is allocated and cache lines are kept, and so do work requests, of which it has millions.
func TestHotFields(t *testing.T) {
	const line = 64
	var n NIC
	var q QP
	for _, f := range []struct {
		name      string
		from, end uintptr
		line      uintptr
	}{
		{"NIC, what finds the queue pair", unsafe.Offsetof(n.port), unsafe.Offsetof(n.raw) + 1, 0},
		{"NIC, the next deadline", unsafe.Offsetof(n.timers), unsafe.Offsetof(n.lossy) + 1, 1},
		{"NIC, what packets count", unsafe.Offsetof(n.stats), unsafe.Offsetof(n.stats) + unsafe.Offsetof(n.stats.Loopback), 2},
		{"NIC, the next start", unsafe.Offsetof(n.tx), unsafe.Offsetof(n.tx) + unsafe.Offsetof(n.tx.pauses), 9},
		{"queue pair, the checks", 0, unsafe.Offsetof(q.attr) + unsafe.Offsetof(q.attr.AV) + 4, 0},
		{"queue pair, the message being received", unsafe.Offsetof(q.rq), unsafe.Offsetof(q.rq) + unsafe.Offsetof(q.rq.out), 2},
		{"queue pair, what is sent", unsafe.Offsetof(q.sq), unsafe.Offsetof(q.sq) + unsafe.Offsetof(q.sq.wqes), 5},
	} {
		if f.from/line != f.line || (f.end-1)/line != f.line {
			t.Errorf("%s: bytes %d to %d, want them in cache line %d", f.name, f.from, f.end-1, f.line)
		}
	}
	if size := unsafe.Sizeof(q); size > 512 {
		t.Errorf("a queue pair has %d bytes, want 512 at most", size)
	}
	if send, recv := unsafe.Sizeof(sendWQE{}), unsafe.Sizeof(recvWQE{}); send > 72 || recv > 32 {
		t.Errorf("work requests have %d and %d bytes in their queues, want 72 and 32 at most", send, recv)
	}
}
