// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"net"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/internal/trunk"
)

// The management network of a lab on several servers has a bridge on each, which belongs to the process of the share. Frames go between servers
// as those of the lab's links do, and as if they were of one more link.

// makeHub makes the bridge of this server, if the lab has a management network, and its ways to the others.
func (x *worker) makeHub(p *labPart) (err error) {
	if !p.share.Management {
		return nil
	}
	p.Options.Management = true
	if x.hub, err = netdev.PrivateHub(); err != nil {
		return err
	}
	p.hub = x.hub
	link := len(p.Graph.Links)
	var remotes []net.IP
	for i, h := range p.share.Hosts {
		switch {
		case i == p.share.Own:
		case shareapi.Trunked(p.share.Userspace, p.share.Own, i):
			if err := p.trunks.manage(link, i, x.hub); err != nil {
				return err
			}
		default:
			remotes = append(remotes, net.ParseIP(h))
		}
	}
	if len(remotes) == 0 {
		return nil
	}
	return x.hub.Reach(netdev.Tunnel{VNI: p.share.VNI + link, Port: p.share.Port, Local: net.ParseIP(p.share.Hosts[p.share.Own])}, remotes)
}

// manage links the bridge of a management network to that of another server.
func (x *trunks) manage(link, to int, hub *netdev.Namespace) error {
	own := netdev.End{NS: x.space, Port: link + to, Alias: "management network trunk"} // ports of links have lower numbers
	if err := hub.ReachBy(to, own); err != nil {
		return err
	}
	return x.listen(link, to, own, func(p trunk.Port) trunk.Port { return lossy{p} })
}

// lossy is a port whose frames may get lost: TCP sends them again.
type lossy struct{ trunk.Port }

// Drops returns 0: what is lost does not count.
func (lossy) Drops() uint64 { return 0 }
