// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// The fault scenarios of docs/ledgers/rules/faults.md as far as they concern the NIC alone;
// the tests of package virtswitch have them in a fabric.

// pauseFor makes side i keep its peer's class 3 paused from one instant to another, with
// frames of the longest time that are renewed before they run out.
func (p *pair) pauseFor(i int, from, to vtime.Time) {
	const longest = 335 * vtime.Microsecond // 65535 quanta of 512 bits at 100 Gb/s
	for at := from; at < to; at = at.Add(longest / 2) {
		p.net.At(at, func(now vtime.Time) { p.nic[i].SendPause(now, 1<<3, 0xffff) })
	}
	p.net.At(to, func(now vtime.Time) { p.nic[i].SendPause(now, 1<<3, 0) })
}

// TestLongPauses (FLT-12): a pause lasts many times as long as the retransmission timeout. One that
// stops the data costs no timeout, since unsent packets are not outstanding, and everything completes
// after it; one that stops the acknowledgements ends requests in bounded time, as a dead peer does; a
// class that is not paused does not notice.
func TestLongPauses(t *testing.T) {
	from, to := vtime.Time(3*vtime.Microsecond), vtime.Time(3*vtime.Millisecond)
	for _, op := range []WROpcode{WRSend, WRRDMAWrite} {
		p := newPair(t, pairOptions{timeout: 4, retry: 2}) // 65 us, and three attempts
		src, sm := p.region(0, 100*1024, 3)
		dst, dm := p.region(1, 100*1024, 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, 100*1024)})
		p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, 100*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		var last vtime.Time
		p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
			if f.Kind() == wire.KindRoCE && port == 0 {
				if now > from.Add(3*vtime.Microsecond) && now < to {
					t.Errorf("opcode %d: a packet at %v, in the pause", op, now)
				}
				last = now
			}
			return faults.Verdict{}
		}
		p.pauseFor(1, from, to)
		p.run()
		p.want(0, WC{WRID: 1, Opcode: wcOpcode(op), ByteLen: 100 * 1024})
		if s := p.nic[0].Stats(); s.Timeouts != 0 || s.Retransmitted != 0 || !bytes.Equal(src, dst) {
			t.Errorf("opcode %d: %d timeouts, %d repeats, or wrong bytes", op, s.Timeouts, s.Retransmitted)
		}
		if last < to {
			t.Errorf("opcode %d: the message ended at %v, in the pause", op, last)
		}
	}
	for _, op := range []WROpcode{WRSend, WRRDMARead} {
		p := newPair(t, pairOptions{timeout: 4, retry: 2, rdAtomic: 1})
		_, sm := p.region(0, 100*1024, 3)
		_, dm := p.region(1, 100*1024, 0)
		p.recv(1, RecvWR{SGE: whole(dm, 100*1024)})
		p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, 100*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		p.pauseFor(0, from, to)
		var ended vtime.Time
		p.net.After = func() {
			if ended == 0 && p.qp[0].State() == StateErr {
				ended = p.net.Now
			}
		}
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRetryExcErr})
		if bound := from.Add(5 * Timeout(4)); ended == 0 || ended > bound {
			t.Errorf("opcode %d: ended at %v, want by %v", op, ended, bound)
		}
	}
	p := newPair(t, pairOptions{timeout: 4, retry: 2})
	other := &pair{t: t, net: p.net, nic: p.nic, pd: p.pd, cq: p.cq}
	for i := range 2 {
		var err error
		if other.qp[i], err = p.nic[i].CreateQP(QPInit{PD: p.pd[i], SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 4, SQSigAll: true}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		other.connect(i, pairOptions{mtu: 1024, timeout: 4, retry: 2})
		other.qp[i].attr.AV.TrafficClass = 5 << 5
		other.qp[i].prio = 5
		other.qp[i].env = p.nic[i].envelope(other.qp[i])
	}
	p.pauseFor(1, 0, to)
	var done []string
	p.net.At(from, func(vtime.Time) {
		p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite})
		other.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite})
	})
	p.net.After = func() {
		for _, w := range p.completions(0) {
			done = append(done, fmt.Sprint(w.WRID, " ", p.net.Now < to))
		}
	}
	p.run()
	if len(done) != 2 || done[0] != "2 true" || done[1] != "1 false" {
		t.Errorf("completions %v, want 2 in the pause and 1 after it", done)
	}
}

