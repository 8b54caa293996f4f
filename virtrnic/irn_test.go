// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

func testIRN() *IRN {
	return &IRN{Cap: 100_000, RTOLow: RTOLowDefault, RTOHigh: RTOHighDefault}
}

// TestSelectiveRepeat: of a lossy message exactly the lost packets are sent twice, for
// both kinds of request, over the wrap of PSNs, with acknowledgements on every packet
// or few; if one end goes back N, so does the other, and the bytes are right all the same.
func TestSelectiveRepeat(t *testing.T) {
	for _, c := range []struct {
		op       WROpcode
		ack      int
		lose     []int
		repeats  uint64
		timeouts uint64
		delay    vtime.Duration
	}{
		{op: WRRDMAWrite, ack: 1, lose: []int{5, 9, 10, 30}, repeats: 4},
		{op: WRRDMAWrite, ack: 16, lose: []int{5, 9, 10, 30}, repeats: 4},
		{op: WRSendWithImm, ack: 8, lose: []int{0, 1, 2, 96, 97, 98, 99}, repeats: 7, timeouts: 1},      // the last ones: the hole does not show
		{op: WRRDMAWrite, ack: 1, lose: []int{2, 70, 80, 81}, repeats: 4, delay: 6 * vtime.Microsecond}, // in the second word of a report
		{op: WRSend, ack: 100, lose: []int{50, 51, 52, 53, 54, 55}, repeats: 6},
		{op: WRRDMAWriteWithImm, ack: 4, lose: []int{96, 97, 98, 99}, repeats: 4, timeouts: 1},
	} {
		for _, one := range []bool{false, true} {
			t.Run(fmt.Sprintf("op=%d/ack=%d/one=%v", c.op, c.ack, one), func(t *testing.T) {
				o := pairOptions{mtu: 1024, ackEvery: c.ack, psn: wire.PSN(0).Add(-20), timeout: 10, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}, delay: c.delay}
				if one {
					o.irn[1] = nil
				}
				p := newPair(t, o)
				seen := map[wire.PSN]bool{}
				p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
					if port == 0 && !seen[f.PSN()] {
						seen[f.PSN()] = true
						fate.Drop = slices.Contains(c.lose, f.PSN().Sub(o.psn))
					}
					return fate
				}
				const size = 100 * 1024
				src, sm := p.region(0, size, 7)
				dst, dm := p.region(1, size, 0)
				p.recv(1, RecvWR{WRID: 9, SGE: whole(dm, size)})
				p.post(0, SendWR{WRID: 1, Opcode: c.op, SGE: whole(sm, size), RemoteAddr: dm.Addr(), RKey: dm.RKey(), Imm: 5})
				p.run()
				if got := p.completions(0); len(got) != 1 || got[0].Status != WCSuccess {
					t.Fatalf("completions %+v", got)
				}
				if !bytes.Equal(src, dst) {
					t.Error("other bytes arrived")
				}
				s := p.nic[0].Stats()
				if one {
					if s.Retransmitted < c.repeats {
						t.Errorf("%d packets repeated to a peer that goes back N", s.Retransmitted)
					}
					return
				}
				if s.Retransmitted != c.repeats || s.Timeouts != c.timeouts {
					t.Errorf("%d packets repeated and %d timeouts, want %d and %d", s.Retransmitted, s.Timeouts, c.repeats, c.timeouts)
				}
				if d := p.nic[1].Stats().DuplicateRequest; d != 0 {
					t.Errorf("%d packets came twice", d)
				}
			})
		}
	}
}

