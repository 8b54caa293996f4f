// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// codec is one header format under test: golden value and bytes, a generator, and
// its two functions.
type codec struct {
	name   string
	golden any
	hex    string
	gen    func(*rapid.T) any
	append func(any, []byte) []byte
	parse  func([]byte) (v any, rest []byte, err error)
}

// of builds a codec from typed functions.
func of[T any](name string, golden T, hex string, gen func(*rapid.T) T, app func(T, []byte) []byte, parse func([]byte) (T, []byte, error)) codec {
	return codec{name, golden, hex, func(t *rapid.T) any { return gen(t) },
		func(v any, b []byte) []byte { return app(v.(T), b) },
		func(b []byte) (any, []byte, error) { return parse(b) }}
}

func u[T ~uint8 | ~uint16 | ~uint32 | ~uint64](t *rapid.T, max T) T {
	return T(rapid.Uint64Range(0, uint64(max)).Draw(t, "n"))
}

func flip(t *rapid.T) bool { return rapid.Bool().Draw(t, "bit") }

func addr4(t *rapid.T) netip.Addr { return AddrOf(u[uint32](t, 1<<32-1)) }

func mac(t *rapid.T) (m MAC) {
	for i := range m {
		m[i] = u[uint8](t, 255)
	}
	return m
}

func addr6(t *rapid.T) netip.Addr {
	a := IPv6Of(u[uint32](t, 1<<32-1))
	a[3] = u[uint8](t, 255)
	return netip.AddrFrom16(a)
}

