// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "fmt"

// Rules selects among the rules of in-network multicast where the papers differ from each other or from
// a working rule. A field that is true makes the switch do what its name says. The comment of a field
// marks a rule that no paper has.
type Rules struct {
	// FilterRetransmits keeps a data packet from a path that has acknowledged it
	// (Cepheus §III-D, CEP-33; Gleam has no filter).
	FilterRetransmits bool
	// RepeatAck (ours) answers a data packet that every path already has with the last
	// aggregated ACK. Without it a lost last ACK is never repaired, since the filter
	// stops the retransmission that would (CEP-34).
	RepeatAck bool
	// NakGenerates makes a NAK run the aggregation as an ACK does (Gleam algorithm 2; CEP-37).
	NakGenerates bool
	// TriggerOnEqual makes an ACK equal to the last aggregated one run the aggregation (GLE-5).
	TriggerOnEqual bool
	// EmitTies sends the aggregated ACK even if the minimum has not moved (literal
	// reading; CEP-31).
	EmitTies bool
	// ForgetNak drops the pending NAK's PSN once that NAK is sent (CEP-36).
	ForgetNak bool
	// ForgetStaleNak (ours) drops the pending NAK's PSN also when the minimum has passed it (CEP-38).
	ForgetStaleNak bool
	// HoldRepeatedNak (ours) keeps a NAK back if one for the same PSN has been sent and the source
	// has not repeated the packet since; onData ends that. When a packet is lost near the source every member asks
	// for it; passed on one by one, their NAKs make the source go back, and spend its
	// retries, once per member (CEP-54).
	HoldRepeatedNak bool
	// ResyncOnSwitch (ours) brings the old source's path up to date when data starts to come
	// from elsewhere (CEP-41).
	ResyncOnSwitch bool
	// LoadPerNode counts a port as used once for each node behind it (Gleam algorithm 4)
	// and not once for each group (CEP-13).
	LoadPerNode bool
	// EntryList lays a group's table out as a list of entries (Gleam §3.3, GLE-2) and not as an index
	// with a path table (CEP-19). It decides the memory that tables take.
	EntryList bool
	// Activate makes a new group wait for MRP ACTIVATE, which carries the start PSN.
	// Without it data may follow the last confirmation and PSNs start at 0 (CEP-31).
	Activate bool
}

// RulesFixed is the default: the Cepheus paper, with remedies for its errors and gaps. These are the
// start PSN (CEP-31), a lost last ACK (CEP-34), a NAK that nothing passes on (CEP-37) or that has
// become stale (CEP-38), the path of the old source (CEP-41), and many NAKs for one packet (CEP-54).
func RulesFixed() Rules {
	return Rules{
		FilterRetransmits: true, RepeatAck: true, NakGenerates: true, ForgetNak: true,
		ForgetStaleNak: true, HoldRepeatedNak: true, ResyncOnSwitch: true, Activate: true,
	}
}

// RulesCepheus is the Cepheus paper literally, except the rules with which it cannot run (CEP-14,
// CEP-30).
func RulesCepheus() Rules {
	return Rules{FilterRetransmits: true, ForgetNak: true, EmitTies: true}
}

// RulesGleam is the Gleam paper literally (GLE-1, GLE-2, GLE-4, GLE-7), except the rules with which it
// cannot run (CEP-14, CEP-30, GLE-6).
func RulesGleam() Rules {
	return Rules{NakGenerates: true, TriggerOnEqual: true, EmitTies: true, LoadPerNode: true, EntryList: true}
}

// RulesByName returns the profile cepheus, gleam or fixed.
func RulesByName(name string) (Rules, error) {
	switch name {
	case "", "fixed":
		return RulesFixed(), nil
	case "cepheus":
		return RulesCepheus(), nil
	case "gleam":
		return RulesGleam(), nil
	}
	return Rules{}, fmt.Errorf("no rule profile %q: use fixed, cepheus or gleam", name)
}