// TestSelectiveOrder: messages overtake each other on the wire but complete in order,
// and receives are consumed in order, when the first packet of the first is lost.
func TestSelectiveOrder(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, ackEvery: 4, timeout: 10, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
	lost := false
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 && !lost {
			lost, fate.Drop = true, true
		}
		return fate
	}
	var want []WC
	for i, n := range []int{300, 0, 1, 700, 256} {
		_, sm := p.region(0, max(n, 1), uint64(i+1))
		_, dm := p.region(1, max(n, 1), 0)
		op, wc := WRSend, WC{WRID: uint64(100 + i), Opcode: WCRecv, ByteLen: uint32(n)}
		if i == 3 {
			op, wc.Opcode, wc.WithImm, wc.Imm = WRRDMAWriteWithImm, WCRecvRDMAWithImm, true, 77
		}
		p.recv(1, RecvWR{WRID: uint64(100 + i), SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: uint64(i), Opcode: op, SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey(), Imm: 77})
		want = append(want, wc)
	}
	p.run()
	p.want(1, want...)
	for i, w := range p.completions(0) {
		if w.WRID != uint64(i) || w.Status != WCSuccess {
			t.Errorf("completion %d is %+v", i, w)
		}
	}
	if s := p.nic[0].Stats(); s.Retransmitted != 1 {
		t.Errorf("%d packets repeated, want 1", s.Retransmitted)
	}
}

// TestSelectivePlaced: packets of the WRITE under way are in their place before the hole is filled,
// packets beyond them are not.
func TestSelectivePlaced(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, ackEvery: 1, timeout: 14, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
	seen := 0
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 {
			seen++
			fate.Drop = seen == 3
			if seen > 10 { // the repeat
				fate.Delay = 50 * vtime.Microsecond
			}
		}
		return fate
	}
	src, sm := p.region(0, 2560, 7)
	dst, dm := p.region(1, 2560, 0)
	for _, off := range []int{0, 2048} {
		n := min(2048, 2560-off)
		p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: SGE{sm.Addr() + uint64(off), uint32(n), sm.LKey()}, RemoteAddr: dm.Addr() + uint64(off), RKey: dm.RKey()})
	}
	p.net.At(40*us, func(vtime.Time) {
		for i := range 10 {
			have := bytes.Equal(dst[i*256:i*256+256], src[i*256:i*256+256])
			if want := i != 2 && i < 8; have != want {
				t.Errorf("packet %d: in place %v, want %v while packet 2 is missing", i, have, want)
			}
		}
	})
	p.run()
	if !bytes.Equal(src, dst) || p.nic[1].Stats().DuplicateRequest != 0 {
		t.Errorf("bytes right %v, %d packets came twice", bytes.Equal(src, dst), p.nic[1].Stats().DuplicateRequest)
	}
}

// TestSelectiveGone: packets that come early are not placed in memory that has been taken
// away, or whose key has, while a hole before them is open.
func TestSelectiveGone(t *testing.T) {
	for _, closed := range []bool{false, true} {
		p := newPair(t, pairOptions{mtu: 256, ackEvery: 1, timeout: 14, retry: 0, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
		seen := 0
		src, sm := p.region(0, 2560, 7)
		dst, dm := p.region(1, 2560, 0)
		p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) (fate faults.Verdict) {
			if port == 0 {
				seen++
				fate.Drop = seen == 3
				if seen == 6 { // before the sixth packet
					if closed {
						dm.closed = true
					} else if err := p.nic[1].DeregMR(dm); err != nil {
						t.Fatal(err)
					}
				}
			}
			return fate
		}
		p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, 2560), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRemAccessErr})
		for i := range 10 {
			have := bytes.Equal(dst[i*256:i*256+256], src[i*256:i*256+256])
			if want := i < 5 && i != 2; have != want {
				t.Errorf("closed %v, packet %d: in place %v, want %v", closed, i, have, want)
			}
		}
	}
}

// TestSelectiveNotReady: a receiver that has no buffer for a message that waits out of
// order says so when its turn comes, and the rest is not lost.
func TestSelectiveNotReady(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, ackEvery: 2, timeout: 14, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
	seen := 0
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 {
			seen++
			fate.Drop = seen == 1
		}
		return fate
	}
	for i := range 3 {
		_, sm := p.region(0, 600, uint64(i+1))
		_, dm := p.region(1, 600, 0)
		post := func(vtime.Time) { p.recv(1, RecvWR{WRID: uint64(i), SGE: whole(dm, 600)}) }
		if i == 0 {
			post(0)
		} else {
			p.net.At(vtime.Time(i)*12*us, post)
		}
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend, SGE: whole(sm, 600)})
	}
	p.run()
	got := p.completions(1)
	if len(got) != 3 {
		t.Fatalf("receives completed: %+v", got)
	}
	for i, w := range got {
		if w.WRID != uint64(i) || w.Status != WCSuccess || w.ByteLen != 600 {
			t.Errorf("receive %d completed as %+v", i, w)
		}
	}
	if n := len(p.completions(0)); n != 3 {
		t.Errorf("%d of 3 sends completed", n)
	}
	if p.nic[1].Stats().SendRNR == 0 {
		t.Error("the receiver was ready every time: the test tests nothing")
	}
}