var codecs = []codec{
	of("Ethernet", Ethernet{Dst: MAC{2, 0, 10, 0, 0, 1}, Src: MAC{2, 0, 10, 0, 0, 2}, EtherType: EtherTypeIPv4},
		"02000a000001 02000a000002 0800",
		func(t *rapid.T) Ethernet {
			return Ethernet{mac(t), mac(t), u[uint16](t, 0xffff)}
		}, Ethernet.AppendTo, ParseEthernet),
	of("VLAN", VLAN{PCP: 3, ID: 100, EtherType: EtherTypeIPv4}, "6064 0800",
		func(t *rapid.T) VLAN {
			return VLAN{u[uint8](t, 7), flip(t), u[uint16](t, 0xfff), u[uint16](t, 0xffff)}
		}, VLAN.AppendTo, ParseVLAN),
	of("IPv4", IPv4{TOS: 2, TotalLen: 20, ID: 0x1234, DontFragment: true, TTL: 64, Protocol: 17, Src: AddrOf(0x0a000001), Dst: AddrOf(0x0a000002)},
		"45020014 12344000 401114a1 0a000001 0a000002",
		func(t *rapid.T) IPv4 {
			return IPv4{u[uint8](t, 255), 20, u[uint16](t, 0xffff), flip(t), u[uint8](t, 255), u[uint8](t, 255), addr4(t), addr4(t)}
		}, IPv4.AppendTo, ParseIPv4),
	of("IPv6", IPv6{TrafficClass: 0x6a, FlowLabel: 0xabcde, NextHeader: 17, HopLimit: 64,
		Src: netip.MustParseAddr("fd6d:6361:7374::a00:1"), Dst: netip.MustParseAddr("fd6d:6361:7374::a00:2")},
		"66aabcde 0000 11 40 fd6d6361737400000000 0000 0a000001 fd6d636173740000 00000000 0a000002",
		func(t *rapid.T) IPv6 {
			return IPv6{u[uint8](t, 255), u[uint32](t, 0xfffff), 0, u[uint8](t, 255), u[uint8](t, 255), addr6(t), addr6(t)}
		}, IPv6.AppendTo, ParseIPv6),
	of("UDP", UDP{SrcPort: 0xc001, DstPort: PortRoCEv2, Length: 8}, "c001 12b7 0008 0000",
		func(t *rapid.T) UDP { return UDP{u[uint16](t, 0xffff), u[uint16](t, 0xffff), 8, u[uint16](t, 0xffff)} },
		UDP.AppendTo, ParseUDP),
	of("BTH", BTH{OpCode: OpWriteFirst, Migrated: true, PKey: 0xffff, DestQP: 0x123456, AckReq: true, PSN: 0xfffffe},
		"06 40 ffff 00 123456 80 fffffe",
		func(t *rapid.T) BTH {
			return BTH{OpCode(u[uint8](t, 255)), flip(t), flip(t), u[uint8](t, 3), u[uint8](t, 15), u[uint16](t, 0xffff), flip(t), flip(t), u(t, QPNMask), flip(t), u(t, PSNMask), flip(t)}
		}, BTH.AppendTo, ParseBTH),
	of("RETH", RETH{VA: 0x7f0011223344, RKey: 0x203, DMALen: 5}, "00007f0011223344 00000203 00000005",
		func(t *rapid.T) RETH {
			return RETH{u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1), u[uint32](t, 1<<32-1)}
		},
		RETH.AppendTo, ParseRETH),
	of("AETH", AETH{Syndrome: SyndromePSNSequence, MSN: 0xabcdef}, "60 abcdef",
		func(t *rapid.T) AETH { return AETH{Syndrome(u[uint8](t, 255)), u[uint32](t, 0xffffff)} },
		AETH.AppendTo, ParseAETH),
	of("DETH", DETH{QKey: 0x11111111, SrcQP: 0x13}, "11111111 00 000013",
		func(t *rapid.T) DETH { return DETH{u[uint32](t, 1<<32-1), u(t, QPNMask)} },
		DETH.AppendTo, ParseDETH),
	of("AtomicETH", AtomicETH{VA: 8, RKey: 9, SwapAdd: 10, Compare: 11}, "0000000000000008 00000009 000000000000000a 000000000000000b",
		func(t *rapid.T) AtomicETH {
			return AtomicETH{u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1), u[uint64](t, 1<<64-1), u[uint64](t, 1<<64-1)}
		}, AtomicETH.AppendTo, ParseAtomicETH),
	of("AtomicAckETH", AtomicAckETH{Original: 0x0102030405060708}, "0102030405060708",
		func(t *rapid.T) AtomicAckETH { return AtomicAckETH{u[uint64](t, 1<<64-1)} },
		AtomicAckETH.AppendTo, ParseAtomicAckETH),
	of("ImmDt", ImmDt(0xdeadbeef), "deadbeef",
		func(t *rapid.T) ImmDt { return ImmDt(u[uint32](t, 1<<32-1)) }, ImmDt.AppendTo, ParseImmDt),
	of("IETH", IETH(0x1234), "00001234",
		func(t *rapid.T) IETH { return IETH(u[uint32](t, 1<<32-1)) }, IETH.AppendTo, ParseIETH),
	of("PFC", PFC{Src: MAC{2, 0, 0, 0, 0, 1}, Enable: 0x18, Quanta: [8]uint16{3: 0xffff}},
		"0180c2000001 020000000001 8808 0101 0018 0000 0000 0000 ffff 0000 0000 0000 0000 0000000000000000000000000000000000000000000000000000",
		func(t *rapid.T) PFC {
			p := PFC{Src: mac(t), Enable: u[uint8](t, 255)}
			for i := range p.Quanta {
				p.Quanta[i] = u[uint16](t, 0xffff)
			}
			return p
		}, PFC.AppendTo, func(b []byte) (PFC, []byte, error) {
			p, err := ParsePFC(b)
			if err != nil {
				return p, nil, err
			}
			return p, b[PFCLen:], nil
		}),
	of("MRP", mrpOne{MRPHeader{0, 3, MRPActivate | MRPConfirm, 0x11, 0}, MRPRecord{0x0a000002, 1, 0x12}},
		"0000 0003 18 000011 0a000002 01 000012",
		func(t *rapid.T) mrpOne {
			total := 1 + u[uint16](t, 100)
			return mrpOne{MRPHeader{u(t, total-1), total, MRPFlags(u[uint8](t, 31)) &^ MRPMRUpdate, u(t, QPNMask), u[uint32](t, 3)}, MRPRecord{u[uint32](t, 1<<32-1), u[uint8](t, 255), u(t, QPNMask)}}
		},
		func(m mrpOne, b []byte) []byte { return m.r.AppendTo(m.h.AppendTo(b)) },
		func(b []byte) (mrpOne, []byte, error) {
			p, err := ParseMRP(b)
			if err != nil {
				return mrpOne{}, nil, err
			}
			return mrpOne{p.MRPHeader, p.Record(0)}, nil, nil
		}),
	of("SACK", SACK{PSN: 0xfffffe, Hi: 1 << 63, Lo: 5}, "01 fffffe 8000000000000000 0000000000000005",
		func(t *rapid.T) SACK {
			return SACK{u(t, PSNMask), u[uint64](t, 1<<64-1), u[uint64](t, 1<<64-1)}
		},
		SACK.AppendTo, ParseSACK),
	of("ARP", ARP{ARPReply, MAC{2, 0, 10, 0, 0, 1}, 0x0a000001, MAC{2, 0, 10, 0, 0, 2}, 0x0a000002},
		"0001 0800 06 04 0002 02000a000001 0a000001 02000a000002 0a000002",
		func(t *rapid.T) ARP {
			return ARP{u[uint16](t, 0xffff), mac(t), u[uint32](t, 1<<32-1), mac(t), u[uint32](t, 1<<32-1)}
		}, ARP.AppendTo, ParseARP),
	of("ND", ND{NDAdvertisement, IPv6Of(0x0a000001), MAC{2, 0, 10, 0, 0, 1}},
		"8800 6ed3 60000000 fd6d6361737400000000 0000 0a000001 0201 02000a000001",
		func(t *rapid.T) ND {
			return ND{NDSolicitation + u[uint8](t, 1), addr6(t).As16(), mac(t)}
		},
		func(h ND, b []byte) []byte { return h.AppendTo(b, IPv6Of(0x0a000001), IPv6Of(0x0a000002)) },
		func(b []byte) (ND, []byte, error) { return ParseND(b, IPv6Of(0x0a000001), IPv6Of(0x0a000002)) }),
	of("MRP of a later attempt", mrpOne{MRPHeader{0, 1, MRPDelete, 0x11, 0x0102}, MRPRecord{0x0a000002, 1, 0x12}},
		"0000 0001 41 000011 00000102 0a000002 01 000012",
		func(t *rapid.T) mrpOne {
			return mrpOne{MRPHeader{0, 1, MRPDelete, u(t, QPNMask), 1 + u[uint32](t, 1<<32-2)}, MRPRecord{u[uint32](t, 1<<32-1), u[uint8](t, 255), u(t, QPNMask)}}
		},
		func(m mrpOne, b []byte) []byte { return m.r.AppendTo(m.h.AppendTo(b)) },
		func(b []byte) (mrpOne, []byte, error) {
			p, err := ParseMRP(b)
			if err != nil {
				return mrpOne{}, nil, err
			}
			return mrpOne{p.MRPHeader, p.Record(0)}, nil, nil
		}),
	of("MRPRegion", mrpRegions{MRPHeader{1, 2, MRPMRUpdate, 0x11, 0}, [2]MRPRecord{{0x0a000001, 3, 0x11}, {0x0a000002, 3, 0x12}},
		[2]MRPRegion{{0x7f0011223344, 0x203}, {0x1000, 0x1ff}}},
		"0001 0002 02 000011 0a000001 03 000011 00007f0011223344 00000203 0a000002 03 000012 0000000000001000 000001ff",
		func(t *rapid.T) (m mrpRegions) {
			m.h = MRPHeader{0, 1, MRPMRUpdate | MRPFlags(u[uint8](t, 31)), u(t, QPNMask), u[uint32](t, 3)}
			for i := range m.r {
				m.r[i] = MRPRecord{u[uint32](t, 1<<32-1), u[uint8](t, 255), u(t, QPNMask)}
				m.m[i] = MRPRegion{u[uint64](t, 1<<64-1), u[uint32](t, 1<<32-1)}
			}
			return m
		},
		func(m mrpRegions, b []byte) []byte {
			b = m.h.AppendTo(b)
			for i := range m.r {
				b = m.m[i].AppendTo(m.r[i].AppendTo(b))
			}
			return b
		},
		func(b []byte) (m mrpRegions, _ []byte, _ error) {
			p, err := ParseMRP(b)
			if err != nil {
				return m, nil, err
			}
			if p.Len() != 2 {
				return m, nil, ErrLength
			}
			m.h = p.MRPHeader
			for i := range m.r {
				m.r[i], m.m[i] = p.Record(i), p.Region(i)
			}
			return m, nil, nil
		}),
	of("MRUpdate", MRUpdate{0x0a000002, 0x203, 0x7f0011223344}, "0a000002 00000203 00007f0011223344",
		func(t *rapid.T) MRUpdate {
			return MRUpdate{u[uint32](t, 1<<32-1), u[uint32](t, 1<<32-1), u[uint64](t, 1<<64-1)}
		},
		MRUpdate.AppendTo, ParseMRUpdate),
}

