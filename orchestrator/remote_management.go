//go:build linux

package orchestrator

import (
	"net"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/internal/trunk"
)

// The management network of a lab on several machines has a bridge on each, which belongs to the process of the share. Frames go between machines
// as those of the lab's links do, and as if they were of one more link.

// makeHub makes the bridge of this machine, if the lab has a management network, and its ways to the others.
func (x *worker) makeHub(d *Deployed) (err error) {
	if !d.share.Management {
		return nil
	}
	d.Options.Management = true
	if x.hub, err = netdev.PrivateHub(); err != nil {
		return err
	}
	d.hub = x.hub
	link := len(d.Graph.Links)
	var remotes []net.IP
	for i, h := range d.share.Hosts {
		switch {
		case i == d.share.Own:
		case shareapi.Trunked(d.share.Userspace, d.share.Own, i):
			if err := d.trunks.manage(link, i, x.hub); err != nil {
				return err
			}
		default:
			remotes = append(remotes, net.ParseIP(h))
		}
	}
	if len(remotes) == 0 {
		return nil
	}
	return x.hub.Reach(netdev.Tunnel{VNI: d.share.VNI + link, Port: d.share.Port, Local: net.ParseIP(d.share.Hosts[d.share.Own])}, remotes)
}

// manage links the bridge of a management network to that of another machine.
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