// TestSelectiveCap: no more than the cap is under way, and a dead peer ends the queue
// pair after as long as without IRN.
func TestSelectiveCap(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 1024, ackEvery: 4, timeout: 8, retry: 3, rnr: 6, irn: [2]*IRN{{Cap: 20_000, RTOLow: RTOLowDefault, RTOHigh: RTOHighDefault}, testIRN()}, delay: 20 * vtime.Microsecond})
	most := uint64(0)
	p.net.After = func() { most = max(most, p.qp[0].sq.maxSeq-p.qp[0].sq.una) }
	dead := false
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: dead} }
	_, sm := p.region(0, 1<<20, 7)
	_, dm := p.region(1, 1<<20, 0)
	w := SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, 1<<20), RemoteAddr: dm.Addr(), RKey: dm.RKey()}
	p.post(0, w)
	p.run()
	if most != 24 { // 20 of the cap, 4 of ack-every
		t.Errorf("%d packets under way, want 24", most)
	}
	dead = true
	from := p.net.Now
	w.WRID = 2
	p.post(0, w)
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: 1 << 20}, WC{WRID: 2, Status: WCRetryExcErr})
	if took := p.net.Now.Sub(from); took < 4*Timeout(8) || took > 5*Timeout(8) {
		t.Errorf("the peer was given up after %v, verbs say 4 x %v", took, Timeout(8))
	}
}

// TestSelectiveBehindRead: while the answer to a READ waits no report overtakes it, which
// would say that the answer is lost; the hole is repaired all the same.
func TestSelectiveBehindRead(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, ackEvery: 1, timeout: 14, retry: 7, rnr: 6, rdAtomic: 2, irn: [2]*IRN{testIRN(), testIRN()}})
	src, sm := p.region(0, 2048, 7)
	dst, dm := p.region(1, 2048, 0)
	_, into := p.region(0, 100, 0)
	seen := 0
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 && f.Kind() == wire.KindRoCE {
			seen++
			fate.Drop = seen == 2 // the first of the WRITE: so that no acknowledgement waits, too
		}
		return fate
	}
	p.nic[0].SendPause(0, 0xff, 4000) // 20 us
	p.net.At(2*us, func(vtime.Time) {
		p.post(0, read(1, into, dm, 100))
		p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite, SGE: whole(sm, 2048), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	})
	p.net.At(15*us, func(vtime.Time) {
		if s := p.nic[1].Stats(); s.SendNAK != 0 || s.OutOfSeqRequest == 0 {
			t.Errorf("%d reports are made of %d packets out of order while the answer waits", s.SendNAK, s.OutOfSeqRequest)
		}
	})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 100}, WC{WRID: 2, Opcode: WCRDMAWrite, ByteLen: 2048})
	if !bytes.Equal(src, dst) {
		t.Error("other bytes arrived")
	}
}

// TestSelectiveTimer: the timer that was set while few packets were under way runs on when
// there are many, and not when there are few still.
func TestSelectiveTimer(t *testing.T) {
	for _, c := range []struct {
		more int
		at   vtime.Time // when the first timeout has to be
	}{{0, 100 * us}, {1, 100 * us}, {8, 320 * us}} {
		p := newPair(t, pairOptions{mtu: 256, ackEvery: 1, timeout: 14, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
		dead := true
		p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: dead} }
		_, sm := p.region(0, 256, 7)
		_, dm := p.region(1, 256, 0)
		w := SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 256), RemoteAddr: dm.Addr(), RKey: dm.RKey()}
		p.post(0, w)
		p.post(0, w)
		p.net.At(50*us, func(vtime.Time) {
			for range c.more {
				p.post(0, w)
			}
		})
		var first vtime.Time
		p.net.After = func() {
			if first == 0 && p.nic[0].Stats().Timeouts > 0 {
				first, dead = p.net.Now, false
			}
		}
		p.run()
		if first < c.at || first > c.at+us {
			t.Errorf("two packets, %d more after 50us: the first timeout is at %v, want %v", c.more, first, c.at)
		}
		if n := len(p.completions(0)); n != 2+c.more {
			t.Errorf("%d of %d requests completed", n, 2+c.more)
		}
	}
}

