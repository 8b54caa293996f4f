// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Outside is an interface of this host that leads to an external RoCE device.
type Outside struct {
	Name  string
	index int
}

// OpenInterface looks whether an interface of this host is up and carries packets of mtu
// bytes.
func OpenInterface(name string, mtu int) (*Outside, error) {
	fail := func(format string, args ...any) (*Outside, error) {
		return nil, fmt.Errorf("interface %s: %s", name, fmt.Sprintf(format, args...))
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fail("there is none of that name on this host: ip link shows those there are")
	}
	a := l.Attrs()
	switch {
	case a.Flags&net.FlagLoopback != 0:
		return fail("it is the loopback interface")
	case a.Flags&net.FlagUp == 0:
		return fail("it is down: ip link set %s up", name)
	case a.MTU < mtu:
		return fail("its MTU of %d is too small for the frames: ip link set %s mtu %d", a.MTU, name, mtu)
	}
	return &Outside{name, a.Index}, nil
}

// OpenOutside looks whether an interface may become the port of an external host: it must be up,
// carry packets of mtu bytes, and not be in use: it has no address, no route and no master.
// Addresses that the kernel itself assigns (IPv6 link-local) do not count.
func OpenOutside(name string, mtu int) (*Outside, error) {
	fail := func(format string, args ...any) (*Outside, error) {
		return nil, fmt.Errorf("interface %s: %s", name, fmt.Sprintf(format, args...))
	}
	o, err := OpenInterface(name, mtu)
	if err != nil {
		return nil, err
	}
	l, err := netlink.LinkByIndex(o.index)
	if err != nil {
		return fail("%v", err)
	}
	if l.Attrs().MasterIndex != 0 {
		return fail("it has a master: ip link set %s nomaster", name)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fail("%v", err)
	}
	for _, x := range addrs {
		if !x.IP.IsLinkLocalUnicast() {
			return fail("it has the address %v, so this host uses it, perhaps to be reached at all: take an interface that has none", x.IPNet)
		}
	}
	routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fail("%v", err)
	}
	for _, r := range routes {
		if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() && !r.Dst.IP.IsMulticast() {
			return fail("it has a route, %v, so this host uses it: take an interface that has none", r.Dst)
		}
	}
	return o, nil
}

// Index returns the kernel's number of the interface.
func (o *Outside) Index() int { return o.index }

// Index returns the kernel's number of an interface of this host, or 0 if there is none.
func Index(name string) int {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0
	}
	return l.Attrs().Index
}

// Carrier reports whether an interface of this host is up and connected to something that is.
func Carrier(name string) bool {
	l, err := netlink.LinkByName(name)
	return err == nil && l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
}

// Socket opens a raw socket on the interface, which sees all that comes in, for whomever
// it is.
func (o *Outside) Socket() (*os.File, error) {
	f, err := socket(o.index, "outside_"+o.Name, []option{ignoreOutgoing})
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", o.Name, err)
	}
	// Ends with the socket.
	m := unix.PacketMreq{Ifindex: int32(o.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(int(f.Fd()), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		_ = f.Close() // the first error counts
		return nil, fmt.Errorf("interface %s: listen to all: %w", o.Name, err)
	}
	// Fd has made it blocking.
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		_ = f.Close() // the first error counts
		return nil, fmt.Errorf("interface %s: %w", o.Name, err)
	}
	return f, nil
}
