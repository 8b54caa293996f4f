// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// split cuts n bytes of a region into pieces of the given sizes, every other one byte
// further on, in reverse order of address.
func split(m *MR, sizes ...int) (l []SGE) {
	at := m.Addr() + m.length
	for _, n := range sizes {
		at -= uint64(n) + 1
		l = append(l, SGE{at, uint32(n), m.LKey()})
	}
	return l
}

// join returns the bytes a list names.
func join(b Bytes, m *MR, l []SGE) (out []byte) {
	for _, e := range l {
		out = append(out, b[e.Addr-m.Addr():][:e.Length]...)
	}
	return out
}

// TestScatterGather moves messages between lists of pieces that are cut at other places
// than the packets, by SEND, WRITE and READ, with real and with phantom payload.
func TestScatterGather(t *testing.T) {
	for _, op := range []WROpcode{WRSend, WRRDMAWrite, WRRDMARead} {
		p := newPair(t, pairOptions{mtu: 256, timeout: 10, retry: 7, rnr: 6, rdAtomic: 2})
		src, sm := p.region(0, 4000, 5)
		dst, dm := p.region(1, 4000, 6)
		from, to := split(sm, 700, 0, 1, 299), split(dm, 3, 500, 497)
		w := SendWR{WRID: 1, Opcode: op, SGL: from}
		want := join(src, sm, from)
		got := func() []byte { return join(dst, dm, to) }
		switch op {
		case WRSend:
			p.recv(1, RecvWR{WRID: 2, SGL: to})
		case WRRDMAWrite:
			w.RemoteAddr, w.RKey = dm.Addr()+9, dm.RKey()
			got = func() []byte { return dst[9:1009] }
		case WRRDMARead:
			w.RemoteAddr, w.RKey = dm.Addr()+9, dm.RKey()
			want = append([]byte(nil), dst[9:1009]...)
			got = func() []byte { return join(src, sm, from) }
		}
		p.post(0, w)
		for i := range from {
			from[i].Length = 0 // the list is the caller's again
		}
		from = split(sm, 700, 0, 1, 299)
		p.run()
		p.want(0, WC{WRID: 1, Opcode: wcOpcode(op), ByteLen: 1000})
		if !bytes.Equal(got(), want) {
			t.Errorf("opcode %d: other bytes arrived", op)
		}
	}
	// A packet of zeros clears every piece it falls into.
	p := newPair(t, pairOptions{mtu: 256, timeout: 10, retry: 7, rnr: 6})
	pm, err := p.nic[0].RegMR(p.pd[0], Phantom(600), 0)
	if err != nil {
		t.Fatal(err)
	}
	dst, dm := p.region(1, 1000, 6)
	to := split(dm, 300, 300)
	p.recv(1, RecvWR{SGL: to})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(pm, 600)})
	p.run()
	if !bytes.Equal(join(dst, dm, to), make([]byte, 600)) {
		t.Error("phantom payload did not arrive as zeros")
	}
}

// TestScatterPast: pieces of a list that are filled, or hold nothing, are not looked at again:
// their regions may be gone.
func TestScatterPast(t *testing.T) {
	p := newPair(t, pairOptions{})
	_, gone := p.region(0, 64, 1)
	mem, m := p.region(0, 64, 0)
	if err := p.nic[0].DeregMR(gone); err != nil {
		t.Fatal(err)
	}
	list := []SGE{{Addr: gone.Addr(), Length: 64, LKey: gone.LKey()}, {LKey: 1}, whole(m, 64)}
	if !p.nic[0].scatter(p.pd[0], list, 64, []byte{7, 8}, 2) || mem[0] != 7 || mem[1] != 8 {
		t.Errorf("two bytes behind a filled piece and an empty one: %v", mem[:2])
	}
	if p.nic[0].scatter(p.pd[0], list, 63, []byte{7, 8}, 2) {
		t.Error("a byte went to a region that is gone")
	}
}

