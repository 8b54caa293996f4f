// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// TestReachBy: a bridge passes frames of a node to all machines, and frames from a machine to its nodes, and to no other machine.
func TestReachBy(t *testing.T) {
	node, _ := space(t)
	n, err := PrivateHub()
	if err != nil {
		t.Fatal(err)
	}
	share, err := Private()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Attach(node, 0, &net.IPNet{IP: net.IPv4(172, 31, 0, 1), Mask: net.CIDRMask(16, 32)}); err != nil {
		t.Fatal(err)
	}
	far := []End{{NS: share, Port: 41, Alias: "first trunk"}, {NS: share, Port: 42, Alias: "second trunk"}}
	for i, e := range far {
		if err := n.ReachBy(i+1, e); err != nil {
			t.Fatal(err)
		}
	}
	all, err := share.Sockets(far, false)
	if err != nil {
		t.Fatal(err)
	}
	err = ns.WithNetNSPath(node.path, func(ns.NetNS) error {
		i, err := net.InterfaceByName(Management)
		if err != nil {
			return err
		}
		own, err := socket(i.Index, "node", []option{ignoreOutgoing})
		all = append(all, own)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	marked := byte(0)
	for from, want := range [][]bool{{false, false, true}, {false, false, true}, {true, true, false}} {
		marked++
		frame := make([]byte, 1000)
		copy(frame, []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, byte(from), 0x88, 0xb5, marked})
		came := make([]bool, len(all))
		look := func() {
			fds := make([]unix.PollFd, len(all))
			for i, f := range all {
				fds[i] = unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLIN}
			}
			_, _ = unix.Poll(fds, 50) // arrived frames are read below
			for i, f := range all {
				came[i] = came[i] || i != from && arrived(f, marked)
			}
		}
		for tries := 0; tries < 100 && !slices.Equal(came, want); tries++ { // it may be a second until the kernel has a port carry
			if _, err := unix.Write(int(all[from].Fd()), frame); err != nil {
				t.Fatal(err)
			}
			look()
		}
		look() // for frames at the wrong place
		if !slices.Equal(came, want) {
			t.Errorf("what end %d sends comes at %v, want %v", from, came, want)
		}
	}
	for _, f := range all {
		err = errors.Join(err, f.Close())
	}
	if err := errors.Join(err, n.Close(), share.Close()); err != nil {
		t.Error(err)
	}
}

// arrived reports whether a frame of the test with that mark waits at a socket, which is empty then.
func arrived(f *os.File, mark byte) (yes bool) {
	b := make([]byte, 2000)
	for {
		n, _, err := unix.Recvfrom(int(f.Fd()), b, unix.MSG_DONTWAIT)
		if err != nil {
			return yes
		}
		yes = yes || n == 1000 && b[12] == 0x88 && b[14] == mark
	}
}
