// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/internal/external"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// MetricsSocket is the socket at which a running node serves its counters to Prometheus: HTTP on a unix
// socket in its directory.
const MetricsSocket = "metrics.sock"

// Count is the name of a counter and its meaning (GEN-11): docs/counters.md and the metrics' help are
// made of these.
type Count struct{ Name, Doc string }

// count is a counter of machines whose statistics are an S.
type count[S any] struct {
	Count
	of func(*S) uint64
}

func one[S any](name, doc string, of func(*S) uint64) count[S] { return count[S]{Count{name, doc}, of} }

// put writes the counters down.
func put[S any](into map[string]uint64, table []count[S], s *S) {
	for _, c := range table {
		into[c.Name] = c.of(s)
	}
}

func names[S any](table []count[S]) (all []Count) {
	for _, c := range table {
		all = append(all, c.Count)
	}
	return all
}

// Kinds of node.
const (
	KindSwitch   = "switch"
	KindHost     = "host"
	KindExternal = "external" // the port of an external device
)

// Kinds returns all kinds of node.
func Kinds() []string { return []string{KindSwitch, KindHost, KindExternal} }

// Names returns the counters of a kind of node in the order of the docs.
func Names(kind string) []Count {
	switch kind {
	case KindSwitch:
		return names(switchCounts)
	case KindHost:
		return append(names(nicCounts), names(agentCounts)...)
	case KindExternal:
		return append(names(nicCounts), names(adapterCounts)...)
	}
	return nil
}

// Reasons returns why a kind of node drops frames, in the order of the docs.
func Reasons(kind string) (all []string) {
	if kind == KindSwitch {
		for _, r := range virtswitch.DropReasons() {
			all = append(all, r.String())
		}
		return all
	}
	for _, r := range virtrnic.DropReasons() {
		all = append(all, r.String())
	}
	if kind == KindExternal {
		for _, r := range external.DropReasons() {
			if s := r.String(); s != virtrnic.DropForeign.String() { // both have it
				all = append(all, s)
			}
		}
	}
	return all
}

var switchCounts = []count[virtswitch.Stats]{
	one("received", "frames handed to the switch", func(s *virtswitch.Stats) uint64 { return s.Received }),
	one("forwarded", "frames committed to a port, copies and its own included", func(s *virtswitch.Stats) uint64 { return s.Forwarded }),
	one("cloned", "copies made for groups", func(s *virtswitch.Stats) uint64 { return s.Cloned }),
	one("made", "frames the switch made itself: pauses, MRP, repeated ACKs", func(s *virtswitch.Stats) uint64 { return s.Made }),
	one("absorbed", "frames that ended here as intended: pauses, MRP, feedback that was merged or held back", func(s *virtswitch.Stats) uint64 { return s.Absorbed }),
	one("pauses_sent", "pause frames sent, XON included", func(s *virtswitch.Stats) uint64 { return s.PausesSent }),
	one("pauses_received", "pause frames received, XON included", func(s *virtswitch.Stats) uint64 { return s.PausesReceived }),
	one("pauses_ignored", "of those, those that name a priority without PFC, which keeps sending", func(s *virtswitch.Stats) uint64 { return s.PausesIgnored }),
	one("acks_in", "ACKs of groups received", func(s *virtswitch.Stats) uint64 { return s.AcksIn }),
	one("acks_out", "ACKs of groups sent, for all paths together", func(s *virtswitch.Stats) uint64 { return s.AcksOut }),
	one("naks_in", "NAKs of groups received, RNR included", func(s *virtswitch.Stats) uint64 { return s.NaksIn }),
	one("naks_out", "NAKs of groups sent, RNR included", func(s *virtswitch.Stats) uint64 { return s.NaksOut }),
	one("naks_held", "NAKs of groups held back because the source had been asked for the same PSN", func(s *virtswitch.Stats) uint64 { return s.NaksHeld }),
	one("acks_repeated", "packets that every path had, answered with the last ACK again", func(s *virtswitch.Stats) uint64 { return s.AcksRepeated }),
	one("filtered", "copies not made because the path has the packet", func(s *virtswitch.Stats) uint64 { return s.Filtered }),
	one("source_switches", "times that data of a group came from another path than before", func(s *virtswitch.Stats) uint64 { return s.SourceSwitches }),
	one("refused", "registrations that could not be installed, or not in this attempt for routes have changed", func(s *virtswitch.Stats) uint64 { return s.Refused }),
	one("aged_out", "groups deleted because nothing was heard of them for too long", func(s *virtswitch.Stats) uint64 { return s.AgedOut }),
	one("memberships_expired", "ports taken out of groups of programs because nobody behind them answered queries",
		func(s *virtswitch.Stats) uint64 { return s.MembershipsExpired }),
	one("mr_updates", "members' regions taken from WRITEs that announce them", func(s *virtswitch.Stats) uint64 { return s.MRUpdates }),
	one("reths_rewritten", "WRITEs sent to a member's own region", func(s *virtswitch.Stats) uint64 { return s.RETHsRewritten }),
	one("reduced_in", "packets of reductions whose numbers were taken up", func(s *virtswitch.Stats) uint64 { return s.ReducedIn }),
	one("reduced_out", "sums of reductions sent up or to their member, repeats included", func(s *virtswitch.Stats) uint64 { return s.ReducedOut }),
	one("marked", "packets marked with congestion experienced", func(s *virtswitch.Stats) uint64 { return s.Marked }),
	one("pause_storms", "priorities of ports that the watchdog took over", func(s *virtswitch.Stats) uint64 { return s.PauseStorms }),
	one("cnps_in", "congestion notifications of groups received", func(s *virtswitch.Stats) uint64 { return s.CNPsIn }),
	one("cnps_out", "congestion notifications of groups passed on; the others were filtered", func(s *virtswitch.Stats) uint64 { return s.CNPsOut }),
}

