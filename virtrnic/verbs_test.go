// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// maskOf gives a transition all it needs.
func maskOf(from, to QPState) AttrMask {
	if t := findTransition(wire.RC, from, to); t != nil {
		return t.required | AttrState
	}
	return AttrState
}

// reach brings a fresh queue pair into a state by legal steps.
func reach(t *testing.T, p *pair, to QPState) *QP {
	t.Helper()
	n := p.nic[0]
	q, err := n.CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 4, MaxRecvWR: 4})
	if err != nil {
		t.Fatal(err)
	}
	way := map[QPState][]QPState{
		StateReset: nil, StateInit: {StateInit}, StateRTR: {StateInit, StateRTR}, StateRTS: {StateInit, StateRTR, StateRTS},
		StateSQD: {StateInit, StateRTR, StateRTS, StateSQD}, StateErr: {StateInit, StateErr},
	}[to]
	for _, s := range way {
		if err := n.ModifyQP(0, q, validAttr(s), maskOf(q.State(), s)); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

func validAttr(to QPState) QPAttr {
	return QPAttr{State: to, PathMTU: 1024, DestQPN: 17, AV: AH{DGID: 10<<24 | 2}, MinRNRTimer: 1, RetryCnt: 7, RNRRetry: 7}
}

// TestTransitions walks every pair of states and holds the outcome against the state
// table of the verbs (ibv_modify_qp.3): RC has no SQE.
func TestTransitions(t *testing.T) {
	legal := map[[2]QPState]bool{
		{StateReset, StateInit}: true, {StateInit, StateInit}: true, {StateInit, StateRTR}: true, {StateRTR, StateRTS}: true,
		{StateRTS, StateRTS}: true, {StateRTS, StateSQD}: true, {StateSQD, StateRTS}: true, {StateSQD, StateSQD}: true,
	}
	all := []QPState{StateReset, StateInit, StateRTR, StateRTS, StateSQD, StateErr}
	p := newPair(t, pairOptions{})
	for _, from := range all {
		legal[[2]QPState{from, StateReset}] = true
		legal[[2]QPState{from, StateErr}] = from != StateReset
		for _, to := range append(all, StateSQE) {
			q := reach(t, p, from)
			err := p.nic[0].ModifyQP(0, q, validAttr(to), maskOf(from, to))
			if ok := legal[[2]QPState{from, to}]; ok != (err == nil) {
				t.Errorf("%v to %v: error %v, legal %v", from, to, err, ok)
			}
			if err == nil && q.State() != to || err != nil && q.State() != from {
				t.Errorf("%v to %v left the queue pair in %v (error %v)", from, to, q.State(), err)
			}
		}
	}
}

// TestAttributes: a transition refuses a missing attribute, a superfluous one and
// values out of range, and then changes nothing.
func TestAttributes(t *testing.T) {
	p := newPair(t, pairOptions{})
	for _, tr := range rcTransitions {
		for bit := AttrMask(2); bit <= AttrDestQPN; bit <<= 1 {
			mask := tr.required | AttrState
			switch {
			case tr.required&bit != 0:
				mask &^= bit
			case tr.optional&bit != 0:
				continue
			default:
				mask |= bit
			}
			q := reach(t, p, tr.from)
			a := validAttr(tr.to)
			a.CurState = tr.from
			if err := p.nic[0].ModifyQP(0, q, a, mask); !errors.Is(err, ErrInvalid) {
				t.Errorf("%v to %v with attributes %#x: %v, want %v", tr.from, tr.to, uint32(mask), err, ErrInvalid)
			}
			if q.State() != tr.from {
				t.Errorf("%v to %v: a refused change left %v", tr.from, tr.to, q.State())
			}
		}
	}
	for name, spoil := range map[string]func(*QPAttr){ // independent of each other
		"MTU":   func(a *QPAttr) { a.PathMTU = 1500 },
		"QPN":   func(a *QPAttr) { a.DestQPN = 1 << 24 },
		"timer": func(a *QPAttr) { a.MinRNRTimer = 32 },
	} {
		q := reach(t, p, StateInit)
		a := validAttr(StateRTR)
		spoil(&a)
		if err := p.nic[0].ModifyQP(0, q, a, maskOf(StateInit, StateRTR)); !errors.Is(err, ErrInvalid) {
			t.Errorf("bad %s: %v, want %v", name, err, ErrInvalid)
		}
	}
	q := reach(t, p, StateRTS)
	if err := p.nic[0].ModifyQP(0, q, QPAttr{CurState: StateRTR}, AttrCurState); !errors.Is(err, ErrState) {
		t.Errorf("wrong current state: %v, want %v", err, ErrState)
	}
}

func TestPostInWrongState(t *testing.T) {
	p := newPair(t, pairOptions{})
	for _, s := range []QPState{StateReset, StateInit, StateRTR} {
		q := reach(t, p, s)
		if err := p.nic[0].PostSend(0, q, SendWR{}); !errors.Is(err, ErrState) {
			t.Errorf("send in %v: %v, want %v", s, err, ErrState)
		}
	}
	if err := p.nic[0].PostRecv(0, reach(t, p, StateReset), RecvWR{}); !errors.Is(err, ErrState) {
		t.Errorf("receive in RESET: %v, want %v", err, ErrState)
	}
	q := reach(t, p, StateInit)
	for range 4 {
		if err := p.nic[0].PostRecv(0, q, RecvWR{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.nic[0].PostRecv(0, q, RecvWR{}); !errors.Is(err, ErrNoMem) {
		t.Errorf("fifth receive of four: %v, want %v", err, ErrNoMem)
	}
	if err := p.nic[0].PostSend(0, p.qp[0], SendWR{Opcode: 8}); !errors.Is(err, ErrInvalid) {
		t.Errorf("opcode 8: %v, want %v", err, ErrInvalid)
	}
	if err := p.nic[0].PostSend(0, p.qp[0], SendWR{SGE: SGE{Length: 1<<31 + 1}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("more than 2 GiB: %v, want %v", err, ErrInvalid)
	}
}

// TestWrite places data at the right address, with and without immediate.
func TestWrite(t *testing.T) {
	for _, n := range []int{1, 1024, 3000} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		src, sm := p.region(0, n, 3)
		dst, dm := p.region(1, 5000, 0)
		p.recv(1, RecvWR{WRID: 9})
		p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, n), RemoteAddr: dm.Addr() + 100, RKey: dm.RKey()})
		p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWriteWithImm, Imm: 5, SGE: whole(sm, n), RemoteAddr: dm.Addr() + 200, RKey: dm.RKey()})
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: uint32(n)}, WC{WRID: 2, Opcode: WCRDMAWrite, ByteLen: uint32(n)})
		p.want(1, WC{WRID: 9, Opcode: WCRecvRDMAWithImm, ByteLen: uint32(n), WithImm: true, Imm: 5})
		if string(dst[200:200+n]) != string(src) || dst[99] != 0 || n < 100 && string(dst[100:100+n]) != string(src) {
			t.Errorf("%d bytes did not arrive where they should", n)
		}
	}
}

