// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestAttributeLimits: the last value that is allowed, and the first that is not, of
// every attribute that has a range.
func TestAttributeLimits(t *testing.T) {
	type set = func(*QPAttr)
	for _, c := range []struct {
		name string
		mask AttrMask
		good []set
		bad  []set
	}{
		{"path MTU", AttrPathMTU, mtus(256, 512, 1024, 2048, 4096), mtus(0, 255, 257, 1500, 4095, 8192)},
		{"retry count", AttrRetryCnt,
			[]set{func(a *QPAttr) { a.RetryCnt = 0 }, func(a *QPAttr) { a.RetryCnt = 7 }}, []set{func(a *QPAttr) { a.RetryCnt = 8 }}},
		{"RNR retry count", AttrRNRRetry,
			[]set{func(a *QPAttr) { a.RNRRetry = 0 }, func(a *QPAttr) { a.RNRRetry = 7 }}, []set{func(a *QPAttr) { a.RNRRetry = 8 }}},
		{"RNR timer", AttrMinRNRTimer,
			[]set{func(a *QPAttr) { a.MinRNRTimer = 0 }, func(a *QPAttr) { a.MinRNRTimer = 31 }}, []set{func(a *QPAttr) { a.MinRNRTimer = 32 }}},
		{"timeout", AttrTimeout,
			[]set{func(a *QPAttr) { a.Timeout = 0 }, func(a *QPAttr) { a.Timeout = 31 }}, []set{func(a *QPAttr) { a.Timeout = 32 }}},
		{"initiator depth", AttrMaxQPRdAtomic,
			[]set{func(a *QPAttr) { a.MaxQPRdAtomic = MaxRdAtomic }}, []set{func(a *QPAttr) { a.MaxQPRdAtomic = MaxRdAtomic + 1 }}},
		{"responder resources", AttrMaxDestRdAtomic,
			[]set{func(a *QPAttr) { a.MaxDestRdAtomic = MaxRdAtomic }}, []set{func(a *QPAttr) { a.MaxDestRdAtomic = MaxRdAtomic + 1 }}},
		{"destination", AttrDestQPN,
			[]set{func(a *QPAttr) { a.DestQPN = 1 }, func(a *QPAttr) { a.DestQPN = wire.QPNMask }},
			[]set{func(a *QPAttr) { a.DestQPN = 0 }, func(a *QPAttr) { a.DestQPN = wire.QPNMask + 1 }}},
	} {
		for k, s := range slices.Concat(c.good, c.bad) {
			a := QPAttr{PathMTU: 1024, DestQPN: 17}
			s(&a)
			err, bad := checkAttr(&a, c.mask), k >= len(c.good)
			if bad && !errors.Is(err, ErrInvalid) || !bad && err != nil {
				t.Errorf("%s, %+v: %v, refusing it is right: %v", c.name, a, err, bad)
			}
			if err := checkAttr(&a, 0); err != nil {
				t.Errorf("%s is refused though it is not given: %v", c.name, err)
			}
		}
	}
}

func mtus(all ...int) (sets []func(*QPAttr)) {
	for _, m := range all {
		sets = append(sets, func(a *QPAttr) { a.PathMTU = m })
	}
	return sets
}

