// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"testing"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// squeezed holds the counters of switches in an incast through small buffers.
type squeezed struct {
	drops          map[string]uint64 // by reason
	paused, marked uint64
}

// squeeze runs the incast. If check is set, invariants are checked after every event, and no
// message may fail.
func squeeze(t *testing.T, q *simlab.Squeeze, check bool) squeezed {
	t.Helper()
	n, err := sim.New(sim.Config{Check: check, Spec: q.Spec})
	if err != nil {
		t.Fatal(err)
	}
	simlab.SendPauses(n, 0, q.Pauses)
	g := q.Spec.Graph
	err = n.Run(sim.Job{Name: "squeeze", Hosts: simlab.Hosts(g), Params: q.Params(), Program: q.Program})
	if check && err != nil {
		t.Errorf("%v\n%v\nreplay: go test ./virtswitch -run Lossless -from %d -seeds 1", q, err, q.Spec.Seed)
	}
	out := squeezed{drops: map[string]uint64{}}
	for i := g.Hosts; i < len(g.Nodes); i++ {
		st := n.Switch(i).Stats()
		for _, why := range virtswitch.DropReasons() {
			if st.Drops[why] > 0 {
				out.drops[why.String()] += st.Drops[why]
			}
		}
		out.paused += st.PausesSent
		out.marked += st.Marked
	}
	return out
}

// TestLossless: a lossless class drops nothing under incast, cross traffic and pauses, however small
// the buffers, while headroom is that of the formula (promise D10); with less it drops in some labs,
// and counts the reason.
func TestLossless(t *testing.T) {
	from, count := simlab.Seeds(t, 500)
	var paused, marked, short uint64
	for seed := from; seed < from+count; seed++ {
		q := simlab.DrawSqueeze(t, seed)
		out := squeeze(t, q, true)
		if len(out.drops) > 0 {
			t.Errorf("%v\ndropped %v\nreplay: go test ./virtswitch -run Lossless -from %d -seeds 1", q, out.drops, seed)
		}
		paused += out.paused
		marked += out.marked
		if seed%5 != 0 {
			continue
		}
		q.Spec.Switch.Headroom = 1
		q.Spec.Switch.Buffer = simlab.Reserved(q.Spec) + 1
		for why, k := range squeeze(t, q, false).drops { // a sum
			if why != virtswitch.DropHeadroom.String() {
				t.Errorf("%v\ndropped as %s", q, why)
			}
			short += k
		}
	}
	t.Logf("seeds %d..%d: %d pauses, %d marks; with a headroom of one byte %d drops in every fifth", from, from+count-1, paused, marked, short)
	if paused == 0 || count >= 10 && (short == 0 || marked == 0) {
		t.Error("the sweep does not reach what it is for")
	}
}
