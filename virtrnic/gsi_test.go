// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// generalRun sends queue pair 1 of a NIC datagrams of another NIC, and packets that differ from it in at most one field. Only
// those that differ in nothing come through, as they were sent.
func generalRun(t *testing.T, r *rand.Rand) *NIC {
	t.Helper()
	p := newPair(t, pairOptions{typ: TypeUD, cqDepth: 8, mtu: 1024})
	var want, got [][]byte
	p.nic[1].SetGSI(func(_ vtime.Time, src uint32, mad []byte) {
		if src != p.nic[0].IP() {
			t.Errorf("a datagram is said to come from %x", src)
		}
		got = append(got, slices.Clone(mad))
	})
	for range 8 {
		mad := make([]byte, madLen)
		for i := range mad {
			mad[i] = byte(r.Uint32())
		}
		wrong := r.IntN(8)
		if wrong == 7 {
			want = append(want, mad)
			p.nic[0].SendMAD(p.net.Now, p.nic[1].IP(), mad)
			continue
		}
		e := p.nic[0].envelope(&QP{num: wire.QPNGSI, attr: QPAttr{AV: AH{DGID: p.nic[1].IP()}, DestQPN: wire.QPNGSI}})
		bth, deth := wire.BTH{OpCode: wire.OpUDSendOnly, PKey: wire.PKeyDefault, DestQP: wire.QPNGSI}, wire.DETH{QKey: gsiQKey, SrcQP: wire.QPNGSI}
		switch wrong {
		case 0:
			bth.OpCode = wire.OpSendOnly
		case 1:
			bth.PKey = 0x8000 | uint16(r.IntN(0x7fff))
		case 2:
			deth.QKey ^= 1 << r.IntN(32)
		case 3:
			deth.SrcQP = wire.QPN(2 + r.IntN(100))
		case 4:
			mad = mad[:4*r.IntN(madLen/4)]
		}
		f := p.net.Pool.Get()
		f.Start(&e, bth)
		if bth.OpCode == wire.OpUDSendOnly {
			f.AddDETH(deth)
		}
		copy(attach(p.net.Pool, f, len(mad)), mad)
		f.Seal(0, false)
		switch wrong {
		case 5:
			p.net.Pool.Damage(f, uint64(8*(60+r.IntN(200))+r.IntN(8)))
		case 6:
			want = append(want, mad) // nothing is wrong with it
		}
		p.inject(f)
	}
	if err := p.net.Run(10000); err != nil {
		t.Fatal(err)
	}
	for _, all := range [][][]byte{want, got} { // injected datagrams arrive sooner than sent ones
		slices.SortFunc(all, slices.Compare)
	}
	if !slices.EqualFunc(want, got, slices.Equal) {
		t.Errorf("%d datagrams came of %d", len(got), len(want))
	}
	return p.nic[1]
}

// TestGeneral runs generalRun for many seeds.
func TestGeneral(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+min(*seedCount, 200); seed++ {
		if generalRun(t, rand.New(rand.NewPCG(seed, 27))); t.Failed() {
			t.Fatalf("replay: go test ./virtrnic -run General -from %d -seeds 1", seed)
		}
	}
}

// TestMADMigrated: a datagram of connection management has MigReq set, as those of ConnectX adapters have.
func TestMADMigrated(t *testing.T) {
	p, sent := newPair(t, pairOptions{typ: TypeUD, cqDepth: 8, mtu: 1024}), 0
	p.nic[1].SetGSI(func(vtime.Time, uint32, []byte) {})
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (v faults.Verdict) {
		if sent++; f.AppendTo(nil)[wire.EthernetLen+wire.IPv4Len+wire.UDPLen+1]&0x40 == 0 {
			t.Errorf("%v has MigReq 0", f)
		}
		return v
	}
	p.nic[0].SendMAD(p.net.Now, p.nic[1].IP(), make([]byte, madLen))
	if err := p.net.Run(1000); err != nil || sent != 1 {
		t.Errorf("%d datagrams: %v", sent, err)
	}
}
