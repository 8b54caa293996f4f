// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestGuard: a server that acknowledges nothing any more is noticed also while something is under way to it, and one that only reads nothing is waited for.
func TestGuard(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes a network namespace, as root")
	}
	done := make(chan struct{})
	go func() { // its thread, which is in the namespace, ends with it
		defer close(done)
		runtime.LockOSThread()
		guardIn(t)
	}()
	<-done
}

func guardIn(t *testing.T) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Error(err)
		return
	}
	up, down := loopback(t)
	up()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return
	}
	defer l.Close()
	const every, after = 20 * time.Millisecond, 800 * time.Millisecond
	pair := func() (near, far net.Conn) {
		near, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			far, err = l.Accept()
		}
		if err != nil {
			t.Error(err)
		}
		return near, far
	}
	full, reader := pair()
	quiet, other := pair()
	if t.Failed() {
		return
	}
	for _, c := range []net.Conn{full, reader, quiet, other} {
		defer c.Close()
	}
	defer guard(full, every, after)()
	defer guard(quiet, every, after)()
	sent := make(chan error, 1)
	go func() {
		_, err := full.Write(make([]byte, 16<<20)) // more than there is room for
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Errorf("while the other end reads nothing: %v", err)
	case <-time.After(3 * after):
		if _, err := io.CopyN(io.Discard, reader, 16<<20); err != nil {
			t.Error(err)
		}
		if err := <-sent; err != nil {
			t.Errorf("after the other end has read: %v", err)
		}
	}
	down()
	if _, err := quiet.Write([]byte("to nobody")); err != nil {
		t.Error(err)
	}
	if _, err := quiet.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read without an answer: %v", err)
	}
}

// loopback returns what puts the loopback device of this namespace up and down.
func loopback(t *testing.T) (up, down func()) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Error(err)
		return func() {}, func() {}
	}
	set := func(f func(netlink.Link) error) func() {
		return func() {
			if err := f(lo); err != nil {
				t.Error(err)
			}
		}
	}
	return set(netlink.LinkSetUp), set(netlink.LinkSetDown)
}
