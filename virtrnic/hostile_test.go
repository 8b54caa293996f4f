// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// inject hands a frame to side 1 as if it arrived now.
func (p *pair) inject(f *wire.Frame) { p.nic[1].HandleFrame(p.net.Now, 0, f) }

// request builds a packet from side 0's queue pair.
func (p *pair) request(flow func(*wire.Flow), bth func(*wire.BTH)) *wire.Frame {
	w := wire.Flow{
		SrcMAC: p.nic[0].mac, DstMAC: p.nic[1].mac, Src: p.nic[0].ip, Dst: p.nic[1].ip, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2,
	}
	h := wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: p.qp[1].num, PSN: p.qp[1].RQPSN(), AckReq: true}
	if flow != nil {
		flow(&w)
	}
	if bth != nil {
		bth(&h)
	}
	e := wire.NewEnvelope(w)
	f := p.net.Pool.Get()
	f.Start(&e, h)
	if h.OpCode.Info().AETH {
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
	}
	f.Seal(1, false)
	return f
}

// TestDemux: packets that a NIC drops before it touches a queue pair, each with its reason.
func TestDemux(t *testing.T) {
	for _, c := range []struct {
		why  DropReason
		flow func(*wire.Flow)
		bth  func(*wire.BTH)
		bad  bool
	}{
		{why: DropNotMine, flow: func(w *wire.Flow) { w.Dst++ }},
		{why: DropNotMine, flow: func(w *wire.Flow) { w.IPv6 = true }},
		{why: DropNotMine, flow: func(w *wire.Flow) { w.VLAN = &wire.VLAN{ID: 9} }},
		{why: DropVersion, bth: func(h *wire.BTH) { h.Version = 1 }},
		{why: DropNoQP, bth: func(h *wire.BTH) { h.DestQP = 1 }},
		{why: DropNoQP, bth: func(h *wire.BTH) { h.DestQP = 4000 }},
		{why: DropService, bth: func(h *wire.BTH) { h.OpCode = wire.OpUDSendOnly }},
		{why: DropService, bth: func(h *wire.BTH) { h.OpCode = 0x15 }},
		{why: DropPeer, flow: func(w *wire.Flow) { w.Src++ }},
		{why: DropPKey, bth: func(h *wire.BTH) { h.PKey = 0x8001 }},
		{why: DropICRC, bad: true},
		{why: DropResponse, bth: func(h *wire.BTH) { h.OpCode = wire.OpAcknowledge; h.PSN = 77 }},
		{why: DropForeign, flow: func(w *wire.Flow) { w.DstPort = 9999 }},
	} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		f := p.request(c.flow, c.bth)
		if c.bad {
			p.net.Pool.Damage(f, 100)
		}
		p.inject(f)
		if got := p.nic[1].Stats().Drops[c.why]; got != 1 {
			t.Errorf("%v: counted %d times; drops %v", c.why, got, p.nic[1].Stats().Drops)
		}
		p.run()
	}
	for _, s := range []QPState{StateReset, StateInit, StateErr} {
		p := newPair(t, pairOptions{})
		p.qp[1].state = s
		p.inject(p.request(nil, nil))
		if p.nic[1].Stats().Drops[DropState] != 1 {
			t.Errorf("request in %v is not dropped for the state", s)
		}
	}
}

// TestBadRequests: packets that break the rules of a message end the queue pair with
// the right NAK.
func TestBadRequests(t *testing.T) {
	send := func(op wire.OpCode, n int, reth *wire.RETH) func(*pair) {
		return func(p *pair) {
			f := p.net.Pool.Get()
			e := p.nic[0].envelope(p.qp[0])
			f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: p.qp[1].num, PSN: p.qp[1].RQPSN(), AckReq: true})
			if reth != nil {
				m := p.nic[1].mrs[0]
				f.AddRETH(wire.RETH{VA: m.addr, RKey: m.key, DMALen: reth.DMALen})
			}
			f.SetPhantom(n)
			f.Seal(1, false)
			p.inject(f)
		}
	}
	for _, c := range []struct {
		name  string
		steps []func(*pair)
	}{
		{"middle without first", []func(*pair){send(wire.OpSendMiddle, 1024, nil)}},
		{"last without first", []func(*pair){send(wire.OpSendLast, 10, nil)}},
		{"middle after a message", []func(*pair){send(wire.OpSendOnly, 10, nil), send(wire.OpSendMiddle, 1024, nil)}}, // there was room left
		{"first in a message", []func(*pair){send(wire.OpSendFirst, 1024, nil), send(wire.OpSendFirst, 1024, nil)}},
		{"only in a message", []func(*pair){send(wire.OpSendFirst, 1024, nil), send(wire.OpSendOnly, 10, nil)}},
		{"write in a send", []func(*pair){send(wire.OpSendFirst, 1024, nil), send(wire.OpWriteMiddle, 1024, nil)}},
		{"short first", []func(*pair){send(wire.OpSendFirst, 1000, nil)}},
		{"empty last", []func(*pair){send(wire.OpSendFirst, 1024, nil), send(wire.OpSendLast, 0, nil)}},
		{"long only", []func(*pair){send(wire.OpSendOnly, 1028, nil)}},
		{"read", []func(*pair){send(wire.OpReadRequest, 0, &wire.RETH{DMALen: 4})}},
		{"write longer than said", []func(*pair){send(wire.OpWriteOnly, 100, &wire.RETH{DMALen: 50})}},
		{"write shorter than said", []func(*pair){send(wire.OpWriteOnly, 100, &wire.RETH{DMALen: 150})}},
		{"write first that fits one packet", []func(*pair){send(wire.OpWriteFirst, 1024, &wire.RETH{DMALen: 1024})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
			_, m := p.region(1, 8192, 0)
			p.recv(1, RecvWR{SGE: whole(m, 8192)})
			var nak wire.Syndrome
			p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
				if s := f.AETH().Syndrome; port == 1 && !s.IsACK() {
					nak = s
				}
				return faults.Verdict{}
			}
			for i, step := range c.steps {
				if p.qp[1].State() != StateRTS {
					t.Fatalf("state %v before step %d", p.qp[1].State(), i)
				}
				step(p)
			}
			if p.qp[1].State() != StateErr || p.nic[1].Stats().SendNAK != 1 {
				t.Errorf("state %v after %d NAKs, want ERR after 1", p.qp[1].State(), p.nic[1].Stats().SendNAK)
			}
			p.run()
			if nak != wire.SyndromeInvalidReq {
				t.Errorf("the NAK is %v, want %v", nak, wire.SyndromeInvalidReq)
			}
		})
	}
}