// TestScatterGatherLimits: more pieces than the queue pair takes are refused; a bad piece
// fails its request, whichever it is.
func TestScatterGatherLimits(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	_, m := p.region(0, 100, 1)
	five := split(m, 1, 1, 1, 1, 1)
	if err := p.nic[0].PostSend(0, p.qp[0], SendWR{Opcode: WRSend, SGL: five}); !errors.Is(err, ErrInvalid) {
		t.Errorf("five pieces of four to send: %v, want %v", err, ErrInvalid)
	}
	if err := p.nic[0].PostRecv(0, p.qp[0], RecvWR{SGL: five}); !errors.Is(err, ErrInvalid) {
		t.Errorf("five pieces of four to receive: %v, want %v", err, ErrInvalid)
	}
	for bad := range 3 {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		_, m := p.region(0, 100, 1)
		l := split(m, 9, 9, 9)
		l[bad].LKey ^= 0x5a
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGL: l})
		p.post(0, SendWR{WRID: 2, Opcode: WRSend})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCLocProtErr}, WC{WRID: 2, Status: WCWRFlushErr})

		p = newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		_, m = p.region(1, 100, 1)
		_, sm := p.region(0, 27, 1)
		l = split(m, 9, 9, 9)
		l[bad].LKey ^= 0x5a
		p.recv(1, RecvWR{WRID: 3, SGL: l})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 27)})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRemOpErr})
		p.want(1, WC{WRID: 3, Status: WCLocProtErr})
	}
}

// TestInline: inline data is taken at posting, needs no key, spans packets, survives a
// repeat, and has a limit.
func TestInline(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, timeout: 6, retry: 7, rnr: 6})
	p.loseNth(0, 2)
	_, dm := p.region(1, 400, 0)
	dst := dm.mem.(Bytes)
	data := bytes.Repeat([]byte("inline! "), 50)
	want := append([]byte(nil), data...)
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, Flags: SendInline, Inline: data, RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	clear(data)
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: 400})
	if !bytes.Equal(dst, want) {
		t.Error("other bytes than at posting arrived")
	}
	p.recv(1, RecvWR{WRID: 2})
	p.post(0, SendWR{WRID: 2, Opcode: WRSend, Flags: SendInline})
	p.run()
	p.want(0, WC{WRID: 2, Opcode: WCSend})
	for _, w := range []SendWR{{Opcode: WRSend, Inline: make([]byte, 401)}, {Opcode: WRRDMARead, Inline: make([]byte, 1)}} {
		w.Flags = SendInline
		if err := p.nic[0].PostSend(p.net.Now, p.qp[0], w); !errors.Is(err, ErrInvalid) {
			t.Errorf("opcode %d, %d bytes inline: %v, want %v", w.Opcode, len(w.Inline), err, ErrInvalid)
		}
	}
	// Bytes that are given and not asked for are the caller's: no later request is kept in them.
	mine := bytes.Repeat([]byte{7}, 400)
	p.recv(1, RecvWR{WRID: 3})
	p.post(0, SendWR{WRID: 3, Opcode: WRSend, Inline: mine})
	p.run()
	p.post(0, SendWR{WRID: 4, Opcode: WRRDMAWrite, Flags: SendInline, Inline: want, RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.run()
	if !bytes.Equal(mine, bytes.Repeat([]byte{7}, 400)) {
		t.Error("the bytes of a request that is not inline hold those of another")
	}
}

// TestUnsignalled: a request without a signal leaves no completion when it succeeds, and
// one when it does not; its place in the queue is free again.
func TestUnsignalled(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 6, retry: 1, rnr: 6, unsignalled: true})
	for i := range 100 {
		flags := SendFlags(0)
		if i%10 == 9 {
			flags = SendSignaled
		}
		p.recv(1, RecvWR{})
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend, Flags: flags})
		if i%10 == 9 {
			p.run()
			p.want(0, WC{WRID: uint64(i), Opcode: WCSend})
		}
	}
	if n := len(p.completions(1)); n != 100 {
		t.Errorf("%d receives completed, want 100", n)
	}
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
	p.post(0, SendWR{WRID: 1, Opcode: WRSend})
	p.post(0, SendWR{WRID: 2, Opcode: WRSend})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRetryExcErr}, WC{WRID: 2, Status: WCWRFlushErr})
}