// TestCreateLimits: the largest queue pair and shared receive queue are created, and refused with one
// more.
func TestCreateLimits(t *testing.T) {
	p := newPair(t, pairOptions{})
	other := newPair(t, pairOptions{})
	create := func(change func(*QPInit)) error {
		init := QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0]}
		change(&init)
		_, err := p.nic[0].CreateQP(init)
		return err
	}
	for k, change := range []func(*QPInit){
		func(*QPInit) {},
		func(i *QPInit) { i.MaxSendWR, i.MaxRecvWR = MaxQPWR, MaxQPWR },
		func(i *QPInit) { i.MaxSendSGE, i.MaxRecvSGE, i.MaxInline = MaxSGE, MaxSGE, MaxInlineData },
	} {
		if err := create(change); err != nil {
			t.Errorf("allowed queue pair %d: %v", k, err)
		}
	}
	for k, change := range []func(*QPInit){
		func(i *QPInit) { i.PD = nil }, func(i *QPInit) { i.PD = other.pd[0] },
		func(i *QPInit) { i.SendCQ = nil }, func(i *QPInit) { i.RecvCQ = nil },
		func(i *QPInit) { i.MaxSendWR = MaxQPWR + 1 }, func(i *QPInit) { i.MaxSendWR = -1 },
		func(i *QPInit) { i.MaxRecvWR = MaxQPWR + 1 }, func(i *QPInit) { i.MaxRecvWR = -1 },
		func(i *QPInit) { i.MaxSendSGE = MaxSGE + 1 }, func(i *QPInit) { i.MaxSendSGE = -1 },
		func(i *QPInit) { i.MaxRecvSGE = MaxSGE + 1 }, func(i *QPInit) { i.MaxRecvSGE = -1 },
		func(i *QPInit) { i.MaxInline = MaxInlineData + 1 }, func(i *QPInit) { i.MaxInline = -1 },
	} {
		if err := create(change); !errors.Is(err, ErrInvalid) {
			t.Errorf("queue pair %d that is not allowed: %v, want %v", k, err, ErrInvalid)
		}
	}
	for _, c := range []struct {
		wr, sge int
		ok      bool
	}{{1, 0, true}, {MaxQPWR, MaxSGE, true}, {0, 1, false}, {MaxQPWR + 1, 1, false}, {1, -1, false}, {1, MaxSGE + 1, false}} {
		s, err := p.nic[0].CreateSRQ(p.pd[0], c.wr, c.sge)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("shared receive queue of %d buffers of %d pieces: %v, allowed %v", c.wr, c.sge, err, c.ok)
		}
		if !c.ok {
			continue
		}
		for limit, ok := range map[int]bool{-1: false, 0: true, c.wr: true, c.wr + 1: false} { // independent of each other
			if err := p.nic[0].ModifySRQ(s, limit); ok != (err == nil) {
				t.Errorf("limit %d of %d buffers: %v, allowed %v", limit, c.wr, err, ok)
			}
		}
	}
}

// TestPostLimits: the longest lists, inline data and READ, and the last of the work requests are taken,
// and refused with one more.
func TestPostLimits(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, rdAtomic: 1, recvWR: 2, init: func(i *QPInit) { i.MaxSendWR = 3 }})
	_, m := p.region(0, 100, 1)
	pieces := func(n int) []SGE { return slices.Repeat([]SGE{{Addr: m.Addr(), Length: 1, LKey: m.LKey()}}, n) }
	outstanding := uint32(maxOutstanding) * 256 >> 1 << 1
	for _, c := range []struct {
		name string
		wr   SendWR
		ok   bool
	}{
		{"four pieces", SendWR{Opcode: WRSend, SGL: pieces(4)}, true},
		{"five pieces", SendWR{Opcode: WRSend, SGL: pieces(5)}, false},
		{"400 bytes inline", SendWR{Opcode: WRSend, Flags: SendInline, Inline: make([]byte, 400)}, true},
		{"401 bytes inline", SendWR{Opcode: WRSend, Flags: SendInline, Inline: make([]byte, 401)}, false},
		{"inline READ", SendWR{Opcode: WRRDMARead, Flags: SendInline}, false},
		{"2 GiB", SendWR{Opcode: WRSend, SGE: SGE{Length: MaxMessage}}, true},
		{"2 GiB and a byte", SendWR{Opcode: WRSend, SGE: SGE{Length: MaxMessage + 1}}, false},
		{"READ of all packets", SendWR{Opcode: WRRDMARead, SGE: SGE{Length: outstanding}}, uint64(outstanding) <= MaxMessage},
		{"an unknown opcode", SendWR{Opcode: WRSendWithInv + 1}, false},
	} {
		length := total(c.wr.SGE, c.wr.SGL)
		if c.wr.Flags&SendInline != 0 {
			length = uint64(len(c.wr.Inline))
		}
		if err := p.qp[0].checkSend(&c.wr, length); c.ok != (err == nil) {
			t.Errorf("%s: %v, allowed %v", c.name, err, c.ok)
		}
	}
	for i := range 4 {
		err := p.nic[0].PostSend(0, p.qp[0], SendWR{Opcode: WRSend, SGL: pieces(2)})
		if ok := i < 3; ok != (err == nil) || !ok && !errors.Is(err, ErrNoMem) {
			t.Errorf("request %d of 3: %v", i+1, err)
		}
		err = p.nic[0].PostRecv(0, p.qp[0], RecvWR{SGL: pieces(4)})
		if ok := i < 2; ok != (err == nil) || !ok && !errors.Is(err, ErrNoMem) {
			t.Errorf("buffer %d of 2: %v", i+1, err)
		}
	}
	for length, ok := range map[uint32]bool{MaxMessage: true, MaxMessage + 1: false} { // independent of each other
		if err := checkRecv(&RecvWR{SGE: SGE{Length: length}}, 1); ok != (err == nil) {
			t.Errorf("a buffer of %d bytes: %v, allowed %v", length, err, ok)
		}
	}
}

