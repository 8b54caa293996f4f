// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestResponseToNothing: before anything was sent a response of any kind, at any PSN near the first,
// changes nothing and is counted as stale; only the acknowledgement of the PSN before the first is not
// counted.
func TestResponseToNothing(t *testing.T) {
	for _, psn := range []wire.PSN{0, 5, wire.PSNMask} {
		for _, irn := range []*IRN{nil, testIRN()} {
			for off := -2; off <= 2; off++ {
				for _, syn := range []wire.Syndrome{wire.SyndromeACK, wire.SyndromePSNSequence, wire.SyndromeRNR, wire.SyndromeRemoteAcc} {
					p := newPair(t, pairOptions{psn: psn, timeout: 10, retry: 1, rnr: 1, irn: [2]*IRN{irn, irn}})
					e, f := p.nic[1].envelope(p.qp[1]), p.net.Pool.Get()
					f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: p.qp[0].Num(), PSN: psn.Add(off)})
					f.AddAETH(wire.AETH{Syndrome: syn})
					f.Seal(0, false)
					p.nic[1].SendFrame(0, f)
					p.run()
					want := uint64(1)
					if syn.IsACK() && off == -1 {
						want = 0
					}
					s := p.nic[0].Stats()
					if s.Drops[DropResponse] != want || p.qp[0].State() != StateRTS || s.SentPkts != 0 || s.CompleterRetry != 0 {
						t.Errorf("first PSN %v, %v of %v: %d dropped, want %d; state %v, %d packets sent, %d retries",
							psn, syn, psn.Add(off), s.Drops[DropResponse], want, p.qp[0].State(), s.SentPkts, s.CompleterRetry)
					}
					if _, armed := p.nic[0].NextTimeout(); armed {
						t.Errorf("first PSN %v, %v of %v: a timer runs", psn, syn, psn.Add(off))
					}
				}
			}
		}
	}
}

