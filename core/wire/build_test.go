// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestStartNext: a connected envelope starts the frame that Start builds of the whole header, whatever
// the headers below, and the checksum put together from parts is the plain one.
func TestStartNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flow := Flow{
			IPv6: rapid.Bool().Draw(t, "ipv6"), Src: rapid.Uint32().Draw(t, "src"), Dst: rapid.Uint32().Draw(t, "dst"),
			Traffic: rapid.Uint8().Draw(t, "traffic"), TTL: rapid.Uint8().Draw(t, "ttl"),
			SrcPort: rapid.Uint16().Draw(t, "port"), DstPort: PortRoCEv2,
		}
		if rapid.Bool().Draw(t, "tagged") {
			flow.VLAN = &VLAN{PCP: 3, ID: 7}
		}
		h := BTH{
			Migrated: true, OpCode: OpCode(rapid.Uint8().Draw(t, "opcode")), PKey: PKeyDefault, DestQP: QPN(rapid.Uint32Max(1<<24-1).Draw(t, "qpn")),
			PSN: PSN(rapid.Uint32Max(1<<24-1).Draw(t, "psn")), AckReq: rapid.Bool().Draw(t, "ackreq"),
			Selective: rapid.Bool().Draw(t, "selective"), Solicited: rapid.Bool().Draw(t, "solicited"),
		}
		var bits BTHBits
		for b, set := range map[BTHBits]bool{BitAckReq: h.AckReq, BitSelective: h.Selective, BitSolicited: h.Solicited} {
			if set {
				bits |= b
			}
		}
		plain := NewEnvelope(flow)
		connected := plain
		connected.Connect(h.DestQP)
		id, size := rapid.Uint16().Draw(t, "id"), rapid.IntRange(0, 4096).Draw(t, "size")
		var pool Pool
		a, b := pool.Get(), pool.Get()
		a.Start(&plain, h)
		b.StartNext(&connected, h.OpCode, h.PSN, bits)
		for _, f := range []*Frame{a, b} {
			f.SetPhantom(size)
			f.Seal(id, false)
		}
		x, y := a.AppendTo(nil), b.AppendTo(nil)
		if !bytes.Equal(x, y) {
			t.Fatalf("Start builds\n%x, StartNext\n%x", x, y)
		}
		if ip := a.IPHeader(); !flow.IPv6 && fold(sum16(ip)) != 0xffff {
			t.Fatalf("checksum of %x", ip)
		}
		op, version, pkey, dst := b.Transport()
		if op != b.OpCode() || version != b.Version() || pkey != b.PKey() || dst != b.DestQP() {
			t.Fatalf("Transport returns %v %d %x %d of %x", op, version, pkey, dst, y)
		}
	})
}

// TestSumIPv4: adding wide words folds to the same as adding narrow ones.
func TestSumIPv4(t *testing.T) {
	for _, h := range [][]byte{make([]byte, IPv4Len), bytes.Repeat([]byte{0xff}, IPv4Len), append(bytes.Repeat([]byte{0xff}, 19), 0xfe)} {
		if got, want := sumIPv4(h), fold(sum16(h)); got != want {
			t.Errorf("sum of %x: %x, want %x", h, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOfN(rapid.Byte(), IPv4Len, IPv4Len).Draw(t, "header")
		if got, want := sumIPv4(h), fold(sum16(h)); got != want {
			t.Fatalf("sum of %x: %x, want %x", h, got, want)
		}
	})
}
