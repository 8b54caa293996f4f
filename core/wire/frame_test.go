// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// unicast draws an address that is not a multicast group's.
func unicast(t *rapid.T) uint32 { return u[uint32](t, 0xdfffffff) }

// drawFrame builds a random RoCE frame from p as a NIC would.
func drawFrame(t *rapid.T, p *Pool) *Frame {
	ops := []OpCode{OpSendFirst, OpSendMiddle, OpSendLastImm, OpSendOnly, OpWriteFirst, OpWriteMiddle, OpWriteOnlyImm, OpAcknowledge, OpReadRequest,
		OpReadRespMiddle, OpReadRespLast, OpAtomicAck, OpCompareSwap, OpFetchAdd, OpSendOnlyInv, OpUDSendOnly, OpUDSendOnlyImm, OpUC + OpWriteLastImm}
	w := Flow{
		SrcMAC: mac(t), DstMAC: mac(t), IPv6: flip(t), Label: u[uint32](t, 0xfffff), Src: unicast(t), Dst: unicast(t),
		Traffic: u[uint8](t, 255), TTL: 2 + u[uint8](t, 250), SrcPort: u[uint16](t, 0xffff), DstPort: PortRoCEv2,
	}
	if flip(t) {
		w.VLAN = &VLAN{PCP: u[uint8](t, 7), ID: u[uint16](t, 4095)}
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	e := NewEnvelope(w)
	f := p.Get()
	f.Start(&e, BTH{OpCode: op, PKey: PKeyDefault, DestQP: u(t, QPNMask), AckReq: flip(t), PSN: u(t, PSNMask), BECN: flip(t)})
	if op.Info().DETH {
		f.AddDETH(DETH{u[uint32](t, 1<<32-1), u(t, QPNMask)})
	}
	if op.Info().Atomic {
		h := AtomicETH{u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1), u[uint64](t, 1<<64-1), u[uint64](t, 1<<64-1)}
		if f.AddAtomicETH(h); f.AtomicETH() != h {
			t.Fatalf("%+v comes back as %+v", h, f.AtomicETH())
		}
	}
	if op.Info().RETH {
		f.AddRETH(RETH{u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1), u[uint32](t, 1<<31)})
	}
	if op.Info().AETH {
		f.AddAETH(AETH{SyndromeACK, u[uint32](t, 0xffffff)})
	}
	if op == OpAtomicAck {
		f.AddAtomicAckETH(AtomicAckETH{u[uint64](t, 1<<64-1)})
	}
	if op.Info().Imm || op.Info().IETH {
		f.AddImm(ImmDt(u[uint32](t, 1<<32-1)))
	}
	if op.Is(OpPayload) {
		n := int(u[uint16](t, 300))
		if rapid.IntRange(0, 9).Draw(t, "big") == 0 {
			n = 4096
		}
		if flip(t) {
			b := p.Block()
			for i, x := 0, u[uint64](t, 1<<64-1); i < n; i++ {
				x = x*6364136223846793005 + 1
				b.Fill(n)[i] = byte(x >> 56)
			}
			b.Fill(n)
			f.SetPayload(b)
		} else {
			f.SetPhantom(n)
		}
	}
	f.Seal(u[uint16](t, 0xffff), rapid.IntRange(0, 3).Draw(t, "trusted") == 0)
	return f
}

// checkBytes holds the frame's bytes against the plain parsers and the plain ICRC.
func checkBytes(t *rapid.T, f *Frame, b []byte) {
	if len(b) != f.Len() {
		t.Fatalf("AppendTo gave %d bytes, Len says %d", len(b), f.Len())
	}
	var q Pool
	g, err := q.Parse(b)
	if err != nil {
		t.Fatalf("own frame does not parse: %v\n%x", err, b)
	}
	if got := g.AppendTo(nil); !bytes.Equal(got, b) {
		t.Fatalf("parse and append changed the frame\n got %x\nwant %x", got, b)
	}
	if g.String() != f.String() {
		t.Fatalf("text differs: %s and %s", g, f)
	}
	if !g.CheckICRC() || !f.CheckICRC() {
		t.Fatalf("ICRC: parsed %v, own %v", g.CheckICRC(), f.CheckICRC())
	}
	// The digest of a run in virtual time is made of parsed frames, whose zeros have a block.
	if f.Trusted() {
		g.Trust()
	}
	if g.Mix(1) != f.Mix(1) {
		t.Fatalf("digest %016x parsed, own %016x: %s", g.Mix(1), f.Mix(1), f)
	}
	u := f.udpOff()
	end := u + int(binary.BigEndian.Uint16(b[u+4:]))
	if got, want := binary.LittleEndian.Uint32(b[end-4:end]), ICRC(b[f.ipOff():end-4]); got != want {
		t.Fatalf("ICRC on the wire %08x, over the bytes %08x", got, want)
	}
}

func TestFrameBuildParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		f := drawFrame(t, &p)
		checkBytes(t, f, f.AppendTo(nil))
		p.Put(f)
		if p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
		}
	})
}

// TestICRCIncremental proves the O(1) update equal to a full recompute over every
// rewrite a switch makes, in sequence and with remembered deltas: of addresses, MAC addresses and the queue pair
// (CON-11).
func TestICRCIncremental(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		r := Bridge{Dst: unicast(t), Src: unicast(t), DestQP: u(t, QPNMask), DstMAC: mac(t), SrcMAC: mac(t)}
		for range rapid.IntRange(1, 6).Draw(t, "frames") {
			f := drawFrame(t, &p)
			c := p.Clone(f)
			if !c.DecTTL() {
				t.Fatal("TTL above 1 refused")
			}
			r.Apply(c)
			if c.OpCode().Info().RETH {
				c.SetRETH(u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1))
			}
			c.SetECN(ECNCE)
			if c.ECN() != ECNCE || *(*MAC)(c.h[0:6]) != r.DstMAC || c.SrcMAC() != r.SrcMAC || c.DstIP() != r.Dst || c.SrcIP() != r.Src || c.DestQP() != r.DestQP || c.TTL() != f.TTL()-1 {
				t.Fatalf("rewrite did not take: %v", c)
			}
			checkBytes(t, c, c.AppendTo(nil))
			p.Put(f)
			p.Put(c)
		}
	})
}

// TestDamageSurvivesRewrite: a payload damaged inside the fabric must not be signed
// by a switch that rewrites the headers.
func TestDamageSurvivesRewrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		f := drawFrame(t, &p)
		c := p.Clone(f)
		p.Damage(c, u[uint64](t, 1<<64-1))
		r := Bridge{Dst: unicast(t), Src: 7, DestQP: u(t, QPNMask)}
		r.Apply(c)
		if c.CheckICRC() {
			t.Fatalf("damaged frame passes after bridging: %v", c)
		}
		if !f.CheckICRC() {
			t.Fatal("damage reached the original through the shared payload")
		}
		p.Put(c)
		p.Put(f)
		if p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
		}
	})
}

// TestDamageOnTheWire: the same bit is damaged whether the frame is a parsed one or has a payload that reads as
// zeros and is not there.
func TestDamageOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		f := drawFrame(t, &p)
		g, err := p.Parse(f.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if f.Trusted() {
			g.Trust()
		}
		bit := u[uint64](t, 1<<64-1)
		p.Damage(f, bit)
		p.Damage(g, bit)
		if a, b := f.AppendTo(nil), g.AppendTo(nil); !bytes.Equal(a, b) {
			i := 0
			for a[i] == b[i] {
				i++
			}
			t.Fatalf("bit %d of %d bytes: byte %d is %#x, and of what was on the wire %#x", bit, len(a), i, a[i], b[i])
		}
		if f.CheckICRC() {
			t.Fatalf("bit %d: the damaged frame passes", bit)
		}
		p.Put(g)
		if f.Trusted() { // a damaged frame, with no ICRC kept, is still damaged after the next wire
			if g, err = p.Parse(f.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			if g.Trust(); g.Mix(1) != f.Mix(1) {
				t.Fatal("a damaged frame that keeps no ICRC has another digest behind the wire")
			}
			p.Put(g)
		}
		p.Put(f)
		if p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
		}
	})
}

func TestHashParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		a, b := whole[:cut], whole[cut:]
		sum := HashAdd(HashBytes(a), HashAt(HashBytes(b), uint64(cut)))
		if sum != HashBytes(whole) {
			t.Fatalf("parts %x, whole %x", sum, HashBytes(whole))
		}
		if HashSub(sum, HashAt(HashBytes(b), uint64(cut))) != HashBytes(a) {
			t.Fatal("taking a part out again does not undo adding it")
		}
	})
}

func TestPoolGuards(t *testing.T) {
	p := Pool{Poison: true}
	f := p.Get()
	f.BuildPFC(PFC{Enable: 1})
	p.Put(f)
	if f.h[0] != 0xdd {
		t.Error("a frame put back is not poisoned")
	}
	defer func() {
		if recover() == nil {
			t.Error("putting a frame back twice did not panic")
		}
	}()
	p.Put(f)
}