// TestFlushOrder: the request that failed completes with its status, all after it as flushed, in order;
// receives likewise; requests posted in ERR are flushed immediately.
func TestFlushOrder(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6, rdAtomic: 4})
	_, sm := p.region(0, 3000, 3)
	_, dm := p.region(1, 3000, 0)
	p.recv(0, RecvWR{WRID: 20})
	p.recv(0, RecvWR{WRID: 21})
	p.recv(1, RecvWR{WRID: 30, SGE: whole(dm, 3000)})
	p.recv(1, RecvWR{WRID: 31, SGE: whole(dm, 3000)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 3000)})
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMARead, SGE: whole(sm, 3000), RemoteAddr: dm.Addr() + 1, RKey: dm.RKey()})
	p.post(0, SendWR{WRID: 3, Opcode: WRRDMARead, SGE: whole(sm, 3000), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.post(0, SendWR{WRID: 4, Opcode: WRSend, SGE: whole(sm, 10)})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 3000}, WC{WRID: 2, Status: WCRemAccessErr},
		WC{WRID: 3, Status: WCWRFlushErr}, WC{WRID: 4, Status: WCWRFlushErr}, WC{WRID: 20, Status: WCWRFlushErr}, WC{WRID: 21, Status: WCWRFlushErr})
	p.want(1, WC{WRID: 30, Opcode: WCRecv, ByteLen: 3000}, WC{WRID: 31, Status: WCWRFlushErr})
	p.post(0, SendWR{WRID: 5, Opcode: WRSend})
	p.recv(0, RecvWR{WRID: 6})
	p.want(0, WC{WRID: 5, Status: WCWRFlushErr}, WC{WRID: 6, Status: WCWRFlushErr})
	// Back through RESET the queue pairs work again.
	for i := range 2 {
		p.modifyTo(i, StateReset)
		p.connect(i, pairOptions{mtu: 1024, timeout: 10, retry: 7, rnr: 6})
	}
	p.recv(1, RecvWR{WRID: 40, SGE: whole(dm, 3000)})
	p.post(0, SendWR{WRID: 41, Opcode: WRSend, SGE: whole(sm, 3000)})
	p.run()
	p.want(0, WC{WRID: 41, Opcode: WCSend, ByteLen: 3000})
	p.want(1, WC{WRID: 40, Opcode: WCRecv, ByteLen: 3000})
}

// modifyTo goes to RESET, ERR or SQD, which need no attribute.
func (p *pair) modifyTo(i int, to QPState) {
	p.t.Helper()
	if err := p.nic[i].ModifyQP(p.net.Now, p.qp[i], QPAttr{State: to}, AttrState); err != nil {
		p.t.Fatal(err)
	}
}

// TestMemoryTakenAway: a region deregistered while a message runs through it fails the
// message in the middle, and nothing hangs.
func TestMemoryTakenAway(t *testing.T) {
	for _, side := range []int{0, 1} {
		for _, op := range []WROpcode{WRSend, WRRDMAWrite, WRRDMAWriteWithImm, WRRDMARead} {
			p := newPair(t, pairOptions{timeout: 10, retry: 2, rnr: 6, rdAtomic: 1})
			_, sm := p.region(0, 50*1024, 3)
			_, dm := p.region(1, 50*1024, 0)
			p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, 50*1024)})
			p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, 50*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
			p.net.At(vtime.Time(3*vtime.Microsecond), func(vtime.Time) {
				if err := p.nic[side].DeregMR([]*MR{sm, dm}[side]); err != nil {
					t.Fatal(err)
				}
			})
			p.run()
			got := p.completions(0)
			want := WCLocProtErr
			switch {
			case side == 1 && op == WRSend:
				want = WCRemOpErr
			case side == 1:
				want = WCRemAccessErr
			}
			if len(got) != 1 || got[0].Status != want {
				t.Errorf("opcode %d, side %d: %+v, want one with %v", op, side, got, want)
			}
			if w := p.completions(1); side == 1 && (len(w) != 1 || w[0].Status == WCSuccess) {
				t.Errorf("opcode %d: receiver %+v", op, w)
			}
		}
	}
}