// mrpRegions is an MRP payload with two records that have regions.
type mrpRegions struct {
	h MRPHeader
	r [2]MRPRecord
	m [2]MRPRegion
}

// mrpOne is an MRP payload with one record.
type mrpOne struct {
	h MRPHeader
	r MRPRecord
}

func TestHeadersGolden(t *testing.T) {
	for _, c := range codecs {
		want := unhex(t, c.hex)
		// Bytes that are not written would show as 0xa5.
		buf := bytes.Repeat([]byte{0xa5}, 2+len(want))
		got := c.append(c.golden, buf[:2])
		if !bytes.Equal(got[2:], want) || got[0] != 0xa5 || got[1] != 0xa5 {
			t.Errorf("%s: appended %x, want a5a5%x", c.name, got, want)
		}
		v, rest, err := c.parse(want)
		if err != nil || v != c.golden || len(rest) != 0 {
			t.Errorf("%s: parsed %+v rest %d error %v, want %+v", c.name, v, len(rest), err, c.golden)
		}
	}
}

func TestHeadersRoundTrip(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.name, rapid.MakeCheck(func(t *rapid.T) {
			v := c.gen(t)
			b := c.append(v, nil)
			got, rest, err := c.parse(b)
			if err != nil || got != v || len(rest) != 0 {
				t.Fatalf("%+v became %x became %+v, rest %x, error %v", v, b, got, rest, err)
			}
		}))
	}
}