// TestRetag puts every vector into a VLAN, into another one and out again: the tag is in its place, the
// ICRC stays right, and the last frame equals the first.
func TestRetag(t *testing.T) {
	var p Pool
	for _, v := range vectors {
		f, err := p.Parse(unhex(t, v.hex))
		if err != nil {
			t.Fatal(err)
		}
		f.Untag()
		plain := f.AppendTo(nil)
		for _, tag := range []VLAN{{PCP: 3, ID: 7}, {PCP: 6, ID: 4094, DEI: true}} {
			f.SetTag(tag)
			want := append(bytes.Clone(plain[:12]), 0x81, 0, byte(tag.tci()>>8), byte(tag.tci()))
			want = append(want, plain[12:]...)
			got := f.AppendTo(nil)
			if n := min(len(got), len(want)); !bytes.Equal(got[:n], want[:n]) || !f.CheckICRC() || f.VLANID() != tag.ID {
				t.Errorf("%s, tagged:\n got %x\nwant %x", v.name, got, want)
			}
			g, err := p.Parse(got)
			if err != nil || g.String() != f.String() || !g.CheckICRC() {
				t.Errorf("%s, tagged: %v is read as %v, %v", v.name, f, g, err)
			}
			p.Put(g)
		}
		f.Untag()
		f.Untag()
		if got := f.AppendTo(nil); !bytes.Equal(got, plain) || f.Tag() != nil {
			t.Errorf("%s, out again:\n got %x\nwant %x", v.name, got, plain)
		}
		p.Put(f)
	}
	if p.Live != 0 || p.LiveBlocks != 0 {
		t.Errorf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
	}
}

// TestParseTruncated feeds every prefix of every vector; none may panic, and none that is shorter than
// its lengths may parse as RoCE.
func TestParseTruncated(t *testing.T) {
	var p Pool
	for _, v := range vectors {
		whole := unhex(t, v.hex)
		for n := range whole {
			f, err := p.Parse(append(make([]byte, 0, n), whole[:n]...))
			if err == nil {
				if f.Kind() == KindRoCE {
					t.Errorf("%s: %d of %d bytes parsed as RoCE", v.name, n, len(whole))
				}
				p.Put(f)
			}
		}
	}
	if p.Live != 0 || p.LiveBlocks != 0 {
		t.Errorf("%d frames and %d blocks leaked by failed parses", p.Live, p.LiveBlocks)
	}
}

func TestFramePathAllocatesNothing(t *testing.T) {
	for name, w := range map[string]Flow{ // independent of each other
		"IPv4":           {},
		"IPv6":           {IPv6: true},
		"IPv6 in a VLAN": {IPv6: true, VLAN: &VLAN{PCP: 3, ID: 7}},
	} {
		w.Src, w.Dst, w.TTL, w.DstPort = 1, 2, 64, PortRoCEv2
		if n := framePathAllocations(t, w); n != 0 {
			t.Errorf("%s: %v allocations per packet", name, n)
		}
	}
}

// framePathAllocations builds, clones, bridges, checks and parses packets of a flow, and
// datagrams of registration beside them.
func framePathAllocations(t *testing.T, w Flow) float64 {
	var p Pool
	e := NewEnvelope(w)
	w.DstPort = PortMRP
	m := NewEnvelope(w)
	r := Bridge{Dst: 3, Src: 4, DestQP: 5}
	buf := make([]byte, 0, 8192)
	step := func() {
		d := p.Get()
		d.StartDatagram(&m)
		x := p.Block()
		MRPRecord{}.AppendTo(MRPHeader{Total: 1}.AppendTo(x.Fill(16)[:0]))
		d.SetPayload(x)
		d.Seal(0, false)
		h, err := p.Parse(d.AppendTo(buf))
		if err != nil {
			t.Fatal(err)
		}
		p.Put(d)
		p.Put(h)
		f := p.Get()
		f.Start(&e, BTH{OpCode: OpSendOnly, DestQP: 1, PSN: 9})
		b := p.Block()
		b.Fill(1024)
		f.SetPayload(b)
		f.Seal(1, false)
		c := p.Clone(f)
		r.Apply(c)
		if !c.CheckICRC() {
			t.Fatal("ICRC")
		}
		g, err := p.Parse(c.AppendTo(buf))
		if err != nil {
			t.Fatal(err)
		}
		p.Put(f)
		p.Put(c)
		p.Put(g)
	}
	step()
	return testing.AllocsPerRun(200, step)
}

