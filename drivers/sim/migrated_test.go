// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// migrated returns the MigReq bit of a frame, from its bytes.
func migrated(f *wire.Frame) bool {
	at := wire.EthernetLen + wire.UDPLen + wire.IPv4Len
	if f.IPv6() {
		at += wire.IPv6Len - wire.IPv4Len
	}
	if f.Tag() != nil {
		at += wire.VLANLen
	}
	return f.AppendTo(nil)[at+1]&0x40 != 0
}

// TestMigrated: adapters and switches set MigReq in all packets that they send, as ConnectX adapters do, but in
// CNPs, in which these clear it. Some adapters drop an acknowledgement without it (rxe-dev issue 6).
func TestMigrated(t *testing.T) {
	const seeds = 12
	seen := map[wire.OpCode]int{}
	for seed := uint64(1); seed <= seeds; seed++ {
		v := drawTrial(t, seed)
		n, err := New(v.config())
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		look := func(_ vtime.Time, f *wire.Frame) {
			if f.Kind() != wire.KindRoCE || !f.CheckICRC() { // a fault may have turned the bit
				return
			}
			seen[f.OpCode()]++
			if wrong == 0 && migrated(f) != (f.OpCode() != wire.OpCNP) {
				t.Errorf("seed %d: MigReq of %v is %v", seed, f, migrated(f))
				wrong++
			}
		}
		for id := range v.graph.Nodes {
			for port := range v.graph.Nodes[id].Links {
				n.SetTap(id, port, look)
			}
		}
		if o := v.runOn(n, []*Net{n}, new(sightings)); o.err != nil {
			t.Errorf("%v\n%v", v, o.err)
		}
	}
	for _, op := range []wire.OpCode{
		wire.OpSendOnly, wire.OpWriteFirst, wire.OpAcknowledge, wire.OpReadRequest, wire.OpReadRespOnly, wire.OpFetchAdd, wire.OpCompareSwap,
		wire.OpAtomicAck, wire.OpUC | wire.OpSendOnly, wire.OpUDSendOnly, wire.OpCNP,
	} {
		if seen[op] == 0 {
			t.Errorf("%d seeds have no %v: %v", seeds, op, seen)
		}
	}
}
