// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tunnel is a link to another server: VXLAN (RFC 7348) to one address, whose network identifier is of this link alone.
type Tunnel struct {
	VNI           int
	Port          int // UDP, at both ends
	Local, Remote net.IP
}

// JoinFar makes an end whose link leads to another server, brings it up, and returns when it carries frames. The kernel makes it in the namespace of this
// process, whose addresses it sends from for good, and it is then moved to the node. It has no underlying interface: else its
// MTU would be bound to that one's.
func JoinFar(e End, t Tunnel) error {
	fail := func(err error) error {
		return fmt.Errorf("make link %s to %v (VXLAN %d, UDP port %d): %w", e.Alias, t.Remote, t.VNI, t.Port, err)
	}
	v := t.vxlan(e.MAC)
	v.Group = t.Remote
	if err := t.add(v, e.NS); err != nil {
		return fail(err)
	}
	l, err := e.NS.nl.LinkByName(v.Name)
	if err == nil {
		err = errors.Join(e.NS.nl.LinkSetName(l, e.Name()), e.NS.nl.LinkSetAlias(l, e.Alias), e.NS.nl.LinkSetUp(l))
	}
	if err != nil {
		return fail(fmt.Errorf("set it up: %w", err))
	}
	return e.NS.ready(e.Name(), e.Alias)
}

func (t *Tunnel) vxlan(mac net.HardwareAddr) *netlink.Vxlan {
	return &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("mcl%d", t.VNI), MTU: MTU, HardwareAddr: mac, TxQLen: 1000},
		VxlanId:   t.VNI, SrcAddr: t.Local, Port: t.Port, UDPCSum: true,
	}
}

// add makes an interface here, and moves it to a namespace.
func (t *Tunnel) add(v *netlink.Vxlan, to *Namespace) error {
	err := netlink.LinkAdd(v)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("this kernel has no VXLAN: load its module vxlan there")
	case errors.Is(err, unix.EEXIST):
		return errors.New("another lab has that identifier: deploy it again")
	case errors.Is(err, unix.EADDRINUSE):
		return errors.New("another program has that port: give servers up another --port")
	case err != nil:
		return err
	}
	if err := netlink.LinkSetNsFd(v, int(to.fd)); err != nil {
		return errors.Join(fmt.Errorf("move it to its node: %w", err), netlink.LinkDel(v))
	}
	return nil
}
