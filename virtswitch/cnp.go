// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// cnpFilter chooses the one path whose congestion notifications reach the source. A source
// that got those of all paths would slow down once for each congested receiver, and not to the
// rate of the slowest (Cepheus §III-D, CEP-43; Gleam §3.5, GLE-9).
type cnpFilter struct {
	champion int   // the path whose CNPs were passed on last
	window   int64 // number of the window the counts belong to
}

// handleCNP passes a congestion notification to the source, if it comes from the most
// congested path.
func (s *Switch) handleCNP(now vtime.Time, in int, f *wire.Frame, g *group) {
	i := int(g.index[in]) - 1
	if i == g.ackOut {
		s.drop(now, in, f, DropOwnPath)
		return
	}
	s.stats.CNPsIn++
	s.portStats[in].CNPsIn++
	if s.cnpWindow > 0 && !g.mostCongested(i, int64(now)/int64(s.cnpWindow)) {
		s.portStats[in].CNPsFiltered++
		s.absorb(f)
		return
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	s.stats.CNPsOut++
	if out := &g.path[g.ackOut]; out.host {
		b := wire.Bridge{
			Dst: out.ip, Src: g.id, DestQP: out.qpn,
			DstMAC: wire.HostMAC(out.ip), SrcMAC: wire.GroupMAC(g.id),
		}
		b.Apply(f)
	}
	var a arrival
	s.arrived(&a, f, in)
	s.out(now, g.path[g.ackOut].port, f, &a)
}

// mostCongested counts a CNP from path i and reports whether no path has more. Among paths with equal
// counts, the path whose CNPs were forwarded last stays selected. Counts halve with every window, so a
// path that sends no more CNPs loses its turn after as many windows as its count has bits.
func (g *group) mostCongested(i int, window int64) bool {
	if age := window - g.cnp.window; age > 0 {
		for k := range g.path {
			g.path[k].cnps >>= min(age, 31)
		}
		g.cnp.window = window
	}
	g.path[i].cnps++
	most := uint32(0)
	for k := range g.path {
		if k != g.ackOut {
			most = max(most, g.path[k].cnps)
		}
	}
	c := g.cnp.champion
	if g.path[i].cnps < most || c != i && c != g.ackOut && g.path[c].cnps == most {
		return false
	}
	g.cnp.champion = i
	return true
}

// forgetCNPs clears all counts, because data now comes from another path.
func (g *group) forgetCNPs() {
	for k := range g.path {
		g.path[k].cnps = 0
	}
}
