// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// TestBound: on random graphs a bound is the earliest instant at which any walk from any part's
// next event can reach a part, as found by letting every event cause all that it can.
func TestBound(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		parts := 1 + random.IntN(7)
		var paths []Path
		for range random.IntN(3 * parts) {
			paths = append(paths, Path{random.IntN(parts), random.IntN(parts), vtime.Duration(1 + random.IntN(50))})
		}
		next := make([]vtime.Time, parts)
		for i := range next {
			if next[i] = vtime.Time(random.IntN(100)); random.IntN(3) == 0 {
				next[i] = vtime.Never
			}
		}
		reached := make([]vtime.Time, parts) // by a walk of one path at least
		for i := range reached {
			reached[i] = vtime.Never
		}
		for range parts + 1 {
			for _, p := range paths {
				if from := min(next[p.From], reached[p.From]); from != vtime.Never {
					reached[p.To] = min(reached[p.To], from.Add(p.Delay))
				}
			}
		}
		plan := NewPlan(parts, paths)
		for i := range parts {
			if got := plan.Bound(i, next); got != reached[i] {
				t.Fatalf("seed %d: part %d of %v with %v: bound %v, reached at %v", seed, i, paths, next, got, reached[i])
			}
		}
	}
}

// sink takes the messages of the server.
type sink []string

func (s *sink) Reply(at vtime.Time, r outofband.Reply) {
	*s = append(*s, fmt.Sprintf("%d: rank %d call %d %s", at, r.Rank, r.Call, r.Value))
}

func (s *sink) SetEntry(at vtime.Time, e wire.MulticastEntry) {
	*s = append(*s, fmt.Sprintf("%d: switch %d", at, e.Switch))
}

// TestChannel: requests are handled in the order of their arrival and, at one instant, in the order
// of the instant's mask, however they came; those of one node stay in order. Nothing is handled at
// the bound or later.
func TestChannel(t *testing.T) {
	order := Order{Key: 0xfeed, Bits: 8}
	want := ""
	for seed := range uint64(50) {
		server := outofband.NewServer(4, nil, outofband.Lab{})
		c := NewChannel(order, 10, server)
		random := rand.New(rand.NewPCG(seed, 2))
		for _, node := range random.Perm(4) {
			c.Request(100, node, node, outofband.Request{Kind: outofband.Get, Call: 1, Key: "k"})
			c.Request(100, node, node, outofband.Request{Kind: outofband.Get, Call: 2, Key: "k"})
		}
		c.Request(101, 3, 3, outofband.Request{Kind: outofband.Put, Key: "k", Value: []byte("v")})
		c.Request(102, 2, 2, outofband.Request{Kind: outofband.Get, Call: 3, Key: "k"})
		var out sink
		c.Advance(100, &out)
		if out != nil || c.Next() != 100 {
			t.Fatalf("at the bound: %v, next %v", out, c.Next())
		}
		c.Advance(102, &out)
		if c.Next() != 102 {
			t.Fatalf("next %v", c.Next())
		}
		c.Advance(vtime.Never, &out)
		if c.Next() != vtime.Never || len(out) != 9 || out[8] != "112: rank 2 call 3 v" {
			t.Fatalf("next %v, %q", c.Next(), out)
		}
		nodes := []int{0, 1, 2, 3}
		slices.SortFunc(nodes, func(a, b int) int { return int(uint64(a)^order.Mask(100)) - int(uint64(b)^order.Mask(100)) })
		for i, node := range nodes {
			for call := range 2 {
				if got, want := out[2*i+call], fmt.Sprintf("111: rank %d call %d v", node, call+1); got != want {
					t.Fatalf("reply %d is %q, want %q", 2*i+call, got, want)
				}
			}
		}
		if got := fmt.Sprint(out); want == "" {
			want = got
		} else if got != want {
			t.Fatalf("seed %d: %s, and another order of coming gives %s", seed, got, want)
		}
	}
}
