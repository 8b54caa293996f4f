// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"encoding/binary"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// odd builds a packet to side 1 of eight bytes: early and late requests, reports of all
// kinds, CNPs, with and without the selective bit and a switch's mark.
func odd(p *pair, m *MR, b []byte) *wire.Frame {
	q := p.qp[1]
	traffic := 26<<2 | wire.ECNECT0
	if b[0]&0x80 != 0 {
		traffic |= wire.ECNCE
	}
	var e wire.Envelope
	p.nic[0].layOut(&e, p.qp[0], traffic)
	h := wire.BTH{PKey: wire.PKeyDefault, DestQP: q.num, AckReq: b[0]&0x40 != 0, Selective: b[0]&0x20 != 0}
	far := int(int16(binary.BigEndian.Uint16(b[2:]))) >> (b[1] & 15)
	f := p.net.Pool.Get()
	switch b[0] & 3 {
	case 0, 1:
		h.OpCode, h.PSN = wire.OpCode(b[4]%0x18), q.RQPSN().Add(far)
		f.Start(&e, h)
		i := h.OpCode.Info()
		if i.Atomic {
			f.AddAtomicETH(wire.AtomicETH{VA: m.Addr(), RKey: m.RKey(), SwapAdd: 1})
		}
		if i.RETH {
			f.AddRETH(wire.RETH{VA: m.Addr(), RKey: m.RKey(), DMALen: uint32(b[5]) * 64})
		}
		if i.AETH {
			f.AddAETH(wire.AETH{Syndrome: wire.Syndrome(b[6])})
		}
		if h.OpCode == wire.OpAtomicAck {
			f.AddAtomicAckETH(wire.AtomicAckETH{})
		}
		if i.Imm || i.IETH {
			f.AddImm(1)
		}
		if i.Flags&wire.OpPayload != 0 {
			f.SetPhantom([]int{256, 256, 256, 64, 0, 1, 255, 1024}[b[7]&7])
		}
	case 2:
		h.OpCode, h.PSN = wire.OpAcknowledge, q.sq.psn(q.sq.una).Add(far)
		f.Start(&e, h)
		f.AddAETH(wire.AETH{Syndrome: wire.Syndrome([]uint8{0x60, 0x60, 0x60, 0x1f, 0x20, 0x61, 0x60, 0x60}[b[4]&7])})
		if b[4]&8 == 0 {
			f.AddSACK(wire.SACK{PSN: h.PSN.Add(int(int8(b[5])) * int(b[6])), Lo: uint64(b[6]) << (b[7] & 63), Hi: uint64(b[5]) * 0x0101010101})
		}
	default:
		h.OpCode, h.BECN = wire.OpCNP, true
		f.Start(&e, h)
		f.AddCNP()
	}
	f.Seal(0, false)
	return f
}

// FuzzSelective sends odd packets to a queue pair that repeats selectively and obeys CNPs, while it
// sends itself: nothing panics, its counters stay in order, its kept packets are counted, it becomes
// idle, and it releases everything at the end.
func FuzzSelective(f *testing.F) {
	f.Add([]byte{0x20, 15, 0, 0, 6, 16, 0, 0, 0x22, 15, 0, 1, 0, 1, 3, 1})
	f.Add([]byte{0x60, 8, 4, 0, 7, 0, 0, 0, 0x20, 8, 2, 0, 7, 0, 0, 0, 0xa3, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 6, 12, 0, 0})
	f.Add([]byte{0x22, 0, 1, 255, 0, 127, 255, 63, 0x02, 12, 0, 0, 4, 0, 0, 0, 0x20, 15, 0, 0, 0x0c, 200, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) { selectiveRun(t, data) })
}

// selectiveRun sends odd packets made of bytes to a queue pair, and returns its NIC.
func selectiveRun(t *testing.T, data []byte) *NIC {
	set, err := DCQCNByName("dcqcn-connectx")
	if err != nil {
		t.Fatal(err)
	}
	p := newPair(t, pairOptions{mtu: 256, timeout: 4, retry: 1, rnr: 1, rdAtomic: 2, psn: 0xffff80, irn: [2]*IRN{testIRN(), testIRN()}, congestion: set})
	p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict { return faults.Verdict{Drop: true} }
	_, m := p.region(1, 16384, 0)
	p.recv(1, RecvWR{SGE: whole(m, 8192)})
	p.post(1, SendWR{Opcode: WRRDMAWrite, SGE: whole(m, 16384), RemoteAddr: m.Addr(), RKey: m.RKey()})
	p.post(1, SendWR{Opcode: WRRDMARead, SGE: whole(m, 3000), RemoteAddr: m.Addr(), RKey: m.RKey()})
	p.post(1, SendWR{Opcode: WRSend, SGE: whole(m, 3000)})
	for ; len(data) >= 8; data = data[8:] {
		p.inject(odd(p, m, data))
		for range data[1] >> 4 {
			p.net.Step()
		}
		s, o := &p.qp[1].sq, p.qp[1].order
		if s.una > s.nxt || s.nxt > s.maxSeq || s.maxSeq > s.end || s.sel.lost > s.maxSeq {
			t.Fatalf("counters out of order: %d %d %d %d, lost %d", s.una, s.nxt, s.maxSeq, s.end, s.sel.lost)
		}
		kept := 0
		for _, f := range o.slot {
			if f != nil {
				kept++
			}
		}
		if kept != o.n || kept != p.nic[1].reordered {
			t.Fatalf("%d packets kept, %d and %d counted", kept, o.n, p.nic[1].reordered)
		}
	}
	if err := p.net.Run(20000); err != nil {
		t.Fatal(err)
	}
	for i, n := range p.nic {
		if err := n.DestroyQP(p.net.Now, p.qp[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.net.Run(1000); err != nil {
		t.Fatal(err)
	}
	if p.net.Pool.Live != 0 || p.net.Pool.LiveBlocks != 0 {
		t.Fatalf("%d frames, %d payloads left", p.net.Pool.Live, p.net.Pool.LiveBlocks)
	}
	return p.nic[1]
}
