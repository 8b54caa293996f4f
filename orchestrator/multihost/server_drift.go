// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Drift looks for the parts that are gone of a lab on several servers.
func (s *serverNodes) Drift(ctx context.Context) (x orchestrator.Drift, err error) {
	found := map[string]*shareapi.Node{}
	var mu sync.Mutex
	err = s.eachServer(func(_ int, m *engine.Server) error {
		return s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			a, err := k.Look(ctx, &shareapi.LookRequest{})
			mu.Lock()
			defer mu.Unlock()
			for _, n := range a.GetNodes() {
				found[n.Name] = n
			}
			return err
		})
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
		if have.GetPid() == 0 {
			x.Nodes = append(x.Nodes, i)
		} else if managed && orchestrator.OnManagementNetwork(s.d, i) && !have.Managed {
			x.Unmanaged = append(x.Unmanaged, i)
		}
		for p, k := range n.Links {
			if p >= len(have.GetUp()) || !have.Up[p] {
				x.Links = append(x.Links, k)
			}
		}
	}
	slices.Sort(x.Links)
	x.Links = slices.Compact(x.Links)
	for _, name := range s.d.Lab.Replicas() {
		if found[name].GetPid() == 0 {
			x.Replicas = append(x.Replicas, name)
		}
	}
	return x, nil
}

// Repair reports the missing parts of a lab on several servers.
func (s *serverNodes) Repair(_ context.Context, x orchestrator.Drift) error {
	var what string
	switch {
	case len(x.Nodes) > 0:
		what = fmt.Sprintf("node %s is gone", s.Where(s.d.Graph.Nodes[x.Nodes[0]].Name))
	case len(x.Replicas) > 0:
		what = fmt.Sprintf("node %s is gone", s.Where(x.Replicas[0]))
	case len(x.Links) == 0:
		what = fmt.Sprintf("host %s is not on the management network", s.Where(s.d.Graph.Nodes[x.Unmanaged[0]].Name))
	default:
		what = fmt.Sprintf("link %s is gone", s.d.Graph.LinkName(x.Links[0]))
	}
	return fmt.Errorf("lab %s: %s, and a lab on several servers cannot be repaired: run mcastlab destroy %[1]s, then deploy it again", s.d.Lab.Name, what)
}
