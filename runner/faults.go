package runner

import (
	"fmt"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/sim"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// pauseQuantumBits is what one pause quantum stands for: 512 bit times (802.1Q 36).
const pauseQuantumBits = 512

// setFaults puts the lab's faults on links and hosts. Each direction of each link draws
// from a stream of its own.
func setFaults(n *sim.Net, l *lab.Lab) {
	g := n.Graph()
	root := prng.New(l.Seed)
	chains := map[int]faults.Chain{}
	for i := range l.Faults {
		f := &l.Faults[i]
		if f.Pause != nil {
			setPause(n, f)
			continue
		}
		links, m := f.Impairment(g)
		for _, k := range links {
			for _, e := range []topo.End{g.Links[k].A, g.Links[k].B} {
				own := m
				own.Random = root.Derive(fmt.Sprintf("fault/%d/%s", i, g.PortName(e)))
				id := n.PortID(e.Node, e.Port)
				chains[id] = append(chains[id], &own)
			}
		}
	}
	for id, c := range chains { // each sets another port
		n.SetFault(id, c)
	}
}

// setPause makes a host send PFC frames for as long as the fault lasts.
func setPause(n *sim.Net, f *lab.Fault) {
	g := n.Graph()
	node, _ := g.Find(f.Pause.Node) // checked with the file
	from, until := vtime.Time(f.At), vtime.Never
	if f.For != nil {
		until = from.Add(vtime.Duration(*f.For))
	}
	rate := g.Links[g.Nodes[node].Links[0]].Rate
	full := vtime.Duration(float64(faults.PauseQuantaMax*pauseQuantumBits) / float64(rate) * float64(vtime.Second))
	for _, s := range faults.PauseSteps(from, until, full) {
		n.At(s.At, func(vtime.Time) { n.Pause(node, 1<<f.Pause.Priority, s.Quanta) })
	}
}
