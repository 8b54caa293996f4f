// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"maps"
	"net"
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// labPart is a share that has been made. It is the Partition of its lab.
type labPart struct {
	*orchestrator.Deployed
	share  *shareapi.Share
	trunks *trunks           // its links in user space to other servers, if it has some
	hub    *netdev.Namespace // its bridge of the management network, if there is one
}

// HasNode reports whether a node is on this server.
func (p *labPart) HasNode(node int) bool { return p.share.At[node] == p.share.Own }

// HasController reports whether a controller is on this server.
func (p *labPart) HasController(name string) bool {
	at, ok := controllerAt(p.Deployed, name, p.share.Controllers)
	return ok && at == p.share.Own
}

// OpenHub returns the bridge, which lives as long as the share.
func (p *labPart) OpenHub() (*netdev.Namespace, func(), error) { return p.hub, func() {}, nil }

// LinkRemote makes the end that is here of a link to another server: in user space, or of VXLAN.
func (p *labPart) LinkRemote(link int, end netdev.End) error {
	k := &p.Graph.Links[link]
	far := k.B
	if !p.HasNode(k.A.Node) {
		far = k.A
	}
	to := p.share.At[far.Node]
	if shareapi.Trunked(p.share.Userspace, p.share.Own, to) {
		return p.trunks.add(link, to, end)
	}
	return netdev.JoinFar(end, netdev.Tunnel{
		VNI: p.share.VNI + link, Port: p.share.Port, Local: net.ParseIP(p.share.Hosts[p.share.Own]), Remote: net.ParseIP(p.share.Hosts[to]),
	})
}

// outside returns the interfaces of external hosts on this server.
func (p *labPart) outside() (map[string]*netdev.Outside, error) {
	all := map[string]*netdev.Outside{}
	for _, host := range slices.Sorted(maps.Keys(p.share.Attach)) {
		o, err := netdev.OpenOutside(p.share.Attach[host], p.Lab.NICs.MTU+wire.RoCEHeadersMax)
		if err != nil {
			return nil, err
		}
		all[host] = o
	}
	return all, nil
}
