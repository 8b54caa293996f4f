// SPDX-License-Identifier: Apache-2.0

package fallback_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// deletion is longer than a leader repeats the deletion of a group (CEP-18).
const deletion = 100 * vtime.Millisecond

// groups returns the groups that may exist by the recorded events: the one in use, 0 if there is none,
// and the one that is to be used next.
func (s *safe) groups() (on, next uint32) {
	on, next = wire.GroupNet|1, wire.GroupNet|s.net.Leased()
	for _, e := range s.events {
		switch {
		case e.Kind == machine.EventReturn:
			on = e.Group
		case e.Kind == machine.EventFallback && e.Group == on:
			on = 0
		}
		if e.Kind != machine.EventReturn && e.Group == next {
			next = 0
		}
	}
	return on, next
}

// stale returns the switches that know a group that was left, and the hosts that have a queue
// pair in one, or two in one that was not.
func (s *safe) stale() (names []string) {
	on, next := s.groups()
	for i := range s.graph.Nodes {
		old := false
		if sw := s.net.Switch(i); sw != nil {
			for _, g := range sw.Groups() {
				old = old || g.McstID != on && g.McstID != next
			}
		} else {
			in := map[uint32]int{}
			s.net.NIC(i).QPs(func(q *virtrnic.QP) {
				if g := q.Remote(); (wire.GroupRange{}).Has(g) {
					in[g]++
					old = old || in[g] > 1 || g != on && g != next
				}
			})
		}
		if old {
			names = append(names, s.graph.Nodes[i].Name)
		}
	}
	return names
}

// pairs lists the peers of the queue pairs of each host.
func (s *safe) pairs() (all []string) {
	for i := range s.graph.Hosts {
		var of []string
		s.net.NIC(i).QPs(func(q *virtrnic.QP) {
			to := slices.IndexFunc(s.graph.Nodes, func(n topo.Node) bool { return n.IP == q.Remote() })
			if (wire.GroupRange{}).Has(q.Remote()) {
				of = append(of, "~")
			} else {
				of = append(of, s.graph.Nodes[to].Name)
			}
		})
		slices.Sort(of)
		all = append(all, strings.ReplaceAll(strings.Join(of, " "), "~", "group"))
	}
	return all
}

// TestFallbackLeavesNothing: once a group was left, no switch knows it and no member has a
// queue pair in it, whether its ranks came back to another one, to one without a member that
// is served apart, or to none; and of the connections that took its place those are there that
// are in use. When the run is over there is nothing at all.
func TestFallbackLeavesNothing(t *testing.T) {
	const full, partial = collective.FallbackFull, collective.FallbackPartial
	stall := faults.Spec{Kind: faults.KindStall, Window: from(2*vtime.Millisecond, 4*vtime.Millisecond)}
	slow := faults.Spec{Kind: faults.KindSlowReceiver, Rate: 500e6, Window: from(2*vtime.Millisecond, 0)}
	brief := slow
	brief.Window = from(2*vtime.Millisecond, 20*vtime.Millisecond)
	// Connections for probes are there from the beginning.
	group := []string{"h0 h1 h2 h3 h4 h5 group", "h0 group", "h0 group", "h0 group", "h0 group", "h0 group"}
	without := []string{"h0 h1 h2 h3 h4 h4 h5 group", "h0 group", "h0 group", "h0 group", "h0 h0", "h0 group"}
	overlay := []string{"h1 h1 h2 h3 h4 h4 h5", "h0 h0 h2", "h0 h1 h3", "h0 h2 h5", "h0 h0", "h0 h3"}
	group[0], without[0] = group[0][3:], without[0][3:]
	for _, c := range []struct {
		name, mode string
		fault      faults.Spec
		where      string
		returns    int
		want       []string
	}{
		{"full, and back", full, stall, "h3", 1, group},
		{"full, and not back", full, slow, "h4", 0, overlay},
		{"partial, and back", partial, stall, "h3", 2, group},
		{"partial, one apart", partial, slow, "h4", 1, without},
		{"partial, one apart for a time", partial, brief, "h4", 2, group},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := safeFabric()
			s := newSafe(t, g, err, 40, 100_000)
			s.mode, s.pause = c.mode, vtime.Millisecond
			s.add(c.fault, c.where)
			s.after = func(r *rank.Rank) {
				r.Sleep(deletion)
				if got := s.pairs(); !slices.Equal(got, c.want) {
					t.Errorf("there are the queue pairs %q, want %q", got, c.want)
				}
				for i := range s.graph.Hosts { // the job's, the probes', the group's; the source's of ranks apart
					if made := s.net.NIC(i).Made(); made.CQs > 4 || made.CQs > 3 && i > 0 || made.PDs != 1 {
						t.Errorf("h%d has %d completion queues and %d domains: those of groups that were left stay", i, made.CQs, made.PDs)
					}
				}
				if old := s.stale(); len(old) > 0 {
					t.Errorf("%v keep what was left; %v", old, s.events)
				}
			}
			if did := s.must(); did.Fallbacks != 1 || did.Returns != c.returns {
				t.Errorf("%+v; %v", did, s.events)
			}
			for _, name := range []string{"leaf0", "leaf1", "spine0", "spine1"} {
				if left := s.switchAt(name).Groups(); len(left) > 0 {
					t.Errorf("%s knows %d groups when the run is over", name, len(left))
				}
			}
			if got := strings.Join(s.pairs(), ""); got != "" {
				t.Errorf("there are the queue pairs %q when the run is over", got)
			}
		})
	}
}