// TestSelectiveSilent: a peer that says nothing is sent a packet a bounded number of times, however long the verbs timeout
// is: short timeouts count as no retry, and grow. Those that fit in a usual timeout do not.
func TestSelectiveSilent(t *testing.T) {
	for _, c := range []struct {
		exponent uint8
		most     uint64 // timeouts per retry: irnShort, and one for each doubling
	}{{10, 42}, {14, 74}, {22, 82}, {31, 91}} {
		p := newPair(t, pairOptions{mtu: 256, ackEvery: 1, timeout: c.exponent, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}})
		p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
		_, sm := p.region(0, 256, 7)
		_, dm := p.region(1, 256, 0)
		var early []vtime.Time
		seen := uint64(0)
		p.net.After = func() {
			if n := p.nic[0].Stats().Timeouts; n > seen && n <= 40 {
				early = append(early, p.net.Now)
				seen = n
			}
		}
		p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, 256), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		p.run()
		p.want(0, WC{WRID: 1, Status: WCRetryExcErr})
		for i := range early[1:] {
			if gap := early[i+1].Sub(early[i]); gap != RTOLowDefault {
				t.Errorf("timeout 2^%d: timeouts %d and %d are %v apart, want %v", c.exponent, i, i+1, gap, RTOLowDefault)
			}
		}
		n, all := p.nic[0].Stats().Timeouts, 8*Timeout(c.exponent)
		if n > 8*c.most || n < 8 || p.net.Now < vtime.Time(all) || p.net.Now > vtime.Time(2*all) {
			t.Errorf("timeout 2^%d: %d timeouts in %v, want at most %d in at least %v", c.exponent, n, p.net.Now, 8*c.most, all)
		}
	}
}

// TestSelectiveTranscript holds a repair and a CNP against a golden file.
func TestSelectiveTranscript(t *testing.T) {
	p := newPair(t, pairOptions{
		mtu: 1024, timeout: 8, retry: 7, rnr: 6, log: true, psn: 0xfffffd, ackEvery: 4,
		irn: [2]*IRN{testIRN(), testIRN()}, congestion: setOf(t, "dcqcn"),
	})
	seen := 0
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if port == 0 {
			seen++
			fate.Drop = seen == 2 || seen == 5
			if seen == 8 {
				f.SetECN(wire.ECNCE)
			}
		}
		return fate
	}
	_, sm := p.region(0, 12*1024, 3)
	_, dm := p.region(1, 12*1024, 0)
	p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, 12*1024)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 12*1024)})
	p.run()
	p.transcript(t, "selective")
}

