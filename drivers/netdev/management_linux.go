// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A management network is a bridge in a network namespace that belongs to no process: a file in the lab's
// folder holds it. No interface of the host's namespace is on it, and nothing on it forwards.

// Management is the interface of a node on the management network.
const Management = "mgmt0"

// hub is the bridge.
const hub = "hub"

// PortsMax is the number of ports that the kernel gives a bridge.
const PortsMax = 1023

// OpenHub opens the management network that a file holds. One whose making was interrupted is none.
func OpenHub(path string) (*Namespace, error) {
	n, err := openAt(path)
	if err != nil {
		return nil, err
	}
	if _, err := n.nl.LinkByName(hub); err != nil {
		return nil, errors.Join(fmt.Errorf("look for the bridge of management network %s: %w", path, err), n.Close())
	}
	return n, nil
}

// openAt opens the network namespace that a file holds.
func openAt(path string) (*Namespace, error) {
	fd, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	nl, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %s: %w", path, err), fd.Close())
	}
	return &Namespace{fd: fd, nl: nl, path: fmt.Sprintf("/proc/self/fd/%d", int(fd))}, nil
}

// HoldsNamespace reports whether a file holds a network namespace.
func HoldsNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// MakeHub makes a namespace with a bridge in it, held by a file; one that the file holds already goes.
func MakeHub(path string) (n *Namespace, err error) {
	if err := Release(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make management network: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("make management network: %w", err)
	}
	if n, err = PrivateHub(); err != nil {
		return nil, err
	}
	if err := unix.Mount(n.path, path, "", unix.MS_BIND, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("hold management network: %w", err), n.Close())
	}
	return n, nil
}

// PrivateHub makes a namespace with a bridge in it that no file holds: it goes when it is closed, also when this process dies.
func PrivateHub() (*Namespace, error) {
	n, err := Private()
	if err != nil {
		return nil, err
	}
	if err := n.addBridge(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Namespace) addBridge() error {
	b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: hub}}
	err := n.nl.LinkAdd(b)
	if err == nil {
		err = n.nl.LinkSetUp(b)
	}
	if err != nil {
		return fmt.Errorf("make bridge of management network: %w", err)
	}
	return nil
}

// Release removes the hub that MakeHub has made, if any, and all its links.
func Release(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is mounted, or nothing is there
			break
		}
		if err != nil {
			return fmt.Errorf("remove management network: %w", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove management network: %w", err)
	}
	return nil
}

// Attach links a node's namespace to the hub, as its port number port, and returns when both ends carry frames. What link it had goes.
func (n *Namespace) Attach(node *Namespace, port int, address *net.IPNet) error {
	fail := func(err error) error { return fmt.Errorf("link to management network as %v: %w", address.IP, err) }
	if err := node.remove(Management); err != nil {
		return fail(err)
	}
	bridge, err := n.nl.LinkByName(hub)
	if err != nil {
		return fail(err)
	}
	peer := fmt.Sprintf("n%d", port)
	if err := n.remove(peer); err != nil { // of a node that has died
		return fail(err)
	}
	// The hardware address is that of the link before, which the other hosts remember.
	ip := address.IP.To4()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: peer, TxQLen: 1000, MasterIndex: bridge.Attrs().Index}, PeerName: Management, PeerNamespace: netlink.NsFd(node.fd),
		PeerHardwareAddr: net.HardwareAddr{2, 0, ip[0], ip[1], ip[2], ip[3]}, // administered locally
	}
	if err := n.nl.LinkAdd(veth); err != nil {
		return fail(err)
	}
	if err := n.nl.LinkSetUp(veth); err != nil {
		return fail(err)
	}
	for name, a := range map[string]*net.IPNet{Management: address, "lo": nil} { // independent of each other
		l, err := node.nl.LinkByName(name)
		if err == nil && a != nil {
			err = node.nl.AddrAdd(l, &netlink.Addr{IPNet: a})
		}
		if err == nil {
			err = node.nl.LinkSetUp(l)
		}
		if err != nil {
			return fail(err)
		}
	}
	for name, of := range map[string]*Namespace{peer: n, Management: node} { // independent of each other
		if err := of.ready(name, "management network"); err != nil {
			return fail(err)
		}
	}
	return node.letPing()
}

// letPing lets every user of a namespace send echo requests: a program that cannot gain privileges has no
// other way.
func (n *Namespace) letPing() error {
	return ns.WithNetNSPath(n.path, func(ns.NetNS) error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4", "ping_group_range"), []byte("0 2147483647"), 0); err != nil {
			return fmt.Errorf("let users ping: %w", err)
		}
		return nil
	})
}

// Attached reports whether the namespace has an interface, set up, on a management network, and of that IPv4 address.
func (n *Namespace) Attached(address *net.IPNet) (bool, error) {
	l, err := n.nl.LinkByName(Management)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the interface on the management network: %w", err)
	}
	if !operational(l) {
		return false, nil
	}
	all, err := n.nl.AddrList(l, netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("look for the address on the management network: %w", err)
	}
	return slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IPNet.String() == address.String() }), nil
}
