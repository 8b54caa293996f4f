// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestRemembered: the state that a Bridge keeps from packet to packet, and the shorter way by which Seal completes most trusted
// packets, change no bit: packets of a few flows, in any order, with and without tag, IPv6 and trust, have the headers and the
// ICRC that a new Bridge gives them, right checksums, and the headers that they have without trust.
func TestRemembered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		kept := Bridge{Dst: 10<<24 | rapid.Uint32Range(0, 0xffff).Draw(t, "dst"), Src: GroupNet | rapid.Uint32Range(0, 0xffff).Draw(t, "src"), DestQP: 0x33}
		for range rapid.IntRange(1, 12).Draw(t, "packets") {
			w := Flow{
				Src: 10<<24 | rapid.Uint32Range(1, 3).Draw(t, "from"), Dst: GroupNet | rapid.Uint32Range(0, 2).Draw(t, "to"), TTL: 64,
				DstPort: PortRoCEv2, SrcPort: 0xc000, IPv6: rapid.Bool().Draw(t, "IPv6"), Traffic: rapid.Uint8().Draw(t, "traffic"),
			}
			if rapid.Bool().Draw(t, "tag") {
				w.VLAN = &VLAN{PCP: 3, ID: 7}
			}
			e := NewEnvelope(w)
			psn, size := PSN(rapid.Uint32Range(0, uint32(PSNMask)).Draw(t, "PSN")), rapid.IntRange(0, 4096).Draw(t, "size")
			build := func(trusted bool) *Frame {
				f := p.Get()
				f.Start(&e, BTH{OpCode: OpSendOnly, PKey: PKeyDefault, DestQP: QPNGSI, PSN: psn})
				f.SetPhantom(size)
				f.Seal(uint16(psn), trusted)
				return f
			}
			plain, trusted := build(false), build(true)
			if !bytes.Equal(plain.Header(), trusted.Header()) {
				t.Fatalf("sealed\n%x, with trust\n%x", plain.Header(), trusted.Header())
			}
			for _, f := range []*Frame{plain, trusted} {
				fresh, want := Bridge{Dst: kept.Dst, Src: kept.Src, DestQP: kept.DestQP}, p.Clone(f)
				fresh.Apply(want)
				kept.Apply(f)
				if !bytes.Equal(f.AppendTo(nil), want.AppendTo(nil)) || !f.CheckICRC() {
					t.Fatalf("bridged\n%x, by a new bridge\n%x", f.Header(), want.Header())
				}
				if !w.IPv6 && fold(sum16(f.IPHeader())) != 0xffff {
					t.Fatalf("the checksum of %x is wrong", f.IPHeader())
				}
				p.Put(f)
				p.Put(want)
			}
		}
	})
}
