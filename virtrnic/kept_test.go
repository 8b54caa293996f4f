// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"runtime"
	"testing"
	"weak"
)

// TestRegionNotKept: the memory of a region that has been deregistered is free for the garbage collector, also
// while the queue pairs that it was used with remember the last message.
func TestRegionNotKept(t *testing.T) {
	const size = 1 << 16
	for _, op := range []WROpcode{WRSend, WRRDMAWrite} {
		p := newPair(t, pairOptions{})
		var kept [2]weak.Pointer[byte]
		var mrs [2]*MR
		for i := range 2 {
			b, m := p.region(i, size, uint64(i))
			kept[i], mrs[i] = weak.Make(&b[0]), m
		}
		p.recv(1, RecvWR{SGE: whole(mrs[1], size)})
		p.post(0, SendWR{Opcode: op, SGE: whole(mrs[0], size), RemoteAddr: mrs[1].Addr(), RKey: mrs[1].RKey()})
		p.run()
		if w := p.completions(0); len(w) != 1 || w[0].Status != WCSuccess {
			t.Fatalf("%v: completions %v", op, w)
		}
		for i, m := range mrs {
			if err := p.nic[i].DeregMR(m); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		for i := range kept {
			if kept[i].Value() != nil {
				t.Errorf("%v: side %d still holds %d bytes that have been deregistered", op, i, size)
			}
		}
		runtime.KeepAlive(p)
	}
}
