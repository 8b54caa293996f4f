//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Drift looks for the parts that are gone of a lab on several machines.
func (s *serverNodes) Drift(ctx context.Context) (x drift, err error) {
	found := map[string]shareapi.Node{}
	var mu sync.Mutex
	err = s.eachMachine(func(_ int, m *engine.Machine) error {
		a, err := s.askShare(ctx, m, shareapi.Request{Do: shareapi.Look})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range a.Nodes {
			found[n.Name] = n
		}
		return nil
	})
	if err != nil {
		return x, err
	}
	st, _, err := s.d.Store.Get()
	if err != nil {
		return x, err
	}
	managed := s.d.Managed(&st)
	for i := range s.d.Graph.Nodes {
		n := &s.d.Graph.Nodes[i]
		have := found[n.Name]
		if have.PID == 0 {
			x.nodes = append(x.nodes, i)
		} else if managed && managementNetworkOf(s.d).manages(i) && !have.Managed {
			x.unmanaged = append(x.unmanaged, i)
		}
		for p, k := range n.Links {
			if p >= len(have.Up) || !have.Up[p] {
				x.links = append(x.links, k)
			}
		}
	}
	slices.Sort(x.links)
	x.links = slices.Compact(x.links)
	for _, name := range s.d.Lab.Replicas() {
		if found[name].PID == 0 {
			x.replicas = append(x.replicas, name)
		}
	}
	return x, nil
}

// Repair says what is gone of a lab on several machines.
func (s *serverNodes) Repair(_ context.Context, x drift) error {
	var what string
	switch {
	case len(x.nodes) > 0:
		what = fmt.Sprintf("node %s is gone", s.Where(s.d.Graph.Nodes[x.nodes[0]].Name))
	case len(x.replicas) > 0:
		what = fmt.Sprintf("node %s is gone", s.Where(x.replicas[0]))
	case len(x.links) == 0:
		what = fmt.Sprintf("host %s is not on the management network", s.Where(s.d.Graph.Nodes[x.unmanaged[0]].Name))
	default:
		what = fmt.Sprintf("link %s is gone", s.d.Graph.LinkName(x.links[0]))
	}
	return fmt.Errorf("lab %s: %s, and a lab on several machines is not mended: mcastlab destroy it, and deploy it again", s.d.Lab.Name, what)
}
