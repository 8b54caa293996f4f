package virtswitch

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// handleFeedback merges an acknowledgement from one path into the group's
// (Cepheus §III-D). The source must see ACK(x) only when every member has all up to
// x, and NAK(e) only when every member has all before e.
func (s *Switch) handleFeedback(now vtime.Time, in int, f *wire.Frame, g *group) {
	i := int(g.index[in]) - 1
	if i == g.ackOut {
		s.drop(now, in, f, DropOwnPath)
		return
	}
	// What comes of it gets an ICRC of its own: a damaged one must not be signed anew.
	if !f.CheckICRC() {
		s.drop(now, in, f, DropICRC)
		return
	}
	psn, h := f.PSN(), f.AETH()
	g.heard(i, f.Selective())
	if h.Syndrome.IsACK() {
		s.stats.AcksIn++
		if psn.After(g.ack[i]) {
			g.acked(i, psn, h.MSN)
		}
		if s.triggers(g, i, psn) {
			s.generate(now, f, g, in)
		} else {
			s.absorb(f)
		}
		return
	}
	s.stats.NaksIn++
	if h.Syndrome.IsNAK() && h.Syndrome != wire.SyndromePSNSequence {
		s.passFatal(now, f, g, in)
		return
	}
	if h.Syndrome == wire.SyndromePSNSequence {
		g.path[i].lacks, g.path[i].missing = true, psn
	}
	s.handleNak(now, f, g, in, i)
}

// acked notes that a path has all packets up to psn, so that it no longer lacks one of them: a
// NAK that is kept would be for another packet once PSNs have gone round.
func (g *group) acked(i int, psn wire.PSN, msn uint32) {
	p := &g.path[i]
	g.ack[i], p.msn = psn, msn
	p.lacks = p.lacks && p.missing.After(psn)
}

// triggers says whether an acknowledgement up to psn from path i may have moved the
// minimum: only the path that holds it can (CEP-29).
func (s *Switch) triggers(g *group, i int, psn wire.PSN) bool {
	return i == g.tri && (psn.After(g.agg) || s.rules.TriggerOnEqual && psn == g.agg)
}

// handleNak takes a sequence NAK or an RNR NAK, which asks for its PSN again and
// acknowledges everything before (CEP-35, CEP-39). Of several the smallest PSN is
// kept; at equal PSN an RNR NAK wins, since it also says to wait.
func (s *Switch) handleNak(now vtime.Time, f *wire.Frame, g *group, in, i int) {
	psn, h := f.PSN(), f.AETH()
	if before := psn.Add(-1); before.After(g.ack[i]) {
		g.acked(i, before, h.MSN)
	}
	lowest := !g.hasNak || !psn.After(g.nak)
	if g.asks && psn == g.asked && s.rules.OneNakPerGap {
		lowest = false // on its way already
	}
	if lowest {
		if !g.hasNak || psn != g.nak || h.Syndrome.IsRNR() {
			g.nakSyn = h.Syndrome
		}
		g.nak, g.hasNak = psn, true
	}
	if lowest && s.rules.NakGenerates || s.triggers(g, i, psn.Add(-1)) {
		s.generate(now, f, g, in)
		return
	}
	s.absorb(f)
}

// generate sends what the group as a whole may say now: the minimum of all paths as
// an ACK if it has moved, and the pending NAK once everything before it is there
// (CEP-29, CEP-36). f is the acknowledgement that caused it and is used up.
func (s *Switch) generate(now vtime.Time, f *wire.Frame, g *group, in int) {
	g.tri = g.minPath()
	m := g.ack[g.tri]
	ack := m.After(g.agg) || s.rules.EmitTies
	if m.After(g.agg) {
		g.agg = m
	}
	if g.selective {
		g.recall(m)
	}
	nak := g.hasNak && m == g.nak.Add(-1)
	switch {
	case nak:
		e, syn := g.nak, g.nakSyn
		g.hasNak = !s.rules.ForgetNak
		g.asked, g.asks = e, true
		if ack {
			s.stats.Cloned++
			s.emitFeedback(now, s.pool.Clone(f), g, m, wire.SyndromeACK, in)
		}
		s.emitFeedback(now, f, g, e, syn, in)
		if s.trace != nil {
			s.trace.Trace(now, machine.Event{Kind: machine.EventNakAggregated, Group: g.id, PSN: e, Text: syn.String()})
		}
		return
	case g.hasNak && s.rules.ForgetStaleNak && !g.nak.After(m):
		g.hasNak = false // every path has passed it: it would block later ones
	}
	if ack {
		s.emitFeedback(now, f, g, m, wire.SyndromeACK, in)
		return
	}
	s.absorb(f)
}

// emitFeedback turns f into an acknowledgement toward the source and sends it. At
// the source's leaf it is addressed to the source's connection (CEP-24), elsewhere to
// the group. MSN comes from the path that holds the minimum (CEP-32).
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
	f.Start(&g.env, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: qpn, PSN: psn, Selective: g.selective})
	f.AddAETH(wire.AETH{Syndrome: syn, MSN: g.path[g.tri].msn})
	f.Seal(uint16(psn), s.trust)
	if syn.IsACK() {
		s.stats.AcksOut++
	} else {
		s.stats.NaksOut++
	}
	a := s.arrived(f, in)
	s.out(now, out.port, f, &a)
}

// feedbackEnvelope lays out what is below the BTH of feedback made here: from the
// group to the source host, or from this switch to the group on the way there. Family
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

// passFatal hands a NAK that ends the connection (remote access, invalid request,
// remote operation) to the source at once. Its PSN is brought down to the first one
// not acknowledged by all, since a NAK acknowledges what is before it (CEP-39).
func (s *Switch) passFatal(now vtime.Time, f *wire.Frame, g *group, in int) {
	psn, syn := f.PSN(), f.AETH().Syndrome
	if first := g.agg.Add(1); psn.After(first) {
		psn = first
	}
	s.emitFeedback(now, f, g, psn, syn, in)
}
