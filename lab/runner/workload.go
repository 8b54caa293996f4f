// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Workload is a workload of a lab made ready to run, or one row of it.
type Workload struct {
	apps.Prepared
	Of     int // number of the workload in the lab
	Label  string
	Name   string // of the program
	App    apps.App
	Params []byte // of the program
}

// Prepare turns a lab's workloads into programs and their parameters. External hosts are simulated as
// if they were the lab's. env holds the parts that differ between binaries and tests: the user's
// programs and hooks.
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
		e, s := l.Workloads[i].Chosen(), &apps.Setup{Graph: g, Seed: seed.Uint64(), Peers: peers}
		env.OpenStore = pebblestore.NewMemory().Open // in memory, and new
		for _, k := range rowsOf(l, e.Kind) {
			one := registry.Entry{Name: e.Name, Kind: k}
			if w, err = w.of(one, s); err != nil {
				return nil, err
			}
			w.App, w.Of = k.App(env), i
			all = append(all, w)
		}
	}
	return all, nil
}

// rowsOf divides a workload into those of its rows that can be measured alone, if faults come again in each
// row. One with external hosts stays whole: their operators connect them once.
func rowsOf(l *lab.Lab, k apps.Kind) (all []apps.Kind) {
	each := false
	for i := range l.Faults {
		each = each || !labspec.InRun(l, i)
	}
	rower, ok := k.(apps.Rower)
	if !each || !ok || len(l.Externals()) > 0 {
		return []apps.Kind{k}
	}
	rows := rower.Rows()
	if len(rows) == 1 {
		return []apps.Kind{k}
	}
	for i := range rows {
		all = append(all, k.Only(&rows[i]))
	}
	return all
}

// of returns the workload with the settings of its kind.
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