// TestWrongKey (FLT-18): the key of a WRITE is wrong at the receiver. Its fatal NAK reaches the sender,
// whose requests before it are complete and those behind it flushed; not a byte of it has landed; the
// receive of an immediate notifies the receiver.
func TestWrongKey(t *testing.T) {
	for _, op := range []WROpcode{WRRDMAWrite, WRRDMAWriteWithImm} {
		for _, n := range []int{100, 5000} {
			p := newPair(t, pairOptions{timeout: 6, retry: 7, rnr: 7, psn: 0xfffffe})
			src, sm := p.region(0, n, 3)
			first, fm := p.region(1, n, 0)
			second, wrong := p.region(1, n, 0)
			p.recv(1, RecvWR{WRID: 7})
			w := SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, n), RemoteAddr: fm.Addr(), RKey: fm.RKey()}
			p.post(0, w)
			w.WRID, w.Opcode, w.RemoteAddr, w.RKey = 2, op, wrong.Addr(), wrong.RKey()^1
			p.post(0, w)
			w.WRID, w.RKey = 3, wrong.RKey()
			p.post(0, w)
			p.run()
			p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: uint32(n)}, WC{WRID: 2, Status: WCRemAccessErr}, WC{WRID: 3, Status: WCWRFlushErr})
			status := WCWRFlushErr // the immediate comes with the last packet
			if op == WRRDMAWriteWithImm && n == 100 {
				status = WCLocAccessErr
			}
			p.want(1, WC{WRID: 7, Status: status})
			if !bytes.Equal(first, src) || !bytes.Equal(second, make(Bytes, n)) {
				t.Errorf("opcode %d, %d bytes: the good WRITE did not land, or the bad one did", op, n)
			}
			if e, ok := p.nic[1].GetAsyncEvent(); !ok || e.Type != EventQPAccessErr {
				t.Errorf("receiver's event %v %v", e.Type, ok)
			}
		}
	}
}

// TestFirstWriteRepeated (FLT-22): two WRITEs are outstanding and any packet of the first
// is lost, its first above all. Going back repeats the first with its own address and key:
// the contents land where each was meant to.
func TestFirstWriteRepeated(t *testing.T) {
	const n, packets = 4000, 4
	for k := range packets {
		p := newPair(t, pairOptions{timeout: 6, retry: 7, rnr: 7, psn: 0xfffffd})
		p.loseNth(0, k+1)
		var src, dst [2]Bytes
		var keys []uint32
		for i := range 2 {
			var sm, dm *MR
			src[i], sm = p.region(0, n, uint64(i+1))
			dst[i], dm = p.region(1, n, 0)
			keys = append(keys, dm.RKey())
			p.post(0, SendWR{WRID: uint64(i), Opcode: WRRDMAWrite, SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		}
		var seen []uint32
		prev := p.net.Fate
		p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
			if f.OpCode() == wire.OpWriteFirst {
				seen = append(seen, f.RETH().RKey)
			}
			return prev(now, port, f)
		}
		p.run()
		p.want(0, WC{WRID: 0, Opcode: WCRDMAWrite, ByteLen: n}, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: n})
		if !bytes.Equal(src[0], dst[0]) || !bytes.Equal(src[1], dst[1]) {
			t.Errorf("packet %d lost: contents at the wrong place", k)
		}
		if k == 0 && (len(seen) < 3 || seen[0] != keys[0] || seen[len(seen)-1] != keys[1]) {
			t.Errorf("first packets carried keys %v, want %v repeated in order", seen, keys)
		}
	}
}
