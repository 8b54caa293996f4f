package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/store"
	"github.com/mcastlab/mcastlab/topo"
)

// prepareStorage makes storage ready to run on the event clock: a step is a scheme at a
// block size. Its stores are in memory, and new.
func prepareStorage(s *lab.Storage, g *topo.Graph, seed uint64) (Workload, error) {
	p, hosts := s.Program(g)
	p.Seed = seed
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", s.Label, err)
	}
	app := storage.App{Open: store.NewMemory().Open}
	spare := make([]bool, len(hosts))
	for i := range spare {
		spare[i] = i != p.Client
	}
	return Workload{Spare: spare, Label: s.Label, Name: storage.Name, App: app, Params: raw, Hosts: hosts, Steps: len(p.Schemes) * len(p.Sizes)}, nil
}
