// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// The fault scenarios of docs/ledgers/rules/faults.md. Every scene runs with
// all invariants checked after every event, and every byte is compared.

// naksAt returns the PSNs of the NAKs that made a host go back, in order.
func (s *scene) naksAt(host string) (psns []wire.PSN) {
	for _, e := range s.of(host, machine.EventNakReceived) {
		psns = append(psns, e.PSN)
	}
	return psns
}

// TestDataLost (FLT-1): one data packet lost on one path; two packets lost on two paths, the
// smaller PSN's NAK must reach the sender first.
func TestDataLost(t *testing.T) {
	t.Run("one path", func(t *testing.T) {
		s := starScene(t)
		s.lose("leaf0", "h2", simlab.IsData, 5)
		s.must(message{0, 40})
		if got := s.naksAt("h0"); fmt.Sprint(got) != "[4]" {
			t.Errorf("source went back to %v, want [4]", got)
		}
		s.wantTimeouts("h0", 0)
		s.wantNoDuplicates("h1", "h3")
	})
	t.Run("two paths", func(t *testing.T) {
		s := starScene(t)
		s.lose("leaf0", "h1", simlab.IsData, 5)  // PSN 4
		s.lose("leaf0", "h2", simlab.IsData, 10) // PSN 9
		s.must(message{0, 40})
		got := s.naksAt("h0")
		if len(got) == 0 || got[0] != 4 || !slices.IsSorted(got) {
			t.Errorf("source went back to %v, want 4 first and nothing backwards", got)
		}
		s.wantTimeouts("h0", 0)
	})
}

// TestLargerNakFirst (FLT-2): the NAK of the larger PSN reaches the switch before that of the smaller.
func TestLargerNakFirst(t *testing.T) {
	s := starScene(t)
	s.lose("leaf0", "h1", simlab.IsData, 5)
	s.lose("leaf0", "h2", simlab.IsData, 6)
	s.fault("h1", "leaf0", delayed{simlab.IsNak, 4 * vtime.Microsecond})
	s.must(message{0, 60})
	got := s.naksAt("h0")
	if len(got) == 0 || got[0] != 4 {
		t.Errorf("source went back to %v, want 4 first", got)
	}
	s.wantTimeouts("h0", 0)
}

// TestSamePacketLostTwice (FLT-3): the same packet lost twice. RC sends one NAK per gap, so the timeout has
// to find the second loss.
func TestSamePacketLostTwice(t *testing.T) {
	s := starScene(t)
	s.lose("leaf0", "h2", withPSN(simlab.IsData, 4), 1, 2)
	s.must(message{0, 40})
	if n := s.nic("h2").SendNAK; n != 1 {
		t.Errorf("receiver sent %d NAKs for one gap, want 1", n)
	}
	s.wantTimeouts("h0", 1)
	s.wantNoDuplicates("h1", "h3")
}

// TestLastPacketLost (FLT-4): the last packet of a message lost: nothing follows that could show the gap.
func TestLastPacketLost(t *testing.T) {
	s := starScene(t)
	s.lose("leaf0", "h3", withPSN(simlab.IsData, 39), 1)
	s.must(message{0, 40})
	if n := s.nic("h3").SendNAK; n != 0 {
		t.Errorf("receiver sent %d NAKs, want none", n)
	}
	s.wantTimeouts("h0", 1)
	s.wantNoDuplicates("h1", "h2")
}

// levels are the links an aggregated acknowledgement takes in the walk-through, from
// the farthest receiver to the source.
var levels = [][2]string{{"L3", "S3"}, {"S3", "C2"}, {"C2", "S1"}, {"S1", "L1"}, {"L1", "S"}}

// TestAggregatedAckLost (FLT-5): an aggregated acknowledgement lost in mid-stream and at the end, at every
// level of the tree. In mid-stream the next one covers it; at the end the switch
// whose paths all have the packet answers the retransmission (CEP-34).
func TestAggregatedAckLost(t *testing.T) {
	for _, l := range levels {
		t.Run(l[0]+">"+l[1]+"/middle", func(t *testing.T) {
			g, err := figureTree()
			s := newScene(t, g, err)
			s.lose(l[0], l[1], withPSN(simlab.IsAck, 10), 1)
			s.must(message{0, 40})
			s.wantTimeouts("S", 0)
		})
		t.Run(l[0]+">"+l[1]+"/end", func(t *testing.T) {
			g, err := figureTree()
			s := newScene(t, g, err)
			s.lose(l[0], l[1], withPSN(simlab.IsAck, 39), 1)
			s.must(message{0, 40})
			s.wantTimeouts("S", 1)
			s.wantNoDuplicates("R1", "R2", "R3")
			repeated := uint64(0)
			for _, name := range []string{"L1", "S1", "C2", "S3", "L2", "L3", "L4"} {
				repeated += s.sw(name).Stats().AcksRepeated
			}
			if repeated == 0 {
				t.Error("no switch repeated its acknowledgement")
			}
		})
	}
}

