// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestEventLog: the reports in several logs are passed on once, up to the given instant, in the order of instants, of nodes, and of
// each node's reports.
func TestEventLog(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var told, got []logged
		nets := make([]*Net, 1+r.IntN(3))
		logs := make([]*eventLog, len(nets))
		var tracers []machine.Tracer
		for i := range logs {
			nets[i] = &Net{}
			logs[i] = &eventLog{net: nets[i]}
		}
		for node := range 1 + r.IntN(9) {
			l := logs[node%len(logs)]
			tracers = append(tracers, l.tracers(func(int) machine.Tracer { return tellTo{&got, node} })(node))
		}
		passed, count := 0, int64(0)
		var memory logHeap
		for range 40 {
			for range r.IntN(60) {
				node := r.IntN(len(tracers))
				n := nets[node%len(nets)]
				n.now += vtime.Time(r.IntN(2))
				count++
				told = append(told, logged{node, n.now, machine.Event{Value: count}})
				tracers[node].Trace(n.now, machine.Event{Value: count})
			}
			before := nets[0].now // to which all have come
			for _, n := range nets {
				before = min(before, n.now)
			}
			pass(logs, &memory, before)
			slices.SortStableFunc(told[passed:], func(a, b logged) int {
				return cmp.Or(cmp.Compare(a.now, b.now), cmp.Compare(a.node, b.node))
			})
			for passed < len(told) && told[passed].now < before {
				passed++
			}
			if !slices.Equal(got, told[:passed]) {
				t.Fatalf("seed %d, before %d: passed on\n%v\nwant\n%v", seed, before, fmt.Sprint(got), fmt.Sprint(told[:passed]))
			}
		}
	}
}

// tellTo is a tracer of a node.
type tellTo struct {
	to   *[]logged
	node int
}

// Trace implements machine.Tracer.
func (n tellTo) Trace(now vtime.Time, e machine.Event) { *n.to = append(*n.to, logged{n.node, now, e}) }
