// SPDX-License-Identifier: Apache-2.0

package fallback_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// unheard loses all acknowledgements to the first queue pair of a class that gets one.
type unheard struct {
	class uint8
	qp    wire.QPN
	lost  int
}

// Arrive implements faults.Link.
func (u *unheard) Arrive(_ vtime.Time, f *wire.Frame) (v faults.Verdict) {
	if !simlab.IsAck(f) || f.Traffic()>>2 != u.class>>2 {
		return v
	}
	if u.qp == 0 {
		u.qp = f.DestQP()
	}
	if v.Drop = f.DestQP() == u.qp; v.Drop {
		u.lost++
	}
	return v
}

// TestFallbackUnheard: a member that is served apart gets all of a message, and none of its
// acknowledgements reach the source until its connection gives up. The connection is made again, and
// the message is not repeated, since the member does not wait for it. Found by the search of timelines
// (seed 265 of the lab round): the source waited for ever for a rank that already had its message.
func TestFallbackUnheard(t *testing.T) {
	g, err := safeFabric()
	s := newSafe(t, g, err, 12, 100_000) // no more than is under way at a time
	s.mode = collective.FallbackPartial
	s.add(faults.Spec{Kind: faults.KindSlowReceiver, Rate: 500e6, Window: from(0, 0)}, "h4")
	u := &unheard{class: s.params.LowClass}
	s.net.SetFault(s.link("h4", "leaf1"), u)
	s.net.Observe = func() error {
		if s.net.Now() > vtime.Time(10*vtime.Second) {
			return fmt.Errorf("it goes on after 10 s, at %s", s.net.Waiting())
		}
		return nil
	}
	did := s.must()
	if u.lost == 0 || did.Fallbacks != 1 || did.Apart < len(s.sizes)-1 || len(did.Lost) > 0 {
		t.Errorf("%d acknowledgements were lost; %+v; %v", u.lost, did, s.events)
	}
	for _, e := range s.events {
		if e.Kind == machine.EventReturn && e.Text != "without h4" {
			t.Errorf("h4 crawls, and is in the group: %v", s.events)
		}
	}
	for m := range s.sizes {
		if s.apart[m][4] {
			return
		}
	}
	t.Error("h4 was not served apart")
}
