package runner

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/topo"
)

// prepareHPL makes HPL ready to run: a step is a test.
func prepareHPL(h *lab.HPL, g *topo.Graph) (Workload, error) {
	p, hosts, err := h.Program(g)
	if err != nil {
		return Workload{}, fmt.Errorf("prepare %s: %w", h.Label, err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return Workload{}, fmt.Errorf("write parameters of %s: %w", h.Label, err)
	}
	return Workload{Label: h.Label, Name: hpl.Name, App: hpl.App{}, Params: raw, Hosts: hosts, Steps: len(p.Tests)}, nil
}
