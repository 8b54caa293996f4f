// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFirstFrame: a new link carries the first frame in each direction, whichever end came up first; and an interface is attached to a
// management network without delay. To ask the kernel about an end would make it operational, so the frames come first.
func TestFirstFrame(t *testing.T) {
	na, _ := space(t)
	nb, _ := space(t)
	for i := range 200 {
		a, b := end(na, 0, "h0:0"), end(nb, i, "s0:17")
		if err := Join(a, b); err != nil {
			t.Fatal(err)
		}
		fa, err := na.Taps([]End{a}, false)
		if err != nil {
			t.Fatal(err)
		}
		fb, err := nb.Taps([]End{b}, false)
		if err != nil {
			t.Fatal(err)
		}
		for j, ends := range [][2]*os.File{{fa[0], fb[0]}, {fb[0], fa[0]}} {
			if !crosses(t, int(ends[0].Fd()), int(ends[1].Fd()), byte(j)) {
				t.Fatalf("link %d: the first frame is lost from end %d", i, j)
			}
		}
		for _, e := range []End{a, b} {
			if up, err := e.NS.Ports(e.Port + 1); err != nil || !up[e.Port] {
				t.Fatalf("link %d: %s does not carry frames, %v", i, e.Alias, err)
			}
		}
		_, _ = fa[0].Close(), fb[0].Close() // they have done their work
		if err := Part(a); err != nil {
			t.Fatal(err)
		}
	}
	hub, err := PrivateHub()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hub.Close() }() // it ends with the test
	for i := range 50 {
		address := &net.IPNet{IP: net.IPv4(10, 9, 0, byte(i+1)), Mask: net.CIDRMask(16, 32)}
		if err := hub.Attach(na, i, address); err != nil {
			t.Fatal(err)
		}
		if on, err := na.Attached(address); err != nil || !on {
			t.Fatalf("attached %v: %v, %v", address, on, err)
		}
	}
}

// crosses sends a frame from one end to the other, and reports whether it comes.
func crosses(t *testing.T, from, to int, mark byte) bool {
	t.Helper()
	frame := make([]byte, 64)
	frame[12], frame[13], frame[14] = 0x88, 0xb5, mark
	if _, err := unix.Write(from, frame); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	for {
		fds := []unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return false
		}
		if n, err := unix.Read(to, b); err == nil && n >= 15 && b[12] == 0x88 && b[13] == 0xb5 && b[14] == mark {
			return true
		}
	}
}

// TestReadyFails: of an interface that is not there, the error has the name that people know.
func TestReadyFails(t *testing.T) {
	n, _ := space(t)
	if err := n.ready("p3", "lab h0:3"); err == nil || !strings.Contains(err.Error(), "find interface of lab h0:3") {
		t.Error(err)
	}
}