var nicCounts = []count[virtrnic.Stats]{
	one("sent", "frames sent", func(s *virtrnic.Stats) uint64 { return s.SentPkts }),
	one("received", "frames received", func(s *virtrnic.Stats) uint64 { return s.RcvdPkts }),
	one("loopback", "frames to the NIC itself, which come back inside it and are neither sent nor received", func(s *virtrnic.Stats) uint64 { return s.Loopback }),
	one("made", "frames made here: requests, answers, pauses", func(s *virtrnic.Stats) uint64 { return s.Made }),
	one("delivered", "frames that ended here as intended", func(s *virtrnic.Stats) uint64 { return s.Delivered }),
	one("data_packets", "request packets sent, repeats included", func(s *virtrnic.Stats) uint64 { return s.DataPackets }),
	one("retransmitted", "request packets sent again", func(s *virtrnic.Stats) uint64 { return s.Retransmitted }),
	one("duplicate_requests", "request packets received again", func(s *virtrnic.Stats) uint64 { return s.DuplicateRequest }),
	one("out_of_sequence", "request packets beyond the expected PSN", func(s *virtrnic.Stats) uint64 { return s.OutOfSeqRequest }),
	one("rnr_sent", "RNR NAKs sent", func(s *virtrnic.Stats) uint64 { return s.SendRNR }),
	one("rnr_received", "RNR NAKs received", func(s *virtrnic.Stats) uint64 { return s.RcvdRNR }),
	one("naks_sent", "NAKs sent", func(s *virtrnic.Stats) uint64 { return s.SendNAK }),
	one("naks_received", "NAKs received", func(s *virtrnic.Stats) uint64 { return s.RcvdNAK }),
	one("acks_sent", "ACKs sent", func(s *virtrnic.Stats) uint64 { return s.AcksSent }),
	one("acks_received", "ACKs received", func(s *virtrnic.Stats) uint64 { return s.AcksRcvd }),
	one("go_backs", "times a NAK made the requester go back", func(s *virtrnic.Stats) uint64 { return s.CompleterRetry }),
	one("timeouts", "times the retransmission timer fired", func(s *virtrnic.Stats) uint64 { return s.Timeouts }),
	one("retries_exceeded", "work requests that ended because retries were used up", func(s *virtrnic.Stats) uint64 { return s.RetryExceeded }),
	one("rnr_retries_exceeded", "work requests that ended because RNR retries were used up", func(s *virtrnic.Stats) uint64 { return s.RNRRetryExceeded }),
	one("ecn_marked", "request packets and answers received with a congestion mark", func(s *virtrnic.Stats) uint64 { return s.ECNMarked }),
	one("cnps_sent", "congestion notifications sent", func(s *virtrnic.Stats) uint64 { return s.CNPSent }),
	one("cnps_handled", "congestion notifications that slowed a queue pair down", func(s *virtrnic.Stats) uint64 { return s.CNPHandled }),
	one("pauses_sent", "pause frames sent, XON included", func(s *virtrnic.Stats) uint64 { return s.PausesSent }),
	one("pauses_received", "pause frames received, XON included", func(s *virtrnic.Stats) uint64 { return s.PausesReceived }),
	one("pauses_ignored", "of those, those that name a priority without PFC, which keeps sending", func(s *virtrnic.Stats) uint64 { return s.PausesIgnored }),
	one("messages_sent", "messages completed at the requester", func(s *virtrnic.Stats) uint64 { return s.MessagesSent }),
	one("messages_received", "messages completed at the responder", func(s *virtrnic.Stats) uint64 { return s.MessagesReceived }),
	one("bytes_received", "payload accepted in order", func(s *virtrnic.Stats) uint64 { return s.BytesReceived }),
	one("implied_naks", "answers from beyond a READ or atomic whose own is missing", func(s *virtrnic.Stats) uint64 { return s.ImpliedNAK }),
	one("responses_sent", "answers to READs and atomics sent, repeats included", func(s *virtrnic.Stats) uint64 { return s.ResponsesSent }),
	one("responses_received", "answers to READs and atomics received", func(s *virtrnic.Stats) uint64 { return s.ResponsesRcvd }),
	one("replayed", "READs and atomics answered again", func(s *virtrnic.Stats) uint64 { return s.Replayed }),
	one("atomics", "atomics executed", func(s *virtrnic.Stats) uint64 { return s.AtomicsExecuted }),
	one("waited", "frames that waited to be taken, because the NIC was stalled or slow", func(s *virtrnic.Stats) uint64 { return s.Waited }),
	one("completions_lost", "completions that a full queue had no room for", func(s *virtrnic.Stats) uint64 { return s.CompletionsOverflow }),
}