// TestHolding: the port's next frame starts when the first paced queue pair may send or, if
// the port is busy then, when it is free; of one instant the lowest number goes first.
func TestHolding(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var x transmit
		var want []*QP
		at := map[*QP]vtime.Time{}
		for i := range 1 + r.IntN(30) {
			q := &QP{num: firstQPN + wire.QPN(i)}
			at[q] = vtime.Time(r.IntN(8))
			want = append(want, q)
		}
		for _, i := range r.Perm(len(want)) {
			x.held.Push(at[want[i]], uint64(want[i].num), want[i])
		}
		slices.SortStableFunc(want, func(a, b *QP) int { return int(at[a] - at[b]) })
		for i, q := range want {
			if next, pause := x.next(3); next != max(3, at[q]) || pause {
				t.Fatalf("seed %d: the next frame starts at %v, want %v or 3", seed, next, at[q])
			}
			if got := x.held.Pop(); got.Value != q || got.At != at[q] {
				t.Fatalf("seed %d: number %d out is %v of queue pair %d, want %v of %d", seed, i, got.At, got.Value.num, at[q], q.num)
			}
		}
		if next, _ := x.next(3); next != vtime.Never {
			t.Fatalf("seed %d: nothing is held, and a frame starts at %v", seed, next)
		}
	}
}

// TestAnswersBounded: a peer may ask for any amount while answers cannot leave; the number of waiting
// answers stays bounded.
func TestAnswersBounded(t *testing.T) {
	p := newPair(t, readable)
	r := &p.qp[1].rq
	r.out.Push(response{kind: respondRead, end: 1})
	for range 1000 {
		r.postpone(response{kind: respondAck, syndrome: wire.SyndromePSNSequence})
	}
	if want := 2*MaxRdAtomic + 8; r.out.Len() != want {
		t.Errorf("%d answers wait, want %d", r.out.Len(), want)
	}
}