// TestRemoteErrors: requests that a responder refuses, and the statuses on both sides.
func TestRemoteErrors(t *testing.T) {
	for _, c := range []struct {
		name       string
		send       WCStatus
		recv       WCStatus // of the posted receive: flushed, unless it was in use
		access     AccessFlags
		region     AccessFlags
		change     func(*SendWR)
		recvLength int
	}{
		{"wrong key", WCRemAccessErr, WCWRFlushErr, 3, 3, func(w *SendWR) { w.RKey ^= 1 }, 100},
		{"unknown key", WCRemAccessErr, WCWRFlushErr, 3, 3, func(w *SendWR) { w.RKey = 77 << 8 }, 100},
		{"below the region", WCRemAccessErr, WCWRFlushErr, 3, 3, func(w *SendWR) { w.RemoteAddr-- }, 100},
		{"beyond the region", WCRemAccessErr, WCWRFlushErr, 3, 3, func(w *SendWR) { w.RemoteAddr++ }, 100},
		{"address overflow", WCRemAccessErr, WCWRFlushErr, 3, 3, func(w *SendWR) { w.RemoteAddr = 1<<64 - 10 }, 100},
		{"region without remote write", WCRemAccessErr, WCWRFlushErr, 3, 1, nil, 100},
		{"queue pair without remote write", WCRemInvReqErr, WCWRFlushErr, 1, 3, nil, 100},
		{"receive too short", WCRemInvReqErr, WCLocLenErr, 3, 3, func(w *SendWR) { w.Opcode = WRSend }, 99},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
			p.qp[1].attr.Access = c.access
			_, sm := p.region(0, 100, 3)
			dm, err := p.nic[1].RegMR(p.pd[1], make(Bytes, 100), c.region)
			if err != nil {
				t.Fatal(err)
			}
			p.recv(1, RecvWR{WRID: 5, SGE: whole(dm, c.recvLength)})
			w := SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, 100), RemoteAddr: dm.Addr(), RKey: dm.RKey()}
			if c.change != nil {
				c.change(&w)
			}
			p.post(0, w)
			p.post(0, SendWR{WRID: 2, Opcode: WRSend})
			p.run()
			p.want(0, WC{WRID: 1, Status: c.send}, WC{WRID: 2, Status: WCWRFlushErr})
			p.want(1, WC{WRID: 5, Status: c.recv})
			if p.qp[0].State() != StateErr || p.qp[1].State() != StateErr {
				t.Errorf("states %v and %v, want both in ERR", p.qp[0].State(), p.qp[1].State())
			}
		})
	}
}

