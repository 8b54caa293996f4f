// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// mgids are addresses of groups outside an IPv6 fabric's own prefix: those that name an IPv4 group, and others.
var mgids = []string{"ff0e::ffff:239.1.2.3", "ff01:0:2:c985::", "ff12:401b:ffff::1", "ff15::ffff:ef01:203", "ff02::1:2", "ff0e::1:2"}

// datagram returns the wire bytes of a UD packet to an address.
func datagram(t testing.TB, w Flow, to [16]byte, size int, r *rand.Rand) []byte {
	t.Helper()
	p := Pool{}
	f := p.Get()
	w.DstPort = PortRoCEv2
	e := NewEnvelope(w)
	f.Start(&e, BTH{OpCode: OpUDSendOnly, PKey: 0xffff, DestQP: QPNMulticast, PSN: PSN(r.Uint32()) & PSNMask})
	f.AddDETH(DETH{QKey: r.Uint32(), SrcQP: QPN(r.Uint32()) & QPNMask})
	k := p.Block()
	for i, b := 0, k.Fill(size); i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	f.SetPayload(k)
	f.Seal(uint16(r.Uint32()), false)
	b := f.AppendTo(nil)
	if w.VLAN != nil {
		return b
	}
	if w.IPv6 { // steps of the sender: address, then ICRC
		copy(b[38:54], to[:])
		copy(b[:6], append([]byte{0x33, 0x33}, to[12:]...))
	} else {
		copy(b[30:34], to[12:])
		b[24], b[25] = 0, 0
		binary.BigEndian.PutUint16(b[24:], ^fold(sum16(b[14:34])))
		m := MulticastMAC(false, binary.BigEndian.Uint32(to[12:]))
		copy(b[:6], m[:])
	}
	n := len(b) - ICRCLen
	if !w.IPv6 {
		n = EthernetLen + int(binary.BigEndian.Uint16(b[16:18])) - ICRCLen
	}
	putICRC(b[n:n+ICRCLen], ICRC(b[14:n]))
	return b
}

func addr16(s string) [16]byte { return netip.MustParseAddr(s).As16() }

// TestSetGroup: a packet that is readdressed is the one that a sender makes for that address, in both families, at any
// length; it keeps a wrong ICRC, and is the old one when it is addressed back.
func TestSetGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, ipv6 := range []bool{false, true} {
		for size := range 300 {
			if size == 299 {
				size = BlockCap
			}
			from, to := addr16("::ffff:239.1.2.3"), [16]byte{10: 0xff, 11: 0xff, 12: 0xe0 | byte(r.Uint32()&15), 13: byte(r.Uint32()), 14: byte(r.Uint32()), 15: byte(r.Uint32())}
			if ipv6 {
				from, to = IPv6Of(0xef010203), addr16(mgids[size%len(mgids)])
			}
			w := Flow{IPv6: ipv6, SrcMAC: MAC{2}, Src: 0x0a000001, Dst: 0xef010203, TTL: 64, SrcPort: 0xc000, Traffic: 8}
			seed := r.Uint64()
			before := datagram(t, w, from, size, rand.New(rand.NewPCG(seed, 0)))
			after := datagram(t, w, to, size, rand.New(rand.NewPCG(seed, 0)))
			var p Pool
			f, err := p.Parse(before)
			if err != nil || f.DstAddr() != from {
				t.Fatalf("%v, %x", err, f.DstAddr())
			}
			f.SetGroup(to)
			if got := f.AppendTo(nil); !bytes.Equal(got, after) || !f.CheckICRC() || f.DstAddr() != to {
				t.Fatalf("IPv6 %v, %d bytes:\n%x, want\n%x", ipv6, size, got, after)
			}
			f.icrc ^= 1 << (r.Uint32() & 31)
			f.SetGroup(from)
			if f.CheckICRC() {
				t.Fatal("a wrong ICRC has become right")
			}
			f.Trust()
			f.SetGroup(to)
			if f.CheckICRC() || f.icrc != 0 {
				t.Fatal("a trusted frame that is damaged has become right")
			}
			f, _ = p.Parse(before)
			f.SetTag(VLAN{PCP: 3, ID: 9})
			f.SetGroup(to)
			f.Untag()
			if got := f.AppendTo(nil); !bytes.Equal(got, after) {
				t.Fatalf("with a tag:\n%x, want\n%x", got, after)
			}
		}
	}
}

// TestRegroup: a packet to an MGID outside the fabric's prefix is no packet of the fabric until it has the number of its group,
// whatever its length.
func TestRegroup(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var scratch []byte
	for size := range 200 {
		if size > 190 {
			size = BlockCap - (199 - size)
		}
		for _, mgid := range mgids {
			p := Pool{Poison: true}
			group, ok := GroupOf(addr16(mgid))
			if !ok {
				t.Fatal(mgid)
			}
			w := Flow{IPv6: true, SrcMAC: MAC{2}, Src: 0x0a000001, Dst: group, TTL: 64, SrcPort: 0xc000}
			seed := r.Uint64()
			foreign := datagram(t, w, addr16(mgid), size, rand.New(rand.NewPCG(seed, 0)))
			want := datagram(t, w, IPv6Of(group), size, rand.New(rand.NewPCG(seed, 0)))
			f, err := p.Parse(foreign)
			if err != nil || f.Kind() != KindOther {
				t.Fatalf("%s, %d bytes: %v, %v", mgid, size, f, err)
			}
			if !bytes.Equal(f.AppendTo(nil), foreign) {
				t.Fatalf("%s, %d bytes: what is parsed is not what is sent on", mgid, size)
			}
			g, b, ok := p.Regroup(f, scratch)
			if scratch = b; !ok || g.Kind() != KindRoCE || !g.IPv6() || g.DstIP() != group || !g.CheckICRC() || !bytes.Equal(g.AppendTo(nil), want) {
				t.Fatalf("%s, %d bytes: %v", mgid, size, g)
			}
			p.Put(g)
			foreign[len(foreign)-1] ^= 4
			f, _ = p.Parse(foreign)
			if g, _, ok = p.Regroup(f, scratch); !ok || g.CheckICRC() {
				t.Fatalf("%s, %d bytes: a wrong ICRC has become right", mgid, size)
			}
			if p.Put(g); p.Live != 0 || p.LiveBlocks != 0 {
				t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
			}
		}
	}
}