func FuzzParse(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	f.Add(unhex(f, mrpIPv6))
	f.Add(sackFrame(&Pool{}).AppendTo(nil))
	f.Add(PFC{Enable: 8, Quanta: [8]uint16{3: 9}}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Pool{Poison: true}
		fr, err := p.Parse(b)
		if err == nil {
			_ = fr.String()
			if q, ok := fr.Asks(); ok {
				a := p.Get()
				q.Answer(a, HostMAC(q.IP))
				p.Put(a)
			}
			out := fr.AppendTo(nil)
			if len(out) != fr.Len() {
				t.Fatalf("Len %d, bytes %d", fr.Len(), len(out))
			}
			if fr.Kind() != KindOther {
				g, err := p.Parse(out)
				if err != nil || !bytes.Equal(g.AppendTo(nil), out) {
					t.Fatalf("second parse: %v\n%x", err, out)
				}
				p.Put(g)
			}
			p.Put(fr)
		}
		if p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d blocks live", p.Live, p.LiveBlocks)
		}
	})
}

func BenchmarkICRC(b *testing.B) {
	var p Pool
	e := NewEnvelope(Flow{Src: 1, Dst: GroupNet | 1, TTL: 64, DstPort: PortRoCEv2})
	f := p.Get()
	f.Start(&e, BTH{OpCode: OpSendMiddle, DestQP: 1, PSN: 9})
	blk := p.Block()
	blk.Fill(4096)
	f.SetPayload(blk)
	f.Seal(1, false)
	r := Bridge{Dst: 3, Src: GroupNet | 1, DestQP: 5}
	bytes := f.AppendTo(nil)
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			ICRC(bytes[14 : len(bytes)-4])
		}
	})
	b.Run("parts", func(b *testing.B) { // payload CRC known: the cost for receivers of a shared payload
		for b.Loop() {
			f.computeICRC()
		}
	})
	b.Run("update", func(b *testing.B) { // fresh delta
		for b.Loop() {
			c := *f
			r.known = false
			r.Apply(&c)
		}
	})
	b.Run("update-remembered", func(b *testing.B) {
		for b.Loop() {
			c := *f
			r.Apply(&c)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	var p Pool
	e := NewEnvelope(Flow{Src: 1, Dst: 2, TTL: 64, DstPort: PortRoCEv2})
	f := p.Get()
	f.Start(&e, BTH{OpCode: OpSendMiddle, DestQP: 1, PSN: 9})
	f.SetPhantom(4096)
	f.Seal(1, true)
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			f.Start(&e, BTH{OpCode: OpSendMiddle, DestQP: 1, PSN: 9, PKey: PKeyDefault})
			f.SetPhantom(4096)
			f.Seal(1, true)
		}
	})
	b.Run("clone-put", func(b *testing.B) {
		for b.Loop() {
			p.Put(p.Clone(f))
		}
	})
	b.Run("digest", func(b *testing.B) {
		var d uint64
		for b.Loop() {
			d = f.Mix(d)
		}
	})
	b.Run("hash-4096", func(b *testing.B) {
		x := make([]byte, 4096)
		for b.Loop() {
			HashBytes(x)
		}
	})
}

// TestParseLength: a datagram has the length on which its headers and the received bytes agree, and one
// that ends before its headers do is no packet, though all its lengths fit.
func TestParseLength(t *testing.T) {
	var p Pool
	for _, v := range vectors {
		whole := unhex(t, v.hex)
		f, err := p.Parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		ip, udp, least, ours := f.ipOff(), f.udpOff(), int(f.n)+ICRCLen, f.Kind() == KindRoCE && !f.IPv6()
		p.Put(f)
		if !ours {
			continue
		}
		// set makes IP say total bytes and UDP datagram.
		set := func(b []byte, total, datagram int) []byte {
			b = append([]byte(nil), b...)
			binary.BigEndian.PutUint16(b[ip+2:], uint16(total))
			binary.BigEndian.PutUint16(b[udp+4:], uint16(datagram))
			b[ip+10], b[ip+11] = 0, 0
			binary.BigEndian.PutUint16(b[ip+10:], ^fold(sum16(b[ip:ip+IPv4Len])))
			return b
		}
		for n := udp + UDPLen; n < len(whole); n++ {
			b := set(whole[:n], n-ip, n-udp)
			f, err := p.Parse(b)
			if n < least && err == nil {
				t.Errorf("%s: %d bytes parsed, its headers and the ICRC need %d", v.name, n, least)
			}
			if err == nil {
				if f.unpadded() != n {
					t.Errorf("%s cut to %d bytes became %d", v.name, n, f.unpadded())
				}
				p.Put(f)
			}
		}
		for _, d := range []int{-8, -4, -1, 1, 4} {
			if f, err := p.Parse(set(whole, len(whole)-ip, len(whole)-udp+d)); err == nil {
				t.Errorf("%s with a UDP length wrong by %d parsed as %v", v.name, d, f)
				p.Put(f)
			}
		}
	}
	if p.Live != 0 || p.LiveBlocks != 0 {
		t.Errorf("%d frames and %d blocks leaked", p.Live, p.LiveBlocks)
	}
}
