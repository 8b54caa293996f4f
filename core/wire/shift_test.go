// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// drawn returns a packet of a flow after hops switches and perhaps a bridge, with the given PSN.
func drawn(e *Envelope, psn PSN, hops int, b *Bridge, ack, trusted bool, pay int) *Frame {
	f := &Frame{}
	if ack {
		f.StartNext(e, OpAcknowledge, psn, 0)
		f.AddAETH(AETH{MSN: 77})
	} else {
		f.StartNext(e, OpSendMiddle, psn, BitAckReq)
		f.SetPhantom(pay)
	}
	f.Seal(uint16(psn), trusted)
	for range hops {
		f.DecTTL()
	}
	if b != nil {
		b.Apply(f)
	}
	return f
}

// TestShift: a packet that is shifted is, byte by byte, the one that its sender would have made, whatever
// switches have changed in it on the way. The PSNs of a flow cover each identification.
func TestShift(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := Flow{
			SrcMAC: HostMAC(1), DstMAC: HostMAC(2), IPv6: r.IntN(4) == 0, Src: r.Uint32(), Dst: r.Uint32(),
			Traffic: uint8(r.Uint32()), TTL: 64, SrcPort: 0xc123, DstPort: PortRoCEv2,
		}
		if r.IntN(3) == 0 {
			w.VLAN = &VLAN{PCP: 3, ID: 7}
		}
		e := NewEnvelope(w)
		e.Connect(QPN(r.Uint32()) & QPNMask)
		var b *Bridge
		if r.IntN(2) == 0 {
			b = &Bridge{Dst: r.Uint32(), Src: r.Uint32(), DestQP: 99, DstMAC: HostMAC(9), SrcMAC: HostMAC(8)}
		}
		hops, ack, trusted, pay := r.IntN(5), r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(4097)
		d := 1 + r.IntN(1000)
		psn := PSN(r.Uint32()) & PSNMask
		f := drawn(&e, psn, hops, b, ack, trusted, pay)
		var first, later Shape
		shape := f.Shape(&first)
		again, sum, digest := NewRepeat(f, d, hops > 0 && b == nil), uint64(1), uint64(1)
		for range 70000 / d {
			if !f.Shifts() {
				t.Fatalf("seed %d: PSN %d does not shift", seed, psn)
			}
			psn = psn.Add(d)
			f.Shift(d, hops > 0 && b == nil)
			want := drawn(&e, psn, hops, b, ack, trusted, pay)
			if *f != *want {
				t.Fatalf("seed %d: PSN %d, %d hops, bridge %v: shifted to\n%x, made as\n%x", seed, psn, hops, b, f.Header(), want.Header())
			}
			if digest, sum = again.Next(digest), want.Mix(sum); digest != sum {
				t.Fatalf("seed %d: PSN %d as it comes again has another digest", seed, psn)
			}
			if got := f.Shape(&later); !slices.Equal(got, shape) {
				t.Fatalf("seed %d: PSN %d has shape %x, the first one %x", seed, psn, got, shape)
			}
		}
	}
}

// TestShape: each bit of a header is in the shape but for those that a shift may change.
func TestShape(t *testing.T) {
	e := NewEnvelope(Flow{SrcMAC: HostMAC(1), DstMAC: HostMAC(2), Src: 1, Dst: 2, TTL: 64, SrcPort: 0xc123, DstPort: PortRoCEv2})
	e.Connect(5)
	f := drawn(&e, 1000, 0, nil, true, true, 0)
	var words, other Shape
	want := f.Shape(&words)
	for bit := range 8 * int(f.n) {
		g := *f
		g.h[bit/8] ^= 1 << (bit % 8)
		at := bit / 8
		moves := at >= 18 && at < 20 || at >= 24 && at < 26 || at >= 42+9 && at < 42+12
		if same := slices.Equal(g.Shape(&other), want); same != moves {
			t.Errorf("byte %d, bit %d: the shape stays: %v, want %v", at, bit%8, same, moves)
		}
	}
	g := *f
	g.pay = 4
	if slices.Equal(g.Shape(&other), want) {
		t.Error("a payload is not in the shape")
	}
	if g = *f; !g.Shifts() {
		t.Error("an acknowledgement does not shift")
	}
	for _, at := range []int{18, 19, 42 + 11} { // identification, PSN
		g = *f
		g.h[at] ^= 1
		if g.Shifts() {
			t.Errorf("it shifts with byte %d changed", at)
		}
	}
	g = *f
	g.flags |= flagDamaged
	if g.Shifts() {
		t.Error("a damaged packet shifts")
	}
}

// TestShiftAllocates: nothing.
func TestShiftAllocates(t *testing.T) {
	e := NewEnvelope(Flow{Src: 1, Dst: 2, TTL: 64, SrcPort: 0xc123, DstPort: PortRoCEv2})
	e.Connect(5)
	f := drawn(&e, 1000, 0, nil, false, false, 512)
	var words Shape
	if n := testing.AllocsPerRun(100, func() { f.Shift(3, true); f.Shape(&words) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
