// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// kernelDevice is a host whose kernel is the device: an interface in a network namespace of its own, and a UDP socket at the port of
// RoCE. The kernel reports what the socket joins, answers queries, and passes a datagram to it only if its address is the group's.
type kernelDevice struct {
	t        *testing.T
	own      netip.Addr
	far      netlink.Link
	udp      int
	orig, ns int // namespaces: of the test, and of the device
}

// kernelTimeout bounds the wait for a datagram.
const kernelTimeout = 10 * time.Minute

// newKernelDevice makes a pair of interfaces, of which the lab gets the one with that name.
func newKernelDevice(t *testing.T, iface string, own netip.Prefix) *kernelDevice {
	t.Helper()
	d := &kernelDevice{t: t, own: own.Addr()}
	near := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: iface, MTU: 4200}, PeerName: iface + "d"}
	if err := netlink.LinkAdd(near); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(near) })
	const here = "/proc/thread-self/ns/net"
	var err error
	if d.orig, err = unix.Open(here, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	d.thread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			d.ns, err = unix.Open(here, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return err
	})
	t.Cleanup(func() { _ = errors.Join(unix.Close(d.ns), unix.Close(d.orig)) })
	if d.far, err = netlink.LinkByName(iface + "d"); err == nil {
		err = errors.Join(netlink.LinkSetNsFd(d.far, d.ns), netlink.LinkSetUp(near))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.inside(func() (err error) {
		if d.far, err = netlink.LinkByName(iface + "d"); err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), own.Addr().BitLen())}, Flags: unix.IFA_F_NODAD}
		if err = errors.Join(netlink.LinkSetUp(d.far), netlink.AddrAdd(d.far, a)); err != nil {
			return err
		}
		d.udp, err = d.socket()
		return err
	})
	t.Cleanup(func() { _ = unix.Close(d.udp) })
	return d
}

// thread runs f on a thread that is in the test's namespace before and after.
func (d *kernelDevice) thread(f func() error) {
	d.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := f()
		if back := unix.Setns(d.orig, unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		} else { // the thread ends with the goroutine
			err = errors.Join(err, back)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		d.t.Fatal(err)
	}
}

// inside runs f in the device's namespace.
func (d *kernelDevice) inside(f func() error) {
	d.t.Helper()
	d.thread(func() error {
		if err := unix.Setns(d.ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// socket opens the UDP socket.
func (d *kernelDevice) socket() (int, error) {
	index := d.far.Attrs().Index
	wait := unix.NsecToTimeval(kernelTimeout.Nanoseconds())
	if d.own.Is4() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return fd, errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Port: int(wire.PortRoCEv2)}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)}),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 64),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)) // the identification is 0 then
	}
	const noCheckTX, noCheckRX = 101, 102 // RoCE has no UDP checksum (RFC 6935)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return fd, errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, noCheckTX, 1), unix.SetsockoptInt(fd, unix.IPPROTO_UDP, noCheckRX, 1),
		unix.Bind(fd, &unix.SockaddrInet6{Port: int(wire.PortRoCEv2)}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 64))
}

