// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// testbed makes a lab on several servers.
type testbed struct {
	*orchestrator.Deployed
	servers   engine.Spread
	placement *engine.Placement // of Prepare
}

// Prepare removes what an unfinished deployment has left, and decides which node goes where.
func (t *testbed) Prepare(ctx context.Context) (err error) {
	if err := t.checkSpread(); err != nil {
		return err
	}
	if err := t.servers.Remove(ctx, t.Lab.Name); err != nil {
		return err
	}
	t.placement, err = t.place(ctx)
	return err
}

// Record writes the placement. The servers look for the interfaces of external hosts themselves.
func (t *testbed) Record() (indexes map[string]int, err error) {
	text, err := json.MarshalIndent(t.placement, "", "  ")
	if err == nil {
		err = t.Store.Write(engine.PlacementFile, checksum.Object(append(text, '\n')))
	}
	return nil, err
}

// Make has each server make its share.
func (t *testbed) Make(ctx context.Context, message []byte) (made string, err error) {
	p := t.placement
	for _, u := range p.Userspace {
		t.Announce("between %s and %s: %d links%s", p.Servers[u.A].Name, p.Servers[u.B].Name, t.between(p.At, u.A, u.B), how(p, u.A, u.B))
	}
	begin := time.Now()
	servers := t.nodes(p)
	t.Access = servers
	if err := servers.makeShares(ctx, message); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes and %d links, %d of them between servers, made in %v", len(t.Graph.Nodes), len(t.Graph.Links),
		t.crossing(p.At), time.Since(begin).Round(time.Millisecond)), nil
}

// nodes returns what reaches the nodes of a placement.
func (t *testbed) nodes(p *engine.Placement) *serverNodes {
	return &serverNodes{d: t.Deployed, servers: t.servers, placement: p}
}

// makeShares has each server make its share, tries the links between them, and then has nodes get the sockets.
func (s *serverNodes) makeShares(ctx context.Context, message []byte) error {
	p := s.placement
	err := s.eachServer(func(i int, m *engine.Server) error {
		if err := s.servers.Share(ctx, s.d.Lab.Name, m); err != nil {
			return err
		}
		share := &shareapi.Share{
			Lab: message, At: p.At, Own: i, VNI: p.VNI, Port: p.Port, Controllers: p.Controllers, Userspace: p.Userspace, Management: s.d.WantsManagement(),
		}
		var err error
		if share.Attach, err = s.attachHere(i); err != nil {
			return err
		}
		for _, m := range p.Servers {
			share.Hosts, share.Names = append(share.Hosts, m.Address), append(share.Names, m.Name)
		}
		if slices.Contains(p.Controllers, i) || slices.ContainsFunc(p.Userspace, func(u shareapi.Pair) bool { return u.A == i }) {
			if share.Peers, err = s.servers.Peers(s.d.Lab.Name, m); err != nil {
				return err
			}
		}
		return s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			_, err := k.Start(ctx, share.Request())
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := orchestrator.TellControllers(ctx, s.d, message); err != nil {
		return err
	}
	if err := s.probeLinks(ctx); err != nil {
		return err
	}
	if _, err := s.d.Phase(ctx, controller.PhaseWiring); err != nil {
		return err
	}
	return s.eachServer(func(_ int, m *engine.Server) error {
		return s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			_, err := k.Ready(ctx, &shareapi.ReadyRequest{})
			return err
		})
	})
}

// Reach reads the placement of a running lab.
func (t *testbed) Reach() (orchestrator.NodeAccess, error) {
	p := &engine.Placement{}
	b, err := os.ReadFile(filepath.Join(t.Store.Dir, engine.PlacementFile))
	if err == nil {
		err = checksum.ReadObject(b, p)
	}
	if err == nil && (len(p.At) != len(t.Graph.Nodes) || len(p.Controllers) != len(t.Lab.Replicas())) {
		err = fmt.Errorf("it is of %d nodes and %d controllers", len(p.At), len(p.Controllers))
	}
	if err != nil {
		return nil, fmt.Errorf("read the placement of lab %s: %w", t.Lab.Name, orchestrator.NeedRoot(err))
	}
	return t.nodes(p), nil
}

// StillAttached reports true: a server that has lost an interface says so when a run looks for the device.
func (t *testbed) StillAttached(map[string]string, map[string]int) bool { return true }
