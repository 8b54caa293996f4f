// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A management network over several servers is a bridge on each. Every machine sends to all others itself, so a bridge passes frames from one
// machine to no other: its ports that lead away are isolated from each other, and nothing goes in circles.

// farPort is the port of a bridge that leads to other servers by VXLAN.
const farPort = "far"

// Reach links the bridge to those on other servers, at whose addresses all of them have VXLAN of the identifier and the port of t.
func (n *Namespace) Reach(t Tunnel, remotes []net.IP) error {
	fail := func(err error) error {
		return fmt.Errorf("link management network to %v (VXLAN %d, UDP port %d): %w", remotes, t.VNI, t.Port, err)
	}
	v := t.vxlan(nil)
	v.Learning = true // which address is on which machine
	if err := t.add(v, n); err != nil {
		return fail(err)
	}
	l, err := n.nl.LinkByName(v.Name)
	if err != nil {
		return fail(err)
	}
	if err := n.nl.LinkSetName(l, farPort); err != nil {
		return fail(err)
	}
	for _, r := range remotes { // to each of which a frame goes whose way is not known
		err := n.nl.NeighAppend(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF,
			IP: r, HardwareAddr: make(net.HardwareAddr, 6),
		})
		if err != nil {
			return fail(fmt.Errorf("send to %v: %w", r, err))
		}
	}
	if l, err = n.nl.LinkByName(farPort); err == nil {
		err = n.lead(l)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// ReachBy links the bridge to that on another server, to which far passes frames.
func (n *Namespace) ReachBy(machine int, far End) error {
	near := End{NS: n, Port: machine, Alias: far.Alias}
	if err := Join(near, far); err != nil {
		return err
	}
	if err := n.plain([]End{near}, false); err != nil { // a frame is to be one
		return err
	}
	l, err := n.nl.LinkByName(near.Name())
	if err == nil {
		err = n.lead(l)
	}
	if err != nil {
		return fmt.Errorf("link management network by %s: %w", far.Alias, err)
	}
	return nil
}

// lead makes an interface a port of the bridge that leads to another server.
func (n *Namespace) lead(l netlink.Link) error {
	bridge, err := n.nl.LinkByName(hub)
	if err != nil {
		return err
	}
	if err := n.nl.LinkSetMaster(l, bridge); err != nil {
		return err
	}
	if err := n.nl.LinkSetIsolated(l, true); err != nil {
		return fmt.Errorf("isolate the port of the bridge, which needs Linux 4.18: %w", err)
	}
	if err := n.nl.LinkSetUp(l); err != nil {
		return err
	}
	return n.ready(l.Attrs().Name, "management network")
}
