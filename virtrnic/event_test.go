// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// shared makes side 1 receive from a shared queue, with a second connected pair beside
// the first.
func shared(t *testing.T, typ QPType) (a, b *pair, s *SRQ) {
	t.Helper()
	return sharedOf(t, pairOptions{typ: typ, timeout: 6, retry: 7, rnr: 7, rdAtomic: 1}, 8)
}

// sharedOf is shared with other options, and a queue of another depth.
func sharedOf(t *testing.T, o pairOptions, depth int) (a, b *pair, s *SRQ) {
	t.Helper()
	made := 0
	o.init = func(i *QPInit) {
		if made++; made == 2 {
			var err error
			if s, err = i.PD.nic.CreateSRQ(i.PD, depth, 2); err != nil {
				t.Fatal(err)
			}
			i.SRQ = s
		}
	}
	a = newPair(t, o)
	b = &pair{t: t, net: a.net, nic: a.nic, pd: a.pd, cq: a.cq}
	for i := range 2 {
		init := QPInit{Type: o.typ, PD: a.pd[i], SendCQ: a.cq[i], RecvCQ: a.cq[i], MaxSendWR: 16, MaxRecvWR: 8, SQSigAll: true}
		if i == 1 {
			init.SRQ = s
		}
		var err error
		if b.qp[i], err = a.nic[i].CreateQP(init); err != nil {
			t.Fatal(err)
		}
	}
	if o.mtu == 0 {
		o.mtu = 1024
	}
	for i := range 2 {
		b.connect(i, o)
	}
	return a, b, s
}

