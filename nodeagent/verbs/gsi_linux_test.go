// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestGeneralServices: of the packets for queue pair 1 the NIC passes on datagrams of 256 bytes with the right Q_Key and
// from the right queue pair, and drops the rest, each for its own reason.
func TestGeneralServices(t *testing.T) {
	h, _ := hosts(t)
	for _, c := range []struct {
		what string
		op   wire.OpCode
		pkey uint16
		deth wire.DETH
		size int
		flip bool // a bit of the payload after the checksum was made
		why  virtrnic.DropReason
	}{
		{what: "as it must be", op: wire.OpUDSendOnly, pkey: 0xffff, deth: wire.DETH{QKey: 0x80010000, SrcQP: 1}, size: 256},
		{"Q_Key", wire.OpUDSendOnly, 0xffff, wire.DETH{QKey: 0x11111111, SrcQP: 1}, 256, false, virtrnic.DropQKey},
		{"source", wire.OpUDSendOnly, 0xffff, wire.DETH{QKey: 0x80010000, SrcQP: 18}, 256, false, virtrnic.DropQKey},
		{"length", wire.OpUDSendOnly, 0xffff, wire.DETH{QKey: 0x80010000, SrcQP: 1}, 252, false, virtrnic.DropInvalid},
		{"partition", wire.OpUDSendOnly, 0x8001, wire.DETH{QKey: 0x80010000, SrcQP: 1}, 256, false, virtrnic.DropPKey},
		{"service", wire.OpSendOnly, 0xffff, wire.DETH{}, 256, false, virtrnic.DropService},
		{"checksum", wire.OpUDSendOnly, 0xffff, wire.DETH{QKey: 0x80010000, SrcQP: 1}, 256, true, virtrnic.DropICRC},
	} {
		h[1].loop.Call(vtime.Never, func(now vtime.Time) {
			pool := h[1].loop.Pool()
			src, dst := h[0].nic.IP(), h[1].nic.IP()
			e := wire.NewEnvelope(wire.Flow{
				SrcMAC: wire.HostMAC(src), DstMAC: wire.HostMAC(dst), Src: src, Dst: dst, TTL: 64, SrcPort: 0xc001, DstPort: wire.PortRoCEv2,
			})
			f := pool.Get()
			f.Start(&e, wire.BTH{OpCode: c.op, PKey: c.pkey, DestQP: wire.QPNGSI})
			if c.op == wire.OpUDSendOnly {
				f.AddDETH(c.deth)
			}
			b := pool.Block()
			clear(b.Fill(c.size))
			f.SetPayload(b)
			f.Seal(0, false)
			if c.flip {
				pool.Damage(f, 400*8)
			}
			before := *h[1].nic.Stats()
			h[1].server.Gate().HandleFrame(now, 0, f)
			after := h[1].nic.Stats()
			if c.what == "as it must be" {
				if after.Delivered != before.Delivered+1 || after.Drops != before.Drops {
					t.Errorf("%s: %v", c.what, after.Drops)
				}
				return
			}
			want := before.Drops
			want[c.why]++
			if after.Drops != want {
				t.Errorf("%s: drops are %v and not %v", c.what, after.Drops, want)
			}
		})
	}
}
