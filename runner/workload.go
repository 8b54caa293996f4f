package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/apps/reducescatter"
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
	// Peers are, by rank, the external hosts, on which no program runs; nil if there are
	// none.
	Peers []*rank.Peer
	// Root is the rank that sends, of a workload with external hosts, and Group the McstID
	// that the lab file names for it, or 0.
	Root  int
	Group uint32
	// Spare says, by rank, which may die in a running lab: the workload has a policy for it.
	Spare []bool
}

// Apps are what workloads run that is not the same in every binary and test.
type Apps struct {
	Bcast    bcast.App
	Programs []rank.Program // of the user's own
}

// Prepare turns a lab's workloads into programs and their parameters. External hosts are
// simulated as if they were the lab's.
func Prepare(l *lab.Lab, g *topo.Graph, a Apps) ([]Workload, error) {
	return prepare(l, g, a, func([]int) []*rank.Peer { return nil })
}

// PrepareLive is Prepare for a lab whose external hosts are there.
func PrepareLive(l *lab.Lab, g *topo.Graph, a Apps) ([]Workload, error) {
	return prepare(l, g, a, func(hosts []int) []*rank.Peer { return l.Peers(g, hosts) })
}

func prepare(l *lab.Lab, g *topo.Graph, a Apps, peers func(hosts []int) []*rank.Peer) (all []Workload, err error) {
	seeds := prng.New(l.Seed)
	for i := range l.Workloads {
		kind := &l.Workloads[i]
		seed := func() uint64 { s := seeds.Derive("workload/" + kind.Label()); return s.Uint64() }
		var w Workload
		switch {
		case kind.Program != nil:
			w, err = prepareProgram(kind.Program, g, a.Programs)
		case kind.HPL != nil:
			w, err = prepareHPL(kind.HPL, g)
		case kind.Storage != nil:
			w, err = prepareStorage(kind.Storage, g, seed())
		case kind.FSDP != nil:
			w, err = prepareFSDP(kind.FSDP, g, seed())
		case kind.ReduceScatter != nil:
			w, err = prepareReduceScatter(kind.ReduceScatter, g, seed())
		case kind.Allgather != nil:
			w, err = prepareAllgather(kind.Allgather, g, seed())
		case kind.ManyToMany != nil:
			w, err = prepareManyToMany(kind.ManyToMany, l.Topology.MPortNTree, g, seed())
		default:
			w, err = prepareBcast(kind.Bcast, g, seed(), peers)
			w.App = a.Bcast
		}
		if err != nil {
			return nil, err
		}
		w.Group = kind.NamedGroup()
		all = append(all, w)
	}
	return all, nil
}

func prepareBcast(w *lab.Bcast, g *topo.Graph, seed uint64, peersOf func([]int) []*rank.Peer) (Workload, error) {
	hosts := w.Ranks.Resolve(g)
	peers := peersOf(hosts)
	p := bcast.Params{Workload: w.Label, Iterations: int(w.Iterations), WarmUp: w.WarmUp, Memory: memory(w.Memory), Seed: seed}
	for i, h := range hosts {
		if g.Nodes[h].Name == w.Root {
			p.Root = i
		}
		if peers != nil && peers[i] != nil {
			p.External = append(p.External, g.Nodes[h].Name)
		}
	}
	for _, s := range w.Schemes {
		o := s.Options(len(hosts))
		o.Write = w.Operation == "write"
		p.Schemes = append(p.Schemes, bcast.Scheme{Label: s.Label, Name: s.Name, Options: o})
	}
	steps := 0
	for _, size := range w.Sizes {
		p.Sizes = append(p.Sizes, int(size))
		steps += len(p.Schemes) * (p.WarmUp + bcast.Iterations(p.Iterations, int(size)))
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: bcast.Name, Params: raw, Hosts: hosts, Steps: steps, Peers: peers, Root: p.Root, Spare: spareReceivers(&p, len(hosts))}, nil
}

// spareReceivers says that every rank but the root may be lost, if all schemes go on without
// it.
func spareReceivers(p *bcast.Params, ranks int) []bool {
	for _, s := range p.Schemes {
		if s.Options.Fallback == "" || s.Options.Fallback == collective.FallbackOff {
			return nil
		}
	}
	spare := make([]bool, ranks)
	for i := range spare {
		spare[i] = i != p.Root
	}
	return spare
}

