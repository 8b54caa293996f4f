// SPDX-License-Identifier: Apache-2.0

// Package netdev makes the interfaces of a lab: veth pairs whose ends are created inside their
// nodes' namespaces, so that the host's namespace never holds one, and the raw sockets on them.
package netdev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// End is one end of a link: an interface in a node's namespace.
type End struct {
	NS    *Namespace
	Port  int    // the interface is called p<Port>
	Alias string // full name, for people: LAB NODE:PORT
	MAC   net.HardwareAddr
}

// Name returns the interface's name. It need not be unique but in its namespace.
func (e End) Name() string { return fmt.Sprintf("p%d", e.Port) }

// Namespace is the network namespace of a node's process, held open.
type Namespace struct {
	fd   netns.NsHandle
	nl   *netlink.Handle
	path string
}

// Open opens the network namespace of a process.
func Open(pid int) (*Namespace, error) {
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	fd, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace of process %d: %w", pid, err)
	}
	return hold(fd, path)
}

// hold returns the namespace of a descriptor, which it takes over. The descriptor finds it even after the process has
// ended.
func hold(fd netns.NsHandle, path string) (*Namespace, error) {
	nl, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %s: %w", path, err), fd.Close())
	}
	return &Namespace{fd: fd, nl: nl, path: fmt.Sprintf("/proc/self/fd/%d", int(fd))}, nil
}

// Private makes a network namespace that no process is in. It goes, and with it the interfaces in it, when it is released and the
// sockets in it are closed, also when this process dies.
func Private() (*Namespace, error) {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the network namespace here: %w", err)
	}
	fd, err := netns.New()
	if back := netns.Set(own); back == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	} else {
		err = errors.Join(err, back)
	}
	if err = errors.Join(err, own.Close()); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	n, err := hold(fd, "of links")
	if err != nil {
		return nil, err
	}
	if err := n.Prepare(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close releases the namespace.
func (n *Namespace) Close() error {
	n.nl.Close()
	return n.fd.Close()
}

// Same reports whether the namespace is still that of the process. It is not if the process id
// has been reused.
func (n *Namespace) Same(pid int) bool {
	other, err := netns.GetFromPid(pid)
	if err != nil {
		return false
	}
	defer func() { _ = other.Close() }() // only read
	return n.fd.Equal(other)
}

// MTU is the MTU of every interface in bytes: it holds the largest RoCE packet with all its
// headers.
const MTU = 4200

// Join makes the veth pair between two ends, each in its own namespace from the start,
// brings both up, and returns when they carry frames.
func Join(a, b End) error {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: a.Name(), MTU: MTU, HardwareAddr: a.MAC, TxQLen: 1000},
		PeerName:  b.Name(), PeerHardwareAddr: b.MAC, PeerMTU: MTU, PeerNamespace: netlink.NsFd(b.NS.fd),
	}
	if err := a.NS.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("make link %s to %s: %w", a.Alias, b.Alias, err)
	}
	for _, e := range []End{a, b} {
		l, err := e.NS.nl.LinkByName(e.Name())
		if err != nil {
			return fmt.Errorf("find interface of %s: %w", e.Alias, err)
		}
		if err := e.NS.nl.LinkSetAlias(l, e.Alias); err != nil {
			return fmt.Errorf("name interface of %s: %w", e.Alias, err)
		}
		if err := e.NS.nl.LinkSetUp(l); err != nil {
			return fmt.Errorf("bring up interface of %s: %w", e.Alias, err)
		}
	}
	for _, e := range []End{a, b} {
		if err := e.NS.ready(e.Name(), e.Alias); err != nil {
			return err
		}
	}
	return nil
}