// set has the kernel join a group, or leave it.
func (d *kernelDevice) set(group netip.Addr, in bool) {
	d.t.Helper()
	index := d.far.Attrs().Index
	var err error
	if group.Is4() {
		what := map[bool]int{true: unix.IP_ADD_MEMBERSHIP, false: unix.IP_DROP_MEMBERSHIP}[in]
		err = unix.SetsockoptIPMreqn(d.udp, unix.IPPROTO_IP, what, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
	} else {
		what := map[bool]int{true: unix.IPV6_JOIN_GROUP, false: unix.IPV6_LEAVE_GROUP}[in]
		err = unix.SetsockoptIPv6Mreq(d.udp, unix.IPPROTO_IPV6, what, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
	}
	if err != nil {
		d.t.Fatalf("group %v: %v", group, err)
	}
}

// mckeyQKey is the Q_Key of rdma_cm's groups.
const mckeyQKey = 0x01234567

// icrc returns the ICRC of a UDP payload, which ends before it, as it is in a packet between addresses. id is the identification of IPv4.
func icrc(src, dst netip.Addr, srcPort, id uint16, payload []byte) uint32 {
	n := wire.UDPLen + len(payload) + wire.ICRCLen
	var b []byte
	if src.Is4() {
		h := wire.IPv4{TotalLen: uint16(wire.IPv4Len + n), ID: id, DontFragment: true, TTL: 64, Protocol: wire.ProtocolUDP, Src: src, Dst: dst}
		b = h.AppendTo(nil)
	} else {
		b = wire.IPv6{PayloadLen: uint16(n), NextHeader: wire.ProtocolUDP, HopLimit: 64, Src: src, Dst: dst}.AppendTo(nil)
	}
	b = wire.UDP{SrcPort: srcPort, DstPort: wire.PortRoCEv2, Length: uint16(n)}.AppendTo(b)
	return wire.ICRC(append(b, payload...))
}

// send sends a datagram of UD to a group.
func (d *kernelDevice) send(group netip.Addr, size int) {
	d.t.Helper()
	b := []byte{byte(wire.OpUDSendOnly), 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0, 7} // to all that are attached
	b = binary.BigEndian.AppendUint32(b, mckeyQKey)
	b = append(append(b, 0, 0, 0, 0x11), make([]byte, size)...)
	b = binary.LittleEndian.AppendUint32(b, icrc(d.own, group, wire.PortRoCEv2, 0, b))
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(wire.PortRoCEv2), Addr: group.As16()}
	if group.Is4() {
		to = &unix.SockaddrInet4{Port: int(wire.PortRoCEv2), Addr: group.As4()}
	}
	if err := unix.Sendto(d.udp, b, 0, to); err != nil {
		d.t.Fatal(err)
	}
}

// receive takes a datagram of mckey, which sends with immediate data, that the kernel has taken for the group.
func (d *kernelDevice) receive(group netip.Addr, size int) {
	d.t.Helper()
	b := make([]byte, 4096)
	n, from, err := unix.Recvfrom(d.udp, b, 0)
	if err != nil {
		d.t.Fatalf("no datagram of group %v: %v", group, err)
	}
	var src netip.Addr
	var port int
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		src, port = netip.AddrFrom4(a.Addr), a.Port
	case *unix.SockaddrInet6:
		src, port = netip.AddrFrom16(a.Addr), a.Port
	}
	if n != wire.BTHLen+wire.DETHLen+wire.ImmDtLen+size+wire.ICRCLen || b[0] != byte(wire.OpUDSendOnlyImm) || binary.BigEndian.Uint32(b[12:]) != mckeyQKey {
		d.t.Errorf("group %v: %x", group, b[:n])
		return
	}
	psn := binary.BigEndian.Uint32(b[8:])
	if sum := icrc(src, group, uint16(port), uint16(psn), b[:n-wire.ICRCLen]); sum != binary.LittleEndian.Uint32(b[n-wire.ICRCLen:]) {
		d.t.Errorf("group %v: the ICRC of the datagram %x from %v is not %08x", group, b[:n], src, sum)
	}
}

// joinsAt waits until a switch has a group at so many ports.
func (l *verbsLab) joinsAt(node, group string, ports int) {
	l.t.Helper()
	for deadline := time.Now().Add(15 * time.Minute); ; <-time.After(pollEvery) { // a member that is silent expires after 145 s
		n := 0
		all := l.node(node).Joined
		for _, j := range all {
			if j.Group == group {
				n = len(j.Ports)
			}
		}
		if n == ports {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s has %+v, want group %s at %d ports", node, all, group, ports)
		}
	}
}

