package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
)

// Workload is a workload of a lab made ready to run.
type Workload struct {
	Label  string
	Name   string // of the program
	App    apps.App
	Params []byte
	Hosts  []int // node of each rank
	Steps  int   // iterations
}

// Prepare turns a lab's workloads into programs and their parameters.
func Prepare(l *lab.Lab, g *topo.Graph, app bcast.App) (all []Workload, err error) {
	seeds := prng.New(l.Seed)
	for i := range l.Workloads {
		b := l.Workloads[i].Bcast
		s := seeds.Derive("workload/" + b.Label)
		w, err := prepareBcast(b, g, s.Uint64())
		if err != nil {
			return nil, err
		}
		w.App = app
		all = append(all, w)
	}
	return all, nil
}

func prepareBcast(w *lab.Bcast, g *topo.Graph, seed uint64) (Workload, error) {
	hosts := w.Ranks.Resolve(g)
	p := bcast.Params{Workload: w.Label, Iterations: int(w.Iterations), Seed: seed}
	if w.Memory != "auto" {
		p.Memory = rank.MemoryKind(w.Memory)
	}
	for i, h := range hosts {
		if g.Nodes[h].Name == w.Root {
			p.Root = i
		}
	}
	for _, s := range w.Schemes {
		p.Schemes = append(p.Schemes, bcast.Scheme{Label: s.Label, Name: s.Name, Options: collective.Options{Slices: int(s.Slices)}})
	}
	steps := 0
	for _, size := range w.Sizes {
		p.Sizes = append(p.Sizes, int(size))
		steps += len(p.Schemes) * bcast.Iterations(p.Iterations, int(size))
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: bcast.Name, Params: raw, Hosts: hosts, Steps: steps}, nil
}