func TestHeadersTruncated(t *testing.T) {
	for _, c := range codecs {
		whole := unhex(t, c.hex)
		for n := range whole {
			short := append(make([]byte, 0, n), whole[:n]...) // cap = len
			if v, _, err := c.parse(short); err == nil {
				t.Errorf("%s: %d of %d bytes parsed to %+v", c.name, n, len(whole), v)
			}
		}
	}
}

func TestHeadersAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 128)
	bth, reth, eth := codecs[5].golden.(BTH), codecs[6].golden.(RETH), codecs[0].golden.(Ethernet)
	ip := codecs[2].golden.(IPv4)
	pfc := codecs[13].golden.(PFC)
	pre := IPv6Of(1)
	sack := codecs[15].golden.(SACK)
	for name, f := range map[string]func(){ // order does not matter: each is its own check
		"BTH":      func() { ParseBTH(bth.AppendTo(buf)) },
		"RETH":     func() { ParseRETH(reth.AppendTo(buf)) },
		"Ethernet": func() { ParseEthernet(eth.AppendTo(buf)) },
		"IPv4":     func() { ParseIPv4(ip.AppendTo(buf)) },
		"SACK":     func() { ParseSACK(sack.AppendTo(buf)) },
		"PFC":      func() { ParsePFC(pfc.AppendTo(buf)) },
		"ARP":      func() { ParseARP(ARP{}.AppendTo(buf)) },
		"ND":       func() { ParseND(ND{Type: NDSolicitation}.AppendTo(buf, pre, pre), pre, pre) },
		"MRP":      func() { ParseMRP(MRPRecord{}.AppendTo(MRPHeader{Total: 1}.AppendTo(buf))) },
		"MRUpdate": func() { ParseMRUpdate(MRUpdate{}.AppendTo(buf)) },
		"MRPRegion": func() {
			p, _ := ParseMRP(MRPRegion{}.AppendTo(MRPRecord{}.AppendTo(MRPHeader{Total: 1, Flags: MRPMRUpdate}.AppendTo(buf))))
			p.Region(0)
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestMRPLayout: 183 records fill a packet (R-C19), so N members take ceil((N-1)/183) (F-18).
func TestMRPLayout(t *testing.T) {
	if MRPRecordsMax != 183 || IPv4Len+UDPLen+MRPHeaderLen+183*MRPRecordLen != 1500 {
		t.Errorf("183 records must fill an MTU of 1500 (CEP-10), got %d", MRPRecordsMax)
	}
	b := MRPHeader{Seq: 1, Total: 2}.AppendTo(nil)
	for i := range MRPRecordsMax {
		b = MRPRecord{IP: uint32(i), QPN: QPN(i)}.AppendTo(b)
	}
	p, err := ParseMRP(b)
	if err != nil || p.Len() != 183 || p.Record(182) != (MRPRecord{IP: 182, QPN: 182}) {
		t.Fatalf("full packet: %v, %d records", err, p.Len())
	}
	if _, err := ParseMRP(MRPRecord{}.AppendTo(b)); !errors.Is(err, ErrLength) {
		t.Errorf("184 records: %v, want %v", err, ErrLength)
	}
	b[1], b[3] = 2, 2 // seq = total
	if _, err := ParseMRP(b); !errors.Is(err, ErrFormat) {
		t.Errorf("seq = total: %v, want %v", err, ErrFormat)
	}
}

func TestPSN(t *testing.T) {
	for _, c := range []struct {
		a, b PSN
		sub  int
	}{
		{0, 0, 0}, {1, 0, 1}, {0, 1, -1}, {0, 0xffffff, 1}, {0xffffff, 0, -1},
		{1<<23 - 1, 0, 1<<23 - 1}, {1 << 23, 0, -1 << 23}, {0x7fffff, 0xffffff, -1 << 23}, {5, 0xfffff0, 21},
	} {
		if got := c.a.Sub(c.b); got != c.sub {
			t.Errorf("%v - %v = %d, want %d", c.a, c.b, got, c.sub)
		}
		if c.a.After(c.b) != (c.sub > 0) {
			t.Errorf("%v after %v: %v", c.a, c.b, c.a.After(c.b))
		}
		if c.b.Add(c.sub) != c.a {
			t.Errorf("%v + %d = %v, want %v", c.b, c.sub, c.b.Add(c.sub), c.a)
		}
		if c.sub != -1<<23 && c.a.Before(c.b) != (c.sub < 0) {
			t.Errorf("%v before %v: %v", c.a, c.b, c.a.Before(c.b))
		}
	}
}

// TestOpcodeTable holds the table against the byte counts of the opcode table in
// the InfiniBand specification (chapter 9.2.1, table 38).
func TestOpcodeTable(t *testing.T) {
	head := map[int][]OpCode{
		12: {0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x20, 0x21, 0x22, 0x24, 0x27, 0x28, 0x0e},
		16: {0x03, 0x05, 0x09, 0x0d, 0x0f, 0x10, 0x11, 0x16, 0x17, 0x23, 0x25, 0x29},
		20: {0x64},
		24: {0x12, 0x65},
		28: {0x06, 0x0a, 0x0c, 0x26, 0x2a, 0x81},
		32: {0x0b, 0x2b},
		40: {0x13, 0x14},
	}
	assigned := 0
	for n, ops := range head {
		for _, o := range ops {
			assigned++
			if i := o.Info(); int(i.Header) != n || !o.Is(OpAssigned) {
				t.Errorf("%#02x %v: header %d assigned %v, want %d", uint8(o), o, i.Header, o.Is(OpAssigned), n)
			}
		}
	}
	for o := range 256 {
		if OpCode(o).Is(OpAssigned) {
			assigned--
		} else if OpCode(o).Info().Header != BTHLen {
			t.Errorf("unassigned %#02x has header %d", o, OpCode(o).Info().Header)
		}
	}
	if assigned != 0 {
		t.Errorf("%d opcodes assigned that this test does not list", -assigned)
	}
	if got := hex.EncodeToString([]byte{byte(OpUDSendOnlyImm.Operation()), byte(OpUDSendOnlyImm.Service())}); got != "0503" {
		t.Errorf("UD_SEND_ONLY_WITH_IMM splits to %s, want 0503", got)
	}
}
