// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestRequests: random requests that complete in random orders, some of them late or never, against a map.
func TestRequests(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		var q requests
		want := map[uint64]*Request{}
		var open []uint64
		number, most := uint64(0), 0
		late := random.IntN(20) // of 20 requests that wait long
		for range random.IntN(3000) {
			switch {
			case random.IntN(500) == 0:
				q.forget()
				clear(want)
				open = open[:0]
			case len(open) == 0 || random.IntN(2) == 0:
				r := &Request{}
				number++
				if got := q.add(r); got != number {
					t.Fatalf("seed %d: number %d, want %d", seed, got, number)
				}
				want[number] = r
				if random.IntN(20) >= late {
					open = append(open, number)
				}
			default:
				n := open[0] // most complete in about their order
				if i := random.IntN(len(open)); random.IntN(4) == 0 {
					n = open[i]
					open[i] = open[0]
				}
				open = open[1:]
				if got := q.take(n); got != want[n] {
					t.Fatalf("seed %d: request %d is %p, want %p", seed, n, got, want[n])
				}
				delete(want, n)
			}
			for _, n := range []uint64{0, random.Uint64N(number + 1), number + 1, random.Uint64()} {
				if want[n] == nil && q.take(n) != nil {
					t.Fatalf("seed %d: there is a request %d", seed, n)
				}
			}
			if most = max(most, len(want)); len(q.ring) > 4*max(most, ringMin) {
				t.Fatalf("seed %d: %d places for %d requests at most", seed, len(q.ring), most)
			}
		}
		for n, r := range want {
			if q.take(n) != r {
				t.Fatalf("seed %d: request %d is lost", seed, n)
			}
		}
	}
}

// TestOpen: of some sends, those are kept for which Wait has anything to do: all, if each look at the NIC takes time.
func TestOpen(t *testing.T) {
	open, over, failed := &Request{send: true}, &Request{send: true, done: true}, &Request{send: true, done: true, status: virtrnic.WCWRFlushErr}
	for poll, want := range map[vtime.Duration][]*Request{0: {open, failed}, vtime.Nanosecond: {over, open, over, failed, over}} {
		r := inside{&Rank{c: rankhost.Config{Params: &rankhost.Params{Cost: rankhost.HostCost{Poll: poll}}}}}
		if got := r.Open([]*Request{over, open, over, failed, over}); !slices.Equal(got, want) {
			t.Errorf("a look of %v: %d are open, want %d", poll, len(got), len(want))
		}
	}
}
