// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// TestOverlayOf: an overlay has the ranks that lack the message by the plan, or all that are not apart.
// This rank and the source are in it, and its name is unique.
func TestOverlayOf(t *testing.T) {
	all := []int{0, 1, 2, 3}
	for _, c := range []struct {
		what    string
		plan    step
		seq     int
		source  int
		name    string
		members []int
	}{
		{"all", step{Alive: all}, 0, 0, "over/6", all},
		{"two are apart", step{Alive: all, Apart: []int{2, 3}}, 0, 1, "over/6", []int{0, 1}},
		{"the source is apart", step{Alive: all, Apart: []int{2}}, 0, 2, "", nil},
		{"some lack it", step{Alive: all, Seq: 5, Lacking: []int{0, 1, 3}}, 5, 0, "over/6/rest", []int{0, 1, 3}},
		{"some lacked the one before", step{Alive: all, Seq: 5, Lacking: []int{0, 1}}, 6, 0, "over/6", all},
		{"this rank has it", step{Alive: all, Seq: 5, Lacking: []int{0, 3}}, 5, 0, "", nil},
		{"nobody lacks it", step{Alive: all, Seq: 5, Lacking: []int{1}}, 5, 1, "", nil},
	} {
		m := newMembership(1, 4)
		m.adopt(6, c.plan)
		if name, members := overlayOf(&m, c.seq, c.source); name != c.name || !slices.Equal(members, c.members) {
			t.Errorf("%s: %q of %v, want %q of %v", c.what, name, members, c.name, c.members)
		}
	}
}

// TestOverlayWaits: between a stop and its plan no rank begins to pass a message on.
func TestOverlayWaits(t *testing.T) {
	m := newMembership(1, 4)
	m.halted = true
	o := overlay{}
	if in, err := o.join(&m, &message{}); in || err != nil || o.run != nil {
		t.Errorf("joined: %v, %v", in, err)
	}
}

// whole is a relay whose message has come, or not.
type whole bool

// Begin implements Relay.
func (w whole) Begin(*rank.Buffer, int, int) error { return nil }

// Run implements Relay.
func (w whole) Run() (vtime.Time, error) { return 0, nil }

// Received implements Relay.
func (w whole) Received() bool { return bool(w) }

// TestRelayingReceived: a relay reports its own message alone.
func TestRelayingReceived(t *testing.T) {
	var none *relaying
	if none.received(0) {
		t.Error("no relay has received a message")
	}
	for _, here := range []bool{false, true} {
		run := &relaying{seq: 2, relay: whole(here)}
		if run.received(2) != here || run.received(1) || run.received(3) {
			t.Errorf("a relay of message 2, received %v: %v, %v, %v", here, run.received(1), run.received(2), run.received(3))
		}
	}
}