// TestFallbackCutOff: the deletion of a group cannot reach a switch that is cut off; the leader repeats
// it ten times. Nor can it reach a switch behind one that has deleted the group, and so has no route
// for it: it keeps the group, and adapters do not.
func TestFallbackCutOff(t *testing.T) {
	for name, c := range map[string]struct { // independent of each other
		fault faults.Spec
		where func(spine string) string
		want  string
	}{
		"spine crashes":       {faults.Spec{Kind: faults.KindCrash, Window: from(0, vtime.Millisecond)}, func(spine string) string { return spine }, "leaf1"},
		"spine forgets":       {faults.Spec{Kind: faults.KindWipe}, func(spine string) string { return spine }, "leaf1"},
		"source's leaf does":  {faults.Spec{Kind: faults.KindWipe}, func(string) string { return "leaf0" }, "leaf1 spine"},
		"link down for 30 ms": {faults.Spec{Kind: faults.KindLinkDown, Window: from(0, 30*vtime.Millisecond)}, func(spine string) string { return "leaf1-" + spine }, ""},
		"link down for good":  {faults.Spec{Kind: faults.KindLinkDown}, func(spine string) string { return "leaf1-" + spine }, "leaf1"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := safeFabric()
			s := newSafe(t, g, err, 40, 100_000)
			s.pause = vtime.Millisecond
			spine := ""
			s.build().At(vtime.Time(2*vtime.Millisecond), func(now vtime.Time) {
				for _, spine = range []string{"spine0", "spine1"} {
					if len(s.switchAt(spine).Groups()) > 0 {
						break
					}
				}
				c.fault.Window.From, c.fault.Window.Probability = now, 1
				s.add(c.fault, c.where(spine))
			})
			s.after = func(r *rank.Rank) {
				r.Sleep(deletion)
				if got, want := strings.Join(s.stale(), " "), strings.Replace(c.want, "spine", spine, 1); got != want {
					t.Errorf("%q keep what was left, want %q; %v", got, want, s.events)
				}
			}
			if did := s.must(); did.Fallbacks != 1 || did.Returns != 1 {
				t.Errorf("%+v; %v", did, s.events)
			}
			if got := strings.Join(s.pairs(), ""); got != "" {
				t.Errorf("there are the queue pairs %q when the run is over", got)
			}
		})
	}
}