// TestPieceBeyond: a piece of a buffer that the message does not reach is not looked at
// again, so it may be taken away meanwhile.
func TestPieceBeyond(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 0, rnr: 6})
	src, sm := p.region(0, 2048, 3)
	dst, dm := p.region(1, 2048, 0)
	_, beyond := p.region(1, 10, 0)
	p.recv(1, RecvWR{WRID: 2, SGL: []SGE{whole(dm, 2048), whole(beyond, 10)}})
	n := 0
	p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) faults.Verdict {
		if n++; port == 0 && n == 2 { // before the second packet
			if err := p.nic[1].DeregMR(beyond); err != nil {
				t.Fatal(err)
			}
		}
		return faults.Verdict{}
	}
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 2048)})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 2048})
	p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: 2048})
	if !bytes.Equal(src, dst) {
		t.Error("other bytes arrived")
	}
}

// TestDrainAsync: SQD lets begun requests finish, READs and atomics included, then raises one event;
// the responder continues.
func TestDrainAsync(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6, rdAtomic: 1})
	_, sm := p.region(0, 20*1024, 3)
	_, dm := p.region(1, 20*1024, 4)
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMARead, SGE: whole(sm, 20*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite, SGE: whole(sm, 10), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.post(0, SendWR{WRID: 3, Opcode: WRRDMARead, SGE: whole(sm, 10), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.post(0, SendWR{WRID: 4, Opcode: WRRDMARead, SGE: whole(sm, 10), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.net.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) {
		a := QPAttr{State: StateSQD, EnSQDAsync: true}
		if err := p.nic[0].ModifyQP(now, p.qp[0], a, AttrState|AttrEnSQDAsyncNotify); err != nil {
			t.Fatal(err)
		}
		p.post(1, SendWR{WRID: 9, Opcode: WRRDMARead, SGE: whole(dm, 100), RemoteAddr: sm.Addr(), RKey: sm.RKey()})
	})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 20 * 1024}, WC{WRID: 2, Opcode: WCRDMAWrite, ByteLen: 10})
	p.want(1, WC{WRID: 9, Opcode: WCRDMARead, ByteLen: 100})
	if e, ok := p.nic[0].GetAsyncEvent(); !ok || e.Type != EventSQDrained || e.QP != p.qp[0] {
		t.Errorf("event %+v %v, want %v", e, ok, EventSQDrained)
	}
	if e, ok := p.nic[0].GetAsyncEvent(); ok {
		t.Errorf("one event too many: %v", e.Type)
	}
	p.modify(0, StateRTS, QPAttr{})
	p.run()
	p.want(0, WC{WRID: 3, Opcode: WCRDMARead, ByteLen: 10}, WC{WRID: 4, Opcode: WCRDMARead, ByteLen: 10})
}

// TestEventsOnce: of one kind of event of a queue pair one waits at most; once it is taken
// there may be another.
func TestEventsOnce(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	drain := func(times int) {
		for range times {
			a := QPAttr{State: StateSQD, EnSQDAsync: true}
			if err := p.nic[0].ModifyQP(p.net.Now, p.qp[0], a, AttrState|AttrEnSQDAsyncNotify); err != nil {
				t.Fatal(err)
			}
			p.modify(0, StateRTS, QPAttr{})
		}
	}
	for _, times := range []int{3, 1, 2} {
		drain(times)
		if e, ok := p.nic[0].GetAsyncEvent(); !ok || e.Type != EventSQDrained || e.QP != p.qp[0] {
			t.Errorf("drained %d times: event %+v %v", times, e, ok)
		}
		if e, ok := p.nic[0].GetAsyncEvent(); ok {
			t.Errorf("drained %d times: %v waits twice", times, e.Type)
		}
	}
}