var agentCounts = []count[mrp.Stats]{
	one("mrp_sent", "registration packets sent", func(s *mrp.Stats) uint64 { return s.Sent }),
	one("mrp_received", "frames that came for the registration agent", func(s *mrp.Stats) uint64 { return s.Received }),
	one("mrp_confirmed", "confirmations sent as a member", func(s *mrp.Stats) uint64 { return s.Confirmed }),
	one("mrp_repeats", "rounds that the registrar had to repeat", func(s *mrp.Stats) uint64 { return s.Repeats }),
	one("mrp_deletions_given_up", "deletions of groups that not all members have confirmed", func(s *mrp.Stats) uint64 { return s.DeletionsGivenUp }),
	one("mrp_ignored", "packets that concern no group of this host", func(s *mrp.Stats) uint64 { return s.Ignored }),
	one("fallbacks", "times that a group this host sends to left multicast (docs/fallback.md)", func(s *mrp.Stats) uint64 { return s.Fallbacks }),
	one("returns", "times that it came back to multicast", func(s *mrp.Stats) uint64 { return s.Returns }),
	one("probes_failed", "times that it was registered again, tried and not used", func(s *mrp.Stats) uint64 { return s.ProbesFailed }),
	one("members_lost", "members that were given up", func(s *mrp.Stats) uint64 { return s.MembersLost }),
}

var adapterCounts = []count[external.Stats]{
	one("from_device", "RoCE packets from the device", func(s *external.Stats) uint64 { return s.In }),
	one("to_device", "RoCE packets to the device", func(s *external.Stats) uint64 { return s.Out }),
	one("answered", "ARP requests and neighbor solicitations answered", func(s *external.Stats) uint64 { return s.Answered }),
	one("ignored", "such questions that do not concern the fabric", func(s *external.Stats) uint64 { return s.Ignored }),
	one("asked", "ARP requests and neighbour solicitations for the device's MAC address", func(s *external.Stats) uint64 { return s.Asked }),
	one("told", "the device's answers to them", func(s *external.Stats) uint64 { return s.Told }),
	one("repeated_by_device", "request packets that the device sent again", func(s *external.Stats) uint64 { return s.Repeats }),
	one("reports", "reports of the device (IGMP, MLD) of multicast groups that it has joined or left", func(s *external.Stats) uint64 { return s.Reports }),
	one("queries", "queries for such groups, passed on to the device", func(s *external.Stats) uint64 { return s.Queries }),
}

// portCounts are the counters of a port. Those that are for a wall clock only are 0
// elsewhere.
var portCounts = []count[Port]{
	one("sent", "frames sent", func(p *Port) uint64 { return p.Sent }),
	one("sent_bytes", "bytes of frames sent, without FCS, preamble and gap", func(p *Port) uint64 { return p.SentBytes }),
	one("received", "frames received", func(p *Port) uint64 { return p.Received }),
	one("received_bytes", "bytes of frames received, without FCS, preamble and gap", func(p *Port) uint64 { return p.ReceivedBytes }),
	one("malformed", "frames received that are none of ours", func(p *Port) uint64 { return p.Malformed }),
	one("lost_to_fault", "frames that a fault lost at the end of the link", func(p *Port) uint64 { return p.LostToFault }),
	one("copied_by_fault", "frames that a fault doubled", func(p *Port) uint64 { return p.CopiedByFault }),
	one("held_by_fault", "frames that a fault delivered later", func(p *Port) uint64 { return p.HeldByFault }),
	one("kernel_drops", "frames that the kernel dropped", func(p *Port) uint64 { return p.KernelDrops }),
	one("cut", "frames sent on a link that is no more", func(p *Port) uint64 { return p.Cut }),
	one("acks_in", "acknowledgements of groups that came by the switch's port", func(p *Port) uint64 { return p.AcksIn }),
	one("naks_in", "NAKs of groups that came by it", func(p *Port) uint64 { return p.NaksIn }),
	one("cnps_in", "congestion notifications of groups that came by it", func(p *Port) uint64 { return p.CNPsIn }),
	one("cnps_filtered", "of those, those not passed on because another path is more congested", func(p *Port) uint64 { return p.CNPsFiltered }),
	one("filtered", "copies not sent by it because its path has the packet", func(p *Port) uint64 { return p.Filtered }),
	one("busy", "sends that the kernel had no room for at first", func(p *Port) uint64 { return p.Busy }),
}

// PortNames returns the counters of a port in the order of the docs.
func PortNames() []Count { return names(portCounts) }

// Counts returns the counters in the order of PortNames.
func (p *Port) Counts() (all []uint64) {
	for _, c := range portCounts {
		all = append(all, c.of(p))
	}
	return all
}
