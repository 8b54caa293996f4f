// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestRandomMixed: WRITEs, READs and atomics in both directions at once, with and without
// selective repeat and congestion control at either end, over a wire that loses, doubles,
// delays and marks. Every request completes once and in order, every byte is right, and
// an atomic happens once.
func TestRandomMixed(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		if !randomMixed(t, seed) {
			t.Fatalf("replay: go test ./virtrnic -run RandomMixed -from %d -seeds 1", seed)
		}
	}
}

func randomMixed(t *testing.T, seed uint64) bool {
	r := rand.New(rand.NewPCG(seed, 11))
	o := pairOptions{
		mtu: 256 << r.IntN(4), ackEvery: 1 + r.IntN(6), psn: wire.PSN(0).Add(-r.IntN(60)), timeout: 6, retry: 7, rnr: 7,
		irn: drawIRN(r), rdAtomic: uint8(1 + r.IntN(4)), delay: vtime.Duration(1+r.IntN(3000)) * vtime.Nanosecond,
	}
	if r.IntN(2) == 0 {
		o.congestion = setOf(t, []string{"dcqcn", "dcqcn-connectx", "dcqcn-hpcc"}[r.IntN(3)])
	}
	p := newPair(t, o)
	bad, mark := 0.02*r.Float64(), 0.2*r.Float64()
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
		fate.Drop, fate.Twice = r.Float64() < bad, r.Float64() < bad/2
		if r.Float64() < bad {
			fate.Delay = vtime.Duration(r.IntN(4000)) * vtime.Nanosecond
			fate.Delay2 = fate.Delay
		}
		if r.Float64() < mark {
			f.SetECN(wire.ECNCE)
		}
		return fate
	}
	type check struct{ from, to Bytes }
	var checks [2][]check
	var adds [2]uint64
	var counter [2]Bytes
	var cm [2]*MR
	for i := range 2 {
		counter[i], cm[i] = p.region(i, 8, 0)
	}
	for k := range 2 + r.IntN(12) {
		i := r.IntN(2)
		n := r.IntN(12_000)
		near, nm := p.region(i, max(n, 8), uint64(2*k+1))
		far, fm := p.region(1-i, max(n, 8), uint64(2*k+2))
		w := SendWR{WRID: uint64(len(checks[i])), SGE: whole(nm, n), RemoteAddr: fm.Addr(), RKey: fm.RKey()}
		switch r.IntN(3) {
		case 0:
			w.Opcode = WRRDMAWrite
			checks[i] = append(checks[i], check{near[:n], far[:n]})
		case 1:
			w.Opcode = WRRDMARead
			checks[i] = append(checks[i], check{far[:n], near[:n]})
		default:
			w.Opcode, w.SwapAdd, w.SGE, w.RemoteAddr, w.RKey = WRAtomicFetchAdd, uint64(1+r.IntN(9)), whole(nm, 8), cm[1-i].Addr(), cm[1-i].RKey()
			adds[1-i] += w.SwapAdd
			checks[i] = append(checks[i], check{})
		}
		p.post(i, w)
	}
	if err := p.net.Run(1 << 20); err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return false
	}
	for i := range 2 {
		got := p.completions(i)
		good := len(got) == len(checks[i]) && p.net.Pool.Live == 0
		for k, w := range got {
			good = good && w.WRID == uint64(k) && w.Status == WCSuccess && bytes.Equal(checks[i][k].from, checks[i][k].to)
		}
		if sum := binary.LittleEndian.Uint64(counter[1-i]); !good || sum != adds[1-i] {
			t.Errorf("seed %d side %d, IRN %v: %d frames live, the counter has %d, want %d, of %d completions %+v",
				seed, i, o.irn, p.net.Pool.Live, sum, adds[1-i], len(checks[i]), got)
			return false
		}
	}
	return true
}