func prepareAllgather(w *lab.Allgather, g *topo.Graph, seed uint64) (Workload, error) {
	b := blocks{w.Label, w.Memory, w.Schemes, w.Sizes, w.Iterations, w.WarmUp}
	p, hosts, steps := b.prepare(w.Ranks, g, seed)
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: allgather.Name, App: allgather.App{}, Params: raw, Hosts: hosts, Steps: steps}, nil
}

func prepareReduceScatter(w *lab.ReduceScatter, g *topo.Graph, seed uint64) (Workload, error) {
	b := blocks{w.Label, w.Memory, w.Schemes, w.Sizes, w.Iterations, w.WarmUp}
	p, hosts, steps := b.prepare(w.Ranks, g, seed)
	raw, err := json.Marshal(reducescatter.Params{Blocks: p, Float32: w.Numbers == "float32"})
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: reducescatter.Name, App: reducescatter.App{}, Params: raw, Hosts: hosts, Steps: steps}, nil
}

// blocks is what collectives over blocks have in common in a lab file.
type blocks struct {
	label, memory string
	schemes       []lab.Scheme
	sizes         []lab.Size
	iterations    lab.Iterations
	warmUp        int
}

// prepare returns the parameters, the node of each rank, and how many iterations there are.
func (b *blocks) prepare(ranks lab.Hosts, g *topo.Graph, seed uint64) (p apps.Blocks, hosts []int, steps int) {
	hosts = ranks.Resolve(g)
	p = apps.Blocks{Workload: b.label, Memory: memory(b.memory), WarmUp: b.warmUp, Seed: seed}
	for _, s := range b.schemes {
		p.Schemes = append(p.Schemes, apps.Scheme{Label: s.Label, Name: s.Name, Options: s.Options(len(hosts))})
	}
	for _, size := range b.sizes {
		count := bcast.Iterations(int(b.iterations), int(size))
		p.Sizes, p.Iterations = append(p.Sizes, int(size)), append(p.Iterations, count)
		steps += len(p.Schemes) * (p.WarmUp + count)
	}
	return p, hosts, steps
}

// memory returns the kind that a word of a lab file means; "": auto.
func memory(word string) rank.MemoryKind {
	if word == "auto" {
		return ""
	}
	return rank.MemoryKind(word)
}

func prepareManyToMany(m *lab.ManyToMany, t *lab.MPortNTree, g *topo.Graph, seed uint64) (Workload, error) {
	p, hosts := m.Program(g, t)
	p.Workload, p.Memory, p.Seed = m.Label, memory(m.Memory), seed
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", m.Label, err)
	}
	steps := len(p.Schemes) * len(p.Sizes) * p.Iterations
	return Workload{Label: m.Label, Name: manycast.Name, App: manycast.App{}, Params: raw, Hosts: hosts, Steps: steps}, nil
}

// prepareProgram makes a program of the user's own ready to run: it is one step.
func prepareProgram(w *lab.Program, g *topo.Graph, programs []rank.Program) (Workload, error) {
	raw, err := json.Marshal(program.Params{Workload: w.Label, Program: w.Name, Args: w.Args})
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: program.Name, App: program.App{Programs: programs}, Params: raw, Hosts: w.Ranks.Resolve(g), Steps: 1}, nil
}

func prepareFSDP(w *lab.FSDP, g *topo.Graph, seed uint64) (Workload, error) {
	hosts := w.Ranks.Resolve(g)
	p := fsdp.Params{Workload: w.Label, WarmUp: w.WarmUp, Memory: memory(w.Memory), Seed: seed, Float32: w.Numbers == "float32"}
	half := func(s *lab.Scheme) fsdp.Scheme { return fsdp.Scheme{Name: s.Name, Options: s.Options(len(hosts))} }
	for i := range w.Schemes {
		x := &w.Schemes[i]
		p.Pairs = append(p.Pairs, fsdp.Pair{Label: x.Label, Allgather: half(&x.Allgather), ReduceScatter: half(&x.ReduceScatter)})
	}
	steps := 0
	for _, size := range w.Sizes {
		count := bcast.Iterations(int(w.Iterations), int(size))
		p.Sizes, p.Iterations = append(p.Sizes, int(size)), append(p.Iterations, count)
		steps += len(p.Pairs) * (p.WarmUp + count)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return Workload{Label: w.Label, Name: fsdp.Name, App: fsdp.App{}, Params: raw, Hosts: hosts, Steps: steps}, nil
}
