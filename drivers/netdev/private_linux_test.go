// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestPrivate: a private namespace takes the end of a link, carries frames, leaves this process where it was, and takes the link with it
// when it and its sockets are closed.
func TestPrivate(t *testing.T) {
	node, _ := space(t)
	before, err := netns.GetFromPath("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Private()
	if err != nil {
		t.Fatal(err)
	}
	after, err := netns.GetFromPath("/proc/self/ns/net")
	if err != nil || !before.Equal(after) || before.Equal(p.fd) {
		t.Errorf("the process was in %v, is in %v, and has made %v: %v", before, after, p.fd, err)
	}
	if err := errors.Join(before.Close(), after.Close()); err != nil {
		t.Fatal(err)
	}
	a, b := end(node, 3, "h0:3"), End{NS: p, Port: 40, Alias: "lab h0:3 trunk"}
	if err := Join(a, b); err != nil {
		t.Fatal(err)
	}
	near, err := node.Sockets([]End{a}, false)
	if err != nil {
		t.Fatal(err)
	}
	far, err := p.Sockets([]End{b}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]*os.File{{near[0], far[0]}, {far[0], near[0]}} {
		frame := make([]byte, MTU+14)
		frame[0], frame[12], frame[13] = 2, 0x88, 0xb5
		got := make([]byte, 2*len(frame))
		for tries := 0; ; tries++ { // it may be a second until the kernel has the link carry
			if _, err := unix.Write(int(way[0].Fd()), frame); err != nil {
				t.Fatal(err)
			}
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(way[1].Fd()), Events: unix.POLLIN}}, 100); n == 1 {
				break
			}
			if tries == 100 {
				t.Fatal("no frame has come")
			}
		}
		if n, err := unix.Read(int(way[1].Fd()), got); n != len(frame) || err != nil {
			t.Errorf("%d bytes have come, want %d: %v", n, len(frame), err)
		}
	}
	if err := errors.Join(far[0].Close(), p.Close(), near[0].Close()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(10 * time.Second); ; <-tick.C {
		up, err := node.Ports(4)
		if err != nil {
			t.Fatal(err)
		}
		if !up[3] {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the link is left")
		}
	}
}