// TestRNRTable: the requester waits at least as long as the receiver's code says, for
// every code, and the retry limit counts.
func TestRNRTable(t *testing.T) {
	hundredths := []int64{ // of a millisecond: InfiniBand specification, table 45
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
		8192, 12288, 16384, 24576, 32768, 49152,
	}
	for code := range uint8(32) {
		p := newPair(t, pairOptions{timeout: 0, retry: 7, rnr: 2})
		p.qp[1].attr.MinRNRTimer = code
		var sends []vtime.Time
		p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
			if port == 0 {
				sends = append(sends, now)
			}
			return faults.Verdict{}
		}
		p.post(0, SendWR{WRID: 1, Opcode: WRSend})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRNRRetryExcErr})
		if len(sends) != 3 {
			t.Fatalf("code %d: %d attempts, want 3", code, len(sends))
		}
		for i := 1; i < len(sends); i++ {
			gap := sends[i].Sub(sends[i-1])
			if w := vtime.Duration(hundredths[code]) * 10 * vtime.Microsecond; gap < w || gap > w+4*vtime.Microsecond {
				t.Errorf("code %d: repeated after %v, the code means %v", code, gap, w)
			}
		}
	}
}

// TestRetryLimits: every retry count gives that many repeats after the first attempt, by
// timeout and by RNR; RNR 7 does not give up.
func TestRetryLimits(t *testing.T) {
	for limit := range uint8(8) {
		p := newPair(t, pairOptions{timeout: 4, retry: limit, rnr: 7})
		n := 0
		p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { n++; return faults.Verdict{Drop: true} }
		p.post(0, SendWR{WRID: 1, Opcode: WRSend})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRetryExcErr})
		if n != int(limit)+1 {
			t.Errorf("retry count %d: %d attempts", limit, n)
		}
		p = newPair(t, pairOptions{timeout: 0, retry: 0, rnr: limit})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend})
		if limit == 7 {
			if err := p.net.Run(2000); err == nil || p.qp[0].State() != StateRTS {
				t.Errorf("RNR retry 7 came to an end in %v", p.qp[0].State())
			}
			continue
		}
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRNRRetryExcErr})
		if s := p.nic[1].Stats().SendRNR; s != uint64(limit)+1 {
			t.Errorf("RNR retry count %d: %d attempts", limit, s)
		}
	}
}

// TestSendWithInvalidate: the key works until the message that takes it back, and for
// local use after that.
func TestSendWithInvalidate(t *testing.T) {
	for _, n := range []int{5, 2500} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		src, sm := p.region(0, n, 3)
		dst, dm := p.region(1, n, 0)
		_, other := p.region(1, n, 0)
		p.recv(1, RecvWR{WRID: 8, SGE: whole(dm, n)})
		p.recv(1, RecvWR{WRID: 9, SGE: whole(dm, n)})
		write := SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, n), RemoteAddr: other.Addr(), RKey: other.RKey()}
		p.post(0, write)
		p.post(0, SendWR{WRID: 2, Opcode: WRSendWithInv, SGE: whole(sm, n), RKey: other.RKey()})
		p.post(0, SendWR{WRID: 3, Opcode: WRSend, SGE: whole(sm, n)})
		p.post(0, write)
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: uint32(n)}, WC{WRID: 2, Opcode: WCSend, ByteLen: uint32(n)},
			WC{WRID: 3, Opcode: WCSend, ByteLen: uint32(n)}, WC{WRID: 1, Status: WCRemAccessErr})
		p.want(1, WC{WRID: 8, Opcode: WCRecv, ByteLen: uint32(n), WithInv: true, Imm: other.RKey()}, WC{WRID: 9, Opcode: WCRecv, ByteLen: uint32(n)})
		if !bytes.Equal(src, dst) || !p.nic[1].reachable(p.pd[1], whole(other, n), nil, AccessLocalWrite) {
			t.Errorf("%d bytes: wrong bytes, or the region is gone", n)
		}
	}
	p := newPair(t, readable)
	_, sm := p.region(0, 8, 0)
	_, dm := p.region(1, 8, 0)
	p.recv(1, RecvWR{WRID: 8})
	p.post(0, SendWR{WRID: 1, Opcode: WRSendWithInv, RKey: dm.RKey()})
	p.post(0, read(2, sm, dm, 8)) // nor may it be read any more
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend}, WC{WRID: 2, Status: WCRemAccessErr})

	p = newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	p.recv(1, RecvWR{WRID: 8})
	p.post(0, SendWR{WRID: 1, Opcode: WRSendWithInv, RKey: 0x77})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRemAccessErr})
	p.want(1, WC{WRID: 8, Status: WCLocAccessErr})
}