// TestResources: as many READs are remembered as were agreed on; of fewer the last stay,
// and of more those that were there.
func TestResources(t *testing.T) {
	p := newPair(t, readable) // four
	_, dm := p.region(0, 1024, 0)
	_, sm := p.region(1, 1024, 7)
	first := p.qp[0].SQPSN()
	sent := 0
	more := func(n int) {
		for range n {
			p.post(0, read(1, dm, sm, 8))
			p.run()
			sent++
		}
	}
	depth := func(d uint8) {
		for _, a := range []struct {
			attr QPAttr
			mask AttrMask
		}{{QPAttr{State: StateSQD}, AttrState}, {QPAttr{State: StateSQD, MaxDestRdAtomic: d}, AttrState | AttrMaxDestRdAtomic}, {QPAttr{State: StateRTS}, AttrState}} {
			if err := p.nic[1].ModifyQP(p.net.Now, p.qp[1], a.attr, a.mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(last int) {
		t.Helper()
		for i := range sent {
			want := uint64(0)
			if i >= sent-last {
				want = 1
			}
			psn := first.Add(i)
			if got := p.replayed(wire.BTH{OpCode: wire.OpReadRequest, PSN: psn}, &wire.RETH{VA: sm.Addr(), RKey: sm.RKey(), DMALen: 8}, nil); got != want {
				t.Errorf("of %d READs the repeat of number %d had %d answers, want %d", sent, i+1, got, want)
			}
		}
	}
	more(3)
	check(3)
	more(3)
	check(4)
	depth(2)
	check(2)
	more(1)
	check(2)
	depth(3)
	check(2)
	more(1)
	check(3)
	more(2)
	check(3)
}

// host is a NIC's stack that keeps the frames it gets.
type host struct {
	pool   *wire.Pool
	frames int
	timer  vtime.Time
	fired  []vtime.Time
}

// HandleFrame implements Stack.
func (h *host) HandleFrame(_ vtime.Time, f *wire.Frame) { h.frames++; h.pool.Put(f) }

// HandleTimeout implements Stack.
func (h *host) HandleTimeout(now vtime.Time) { h.fired, h.timer = append(h.fired, now), vtime.Never }

// NextTimeout implements Stack.
func (h *host) NextTimeout() (vtime.Time, bool) { return h.timer, h.timer != vtime.Never }

// TestHostStack: the stack gets frames other than RoCE, with Raw those of RoCE, too, and its timer; a
// NIC without one drops the frames.
func TestHostStack(t *testing.T) {
	for _, c := range []struct {
		stack, raw bool
		frames     int
		foreign    uint64
	}{
		{stack: false, foreign: 1},
		{stack: true, frames: 1},
		{stack: true, raw: true, frames: 2},
		{stack: false, raw: true, foreign: 2},
	} {
		p := newPair(t, pairOptions{timeout: 10, retry: 1, rnr: 1})
		h := &host{pool: p.net.Pool, timer: 7 * us}
		p.nic[1].raw = c.raw
		if c.stack {
			p.nic[1].SetStack(h)
		}
		e := wire.NewEnvelope(wire.Flow{Src: p.nic[0].IP(), Dst: p.nic[1].IP(), TTL: 9, SrcPort: wire.PortMRP, DstPort: wire.PortMRP, Traffic: 48 << 2})
		f := p.net.Pool.Get()
		f.StartDatagram(&e)
		f.Seal(0, false)
		p.nic[0].SendFrame(0, f)
		e = p.nic[0].envelope(p.qp[0])
		g := p.net.Pool.Get()
		g.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 5000})
		g.Seal(0, false)
		p.nic[0].SendFrame(0, g)
		p.run()
		if d := p.nic[1].Stats().Drops[DropForeign]; h.frames != c.frames || d != c.foreign {
			t.Errorf("stack %v, raw %v: the stack got %d frames, %d are dropped; want %d and %d", c.stack, c.raw, h.frames, d, c.frames, c.foreign)
		}
		if fired := len(h.fired) == 1 && h.fired[0] == 7*us; fired != c.stack {
			t.Errorf("stack %v: its timer fired at %v", c.stack, h.fired)
		}
	}
}

// TestHeadersBelow: class, tag and MAC addresses of sent frames follow the fabric's plan.
func TestHeadersBelow(t *testing.T) {
	classes := &[64]uint8{26: 5, 48: 9}
	for _, c := range []struct {
		classes *[64]uint8
		vlan    uint16
		dgid    uint32
		mac     wire.MAC
		prio    uint8
		groups  wire.GroupRange
	}{
		{nil, 0, 10<<24 | 9, wire.HostMAC(10<<24 | 9), 3, wire.GroupRange{}},
		{nil, 7, wire.GroupNet | 3, wire.GroupMAC(wire.GroupNet | 3), 3, wire.GroupRange{}},
		{classes, 7, 0xe0000105, wire.MulticastMAC(false, 0xe0000105), 5, wire.GroupRange{}},
		{nil, 7, 11<<24 | 3, wire.GroupMAC(11<<24 | 3), 3, wire.NewGroupRange(11 << 24)},
		{nil, 7, wire.GroupNet | 3, wire.HostMAC(wire.GroupNet | 3), 3, wire.NewGroupRange(11 << 24)},
	} {
		p := newPair(t, pairOptions{})
		n := p.nic[0]
		n.classes, n.vlan, n.groups = c.classes, c.vlan, c.groups
		p.qp[0].attr.AV.DGID = c.dgid
		e, f := n.envelope(p.qp[0]), p.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault})
		pcp, tagged := f.PCP()
		if wire.MAC(f.Header()[:6]) != c.mac || tagged != (c.vlan != 0) || tagged && pcp != c.prio || n.priority(26<<2|1) != c.prio {
			t.Errorf("%v: to %x, tagged %v with priority %d", wire.AddrOf(c.dgid), f.Header()[:6], tagged, pcp)
		}
		if want := map[bool]uint8{true: 1, false: 6}[c.classes != nil]; n.priority(48<<2) != want {
			t.Errorf("class of DSCP 48 is %d, want %d", n.priority(48<<2), want)
		}
	}
}

// TestWindow: no more packets of a queue pair are under way than the window has, and as
// many are if there is more to send.
func TestWindow(t *testing.T) {
	for _, window := range []uint64{1, 2, 7} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		p.nic[0].window = window
		most := uint64(0)
		p.net.After = func() { most = max(most, p.qp[0].sq.nxt-p.qp[0].sq.una) }
		_, sm := p.region(0, 30*1024, 3)
		_, dm := p.region(1, 30*1024, 0)
		p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 30*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		p.run()
		p.want(0, WC{Opcode: WCRDMAWrite, ByteLen: 30 * 1024})
		if most != window {
			t.Errorf("a window of %d: at most %d packets were under way", window, most)
		}
	}
}

