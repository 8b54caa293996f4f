package netdev

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tunnel is a link to another machine: VXLAN (RFC 7348) to one address, whose network identifier is of this link alone.
type Tunnel struct {
	VNI           int
	Port          int // UDP, at both ends
	Local, Remote net.IP
}

// JoinFar makes an end whose link leads to another machine, and brings it up. The kernel makes it in the namespace of this
// process, whose addresses it sends from for good, and it is then moved to the node. It has no underlying interface: else its
// MTU would be bound to that one's.
func JoinFar(e End, t Tunnel) error {
	fail := func(what string, err error) error {
		return fmt.Errorf("%s link %s to %v (VXLAN %d, UDP port %d): %w", what, e.Alias, t.Remote, t.VNI, t.Port, err)
	}
	v := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("mcl%d", t.VNI), MTU: MTU, HardwareAddr: e.MAC, TxQLen: 1000},
		VxlanId:   t.VNI, Group: t.Remote, SrcAddr: t.Local, Port: t.Port, UDPCSum: true,
	}
	err := netlink.LinkAdd(v)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return fail("make", errors.New("this kernel has no VXLAN: load its module vxlan there"))
	case errors.Is(err, unix.EEXIST):
		return fail("make", errors.New("another lab has that identifier: deploy it again"))
	case errors.Is(err, unix.EADDRINUSE):
		return fail("make", errors.New("another program has that port: give hosts up another --port"))
	case err != nil:
		return fail("make", err)
	}
	if err := netlink.LinkSetNsFd(v, int(e.NS.fd)); err != nil {
		return errors.Join(fail("move", err), netlink.LinkDel(v))
	}
	l, err := e.NS.nl.LinkByName(v.Name)
	if err == nil {
		err = errors.Join(e.NS.nl.LinkSetName(l, e.Name()), e.NS.nl.LinkSetAlias(l, e.Alias), e.NS.nl.LinkSetUp(l))
	}
	if err != nil {
		return fail("set up", err)
	}
	return nil
}