// TestExternalJoins: the kernel of a host behind an external host's interface joins groups, in each family. The switch hears it,
// datagrams pass both ways between it and programs under every address that a group may have, it is asked when the switch has
// forgotten all, and it is out of the tables when it has left, or when it no longer answers.
func TestExternalJoins(t *testing.T) {
	need(t, "netns")
	unchanged(t)
	verbsTools(t, "mckey")
	for _, c := range []struct {
		name, links, own string
		groups           []string
		dies             bool
	}{
		{"IPv4", "", "10.0.0.3/8", []string{"239.1.2.3", "239.254.0.9"}, true},
		{"IPv6", "ip: 6, vlan: 9, ", "fd6d:6361:7374::a00:3/96", []string{"ff0e::ffff:ef01:203", "ff0e::1:2"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &verbsLab{t: t, name: "t-ext-joins-" + strings.ToLower(c.name)}
			d := newKernelDevice(t, "mclj"+c.name[2:], netip.MustParsePrefix(c.own))
			file := write(t, "name: "+l.name+"\ntopology: {star: {hosts: 3}}\nlinks: {"+c.links+"rate: 8Mbps, delay: 20us}\nnics: {mtu: 1024}\n"+
				"hosts: [{name: h2, kind: external, external: {qpn: 0x42, timeout: 16s}}]\nruntime: {clock: dilated, management: true}\n")
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) })
			must(t, "deploy", "-q", "-r", "netns", "--attach", "h2=mclj"+c.name[2:], file)
			for _, s := range c.groups {
				l.exchange(d, netip.MustParseAddr(s))
			}
			if c.dies {
				l.silence(d, netip.MustParseAddr(c.groups[0]))
			}
			s := l.node("h2")
			if s.Drops["malformed"]+s.Drops["wrong-source"] != 0 || s.Counts["reports"] == 0 || s.Counts["queries"] == 0 {
				t.Errorf("the adapter counted %+v, %+v", s.Counts, s.Drops)
			}
			must(t, "destroy", l.name)
		})
	}
}

// exchange has the device and two programs be members of a group, and sends to them.
func (l *verbsLab) exchange(d *kernelDevice, group netip.Addr) {
	l.t.Helper()
	number, ok := wire.GroupOf(group.As16())
	if !ok {
		l.t.Fatal(group)
	}
	inside, name := wire.AddrIn(group.Is6(), number).String(), group.String()
	if group.Is6() { // nodes have no IPv6 of their own, and mckey looks for that
		name = wire.AddrOf(number).String()
	}
	d.set(group, true)
	l.joinsAt("leaf0", inside, 1)
	if j := l.node("h2").Joined; len(j) != 1 || j[0].Group != group.String() {
		l.t.Errorf("the adapter shows %+v", j)
	}
	must(l.t, "fault", "add", "--lab", l.name, "--node", "leaf0", "restart") // it asks all hosts
	l.joinsAt("leaf0", inside, 1)

	member := l.start("h0", nil, "timeout", "120", "mckey", "-m", name, "-C", "10")
	l.joinsAt("leaf0", inside, 2)
	for range 10 {
		d.send(group, 100)
	}
	if err := member.Wait(); err != nil {
		l.t.Errorf("the member: %v\n%s", err, member.said.String())
	}
	l.joinsAt("leaf0", inside, 1)
	must(l.t, l.at("h1", "timeout", "120", "mckey", "-m", name, "-s", "-C", "10")...)
	for range 10 {
		d.receive(group, 100)
	}
	d.set(group, false)
	l.joinsAt("leaf0", inside, 0)
}

// silence has the device join a group, and be gone without a word: two queries later it is out of the tables.
func (l *verbsLab) silence(d *kernelDevice, group netip.Addr) {
	l.t.Helper()
	d.set(group, true)
	l.joinsAt("leaf0", group.String(), 1)
	before := l.node("leaf0").Counts["memberships_expired"]
	d.inside(func() error { return netlink.LinkSetDown(d.far) })
	l.joinsAt("leaf0", group.String(), 0)
	if n := l.node("leaf0").Counts["memberships_expired"] - before; n != 1 {
		l.t.Errorf("%d ports were taken out, want 1", n)
	}
}