// TestZeroLengthWrite does not look at its key.
func TestZeroLengthWrite(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7})
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, RemoteAddr: 1, RKey: 2})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite})
}

// TestLocalProtection: a request with a bad key fails in its turn, after the requests before it.
func TestLocalProtection(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	_, sm := p.region(0, 5000, 3)
	_, dm := p.region(1, 5000, 0)
	p.recv(1, RecvWR{WRID: 5, SGE: whole(dm, 5000)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 5000)})
	p.post(0, SendWR{WRID: 2, Opcode: WRSend, SGE: SGE{Addr: sm.Addr() + 1, Length: 5000, LKey: sm.LKey()}})
	p.post(0, SendWR{WRID: 3, Opcode: WRSend})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 5000}, WC{WRID: 2, Status: WCLocProtErr}, WC{WRID: 3, Status: WCWRFlushErr})
	p.want(1, WC{WRID: 5, Opcode: WCRecv, ByteLen: 5000})

	// The same for a receive whose buffer is not the receiver's.
	p = newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	_, sm = p.region(0, 10, 3)
	p.recv(1, RecvWR{WRID: 5, SGE: SGE{Addr: 1, Length: 10, LKey: 9}})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 10)})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRemOpErr})
	p.want(1, WC{WRID: 5, Status: WCLocProtErr})
}

// TestRNR: a receiver without a buffer makes the sender wait, and then takes the
// message; one that never posts ends the queue pair after the retries.
func TestRNR(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 14, retry: 7, rnr: 6})
	_, sm := p.region(0, 3000, 3)
	_, dm := p.region(1, 3000, 0)
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 3000)})
	p.net.At(vtime.Time(35*vtime.Microsecond), func(vtime.Time) { p.recv(1, RecvWR{WRID: 5, SGE: whole(dm, 3000)}) })
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 3000})
	p.want(1, WC{WRID: 5, Opcode: WCRecv, ByteLen: 3000})
	if st := p.nic[1].Stats(); st.SendRNR != 3 || st.SendNAK != 0 {
		t.Errorf("receiver sent %d RNR NAKs and %d others; with a wait of 10 us each and a buffer at 35 us it sends 3 and none", st.SendRNR, st.SendNAK)
	}
	if n := p.nic[0].Stats().Timeouts; n != 0 {
		t.Errorf("%d timeouts while the receiver was not ready", n)
	}

	p = newPair(t, pairOptions{timeout: 14, retry: 7, rnr: 2})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRNRRetryExcErr})
	if n := p.nic[1].Stats().SendRNR; n != 3 {
		t.Errorf("receiver answered %d times, want 3: the first try and 2 retries", n)
	}
}

