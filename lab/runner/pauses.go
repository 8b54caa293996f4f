// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// pausesMax bounds the spans that pauses keeps: some 10 MB.
const pausesMax = 1 << 18

// pauses keeps the spans of a run in which PFC paused a priority of a port (IEEE 802.1Q clause 36).
type pauses struct {
	g     *topo.Graph
	spans map[pausedClass][]pausedSpan // in the order in which they began
	count int
}

// pausedClass is a priority of a port. A frame that resumes one priority leaves the others paused.
type pausedClass struct {
	port     topo.End
	priority uint8 // a mask of one bit, as in machine.Event
}

// pausedSpan is a span of lab time in which a port was paused.
type pausedSpan struct{ from, to vtime.Time }

func newPauses(g *topo.Graph) *pauses { return &pauses{g: g, spans: map[pausedClass][]pausedSpan{}} }

// observe takes an event of a node. A priority is paused until its last quanta have run out, or until a frame with none resumes it.
func (p *pauses) observe(node string, now vtime.Time, e machine.Event) {
	if e.Kind != machine.EventPauseReceived {
		return
	}
	id, ok := p.g.Find(node)
	if !ok || e.Port < 0 || e.Port >= len(p.g.Nodes[id].Links) || e.Value < 0 {
		return
	}
	class := pausedClass{topo.End{Node: id, Port: e.Port}, e.Priority}
	all := p.spans[class]
	last := len(all) - 1
	rate := p.g.Links[p.g.Nodes[id].Links[e.Port]].Rate
	until := now.Add(vtime.Duration(float64(e.Value) * wire.PauseQuantumBits / float64(rate) * float64(vtime.Second)))
	switch {
	case last >= 0 && now <= all[last].to:
		all[last].to = until
	case e.Value > 0 && p.count < pausesMax:
		p.count++
		p.spans[class] = append(all, pausedSpan{now, until})
	}
}

// pausedLongest is a port with the priority that was paused longest in a span of time, and for how long.
type pausedLongest struct {
	port topo.End
	by   int // node that paused it
	took vtime.Duration
}

// longest returns the port of the priority that was paused longest in a span. A port that a host paused comes before all that
// switches paused: switches pause because their buffer is full, hosts where congestion begins.
func (p *pauses) longest(from, to vtime.Time) (most pausedLongest) {
	for _, class := range slices.SortedFunc(maps.Keys(p.spans), pausedClass.compare) {
		x := pausedLongest{port: class.port, by: p.g.Peer(class.port.Node, class.port.Port).Node}
		for _, s := range p.spans[class] {
			if begin, end := max(s.from, from), min(s.to, to); begin < end {
				x.took += end.Sub(begin)
			}
		}
		host, best := x.by < p.g.Hosts, most.took > 0 && most.by < p.g.Hosts
		if x.took > 0 && (host && !best || host == best && x.took > most.took) {
			most = x
		}
	}
	return most
}

// compare orders by node, port and priority.
func (a pausedClass) compare(b pausedClass) int {
	return cmp.Or(a.port.Node-b.port.Node, a.port.Port-b.port.Port, int(a.priority)-int(b.priority))
}
