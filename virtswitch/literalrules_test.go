// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// The mistakes found in the papers' rules: each scene fails, or crawls, under the
// literal rules and is well under the fixed ones.

// TestLiteralFilterStopsRepeats (CEP-34): the last aggregated acknowledgement is lost. Literally the filter stops
// every retransmission, no member acknowledges, and the queue pair dies (CON-5).
func TestLiteralFilterStopsRepeats(t *testing.T) {
	for name, rules := range map[string]virtswitch.Rules{"cepheus": virtswitch.RulesCepheus(), "fixed": virtswitch.RulesFixed()} { // independent of each other
		s := starScene(t)
		s.rules = rules
		s.lose("leaf0", "h0", withPSN(simlab.IsAck, 9), 1)
		err := s.run(message{0, 10})
		switch {
		case name == "fixed" && err != nil:
			t.Errorf("fixed: %v", err)
		case name == "cepheus" && (err == nil || !strings.Contains(err.Error(), "transport retry counter exceeded")):
			t.Errorf("cepheus: error %v, want the retry counter exceeded", err)
		}
	}
}

// TestLiteralLoneLoss (CEP-37): a lone loss with all before it acknowledged. Literally its NAK triggers
// nothing, since it acknowledges nothing new, so only the timeout finds it.
func TestLiteralLoneLoss(t *testing.T) {
	for name, want := range map[string]uint64{"cepheus": 1, "fixed": 0} { // independent of each other
		s := starScene(t)
		s.rules, _ = virtswitch.RulesByName(name)
		s.lose("leaf0", "h2", simlab.IsData, 39)
		s.must(message{0, 40})
		s.wantTimeouts("h0", want)
	}
}

// TestLiteralStaleNak (CEP-38): under coalesced acknowledgements a NAK that the minimum has passed stays
// remembered and, being the smallest, blocks all later ones (CON-4).
func TestLiteralStaleNak(t *testing.T) {
	stale := virtswitch.RulesFixed()
	stale.ForgetStaleNak = false
	fixed, literal, only := lossy(t, virtswitch.RulesFixed(), 8), lossy(t, virtswitch.RulesCepheus(), 8), lossy(t, stale, 8)
	t.Logf("timeouts in 3,000 packets at 0.3 %% loss: fixed %d, cepheus %d, fixed but for this rule %d", fixed, literal, only)
	if fixed > 3 || literal < 10 || only < fixed+5 {
		t.Errorf("timeouts: fixed %d, cepheus %d, fixed but for this rule %d", fixed, literal, only)
	}
}

// TestRepeatedNaks: a packet lost before the first switch is asked for by every member.
// The source must receive one NAK.
func TestRepeatedNaks(t *testing.T) {
	for _, one := range []bool{false, true} {
		s := starScene(t)
		s.rules.HoldRepeatedNak = one
		naks := s.count("leaf0", "h0", simlab.IsNak)
		s.lose("h0", "leaf0", simlab.IsData, 5)
		s.must(message{0, 40})
		if want := map[bool]int{false: 3, true: 1}[one]; naks.Seen != want {
			t.Errorf("one NAK per gap %v: the source got %d NAKs, want %d", one, naks.Seen, want)
		}
		if got, want := s.sw("leaf0").Stats().NaksHeld, map[bool]uint64{false: 0, true: 2}[one]; got != want {
			t.Errorf("one NAK per gap %v: the switch counts %d held back, want %d", one, got, want)
		}
		s.wantTimeouts("h0", 0)
	}
}

// TestGleamRuns: Gleam's rules have no filter, so retransmissions reach all members.
func TestGleamRuns(t *testing.T) {
	s := starScene(t)
	s.rules = virtswitch.RulesGleam()
	s.lose("leaf0", "h2", simlab.IsData, 5)
	s.must(message{0, 40})
	if s.nic("h1").DuplicateRequest == 0 {
		t.Error("h1 saw no packet again although nothing filters")
	}
}