// FuzzNIC feeds a connected NIC any bytes in any order: frames as they are, and frames
// bent so that they reach the queue pair. It must not panic, and must hold no frame.
func FuzzNIC(f *testing.F) {
	for op := range wire.OpCode(0x20) {
		for typ := range 3 {
			f.Add([]byte{byte(op), 0, 0, 0, 1, 2, 3, 4, byte(op), 1, 0, 0, 0, 2, 0, 3, 0, 0}[:15+typ], true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, posted bool) { hostileRun(t, data, posted) })
}

// hostileRun feeds a connected NIC bytes, and returns it.
func hostileRun(t *testing.T, data []byte, posted bool) *NIC {
	typ := len(data) % 3
	p := newPair(t, pairOptions{typ: TypeRC + QPType(typ%3), timeout: 4, retry: 1, rnr: 1, cqDepth: 8, rdAtomic: 2, mtu: 1024})
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
	_, m := p.region(1, 8192, 0)
	if posted {
		p.recv(1, RecvWR{SGE: whole(m, 8192)})
		w := SendWR{Opcode: WRSend, SGE: whole(m, 3000)}
		if typ%3 == 2 {
			w.UD = p.dest(1)
		}
		if typ%3 != 0 || len(data)%2 == 0 { // else the answers to a READ are next
			p.post(1, w)
		}
		if typ%3 == 0 {
			p.post(1, SendWR{Opcode: WRRDMARead, SGE: whole(m, 3000)})
			p.post(1, SendWR{Opcode: WRAtomicFetchAdd, SGE: whole(m, 8)})
		}
	}
	fr, err := p.net.Pool.Parse(data)
	if err == nil {
		p.inject(fr)
	}
	for len(data) >= 8 {
		p.inject(bent(p, m, data[:8]))
		data = data[8:]
	}
	if err := p.net.Run(10000); err != nil {
		t.Fatal(err)
	}
	if p.net.Pool.Live != 0 || p.net.Pool.LiveBlocks != 0 {
		t.Fatalf("%d frames, %d payloads left", p.net.Pool.Live, p.net.Pool.LiveBlocks)
	}
	if n := p.cq[1].ring.Len(); n > 8 {
		t.Fatalf("%d completions in a queue of 8", n)
	}
	return p.nic[1]
}

// bent builds a packet to side 1's queue pair out of eight bytes.
func bent(p *pair, m *MR, b []byte) *wire.Frame {
	op := wire.OpCode(b[0]&0x1f) + wire.OpCode(p.qp[1].service<<5)
	f := p.net.Pool.Get()
	e := p.nic[0].envelope(p.qp[0])
	psn := p.qp[1].RQPSN()
	if op.Is(wire.OpResponse) {
		psn = p.qp[1].sq.psn(p.qp[1].sq.una)
	}
	f.Start(&e, wire.BTH{
		OpCode: op, PKey: wire.PKeyDefault, DestQP: p.qp[1].num, AckReq: b[1]&1 != 0, PSN: psn.Add(int(int8(b[2])) / 32),
	})
	i := op.Info()
	if i.DETH {
		f.AddDETH(wire.DETH{QKey: testQKey + uint32(b[3]&1)})
	}
	if i.Atomic {
		f.AddAtomicETH(wire.AtomicETH{VA: m.Addr() + uint64(b[3]), RKey: m.RKey() + uint32(b[4]&1), SwapAdd: 1})
	}
	if i.RETH {
		shift := 0
		if b[6] > 250 {
			shift = 19 // up to more than a message may have
		}
		f.AddRETH(wire.RETH{VA: m.Addr() + uint64(b[3]), RKey: m.RKey() + uint32(b[4]&1), DMALen: uint32(b[5]) * 32 << shift})
	}
	if i.AETH {
		f.AddAETH(wire.AETH{Syndrome: wire.Syndrome(b[6])})
	}
	if op == wire.OpAtomicAck {
		f.AddAtomicAckETH(wire.AtomicAckETH{Original: 9})
	}
	if i.Imm || i.IETH {
		f.AddImm(wire.ImmDt(m.RKey() + uint32(b[4]&1)))
	}
	if i.Flags&wire.OpPayload != 0 {
		f.SetPhantom([]int{0, 1, 100, 1024, 1028, 4096, 1023, 8}[b[7]&7])
	}
	f.Seal(0, false)
	return f
}
