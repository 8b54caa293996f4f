// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// handleFeedback passes an acknowledgement from one path to the group's aggregation, and
// sends the feedback that results.
func (s *Switch) handleFeedback(now vtime.Time, in int, f *wire.Frame, g *group) {
	i := int(g.index[in]) - 1
	if i == g.ackOut {
		s.drop(now, in, f, DropOwnPath)
		return
	}
	// Feedback that is made of it gets a new ICRC, which would hide the damage of a bad one.
	if !f.CheckICRC() {
		s.drop(now, in, f, DropICRC)
		return
	}
	psn, h := f.PSN(), f.AETH()
	g.onSelective(i, f.Selective())
	switch {
	case h.Syndrome.IsACK():
		s.stats.AcksIn++
		s.portStats[in].AcksIn++
		// Most acknowledgements change nothing, and to pass that on would be to copy it as soon as it has been written.
		if d := g.onAck(i, psn, h.MSN); d.ack || d.nak {
			s.answerSource(now, f, g, in, d)
		} else {
			s.absorb(f)
		}
	case h.Syndrome.IsNAK() && h.Syndrome != wire.SyndromePSNSequence:
		// A remote access, invalid request or remote operation NAK ends the connection.
		s.stats.NaksIn++
		s.portStats[in].NaksIn++
		s.emitFeedback(now, f, g, g.onFatal(psn), h.Syndrome, in)
	default:
		s.stats.NaksIn++
		s.portStats[in].NaksIn++
		d := g.onNak(i, psn, h.Syndrome, h.MSN)
		if d.held {
			s.stats.NaksHeld++
		}
		s.answerSource(now, f, g, in, d)
	}
}

// answerSource sends the feedback d of the group to its source. f is the acknowledgement that
// caused it, and is used up.
func (s *Switch) answerSource(now vtime.Time, f *wire.Frame, g *group, in int, d feedback) {
	switch {
	case d.nak:
		if d.ack {
			s.stats.Cloned++
			s.emitFeedback(now, s.pool.Clone(f), g, d.ackPSN, wire.SyndromeACK, in)
		}
		s.emitFeedback(now, f, g, d.nakPSN, d.syndrome, in)
		if s.trace != nil {
			s.trace.Trace(now, machine.Event{Kind: machine.EventNakAggregated, Group: g.id, PSN: d.nakPSN, Text: d.syndrome.String()})
		}
	case d.ack:
		s.emitFeedback(now, f, g, d.ackPSN, wire.SyndromeACK, in)
	default:
		s.absorb(f)
	}
}

// emitFeedback turns f into an acknowledgement for the source and sends it. At the source's
// leaf it is addressed to the source's connection (CEP-24), elsewhere to the group.
func (s *Switch) emitFeedback(now vtime.Time, f *wire.Frame, g *group, psn wire.PSN, syn wire.Syndrome, in int) {
	out := &g.path[g.ackOut]
	dst, qpn := g.id, wire.QPNGSI
	if out.host {
		dst, qpn = out.ip, out.qpn
	}
	if key := (envelopeKey{dst, g.traffic, f.TagBits()}); key != g.envFor {
		g.envFor = key
		g.env = s.feedbackEnvelope(g, out.host, dst, f)
	}
	s.pool.Strip(f)
	f.Start(&g.env, wire.BTH{OpCode: wire.OpAcknowledge, Migrated: true, PKey: wire.PKeyDefault, DestQP: qpn, PSN: psn, Selective: g.selective})
	f.AddAETH(wire.AETH{Syndrome: syn, MSN: g.msn()})
	f.Seal(uint16(psn), s.trust)
	if syn.IsACK() {
		s.stats.AcksOut++
	} else {
		s.stats.NaksOut++
	}
	var a arrival
	s.arrived(&a, f, in)
	s.out(now, out.port, f, &a)
}

// feedbackEnvelope lays out the headers below the BTH of feedback that is made here: from the
// group to the source host, or from this switch to the group on the way there. Address family
// and VLAN are those of f, which caused it.
func (s *Switch) feedbackEnvelope(g *group, host bool, dst uint32, f *wire.Frame) wire.Envelope {
	w := wire.Flow{
		SrcMAC: wire.HostMAC(s.ip), DstMAC: wire.GroupMAC(g.id), Src: s.ip, Dst: dst,
		IPv6: f.IPv6(), VLAN: f.Tag(), Traffic: g.traffic, TTL: 64, SrcPort: 0xc000 | uint16(g.id)&0x3fff, DstPort: wire.PortRoCEv2,
	}
	if host {
		w.SrcMAC, w.DstMAC, w.Src = wire.GroupMAC(g.id), wire.HostMAC(dst), g.id
	}
	if w.Traffic&3 == wire.ECNCE {
		w.Traffic = w.Traffic&^3 | wire.ECNECT0
	}
	return wire.NewEnvelope(w)
}