// TestSelectiveHostile: reports that no receiver of these packets would send change
// nothing that was not sent, and packets far out of order take no room.
func TestSelectiveHostile(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, ackEvery: 64, timeout: 14, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}, psn: 0xfffff0})
	src, sm := p.region(0, 20_000, 7)
	dst, dm := p.region(1, 20_000, 0)
	p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 20_000), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	for k := range 40 {
		q := p.qp[1]
		e := p.nic[1].envelope(q)
		f := p.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: p.qp[0].Num(), PSN: wire.PSN(0xfffff0)})
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromePSNSequence})
		f.AddSACK(wire.SACK{PSN: wire.PSN(k * 419430).Add(0xfffff0), Lo: ^uint64(0) << (k % 64), Hi: ^uint64(0)})
		f.Seal(0, false)
		p.net.At(vtime.Time(k)*us/10, func(now vtime.Time) { p.nic[1].SendFrame(now, f) })
		g := p.net.Pool.Get()
		e = p.nic[0].envelope(p.qp[0])
		g.Start(&e, wire.BTH{OpCode: wire.OpWriteMiddle, PKey: wire.PKeyDefault, DestQP: q.Num(), PSN: wire.PSN(0xfffff0).Add(100 + k*300000), Selective: true})
		g.SetPhantom(256)
		g.Seal(0, false)
		p.net.At(vtime.Time(k)*us/10, func(now vtime.Time) { p.nic[0].SendFrame(now, g) })
	}
	p.net.After = func() {
		if err := p.invariant(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.net.Run(1 << 20); err != nil {
		t.Fatal(err)
	}
	// A lying report makes the requester wait for its timeout, and no worse.
	p.want(0, WC{Opcode: WCRDMAWrite, ByteLen: 20_000})
	if !bytes.Equal(src, dst) {
		t.Error("other bytes arrived")
	}
	if held := p.qp[1].order.n; held > 1 || p.net.Pool.Live != held {
		t.Errorf("%d packets kept, %d frames live", held, p.net.Pool.Live)
	}
}

// TestMergedReports: of a group's reports only a NAK arrives, that one packet is missing
// somewhere. That packet alone is repeated, once, however often it is asked for before
// there is progress: while the repeat waits for its turn, and after it has left.
func TestMergedReports(t *testing.T) {
	for _, c := range []struct {
		name             string
		paused           vtime.Duration
		naks             []vtime.Time
		loseRepeat       bool
		late             bool // another NAK as the repeats after the timeout leave
		repeats, timeout uint64
	}{
		{name: "repeat waits", paused: 10 * vtime.Microsecond, naks: []vtime.Time{7 * us, 8 * us, 9 * us}, repeats: 1},
		{name: "repeat has left", naks: []vtime.Time{7 * us, 10 * us, 13 * us}, repeats: 1},
		{name: "repeat lost", naks: []vtime.Time{7 * us, 30 * us}, loseRepeat: true, repeats: 1 + 15, timeout: 1}, // nothing was reported: all from the hole on
		{name: "after the timeout", naks: []vtime.Time{7 * us}, loseRepeat: true, late: true, repeats: 1 + 15, timeout: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			const size, missing = 20 * 256, 5
			o := pairOptions{mtu: 256, psn: 0xfffffd, timeout: 14, retry: 7, rnr: 6, irn: [2]*IRN{testIRN(), testIRN()}}
			p := newPair(t, o)
			hole, sent := o.psn.Add(missing), 0
			p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
				switch {
				case f.Kind() != wire.KindRoCE:
				case port == 0 && f.PSN() == hole:
					sent++
					fate.Drop = sent == 1 || sent == 2 && c.loseRepeat
				case port == 1:
					_, fate.Drop = f.SACK() // a switch would have merged it
					if sent == 2 && !c.loseRepeat && f.AETH().Syndrome.IsACK() {
						fate.Delay = 20 * vtime.Microsecond // no progress while the other NAKs come
					}
				}
				return fate
			}
			src, sm := p.region(0, size, 7)
			dst, dm := p.region(1, size, 0)
			p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, size), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
			if c.paused > 0 {
				p.net.At(5*us, func(now vtime.Time) {
					quanta := uint16(c.paused / p.nic[1].port.Serialize(wire.PauseQuantumBits/8))
					p.nic[1].SendPause(now, 1<<p.qp[0].prio, quanta)
				})
			}
			nak := func(now vtime.Time) {
				e, f := p.nic[1].envelope(p.qp[1]), p.net.Pool.Get()
				f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: p.qp[0].Num(), PSN: hole, Selective: true})
				f.AddAETH(wire.AETH{Syndrome: wire.SyndromePSNSequence})
				f.Seal(0, false)
				p.nic[1].SendFrame(now, f)
			}
			for _, at := range c.naks {
				p.net.At(at, nak)
			}
			p.net.After = func() {
				if c.late && p.nic[0].Stats().Timeouts == 1 {
					c.late = false
					nak(p.net.Now)
				}
			}
			p.run()
			p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: size})
			if !bytes.Equal(src, dst) {
				t.Error("other bytes arrived")
			}
			s := p.nic[0].Stats()
			if s.Retransmitted != c.repeats || s.CompleterRetry != 1 || s.Timeouts != c.timeout {
				t.Errorf("%d packets repeated, %d retries and %d timeouts, want %d, 1 and %d", s.Retransmitted, s.CompleterRetry, s.Timeouts, c.repeats, c.timeout)
			}
		})
	}
}
