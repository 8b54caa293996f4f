package runner

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// pausesMax bounds the spans that pauses keeps: some 10 MB.
const pausesMax = 1 << 18

// pauses keeps the spans of a run in which PFC paused a port (IEEE 802.1Q clause 36), of all priorities together.
type pauses struct {
	g     *topo.Graph
	spans map[topo.End][]pausedSpan // by paused port, in the order in which they began
	count int
}

// pausedSpan is a span of lab time in which a port was paused.
type pausedSpan struct{ from, to vtime.Time }

func newPauses(g *topo.Graph) *pauses { return &pauses{g: g, spans: map[topo.End][]pausedSpan{}} }

// observe takes an event of a node. A port is paused until its last quanta have run out, or until a frame with none resumes it.
func (p *pauses) observe(node string, now vtime.Time, e machine.Event) {
	if e.Kind != machine.EventPauseReceived {
		return
	}
	id, ok := p.g.Find(node)
	if !ok || e.Port < 0 || e.Port >= len(p.g.Nodes[id].Links) || e.Value < 0 {
		return
	}
	port := topo.End{Node: id, Port: e.Port}
	all := p.spans[port]
	last := len(all) - 1
	rate := p.g.Links[p.g.Nodes[id].Links[e.Port]].Rate
	until := now.Add(vtime.Duration(float64(e.Value) * wire.PauseQuantumBits / float64(rate) * float64(vtime.Second)))
	switch {
	case last >= 0 && now <= all[last].to:
		all[last].to = until
	case e.Value > 0 && p.count < pausesMax:
		p.count++
		p.spans[port] = append(all, pausedSpan{now, until})
	}
}

// pausedLongest is a port that was paused in a span of time, and for how long.
type pausedLongest struct {
	port topo.End
	by   int // node that paused it
	took vtime.Duration
}

// longest returns the port that was paused longest in a span. A port that a host paused comes before all that switches paused:
// switches pause because their buffer is full, hosts where congestion begins.
func (p *pauses) longest(from, to vtime.Time) (most pausedLongest) {
	ports := make([]topo.End, 0, len(p.spans))
	for port := range p.spans { // sorted below
		ports = append(ports, port)
	}
	slices.SortFunc(ports, func(a, b topo.End) int {
		if a.Node != b.Node {
			return a.Node - b.Node
		}
		return a.Port - b.Port
	})
	for _, port := range ports {
		x := pausedLongest{port: port, by: p.g.Peer(port.Node, port.Port).Node}
		for _, s := range p.spans[port] {
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