// Ports returns, for each port from 0 to ports-1, whether it has an interface that carries frames.
func (n *Namespace) Ports(ports int) (up []bool, err error) {
	links, err := whole(n.nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	up = make([]bool, ports)
	for p := range up {
		for _, l := range links {
			if l.Attrs().Name == (End{Port: p}).Name() && operational(l) {
				up[p] = true
			}
		}
	}
	return up, nil
}

// dumpsMax is the number of requests for a list that the kernel could not finish.
const dumpsMax = 8

// whole requests a list until it is complete: a list that changed while the kernel wrote it may
// lack an interface that exists, which would then be made again.
func whole[T any](list func() (T, error)) (all T, err error) {
	for range dumpsMax {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}

// Part removes the interface of an end, and with it the other end of its link. It is no error
// if there is no interface.
func Part(e End) error {
	if err := e.NS.remove(e.Name()); err != nil {
		return fmt.Errorf("remove interface of %s: %w", e.Alias, err)
	}
	return nil
}

// remove removes an interface, if there is one. One whose other end is in a namespace that is going away the
// kernel may remove at the same time.
func (n *Namespace) remove(name string) error {
	l, err := n.nl.LinkByName(name)
	if err == nil {
		err = n.nl.LinkDel(l)
	}
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Prepare turns IPv6 off in a namespace, so that the kernel sends nothing of its own on the
// lab's links. It must be called before the links are made.
func (n *Namespace) Prepare() error {
	return ns.WithNetNSPath(n.path, func(ns.NetNS) error {
		// The thread's own namespace: /proc/sys/net follows the thread.
		for _, which := range []string{"all", "default"} {
			f := filepath.Join("/proc/sys/net/ipv6/conf", which, "disable_ipv6")
			err := os.WriteFile(f, []byte("1"), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("switch IPv6 off: %w", err)
			}
		}
		return nil
	})
}

// receiveBuffer is the number of bytes of frames that may wait in a socket.
const receiveBuffer = 8 << 20

// Sockets opens a raw socket on each end, in order, all in one namespace. They see received frames and
// not sent ones, and stamp them with the time. They send the ordinary way, on an interface without a
// queue: tcpdump would not see frames that bypass it.
//
// Sockets for trains put the kernel's struct virtio_net_hdr in front of each buffer.
func (n *Namespace) Sockets(ends []End, trains bool) (files []*os.File, err error) {
	if err := n.plain(ends, trains); err != nil {
		return nil, err
	}
	if trains {
		return n.open(ends, ignoreOutgoing, vnetHeader)
	}
	return n.open(ends, ignoreOutgoing)
}

var vnetHeader = option{"PACKET_VNET_HDR", unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1}

var ignoreOutgoing = option{"PACKET_IGNORE_OUTGOING", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1}

// Taps opens a raw socket on each end, in order, that sees received and sent frames and stamps
// them with the time.
func (n *Namespace) Taps(ends []End, trains bool) (files []*os.File, err error) {
	if trains {
		return n.open(ends, vnetHeader)
	}
	return n.open(ends)
}

// option is a socket option.
type option struct {
	name              string
	level, opt, value int
}

func (n *Namespace) open(ends []End, more ...option) (files []*os.File, err error) {
	err = ns.WithNetNSPath(n.path, func(ns.NetNS) error {
		for _, e := range ends {
			i, err := net.InterfaceByName(e.Name())
			if err != nil {
				return fmt.Errorf("open socket of %s: %w", e.Alias, err)
			}
			f, err := socket(i.Index, strings.ReplaceAll(e.Alias, " ", "_"), more)
			if err != nil {
				return fmt.Errorf("open socket of %s: %w", e.Alias, err)
			}
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		for _, f := range files {
			_ = f.Close() // the first error is the one that counts
		}
		return nil, err
	}
	return files, nil
}

// socket opens a raw socket on an interface of the thread's namespace.
func socket(index int, name string, more []option) (*os.File, error) {
	// Protocol 0 receives nothing until the socket is bound to its interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	for _, o := range append([]option{
		{"SO_TIMESTAMPNS", unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{"PACKET_AUXDATA", unix.SOL_PACKET, unix.PACKET_AUXDATA, 1}, // the kernel takes VLAN tags out of arriving frames
		{"SO_RCVBUFFORCE", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer},
		{"SO_SNDBUFFORCE", unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, receiveBuffer},
	}, more...) {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return nil, errors.Join(fmt.Errorf("set %s: %w", o.name, err), f.Close())
		}
	}
	all := uint16(unix.ETH_P_ALL)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind: %w", err), f.Close())
	}
	return f, nil
}