// TestWriteImmRNR: WRITE with immediate needs a receive only at its end; the data
// before stays, and the end is repeated.
func TestWriteImmRNR(t *testing.T) {
	for _, n := range []int{500, 2500} {
		p := newPair(t, pairOptions{timeout: 14, retry: 7, rnr: 6})
		src, sm := p.region(0, n, 3)
		dst, dm := p.region(1, n, 0)
		p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWriteWithImm, Imm: 1, SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		p.net.At(vtime.Time(15*vtime.Microsecond), func(vtime.Time) { p.recv(1, RecvWR{WRID: 5}) })
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: uint32(n)})
		p.want(1, WC{WRID: 5, Opcode: WCRecvRDMAWithImm, ByteLen: uint32(n), WithImm: true, Imm: 1})
		if string(dst) != string(src) {
			t.Errorf("%d bytes: wrong contents", n)
		}
	}
}

// TestRetryExceeded: with the link cut, the first request fails after the retries and
// the others are flushed, in order, in bounded time.
func TestRetryExceeded(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 4, retry: 3})
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
	for i := range 3 {
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend})
	}
	p.run()
	p.want(0, WC{WRID: 0, Status: WCRetryExcErr}, WC{WRID: 1, Status: WCWRFlushErr}, WC{WRID: 2, Status: WCWRFlushErr})
	st := p.nic[0].Stats()
	if st.Timeouts != 4 || st.RetryExceeded != 1 {
		t.Errorf("%d timeouts, %d times exceeded; want 4 (the first try and 3 retries) and 1", st.Timeouts, st.RetryExceeded)
	}
	if limit := vtime.Time(0).Add(5 * Timeout(4)); p.net.Now > limit {
		t.Errorf("it took %v, want at most %v", p.net.Now, limit)
	}
	p.post(0, SendWR{WRID: 7, Opcode: WRSend})
	p.recv(0, RecvWR{WRID: 8})
	p.want(0, WC{WRID: 7, Status: WCWRFlushErr}, WC{WRID: 8, Status: WCWRFlushErr})
}

// TestNoTimeout: timeout code 0 waits for ever.
func TestNoTimeout(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 0, retry: 3})
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
	p.post(0, SendWR{WRID: 1, Opcode: WRSend})
	p.run()
	p.want(0)
	if p.qp[0].Outstanding() != 1 {
		t.Errorf("%d requests outstanding, want 1", p.qp[0].Outstanding())
	}
}

// TestCQOverrun: a completion queue that is full ends the queue pair.
func TestCQOverrun(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6, cqDepth: 2})
	for i := range 3 {
		p.recv(1, RecvWR{WRID: uint64(i)})
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend})
	}
	p.run()
	if n := p.nic[1].Stats().CompletionsOverflow; n == 0 || p.qp[1].State() != StateErr {
		t.Errorf("%d completions lost, state %v", n, p.qp[1].State())
	}
}

// TestAckEvery counts acknowledgements: one per n packets and one for the last.
func TestAckEvery(t *testing.T) {
	for _, every := range []int{1, 4, 16} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6, ackEvery: every})
		_, sm := p.region(0, 50*1024, 3)
		_, dm := p.region(1, 50*1024, 0)
		p.recv(1, RecvWR{SGE: whole(dm, 50*1024)})
		p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 50*1024)})
		p.run()
		if got, want := p.nic[1].Stats().AcksSent, uint64((50+every-1)/every); got != want {
			t.Errorf("every %d: %d acknowledgements, want %d", every, got, want)
		}
	}
}

