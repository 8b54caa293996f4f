// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// space opens the namespace of a new process that does nothing.
func space(t *testing.T) (n *Namespace, process *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal("root is needed")
		}
		t.Skip("root is needed")
	}
	process = exec.Command("sleep", "600")
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() }) // it may have ended
	n, err := Open(process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() }) // it ends with the test
	if err := n.Prepare(); err != nil {
		t.Fatal(err)
	}
	return n, process
}

func end(n *Namespace, port int, name string) End {
	return End{NS: n, Port: port, Alias: "lab " + name, MAC: net.HardwareAddr{2, 0, 10, 0, 0, byte(port + 1)}}
}

// TestJoin: a link exists at both ends with its settings, and was never in the namespace of its maker:
// that of the host, which another stands for here.
func TestJoin(t *testing.T) {
	host, _ := space(t)
	na, _ := space(t)
	nb, _ := space(t)
	a, b := end(na, 0, "h0:0"), end(nb, 17, "s0:17")
	mark := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "mark"}, PeerName: "kram"}
	seen, done := make(chan netlink.LinkUpdate, 1000), make(chan struct{})
	defer close(done)
	err := ns.WithNetNSPath(host.path, func(ns.NetNS) error {
		if err := netlink.LinkSubscribe(seen, done); err != nil {
			return err
		}
		if err := Join(a, b); err != nil {
			return err
		}
		return netlink.LinkAdd(mark) // whatever the host has seen comes before
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []End{a, b} {
		l, err := e.NS.nl.LinkByName(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if x := l.Attrs(); x.MTU != MTU || x.Alias != e.Alias || x.HardwareAddr.String() != e.MAC.String() || x.Flags&net.FlagUp == 0 {
			t.Errorf("%s: %+v", e.Alias, x)
		}
	}
	if up, err := nb.Ports(18); err != nil || !up[17] || slices.Contains(up[:17], true) {
		t.Errorf("ports %v, %v", up, err)
	}
	late := time.After(time.Minute)
	for {
		select {
		case u := <-seen:
			switch name := u.Attrs().Name; name {
			case mark.Name:
				return
			case a.Name(), b.Name():
				t.Fatalf("%s was in the host's namespace", name)
			}
		case <-late:
			t.Fatal("the kernel does not tell of links")
		}
	}
}

// TestPart: an end goes with its other end, also when it is down; when there is none it is
// no error; and then there is room for a new one.
func TestPart(t *testing.T) {
	na, _ := space(t)
	nb, _ := space(t)
	a, b := end(na, 0, "h0:0"), end(nb, 1, "s0:1")
	if err := Part(a); err != nil {
		t.Errorf("nothing to part: %v", err)
	}
	for range 2 {
		if err := Join(a, b); err != nil {
			t.Fatal(err)
		}
		for _, e := range []End{a, b} {
			l, err := e.NS.nl.LinkByName(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := e.NS.nl.LinkSetDown(l); err != nil {
				t.Fatal(err)
			}
		}
		if up, err := na.Ports(1); err != nil || up[0] {
			t.Errorf("an interface that is down: %v, %v", up, err)
		}
		for _, e := range []End{a, b} {
			if err := Part(e); err != nil {
				t.Errorf("%s: %v", e.Alias, err)
			}
		}
		if up, err := nb.Ports(2); err != nil || up[1] {
			t.Errorf("the other end is still there: %v, %v", up, err)
		}
	}
}

// TestSockets: a node's frames cross the link unchanged: no offload is left on, except those that
// trains need. No thread stays behind in the node's namespace.
func TestSockets(t *testing.T) {
	for _, trains := range []bool{false, true} {
		na, _ := space(t)
		nb, _ := space(t)
		a, b := end(na, 0, "h0:0"), end(nb, 0, "s0:0")
		if err := Join(a, b); err != nil {
			t.Fatal(err)
		}
		for range 20 { // on whichever threads
			files, err := na.Sockets([]End{a}, trains)
			if err != nil {
				t.Fatal(err)
			}
			taps, err := na.Taps([]End{a}, trains)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range append(files, taps...) {
				_ = f.Close() // it is the test's
			}
		}
		err := ns.WithNetNSPath(na.path, func(ns.NetNS) error {
			e, err := openFeatures()
			if err != nil {
				return err
			}
			defer e.close()
			have, err := e.read(a.Name())
			for _, f := range offloads {
				s := have[f]
				if s.active && s.available && !s.fixed && !(trains && slices.Contains(forTrains, f)) {
					t.Errorf("trains %v: %s is on", trains, f)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		own, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(threads) == 0 {
			t.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, path := range threads {
			if in, err := os.Readlink(path); err == nil && in != own {
				t.Errorf("%s is in %s, not in %s", path, in, own)
			}
		}
	}
}

// TestHeld: a namespace that is open stays the same after its process has ended, and is not taken for
// that of another.
func TestHeld(t *testing.T) {
	na, process := space(t)
	nb, other := space(t)
	a := end(na, 0, "h0:0")
	if err := Join(a, end(nb, 0, "s0:0")); err != nil {
		t.Fatal(err)
	}
	if !na.Same(process.Process.Pid) || na.Same(other.Process.Pid) || na.Same(os.Getpid()) {
		t.Error("a namespace is taken for another")
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // it was killed
	if na.Same(process.Process.Pid) {
		t.Error("the namespace is said to be that of a process that has gone")
	}
	if up, err := na.Ports(1); err != nil || !up[0] {
		t.Errorf("ports %v, %v", up, err)
	}
	files, err := na.Taps([]End{a}, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = files[0].Close() // it is the test's
}

// TestNames: no two ports of a node have one name, however alike their full names are, and all fit the
// kernel's limit.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for p := range 254 {
		e := End{Port: p, Alias: fmt.Sprintf("a-lab-with-a-long-name a-node-with-a-long-name:%d", p)}
		if n := e.Name(); len(n) >= unix.IFNAMSIZ || seen[n] {
			t.Errorf("port %d is called %q", p, n)
		}
		seen[e.Name()] = true
	}
}

// TestMTU: an interface carries the largest RoCE packet whole.
func TestMTU(t *testing.T) {
	if want := 4096 + wire.RoCEHeadersMax; MTU < want {
		t.Errorf("interfaces carry %d bytes, the largest packet has %d", MTU, want)
	}
}

// TestWhole: a list that the kernel could not finish is asked for again, and in the end it is an error:
// the missing entries still exist.
func TestWhole(t *testing.T) {
	for _, broken := range []int{0, 1, dumpsMax - 1, dumpsMax} {
		asked := 0
		got, err := whole(func() ([]int, error) {
			if asked++; asked <= broken {
				return []int{1}, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return []int{1, 2, 3}, nil
		})
		if bad := err != nil; bad != (broken == dumpsMax) || !bad && len(got) != 3 {
			t.Errorf("interrupted %d times: %v, %v", broken, got, err)
		}
	}
}

// TestHubInterrupted: a management network whose making was interrupted is none, and is made again in its place.
func TestHubInterrupted(t *testing.T) {
	node, _ := space(t)
	path := filepath.Join(t.TempDir(), "management")
	t.Cleanup(func() {
		if err := Release(path); err != nil {
			t.Error(err)
		}
	})
	n, err := MakeHub(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.remove(hub); err != nil { // as if killed before the bridge was made
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := OpenHub(path); err == nil {
		t.Fatal("a namespace without a bridge is taken for one", n.Close())
	}
	if n, err = MakeHub(path); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err = OpenHub(path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Attach(node, 0, &net.IPNet{IP: net.IPv4(172, 31, 0, 1), Mask: net.CIDRMask(16, 32)}), n.Close()); err != nil {
		t.Error(err)
	}
}