// TestReportsOfNothingSent: of a report only sent packets count, and only those that there is room to
// note.
func TestReportsOfNothingSent(t *testing.T) {
	for _, c := range []struct {
		sent    uint64 // packets under way
		distant int    // the packet that caused the report, from the oldest
		top     uint64 // after the last that is noted
	}{{50, 0, 50}, {130, 0, 129}, {200, 150, 151}, {200, 199, 200}, {200, 200, 129}, {irnSlots + 10, irnSlots - 1, irnSlots}, {irnSlots + 10, irnSlots, 129}} {
		p := newPair(t, pairOptions{psn: 0xffffc0, irn: [2]*IRN{testIRN(), testIRN()}})
		r := &p.qp[0].sq
		r.maxSeq = r.una + c.sent
		r.sel.report = wire.SACK{PSN: r.psn(r.una + uint64(c.distant)), Lo: ^uint64(0), Hi: ^uint64(0)}
		r.sel.merge(r)
		if r.sel.sacked.has(r.una) || r.sel.top != r.una+c.top {
			t.Errorf("%d sent, the report of %d: noted up to %d, want %d", c.sent, c.distant, r.sel.top-r.una, c.top)
		}
	}
}

// TestRepeatsBounded: a peer asks again for ever other parts of a READ, whose answers cannot leave; the
// number of waiting answers stays bounded.
func TestRepeatsBounded(t *testing.T) {
	p := newPair(t, readable)
	_, dm := p.region(0, 1000, 0)
	_, sm := p.region(1, 1000, 7)
	first := p.qp[0].SQPSN()
	p.post(0, read(1, dm, sm, 1000))
	p.run()
	p.nic[0].SendPause(p.net.Now, 0xff, 0xffff)
	p.net.At(p.net.Now+10*us, func(vtime.Time) {
		for n := range uint32(100) {
			f := p.request(nil, func(h *wire.BTH) { h.OpCode, h.PSN = wire.OpReadRequest, first })
			f.AddRETH(wire.RETH{VA: sm.Addr(), RKey: sm.RKey(), DMALen: 100 + n})
			f.Seal(0, false)
			p.inject(f)
		}
		if n, want := p.qp[1].rq.out.Len(), 2*4+8; n != want {
			t.Errorf("%d answers wait, want %d", n, want)
		}
	})
	if err := p.net.Run(1 << 20); err != nil {
		t.Fatal(err)
	}
}

// TestCapPackets: the bytes that may be under way are rounded up to packets, and those of
// acknowledgements that are not asked for are added; no fewer than four, no more than the
// receiver keeps.
func TestCapPackets(t *testing.T) {
	for _, c := range []struct {
		bytes, ack int
		want       uint64
	}{{10_240, 1, 11}, {10_241, 1, 12}, {10_239, 1, 11}, {11_264, 16, 27}, {0, 1, 4}, {3072, 1, 4}, {4096, 1, 5}, {1 << 30, 1, irnSlots}} {
		p := newPair(t, pairOptions{mtu: 1024, ackEvery: c.ack, irn: [2]*IRN{{Cap: c.bytes}, nil}})
		if got := p.qp[0].sq.sel.cap; got != c.want {
			t.Errorf("%d bytes, an acknowledgement every %d packets: %d packets may be under way, want %d", c.bytes, c.ack, got, c.want)
		}
	}
}

// TestRegisterLimits: access for which memory cannot be registered.
func TestRegisterLimits(t *testing.T) {
	p := newPair(t, pairOptions{})
	for k, c := range []struct {
		pd     *PD
		mem    Memory
		access AccessFlags
		ok     bool
	}{
		{p.pd[0], make(Bytes, 8), AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic, true},
		{p.pd[0], make(Bytes, 8), AccessRemoteRead, true},
		{p.pd[0], Phantom(8), AccessLocalWrite | AccessRemoteWrite, true},
		{nil, make(Bytes, 8), AccessLocalWrite, false},
		{p.pd[1], make(Bytes, 8), AccessLocalWrite, false},
		{p.pd[0], make(Bytes, 8), AccessRemoteWrite, false},
		{p.pd[0], make(Bytes, 8), AccessRemoteAtomic, false},
		{p.pd[0], Phantom(8), AccessLocalWrite | AccessRemoteAtomic, false},
	} {
		if _, err := p.nic[0].RegMR(c.pd, c.mem, c.access); c.ok != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("registration %d: %v, allowed %v", k, err, c.ok)
		}
	}
}