// TestNoAllocations: posting and moving messages of every kind allocates nothing once
// the queues have grown.
func TestNoAllocations(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, timeout: 10, retry: 7, rnr: 6, rdAtomic: 4})
	p.net.Pool.Poison = false
	_, sm := p.region(0, 4000, 3)
	_, dm := p.region(1, 4000, 0)
	from, to, data := split(sm, 300, 300), split(dm, 200, 400), make([]byte, 300)
	round := func() {
		p.recv(1, RecvWR{SGL: to})
		p.recv(1, RecvWR{SGL: to})
		for _, w := range []SendWR{
			{Opcode: WRSend, SGL: from},
			{Opcode: WRSend, Flags: SendInline | SendFence, Inline: data},
			{Opcode: WRRDMARead, SGL: from, RemoteAddr: dm.Addr(), RKey: dm.RKey()},
			{Opcode: WRAtomicFetchAdd, SGE: whole(sm, 8), SwapAdd: 1, RemoteAddr: dm.Addr(), RKey: dm.RKey()},
		} {
			p.post(0, w)
		}
		for i := 0; p.net.Step(); i++ {
			if i > 1000 {
				t.Fatal("not at rest")
			}
		}
		for i := range 2 {
			for {
				if w, ok := p.nic[i].PollCQ(p.cq[i]); !ok {
					break
				} else if w.Status != WCSuccess {
					t.Fatal(w)
				}
			}
		}
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(50, round); n > 0 {
		t.Errorf("%v allocations in a round of four messages", n)
	}
}

// TestQueueCaps: the effect of a queue pair's caps.
func TestQueueCaps(t *testing.T) {
	p := newPair(t, pairOptions{})
	for _, c := range []QPInit{
		{MaxSendSGE: MaxSGE + 1}, {MaxRecvSGE: MaxSGE + 1}, {MaxInline: MaxInlineData + 1}, {Type: 1}, {Type: 5}, {MaxSendWR: MaxQPWR + 1}, {MaxRecvWR: -1},
	} {
		c.PD, c.SendCQ, c.RecvCQ = p.pd[0], p.cq[0], p.cq[0]
		if _, err := p.nic[0].CreateQP(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want %v", fmt.Sprintf("%+v", c)[:20], err, ErrInvalid)
		}
	}
	for i := range 64 {
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend})
	}
	if err := p.nic[0].PostSend(0, p.qp[0], SendWR{Opcode: WRSend}); !errors.Is(err, ErrNoMem) {
		t.Errorf("request 65 of 64: %v, want %v", err, ErrNoMem)
	}
	p.modifyTo(0, StateErr)
	if n := len(p.completions(0)); n != 64 {
		t.Errorf("%d flushed, want 64", n)
	}
}

// TestRNRTwice: an RNR NAK that comes twice is one: the sender waits once and spends one of
// its retries.
func TestRNRTwice(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 16, retry: 7, rnr: 2})
	p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) faults.Verdict {
		return faults.Verdict{Twice: port == 1}
	}
	_, sm := p.region(0, 100, 3)
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 100)})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRNRRetryExcErr})
	if got := p.nic[1].Stats().SendRNR; got != 3 {
		t.Errorf("the receiver was asked %d times, want once and two retries", got)
	}
}

