// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// The interface of an external host may be at any server of a lab on several: SERVER/INTERFACE. The host's node is on that server.

// attachedAt returns the server and the interface of an external host.
func attachedAt(p *engine.Placement, host, at string) (server int, name string, err error) {
	on, name, ok := strings.Cut(at, "/")
	if !ok || on == "" || name == "" {
		return 0, "", fmt.Errorf("attach %s=%s: the lab is on several servers: write --attach %s=SERVER/INTERFACE", host, at, host)
	}
	var names []string
	for i := range p.Servers {
		if p.Servers[i].Name == on {
			return i, name, nil
		}
		names = append(names, p.Servers[i].Name)
	}
	return 0, "", fmt.Errorf("attach %s=%s: the lab is not on a server %s: its servers are %s", host, at, on, strings.Join(names, ", "))
}

// placeOutside moves the nodes of external hosts to the servers where their interfaces are.
func (t *testbed) placeOutside(p *engine.Placement) error {
	used := map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(t.Options.Attach)) {
		at := t.Options.Attach[host]
		if t.Lab.ExternalHost(host) == nil {
			return fmt.Errorf("attach %s=%s: %s is not an external host of lab %s (%s)", host, at, host, t.Lab.Name, orchestrator.ExternalsOf(t.Lab))
		}
		server, _, err := attachedAt(p, host, at)
		if err != nil {
			return err
		}
		if other := used[at]; other != "" {
			return fmt.Errorf("attach %s=%s: the interface is attached to %s already", host, at, other)
		}
		node, _ := t.Graph.Find(host)
		used[at], p.At[node] = host, server
	}
	for _, host := range t.Lab.Externals() {
		if t.Options.Attach[host] == "" {
			return fmt.Errorf("host %s of lab %s is external: name its interface with --attach %s=SERVER/INTERFACE", host, t.Lab.Name, host)
		}
	}
	return nil
}

// attachHere returns the interfaces of a server, by external host.
func (s *serverNodes) attachHere(server int) (map[string]string, error) {
	here := map[string]string{}
	for host, at := range s.d.Options.Attach { // independent of each other
		i, name, err := attachedAt(s.placement, host, at)
		if err != nil {
			return nil, err
		}
		if i == server {
			here[host] = name
		}
	}
	return here, nil
}

// port returns whether the interface of an external host here has a carrier, and its number.
func (x *worker) port(node string) (*shareapi.PortReply, error) {
	p, _, err := x.nodeHere(node)
	if err != nil {
		return nil, err
	}
	name := p.share.Attach[node]
	if name == "" {
		return nil, fmt.Errorf("%s is no external host here", node)
	}
	return &shareapi.PortReply{Carrier: netdev.Carrier(name), Index: int32(netdev.Index(name))}, nil
}

// PortOf returns whether the interface of an external host has a carrier, and its number; of one that is not there the number is 0.
func (s *serverNodes) PortOf(ctx context.Context, host string) (shareapi.Outside, error) {
	server, _, err := attachedAt(s.placement, host, s.d.Options.Attach[host])
	if err != nil {
		return shareapi.Outside{}, err
	}
	var o shareapi.Outside
	err = s.askShare(ctx, &s.placement.Servers[server], func(k shareapi.ShareClient) error {
		a, err := k.Port(ctx, &shareapi.PortRequest{Node: host})
		o = shareapi.Outside{Carrier: a.GetCarrier(), Index: int(a.GetIndex())}
		return err
	})
	return o, err
}