// TestHostAckLost (FLT-6): an acknowledgement of a host lost, in mid-stream and at the end.
func TestHostAckLost(t *testing.T) {
	s := starScene(t)
	s.lose("h1", "leaf0", withPSN(simlab.IsAck, 10), 1)
	s.must(message{0, 40})
	s.wantTimeouts("h0", 0)

	s = starScene(t)
	s.lose("h1", "leaf0", withPSN(simlab.IsAck, 39), 1)
	s.must(message{0, 40})
	s.wantTimeouts("h0", 1)
	if d := s.nic("h1").DuplicateRequest; d != 1 {
		t.Errorf("h1 has seen %d packets again, want the last one once", d)
	}
	s.wantNoDuplicates("h2", "h3")
}

// TestNakLostBetweenSwitches (FLT-7): a NAK lost between switches. Nobody repeats it: the timeout recovers.
func TestNakLostBetweenSwitches(t *testing.T) {
	for _, l := range levels {
		g, err := figureTree()
		s := newScene(t, g, err)
		s.lose("L3", "R2", simlab.IsData, 5)
		s.lose(l[0], l[1], simlab.IsNak, 1)
		s.must(message{0, 40})
		s.wantTimeouts("S", 1)
		s.wantNoDuplicates("R1", "R3")
	}
}

// TestRetransmissionFiltered (FLT-8): a retransmission is forwarded on the path that lacks it and kept from
// those that have it.
func TestRetransmissionFiltered(t *testing.T) {
	s := starScene(t)
	s.lose("leaf0", "h2", simlab.IsData, 5)
	copies := map[string]*faults.Nth{}
	for _, h := range []string{"h1", "h2", "h3"} {
		copies[h] = s.count("leaf0", h, simlab.IsData)
	}
	s.must(message{0, 40})
	again := int(s.nic("h0").Retransmitted)
	if again == 0 {
		t.Fatal("nothing was sent again")
	}
	// The counter of h2 stands behind the loss and does not see the lost copy.
	if got := copies["h2"].Seen; got != 40-1+again {
		t.Errorf("h2 was sent %d packets, want %d", got, 40-1+again)
	}
	for _, h := range []string{"h1", "h3"} {
		if got := copies[h].Seen; got != 40 {
			t.Errorf("%s was sent %d packets, want each of 40 once", h, got)
		}
	}
	s.wantNoDuplicates("h1", "h3")
	if f := s.sw("leaf0").Stats().Filtered; f != uint64(2*again) {
		t.Errorf("%d copies were filtered, want two of each of %d repeats", f, again)
	}
}

// lossy runs a long message over a star under 0.3 % loss on the receivers' links and
// returns the source's timeouts.
func lossy(t *testing.T, rules virtswitch.Rules, ack int) uint64 {
	t.Helper()
	s := starScene(t)
	s.rules, s.ack = rules, ack
	for h := 1; h < 4; h++ {
		name := fmt.Sprintf("h%d", h)
		s.fault("leaf0", name, &faults.Impairment{Loss: 0.003, Match: faults.MatchFunc(simlab.IsData), Random: simlab.Random(s.seed, name)})
	}
	if err := s.run(message{0, 3000}); err != nil {
		t.Fatal(err)
	}
	return s.nic("h0").Timeouts
}

// TestStaleNakCoalesced (FLT-9): coalesced acknowledgements jump past a remembered NAK; if it stays, every
// later one is larger and lost (CEP-38).
func TestStaleNakCoalesced(t *testing.T) {
	for _, ack := range []int{1, 8} {
		if n := lossy(t, virtswitch.RulesFixed(), ack); n > 3 {
			t.Errorf("acknowledgement every %d: %d timeouts, want hardly any", ack, n)
		}
	}
}