// TestRoundRobin: two queue pairs with equal messages share the link packet by packet.
func TestRoundRobin(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	second := &pair{t: t, net: p.net, nic: p.nic, pd: p.pd, cq: p.cq}
	for i := range 2 {
		var err error
		second.qp[i], err = p.nic[i].CreateQP(QPInit{PD: p.pd[i], SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 4, MaxRecvWR: 4, SQSigAll: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		second.connect(i, pairOptions{mtu: 1024, timeout: 10, retry: 7, rnr: 6})
	}
	var order []wire.QPN
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 0 && f.OpCode() != wire.OpAcknowledge {
			order = append(order, f.DestQP())
		}
		return faults.Verdict{}
	}
	for _, x := range []*pair{p, second} {
		_, sm := p.region(0, 20*1024, 3)
		_, dm := p.region(1, 20*1024, 0)
		x.recv(1, RecvWR{SGE: whole(dm, 20*1024)})
		x.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 20*1024)})
	}
	p.run()
	for i := 2; i+1 < len(order)-1; i++ {
		if order[i] == order[i+1] {
			t.Fatalf("packets %d and %d are of one queue pair: %v", i, i+1, order)
		}
	}
}

// TestDrain: in SQD begun requests finish and the others wait.
func TestDrain(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	_, sm := p.region(0, 8*1024, 3)
	_, dm := p.region(1, 8*1024, 0)
	for i := range 2 {
		p.recv(1, RecvWR{WRID: uint64(i), SGE: whole(dm, 8*1024)})
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend, SGE: whole(sm, 8*1024)})
	}
	p.net.At(vtime.Time(200*vtime.Nanosecond), func(now vtime.Time) {
		if err := p.nic[0].ModifyQP(now, p.qp[0], QPAttr{State: StateSQD}, AttrState); err != nil {
			t.Fatal(err)
		}
	})
	p.run()
	p.want(0, WC{WRID: 0, Opcode: WCSend, ByteLen: 8 * 1024})
	if !p.qp[0].sq.drained {
		t.Error("the queue is not drained")
	}
	if err := p.nic[0].ModifyQP(p.net.Now, p.qp[0], QPAttr{State: StateRTS}, AttrState); err != nil {
		t.Fatal(err)
	}
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 8 * 1024})
}

// TestSyncPSN: the extension copies one counter, and only with an empty send queue.
func TestSyncPSN(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6, psn: 0xfffffe})
	_, sm := p.region(0, 5*1024, 3)
	_, dm := p.region(1, 5*1024, 0)
	p.recv(1, RecvWR{SGE: whole(dm, 5*1024)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 5*1024)})
	if err := p.nic[0].SyncPSN(p.net.Now, p.qp[0], RecvFromSend); !errors.Is(err, ErrQueue) {
		t.Errorf("with a request outstanding: %v, want %v", err, ErrQueue)
	}
	p.run()
	for i, from := range []PSNSource{RecvFromSend, SendFromRecv} {
		if err := p.nic[i].SyncPSN(p.net.Now, p.qp[i], from); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(p.qp[0].SQPSN(), p.qp[0].RQPSN(), p.qp[1].SQPSN(), p.qp[1].RQPSN()); got != "3 3 3 3" {
		t.Errorf("counters are %s, want all 3", got)
	}
	// The roles are swapped: the former receiver sends.
	p.recv(0, RecvWR{WRID: 4, SGE: whole(sm, 5*1024)})
	p.post(1, SendWR{WRID: 5, Opcode: WRSend, SGE: whole(dm, 5*1024)})
	p.run()
	if q := p.qp[0]; q.RQPSN() != 8 {
		t.Errorf("the old source expects %v, want 8", q.RQPSN())
	}
	if err := p.nic[0].SyncPSN(0, reach(t, p, StateInit), RecvFromSend); !errors.Is(err, ErrState) {
		t.Errorf("in INIT: %v, want %v", err, ErrState)
	}
}
