package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/labspec"
	"github.com/mcastlab/mcastlab/internal/rankhost"
	"github.com/mcastlab/mcastlab/lab"
)

// Workload is a workload of a lab made ready to run.
type Workload struct {
	apps.Prepared
	Label  string
	Name   string // of the program
	App    apps.App
	Params []byte // of the program
}

// Prepare turns a lab's workloads into programs and their parameters. External hosts are
// simulated as if they were the lab's. env holds what differs between binaries and tests: the
// user's programs and hooks.
func Prepare(l *lab.Lab, g *topo.Graph, env apps.Env) ([]Workload, error) {
	return prepare(l, g, env, func([]int) []*rankhost.Peer { return nil })
}

// PrepareLive is Prepare for a lab whose external hosts are real devices.
func PrepareLive(l *lab.Lab, g *topo.Graph, env apps.Env) ([]Workload, error) {
	return prepare(l, g, env, func(hosts []int) []*rankhost.Peer { return labspec.Peers(l, g, hosts) })
}

func prepare(l *lab.Lab, g *topo.Graph, env apps.Env, peers func(hosts []int) []*rankhost.Peer) (all []Workload, err error) {
	seeds := prng.New(l.Seed)
	for i := range l.Workloads {
		w := Workload{Label: l.Workloads[i].Label()}
		seed := seeds.Derive("workload/" + w.Label)
		e := l.Workloads[i].Chosen()
		if w, err = w.of(e, &apps.Setup{Graph: g, Seed: seed.Uint64(), Peers: peers}); err != nil {
			return nil, err
		}
		env.OpenStore = pebblestore.NewMemory().Open // in memory, and new
		w.App = e.Kind.App(env)
		all = append(all, w)
	}
	return all, nil
}

// of returns the workload with what its kind says.
func (w Workload) of(e registry.Entry, s *apps.Setup) (Workload, error) {
	var err error
	if w.Prepared, err = e.Kind.Prepare(s); err != nil {
		return w, fmt.Errorf("prepare %s: %w", w.Label, err)
	}
	if w.Params, err = json.Marshal(w.Input); err != nil {
		return w, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	w.Name = e.Name
	return w, nil
}
