// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestTies: acknowledgements of members for the same packet leave a group in the same state whatever their order, and
// it sends its source the same one acknowledgement, or none, after the last of those that it waits for. So may a later
// packet of data come before, between or after them. drivers/sim leaves out periods because of that.
func TestTies(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 11))
		paths := 2 + r.IntN(9)
		base := wire.PSN(r.Uint32()) & wire.PSNMask
		step := 1 + r.IntN(16)
		behind := make([]bool, paths) // members that have not acknowledged the packet
		var coming []int
		for i := 1; i < paths; i++ {
			behind[i] = r.IntN(4) > 0
			if behind[i] && r.IntN(3) > 0 {
				coming = append(coming, i)
			}
		}
		var want string
		for order := range 24 {
			a := aggregation{rules: RulesFixed()}
			for range paths {
				a.addPath()
			}
			a.open(base)
			for i := 1; i < paths; i++ { // what was before
				if !behind[i] {
					a.onAck(i, base.Add(step-1), 7)
				}
			}
			r.Shuffle(len(coming), func(i, k int) { coming[i], coming[k] = coming[k], coming[i] })
			data, sent := r.IntN(len(coming)+1), ""
			for at, i := range coming {
				if at == data {
					a.onData(base.Add(step))
				}
				if f := a.onAck(i, base.Add(step-1), 7); f.ack || f.nak {
					sent += fmt.Sprintf("%+v, message %d; ", f, a.msn())
				}
			}
			got := fmt.Sprintf("%+v, sent %s", a, sent)
			if order == 0 {
				want = got
			} else if got != want {
				t.Fatalf("seed %d, order %v: %s\nbefore: %s", seed, coming, got, want)
			}
		}
	}
}