// TestLoneLoss (FLT-10): a lone packet lost while all other paths are idle: its NAK must take
// effect by itself (CEP-37).
func TestLoneLoss(t *testing.T) {
	s := starScene(t)
	s.ack = 40
	s.lose("leaf0", "h2", simlab.IsData, 39) // PSN 38, only the last packet shows the gap
	s.must(message{0, 40})
	s.wantTimeouts("h0", 0)
	if got := s.naksAt("h0"); fmt.Sprint(got) != "[38]" {
		t.Errorf("source went back to %v, want [38]", got)
	}
}

// TestUniformLoss (FLT-11): uniform random loss in the middle of the fabric: on arrival at, or on
// leaving, aggregation and core switches, of data only or of feedback too.
func TestUniformLoss(t *testing.T) {
	for _, c := range []struct {
		name     string
		leaving  bool
		feedback bool
	}{{"arriving, data", false, false}, {"leaving, data", true, false}, {"arriving, all", false, true}, {"leaving, all", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			g, err := topo.FatTree(4, simlab.Link())
			s := newScene(t, g, err)
			s.ack = 4
			n := s.build()
			placed := 0
			for id := range n.Ports() {
				node := int(n.Link(id).Node)
				if c.leaving {
					node = s.sender(id).Node
				}
				if g.Nodes[node].Tier < topo.TierAgg {
					continue
				}
				placed++
				var match faults.Matcher = faults.MatchFunc(simlab.IsData)
				if c.feedback {
					match = nil
				}
				s.nths[id] = faults.Chain{&faults.Impairment{Loss: 0.002, Match: match, Random: simlab.Random(s.seed, fmt.Sprint(id))}}
			}
			if placed == 0 {
				t.Fatal("no link in the middle")
			}
			s.must(message{0, 1500}, message{5, 300})
			if n.Stats().Lost == 0 {
				t.Error("nothing was lost")
			}
		})
	}
}

// TestSourceMoves (FLT-13): the source moves: to another pod, to the leader, to a member on the same
// leaf, and back. The switches must not take the old source's path for one that lags.
func TestSourceMoves(t *testing.T) {
	g, err := topo.FatTree(4, simlab.Link())
	s := newScene(t, g, err)
	s.ack = 4
	s.must(message{0, 20}, message{9, 20}, message{0, 20}, message{1, 20}, message{0, 20}, message{15, 20}, message{14, 20})
	for i := range 16 {
		s.wantTimeouts(fmt.Sprintf("h%d", i), 0)
	}
	if n := s.sw("leaf0").Stats().SourceSwitches; n != 5 {
		t.Errorf("leaf0 saw the source move %d times, want 5 (its port does not change among the far hosts)", n)
	}

	// A late packet of the old source must not make it the source again.
	s = starScene(t)
	s.fault("h0", "leaf0", &lateTwin{match: withPSN(simlab.IsData, 3), d: 60 * vtime.Microsecond})
	s.must(message{0, 10}, message{1, 400})
	if n := s.sw("leaf0").Stats().Drops[virtswitch.DropStaleSource]; n != 1 {
		t.Errorf("%d late packets of the old source were dropped as such, want 1", n)
	}
	s.wantTimeouts("h1", 0)
}

// lateTwin delivers a copy of the frames that match much later, once.
type lateTwin struct {
	match func(*wire.Frame) bool
	d     vtime.Duration
	done  bool
}

// Arrive implements faults.Link.
func (l *lateTwin) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if l.done || !l.match(f) {
		return faults.Verdict{}
	}
	l.done = true
	return faults.Verdict{Twice: true, Delay2: l.d}
}

// TestPSNWrap (FLT-14): PSNs wrap through 2^24 in acknowledgements, NAKs, the filter and PSN
// synchronisation, with the wrap at every packet of the scene in turn.
func TestPSNWrap(t *testing.T) {
	for before := range 24 {
		s := starScene(t)
		s.psn = wire.PSN(0).Add(-before)
		s.lose("leaf0", "h1", simlab.IsData, 6)
		s.lose("leaf0", "h2", simlab.IsData, 12)
		s.lose("leaf0", "h0", simlab.IsAck, 9)
		s.must(message{0, 20}, message{2, 10}, message{0, 10})
		s.wantTimeouts("h0", 0)
		s.wantTimeouts("h2", 0)
	}
}
