// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// TestClosedPairs: links go in user space between two servers if either way lets no large frames in at the port of links, or at that of the
// daemons where links use it. A way that was not probed says nothing.
func TestClosedPairs(t *testing.T) {
	all := []engine.Server{{Node: "x", Name: "a"}, {Node: "y", Name: "b"}, {Node: "z", Name: "c"}}
	whole, small := daemon.Frames(), []int{128, 1464}
	way := func(from, to string, frames, links []int) daemon.Seen {
		return daemon.Seen{From: from, To: to, Frames: frames, Links: links, LinksTried: links != nil}
	}
	for _, x := range []struct {
		name string
		seen []daemon.Seen
		want []shareapi.Pair
	}{
		{"all pass", []daemon.Seen{way("x", "y", whole, whole), way("y", "x", whole, whole)}, nil},
		{"the port of links", []daemon.Seen{way("x", "y", whole, whole), way("y", "x", whole, []int{})}, []shareapi.Pair{{A: 0, B: 1, Why: "a: UDP port 7942 lets nothing in from b"}}},
		{"in use, and fine", []daemon.Seen{way("x", "y", whole, nil)}, nil},
		{"in use, and closed", []daemon.Seen{way("z", "y", nil, nil)}, []shareapi.Pair{{A: 1, B: 2, Why: "b: UDP port 7940 lets nothing in from c"}}},
		{"fragments", []daemon.Seen{way("x", "z", whole, small), way("z", "x", whole, small)}, []shareapi.Pair{{A: 0, B: 2, Why: "a: from c, frames of up to 1464 bytes arrive, and links need 4214, " +
			"c: from a, frames of up to 1464 bytes arrive, and links need 4214"}}},
		{"not probed", []daemon.Seen{{From: "x", To: "y", Error: "no"}, {From: "y", To: "x", Closed: true}}, nil},
		{"enough for links", []daemon.Seen{way("x", "y", whole, []int{128, 1464, daemon.LinkFrame})}, nil},
	} {
		if got := closedPairs(all, x.seen, 7942); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
	if _, err := (Engine{State: t.TempDir()}).NoVXLAN(t.Context(), all, 7942); err == nil {
		t.Error("servers are probed without a certificate")
	}
}