// TestSRQ: two queue pairs take buffers from one queue in the order of their messages;
// an empty one is RNR for both.
func TestSRQ(t *testing.T) {
	for _, typ := range []QPType{TypeRC, TypeUD} {
		a, b, s := shared(t, typ)
		_, m := a.region(1, 1000, 0)
		srqRecv := func(id uint64) {
			t.Helper()
			if err := a.nic[1].PostSRQRecv(s, RecvWR{WRID: id, SGL: split(m, 20, 30)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			srqRecv(uint64(i))
		}
		for k, x := range []*pair{a, b, a} {
			w := SendWR{Opcode: WRSendWithImm, Imm: uint32(k)}
			if typ == TypeUD {
				w.UD = x.dest(0)
			}
			x.post(0, w)
			x.run()
		}
		for k, w := range a.completions(1) {
			want := []*pair{a, b, a}[k].qp[1].Num()
			if w.WRID != uint64(k) || w.Imm != uint32(k) || w.QPN != want || w.Status != WCSuccess {
				t.Errorf("completion %d: %+v, want queue pair %d", k, w, want)
			}
		}
		if typ == TypeRC {
			b.net.At(b.net.Now.Add(30*vtime.Microsecond), func(vtime.Time) { srqRecv(9) })
			b.post(0, SendWR{Opcode: WRSend})
			b.run()
			if got := a.completions(1); len(got) != 1 || got[0].WRID != 9 || a.nic[1].Stats().SendRNR == 0 {
				t.Errorf("after RNR: %+v", got)
			}
		}
		if err := a.nic[1].PostRecv(0, a.qp[1], RecvWR{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("receive posted to a queue pair with SRQ: %v, want %v", err, ErrInvalid)
		}
	}
}

// TestSRQLimit: the event comes once, when fewer than the limit are left, and again
// after it is armed again.
func TestSRQLimit(t *testing.T) {
	a, _, s := shared(t, TypeRC)
	n := a.nic[1]
	for range 8 {
		if err := n.PostSRQRecv(s, RecvWR{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.PostSRQRecv(s, RecvWR{}); !errors.Is(err, ErrNoMem) {
		t.Errorf("ninth of eight: %v, want %v", err, ErrNoMem)
	}
	if err := n.ModifySRQ(s, 6); err != nil {
		t.Fatal(err)
	}
	var at []int
	for range 8 {
		a.post(0, SendWR{Opcode: WRSend})
		a.run()
		for {
			e, ok := n.GetAsyncEvent()
			if !ok {
				break
			}
			if e.Type != EventSRQLimit || e.SRQ != s {
				t.Errorf("event %v", e.Type)
			}
			posted, limit := n.QuerySRQ(s)
			if at = append(at, posted); limit != 0 {
				t.Errorf("limit %d after the event", limit)
			}
			if len(at) == 1 {
				if err := n.ModifySRQ(s, 3); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(at) != 2 || at[0] != 5 || at[1] != 2 {
		t.Errorf("events with %v buffers left, want 5 and 2", at)
	}
}

// TestSRQError: a queue pair in ERR leaves the shared buffers to others, but for the one
// in use, and says that it takes no more.
func TestSRQError(t *testing.T) {
	a, b, s := shared(t, TypeRC)
	_, m := a.region(1, 5000, 0)
	_, sm := a.region(0, 5000, 1)
	for i := range 3 {
		if err := a.nic[1].PostSRQRecv(s, RecvWR{WRID: uint64(i), SGE: whole(m, 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	a.loseNth(0, 3)
	a.net.At(vtime.Time(2*vtime.Microsecond), func(vtime.Time) { a.modifyTo(1, StateErr); a.modifyTo(0, StateErr) })
	a.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 5000)})
	a.run()
	a.want(1, WC{WRID: 0, Status: WCWRFlushErr})
	if e, ok := a.nic[1].GetAsyncEvent(); !ok || e.Type != EventLastWQEReached || e.QP != a.qp[1] {
		t.Errorf("event %+v %v", e, ok)
	}
	b.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 5000)})
	b.run()
	b.want(1, WC{WRID: 1, Opcode: WCRecv, ByteLen: 5000})
	if err := a.nic[1].DestroySRQ(s); !errors.Is(err, ErrBusy) {
		t.Errorf("destroying a queue in use: %v, want %v", err, ErrBusy)
	}
	for _, x := range []*pair{a, b} {
		if err := x.nic[1].DestroyQP(x.net.Now, x.qp[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.nic[1].DestroySRQ(s); err != nil {
		t.Error(err)
	}
	if err := a.nic[1].PostSRQRecv(s, RecvWR{}); err == nil {
		t.Error("a destroyed queue takes a buffer")
	}
}

// TestSRQLimits: parameters refused at creation.
func TestSRQLimits(t *testing.T) {
	p := newPair(t, pairOptions{})
	for _, c := range [][2]int{{0, 1}, {MaxQPWR + 1, 1}, {1, MaxSGE + 1}, {1, -1}} {
		if _, err := p.nic[0].CreateSRQ(p.pd[0], c[0], c[1]); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v, want %v", c, err, ErrInvalid)
		}
	}
	s, err := p.nic[0].CreateSRQ(p.pd[0], 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.nic[0].ModifySRQ(s, 5); !errors.Is(err, ErrInvalid) {
		t.Errorf("limit beyond the queue: %v", err)
	}
	if _, err := p.nic[0].CreateQP(QPInit{Type: TypeUC, PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], SRQ: s}); !errors.Is(err, ErrInvalid) {
		t.Errorf("UC with SRQ: %v", err)
	}
	if err := p.nic[0].PostSRQRecv(s, RecvWR{SGL: make([]SGE, 2)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("two pieces of one: %v", err)
	}
	for range 2 {
		if err := p.nic[0].PostSRQRecv(s, RecvWR{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.nic[0].DestroySRQ(s); err != nil {
		t.Fatal(err)
	}
	if n, _ := p.nic[0].QuerySRQ(s); n != 0 {
		t.Errorf("%d buffers are left in a queue that was destroyed", n)
	}
	if err := p.nic[0].PostSRQRecv(s, RecvWR{}); !errors.Is(err, ErrNoMem) {
		t.Errorf("a buffer for a queue that was destroyed: %v, want %v", err, ErrNoMem)
	}
}

// TestCompChannel: an armed queue reports its next completion once; armed for solicited
// ones it waits for a sender that asks, or a failure.
func TestCompChannel(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	n := p.nic[1]
	ch := n.CreateCompChannel()
	c, err := n.CreateCQOn(ch, 16)
	if err != nil {
		t.Fatal(err)
	}
	p.qp[1].recvCQ = c
	events := func() (k int) {
		for {
			got, ok := n.GetCQEvent(ch)
			if !ok {
				return k
			}
			if k++; got != c {
				t.Error("event of another queue")
			}
		}
	}
	send := func(flags SendFlags) {
		p.recv(1, RecvWR{})
		p.post(0, SendWR{Opcode: WRSend, Flags: flags})
		p.run()
	}
	arm := func(solicited bool) {
		if err := n.ReqNotifyCQ(c, solicited); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { send(0) }, 0},                                                 // not armed
		{func() { arm(false) }, 0},                                              // completions already there do not count
		{func() { send(0); send(0) }, 1},                                        // once
		{func() { arm(true); send(0) }, 0},                                      // not solicited
		{func() { send(SendSolicited) }, 1},                                     // solicited
		{func() { arm(true); arm(false); send(0) }, 1},                          // the wider wish stands
		{func() { arm(false); arm(true); send(0) }, 1},                          // in either order
		{func() { arm(true); p.recv(1, RecvWR{}); p.modifyTo(1, StateErr) }, 1}, // a failure
	} {
		step.do()
		if got := events(); got != step.want {
			t.Errorf("step %d: %d events, want %d", i, got, step.want)
		}
	}
	if err := p.nic[0].ReqNotifyCQ(p.cq[0], false); !errors.Is(err, ErrInvalid) {
		t.Errorf("queue without a channel: %v, want %v", err, ErrInvalid)
	}
	if _, err := p.nic[0].CreateCQOn(ch, 16); !errors.Is(err, ErrInvalid) {
		t.Errorf("channel of another device: %v, want %v", err, ErrInvalid)
	}
}

// TestSolicitedDatagram: the solicited bit works for a WRITE with immediate and for UD.
func TestSolicitedDatagram(t *testing.T) {
	for _, typ := range []QPType{TypeRC, TypeUC, TypeUD} {
		p := newPair(t, pairOptions{typ: typ, timeout: 10, retry: 7, rnr: 6})
		ch := p.nic[1].CreateCompChannel()
		c, err := p.nic[1].CreateCQOn(ch, 16)
		if err != nil {
			t.Fatal(err)
		}
		p.qp[1].recvCQ = c
		_, m := p.region(1, 100, 0)
		w := SendWR{Opcode: WRRDMAWriteWithImm, Flags: SendSolicited}
		if typ == TypeUD {
			w.Opcode, w.UD = WRSend, p.dest(0)
		}
		if err := p.nic[1].ReqNotifyCQ(c, true); err != nil {
			t.Fatal(err)
		}
		p.recv(1, RecvWR{SGE: whole(m, 100)})
		p.post(0, w)
		p.run()
		if _, ok := p.nic[1].GetCQEvent(ch); !ok {
			t.Errorf("type %d: no event", typ)
		}
	}
}

// TestCQOverrunEvents: the queue reports the overrun once, and each queue pair that
// loses a completion ends and says so.
func TestCQOverrunEvents(t *testing.T) {
	a, b, s := shared(t, TypeRC)
	n := a.nic[1]
	a.cq[1].depth = 1
	for range 4 {
		if err := n.PostSRQRecv(s, RecvWR{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*pair{a, a, b} {
		x.post(0, SendWR{Opcode: WRSend})
		x.run()
	}
	got := map[EventType]int{}
	for {
		e, ok := n.GetAsyncEvent()
		if !ok {
			break
		}
		got[e.Type]++
	}
	if got[EventCQErr] != 1 || got[EventQPFatal] != 2 || a.qp[1].State() != StateErr || b.qp[1].State() != StateErr {
		t.Errorf("events %v, states %v and %v", got, a.qp[1].State(), b.qp[1].State())
	}
}

// TestCommEst: the first good packet in RTR is reported, once, and is taken.
func TestCommEst(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
	p.modifyTo(1, StateReset)
	p.modify(1, StateInit, QPAttr{Access: 3, Port: 1})
	a := p.qp[0].attr
	a.AV.DGID, a.DestQPN, a.RQPSN = p.nic[0].IP(), p.qp[0].Num(), p.qp[0].SQPSN()
	p.modify(1, StateRTR, a)
	bad := p.request(nil, nil)
	p.net.Pool.Damage(bad, 90)
	p.inject(bad)
	if e, ok := p.nic[1].GetAsyncEvent(); ok {
		t.Errorf("a damaged packet gave %v", e.Type)
	}
	for range 2 {
		p.recv(1, RecvWR{})
		p.post(0, SendWR{Opcode: WRSend})
	}
	p.run()
	if got := len(p.completions(1)); got != 2 {
		t.Errorf("%d receives in RTR, want 2", got)
	}
	if e, ok := p.nic[1].GetAsyncEvent(); !ok || e.Type != EventCommEst || e.QP != p.qp[1] {
		t.Errorf("event %+v %v", e, ok)
	}
	p.recv(1, RecvWR{})
	p.post(0, SendWR{Opcode: WRSend})
	p.run()
	if e, ok := p.nic[1].GetAsyncEvent(); ok {
		t.Errorf("one event too many: %v", e.Type)
	}
}

// TestStatuses has one situation for every completion status of this NIC; docs/verbs.md explains why it
// has no others.
func TestStatuses(t *testing.T) {
	o := pairOptions{timeout: 4, retry: 1, rnr: 1, rdAtomic: 1}
	for _, c := range []struct {
		status WCStatus
		side   int
		do     func(p *pair, m *MR)
	}{
		{WCSuccess, 0, func(p *pair, _ *MR) { p.post(0, SendWR{Opcode: WRRDMAWrite}) }},
		{WCLocLenErr, 1, func(p *pair, m *MR) {
			p.recv(1, RecvWR{})
			p.post(0, SendWR{Opcode: WRSend, SGE: whole(m, 1)})
		}},
		{WCLocQPOpErr, 0, func(p *pair, _ *MR) {
			p.qp[0].attr.MaxQPRdAtomic = 0
			p.post(0, SendWR{Opcode: WRRDMARead})
		}},
		{WCLocProtErr, 0, func(p *pair, _ *MR) { p.post(0, SendWR{Opcode: WRSend, SGE: SGE{Length: 1}}) }},
		{WCWRFlushErr, 0, func(p *pair, _ *MR) { p.modifyTo(0, StateErr); p.post(0, SendWR{Opcode: WRSend}) }},
		{WCBadRespErr, 0, func(p *pair, m *MR) { p.answerWith(wire.OpAtomicAck, SendWR{Opcode: WRRDMARead, SGE: whole(m, 8)}) }},
		{WCLocAccessErr, 1, func(p *pair, m *MR) {
			p.recv(1, RecvWR{})
			p.post(0, SendWR{Opcode: WRRDMAWriteWithImm, SGE: whole(m, 1), RKey: 1})
		}},
		{WCRemInvReqErr, 0, func(p *pair, m *MR) {
			p.qp[1].attr.Access = 0
			p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(m, 1)})
		}},
		{WCRemAccessErr, 0, func(p *pair, m *MR) { p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(m, 1), RKey: 1}) }},
		{WCRemOpErr, 0, func(p *pair, m *MR) {
			p.recv(1, RecvWR{SGE: SGE{Length: 1}})
			p.post(0, SendWR{Opcode: WRSend, SGE: whole(m, 1)})
		}},
		{WCRetryExcErr, 0, func(p *pair, _ *MR) { p.modifyTo(1, StateReset); p.post(0, SendWR{Opcode: WRSend}) }},
		{WCRNRRetryExcErr, 0, func(p *pair, _ *MR) { p.post(0, SendWR{Opcode: WRSend}) }},
		{WCFatalErr, 0, func(p *pair, _ *MR) { p.answerWith(wire.OpReadRespOnly, SendWR{Opcode: WRSend}) }},
	} {
		t.Run(c.status.String(), func(t *testing.T) {
			p := newPair(t, o)
			_, m := p.region(0, 8, 0)
			c.do(p, m)
			p.run()
			if got := p.completions(c.side); len(got) != 1 || got[0].Status != c.status {
				t.Errorf("%+v, want one with status %d", got, c.status)
			}
		})
	}
}

// answerWith posts a request at side 0, keeps its peer silent and answers in its place.
func (p *pair) answerWith(op wire.OpCode, w SendWR) {
	p.t.Helper()
	p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) faults.Verdict { return faults.Verdict{Drop: port == 0} }
	psn := p.qp[0].SQPSN()
	p.post(0, w)
	p.net.At(vtime.Time(vtime.Microsecond), func(now vtime.Time) {
		f := p.net.Pool.Get()
		e := p.nic[1].envelope(p.qp[1])
		f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: p.qp[0].num, PSN: psn})
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
		if op == wire.OpAtomicAck {
			f.AddAtomicAckETH(wire.AtomicAckETH{})
		}
		f.Seal(0, false)
		p.nic[0].HandleFrame(now, 0, f)
	})
}

// TestCQSize: depths out of range are refused, at creation and later; a queue does not shrink below its
// contents.
func TestCQSize(t *testing.T) {
	p := newPair(t, pairOptions{})
	for _, d := range []int{0, -1, MaxQPWR*16 + 1} {
		if _, err := p.nic[0].CreateCQ(d); !errors.Is(err, ErrInvalid) {
			t.Errorf("depth %d: %v, want %v", d, err, ErrInvalid)
		}
		if err := p.nic[0].ResizeCQ(p.cq[0], d); !errors.Is(err, ErrInvalid) {
			t.Errorf("resize to %d: %v, want %v", d, err, ErrInvalid)
		}
	}
	for _, d := range []int{1, MaxQPWR * 16} {
		c, err := p.nic[0].CreateCQ(d)
		if err != nil || p.nic[0].ResizeCQ(c, MaxQPWR*16) != nil || p.nic[0].ResizeCQ(c, 1) != nil {
			t.Errorf("depth %d, or a resize to the least or the most, is refused: %v", d, err)
		}
	}
	for range 3 {
		p.post(0, SendWR{Opcode: WRRDMAWrite})
	}
	p.run()
	if err := p.nic[0].ResizeCQ(p.cq[0], 2); !errors.Is(err, ErrInvalid) {
		t.Errorf("shrink below three completions: %v, want %v", err, ErrInvalid)
	}
	if err := p.nic[0].ResizeCQ(p.cq[0], 3); err != nil {
		t.Error(err)
	}
	p.post(0, SendWR{Opcode: WRRDMAWrite})
	p.run()
	if p.qp[0].State() != StateErr || p.nic[0].Stats().CompletionsOverflow == 0 {
		t.Errorf("a fourth of three: state %v", p.qp[0].State())
	}
}

// TestQueryQP: QueryQP returns the attributes that were set, and the PSNs as they move.
func TestQueryQP(t *testing.T) {
	for _, typ := range []QPType{TypeRC, TypeUC, TypeUD} {
		o := pairOptions{typ: typ, psn: 0xffffff, timeout: 9, retry: 3, rnr: 2}
		p := newPair(t, o)
		a := p.nic[0].QueryQP(p.qp[0])
		switch {
		case a.State != StateRTS || a.SQPSN != o.psn:
			t.Errorf("type %d: %+v", typ, a)
		case typ == TypeUD && a.QKey != testQKey:
			t.Errorf("UD: Q_Key %#x", a.QKey)
		case typ == TypeRC && (a.Timeout != 9 || a.RetryCnt != 3 || a.RNRRetry != 2 || a.DestQPN != p.qp[1].Num()):
			t.Errorf("RC: %+v", a)
		}
		w := SendWR{Opcode: WRSend}
		if typ == TypeUD {
			w.UD = p.dest(0)
		}
		p.recv(1, RecvWR{})
		p.post(0, w)
		p.run()
		if a := p.nic[0].QueryQP(p.qp[0]); a.SQPSN != 0 {
			t.Errorf("type %d: after a packet the next PSN is %v, want 0", typ, a.SQPSN)
		}
	}
}

// TestTakeAsyncEvents: who shares a NIC takes the events of its own objects, oldest first, and leaves the others.
func TestTakeAsyncEvents(t *testing.T) {
	a, b, _ := shared(t, TypeRC)
	n := a.nic[1]
	a.modifyTo(1, StateErr)
	b.modifyTo(1, StateErr)
	own := func(e AsyncEvent) bool { return e.QP == b.qp[1] }
	if got := n.TakeAsyncEvents(own); len(got) != 1 || got[0] != (AsyncEvent{Type: EventLastWQEReached, QP: b.qp[1]}) {
		t.Errorf("taken: %+v", got)
	}
	if got := n.TakeAsyncEvents(own); got != nil {
		t.Errorf("taken again: %+v", got)
	}
	n.event(EventLastWQEReached, b.qp[1]) // one of its type may wait again
	if got := n.TakeAsyncEvents(own); len(got) != 1 {
		t.Errorf("taken of a later one: %+v", got)
	}
	if e, ok := n.GetAsyncEvent(); !ok || e.QP != a.qp[1] {
		t.Errorf("left: %+v %v", e, ok)
	}
	if e, ok := n.GetAsyncEvent(); ok {
		t.Errorf("left, too: %+v", e)
	}
}