// TestWaiting: frames that a paused NIC cannot send are counted as waiting, and dropped nowhere.
func TestWaiting(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 0, retry: 1, rnr: 1})
	_, sm := p.region(0, 3*1024, 3)
	_, dm := p.region(1, 3*1024, 0)
	p.nic[0].SendPause(0, 0xff, 4000) // 20 us: B's acknowledgements wait
	p.net.At(2*us, func(vtime.Time) {
		p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 3*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	})
	p.net.At(10*us, func(now vtime.Time) {
		p.nic[1].SendPause(now, 1, 1) // leaves at once
		if n := p.nic[1].Queued(); n != 3+1 {
			t.Errorf("%d frames wait, want 3 acknowledgements and a pause", n)
		}
	})
	p.net.At(11*us, func(vtime.Time) {
		if n := p.nic[1].Queued(); n != 3 {
			t.Errorf("%d frames wait, want 3 acknowledgements", n)
		}
	})
	p.run()
	if p.nic[1].Queued() != 0 || len(p.completions(0)) != 1 {
		t.Errorf("%d frames wait at rest", p.nic[1].Queued())
	}
}

// TestDestroyed: a destroyed queue pair cannot be destroyed again, is not visited, and the packets that
// its flow still sends find no queue pair.
func TestDestroyed(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 4, retry: 0, rnr: 1})
	more, err := p.nic[1].CreateQP(QPInit{PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1]})
	if err != nil {
		t.Fatal(err)
	}
	gone := p.qp[1]
	if err := p.nic[1].DestroyQP(0, gone); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*QP{gone, p.qp[0]} {
		if err := p.nic[1].DestroyQP(0, q); !errors.Is(err, ErrInvalid) {
			t.Errorf("destroying queue pair %d, which is not there: %v, want %v", q.Num(), err, ErrInvalid)
		}
	}
	var seen []*QP
	p.nic[1].QPs(func(q *QP) { seen = append(seen, q) })
	if len(seen) != 1 || seen[0] != more || more.Num() != gone.Num()+1 {
		t.Errorf("%d queue pairs are there, want one", len(seen))
	}
	_, sm := p.region(0, 10, 3)
	p.post(0, SendWR{WRID: 4, Opcode: WRSend, SGE: whole(sm, 10)})
	p.run()
	p.want(0, WC{WRID: 4, Status: WCRetryExcErr})
	if d := p.nic[1].Stats().Drops[DropNoQP]; d != 1 {
		t.Errorf("%d packets found no queue pair, want 1", d)
	}
}

// TestResponseBeforeSending: in RTR, where nothing can have been sent, responses are
// dropped for the state, and do not count as the first packet of the peer.
func TestResponseBeforeSending(t *testing.T) {
	p := newPair(t, pairOptions{})
	q, err := p.nic[0].CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxRecvWR: 1})
	if err != nil {
		t.Fatal(err)
	}
	a := validAttr(StateRTR)
	a.AV.DGID, a.DestQPN = p.nic[1].IP(), p.qp[1].Num()
	for _, to := range []QPState{StateInit, StateRTR} {
		a.State = to
		if err := p.nic[0].ModifyQP(0, q, a, maskOf(q.State(), to)); err != nil {
			t.Fatal(err)
		}
	}
	e, f := p.nic[1].envelope(p.qp[1]), p.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: q.Num()})
	f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
	f.Seal(0, false)
	p.nic[1].SendFrame(0, f)
	p.run()
	if _, told := p.nic[0].GetAsyncEvent(); told || p.nic[0].Stats().Drops[DropState] != 1 {
		t.Errorf("drops %v, an event %v; want one for the state, and no event", p.nic[0].Stats().Drops, told)
	}
}

// TestDestroyedUnderTimers: a queue pair that goes while its timers run takes them along:
// the one for an acknowledgement and the one a receiver asked for.
func TestDestroyedUnderTimers(t *testing.T) {
	for name, o := range map[string]pairOptions{ // independent of each other
		"retransmission":     {timeout: 4, retry: 7, rnr: 7},
		"receiver not ready": {timeout: 14, retry: 7, rnr: 7},
	} {
		p := newPair(t, o)
		q := p.qp[0]
		slot := q.timerRTO()
		if name == "retransmission" {
			p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
		} else {
			slot = q.timerRNR() // nothing is posted to receive
		}
		p.post(0, SendWR{WRID: 1, Opcode: WRSend})
		for p.nic[0].timers.At(slot) == vtime.Never && p.net.Step() {
		}
		if p.nic[0].timers.At(slot) == vtime.Never {
			t.Fatalf("%s: the timer is not set", name)
		}
		if err := p.nic[0].DestroyQP(p.net.Now, q); err != nil {
			t.Fatal(err)
		}
		sent := p.nic[0].Stats().Made
		p.run()
		if got := p.nic[0].Stats().Made; got != sent || len(p.completions(0)) != 0 {
			t.Errorf("%s: a queue pair that is gone sent %d packets", name, got-sent)
		}
	}
}