// TestGoesBackToLoss: a loss is answered with one NAK, and the source goes back to the
// packet that is missing and not beyond.
func TestGoesBackToLoss(t *testing.T) {
	const packets, lost = 60, 30
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	sent := map[wire.PSN]int{}
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 {
			sent[f.PSN()]++
			fate.Drop = f.PSN() == lost && sent[lost] == 1
		}
		return fate
	}
	_, sm := p.region(0, packets*1024, 3)
	_, dm := p.region(1, packets*1024, 0)
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, packets*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: packets * 1024})
	for psn := range wire.PSN(lost) {
		if sent[psn] != 1 {
			t.Errorf("packet %v was sent %d times, and only %d was lost", psn, sent[psn], lost)
		}
	}
	if n := p.nic[1].Stats().SendNAK; n != 1 || p.nic[0].Stats().Timeouts != 0 {
		t.Errorf("%d NAKs for one gap, %d timeouts", n, p.nic[0].Stats().Timeouts)
	}
}

// TestRetriesByProgress: the retry count bounds attempts without progress, not losses: a
// group of many members loses more than seven packets of a message.
func TestRetriesByProgress(t *testing.T) {
	const packets = 200
	p := newPair(t, pairOptions{timeout: 6, retry: 1, rnr: 1})
	seen := map[wire.PSN]bool{}
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 && f.PSN()%10 == 9 && !seen[f.PSN()] {
			seen[f.PSN()], fate.Drop = true, true
		}
		return fate
	}
	_, sm := p.region(0, packets*1024, 3)
	_, dm := p.region(1, packets*1024, 0)
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, packets*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: packets * 1024})
	if n := p.nic[0].Stats().CompleterRetry + p.nic[0].Stats().Timeouts; n < 3 {
		t.Errorf("the source went back %d times only, no more than its retry count", n)
	}
}

// TestRightsTakenAway: rights that a region loses while a message runs through it are lost in the middle of the message, under the same
// key, and new ones are there for the next message.
func TestRightsTakenAway(t *testing.T) {
	for _, op := range []WROpcode{WRRDMAWrite, WRRDMARead} {
		p := newPair(t, pairOptions{timeout: 10, retry: 2, rnr: 6, rdAtomic: 1})
		_, sm := p.region(0, 50*1024, 3)
		_, dm := p.region(1, 50*1024, 0)
		before := p.nic[1].Made()
		p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, 50*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		var next *MR
		p.net.At(vtime.Time(3*vtime.Microsecond), func(vtime.Time) {
			var err error
			if next, err = p.nic[1].ReregMR(dm, p.pd[1], AccessLocalWrite); err != nil {
				t.Fatal(err)
			}
		})
		p.run()
		if got := p.completions(0); len(got) != 1 || got[0].Status != WCRemAccessErr {
			t.Errorf("opcode %d: %+v, want one with %v", op, got, WCRemAccessErr)
		}
		if next.RKey() != dm.RKey() || next.Addr() != dm.Addr() || p.nic[1].Made() != before {
			t.Errorf("the region is %+v, and there are %+v", next, p.nic[1].Made())
		}
		if _, err := p.nic[1].ReregMR(dm, p.pd[1], 0); !errors.Is(err, ErrKey) {
			t.Errorf("the region that was is changed: %v", err)
		}
		if _, err := p.nic[1].ReregMR(next, p.pd[0], 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("the domain of another NIC is taken: %v", err)
		}
		if _, err := p.nic[1].ReregMR(next, p.pd[1], AccessRemoteWrite); !errors.Is(err, ErrInvalid) {
			t.Errorf("remote write without local write is taken: %v", err)
		}
		if err := p.nic[1].DeregMR(next); err != nil {
			t.Error(err)
		}
	}
}