// TestRegroupRefuses: nothing else is made a packet of the fabric, and the frame stays its owner's.
func TestRegroupRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := Flow{IPv6: true, SrcMAC: MAC{2}, Src: 0x0a000001, Dst: 0xef010203, TTL: 64, SrcPort: 0xc000}
	good := datagram(t, w, addr16(mgids[0]), 100, r)
	changed := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	all := map[string][]byte{
		"the fabric's own group": datagram(t, w, IPv6Of(0xef010203), 100, r),
		"IPv4":                   datagram(t, Flow{SrcMAC: MAC{2}, Src: 0x0a000001, Dst: 0xef010203, TTL: 64}, addr16("::ffff:239.1.2.3"), 100, r),
		"another source":         changed(22, 0xfe, 0x80),
		"unicast":                changed(38, 0xfe, 0x80),
		"TCP":                    changed(20, 6),
		"registration":           changed(56, byte(PortMRP>>8), byte(PortMRP&0xff)),
		"mDNS":                   changed(56, 5353>>8, 5353&0xff),
		"a wrong UDP length":     changed(58, 0, 99),
		"a tag":                  append(append(bytes.Clone(good[:12]), 0x81, 0, 0, 9), good[12:]...),
		"a pad of 3":             changed(63, 0x30),
	}
	for n := range len(good) {
		all["cut"+string(rune('a'+n))] = good[:n:n]
	}
	for name, b := range all {
		p := Pool{Poison: true}
		f, err := p.Parse(b)
		if err != nil {
			continue
		}
		if g, _, ok := p.Regroup(f, nil); ok {
			t.Errorf("%s becomes %v", name, g)
		}
		if p.Put(f); p.Live != 0 || p.LiveBlocks != 0 {
			t.Errorf("%s: %d frames, %d blocks live", name, p.Live, p.LiveBlocks)
		}
	}
}

// TestRegroupAllocatesNothing: neither way.
func TestRegroupAllocatesNothing(t *testing.T) {
	w := Flow{IPv6: true, SrcMAC: MAC{2}, Src: 0x0a000001, Dst: 0xef010203, TTL: 64, SrcPort: 0xc000}
	raw, p, scratch, back := datagram(t, w, addr16(mgids[0]), 1000, rand.New(rand.NewPCG(7, 8))), Pool{}, make([]byte, 0, 2048), addr16(mgids[0])
	if n := testing.AllocsPerRun(100, func() {
		f, err := p.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		g, _, ok := p.Regroup(f, scratch)
		if !ok {
			t.Fatal("refused")
		}
		g.SetGroup(back)
		p.Put(g)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRegroup: any bytes are read without a panic, no frame is lost, and a result that passes for a packet of the
// fabric is one.
func FuzzRegroup(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, m := range mgids {
		f.Add(datagram(f, Flow{IPv6: true, Src: 0x0a000001, Dst: 0xef010203, TTL: 64}, addr16(m), 50, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Pool{Poison: true}
		fr, err := p.Parse(b)
		if err != nil {
			return
		}
		right := fr.Kind() == KindOther && len(b) > 100 && ICRC(b[14:len(b)-ICRCLen]) == binary.LittleEndian.Uint32(b[len(b)-ICRCLen:])
		g, _, ok := p.Regroup(fr, nil)
		if ok {
			again, err := p.Parse(g.AppendTo(nil))
			if err != nil || again.Kind() != KindRoCE || again.DstIP() != g.DstIP() || !IsMulticast(g.DstIP()) || g.CheckICRC() != again.CheckICRC() {
				t.Fatalf("%v becomes %v, %v", fr, again, err)
			}
			if n := EthernetLen + IPv6Len + int(binary.BigEndian.Uint16(b[18:20])); right && n == len(b) && !g.CheckICRC() {
				t.Fatal("a right ICRC has become wrong")
			}
			p.Put(again)
			fr = g
		}
		if p.Put(fr); p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
		}
	})
}

// TestMembershipAddr: a report's addresses are read whole.
func TestMembershipAddr(t *testing.T) {
	for hex, want := range map[string][]string{
		linuxJoin: {"::ffff:239.7.7.8"},
		mldJoins:  {"ff15::ef01:203", "ff15::e400:1"},
	} {
		var p Pool
		f, err := p.Parse(unhex(t, hex))
		if err != nil {
			t.Fatal(err)
		}
		m, _, err := f.Membership(nil)
		for i := 0; ; i++ {
			_, ok := m.Next()
			if !ok && (i != len(want) || err != nil) || ok && m.Addr() != addr16(want[i]) {
				t.Errorf("record %d of %d is for %v, %v", i, len(want), netip.AddrFrom16(m.Addr()), err)
			}
			if !ok {
				break
			}
		}
	}
}
