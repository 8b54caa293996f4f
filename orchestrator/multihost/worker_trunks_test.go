// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
)

// trunkEnds are the sockets of the two nodes of the link between the servers of sharesOf.
func trunkEnds(t *testing.T, all [2]*worker) (fds [2]int) {
	t.Helper()
	for i, x := range all {
		s := x.part.share
		s.Names, s.VNI, s.Userspace = []string{"m1", "m2"}, 77, []shareapi.Pair{{A: 0, B: 1, Why: "test"}}
		if s.Peers == nil {
			s.Peers = &shareapi.Peers{Nodes: []string{"m1", "m2"}}
		}
		var err error
		if x.trunks, err = newTrunks(s); err != nil {
			t.Fatal(err)
		}
		x.part.trunks = x.trunks
		node, err := netdev.Private()
		if err != nil {
			t.Fatal(err)
		}
		end := netdev.End{NS: node, Port: 0, Alias: "t-peers " + []string{"h0:0", "s0:0"}[i], MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}}
		if err := x.trunks.add(0, 1-i, end); err != nil {
			t.Fatal(err)
		}
		files, err := node.Sockets([]netdev.End{end}, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(x.end(), files[0].Close(), node.Close()); err != nil {
				t.Error(err)
			}
		})
		fds[i] = int(files[0].Fd())
	}
	all[1].begin(all[1].part) // is called by the other
	all[0].begin(all[0].part)
	return fds
}

// cross sends a frame from one socket, and demands it at the other.
func cross(t *testing.T, from, to int, frame []byte) {
	t.Helper()
	if _, err := unix.Write(from, frame); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}, 60000); n != 1 {
		t.Fatal("no frame has come: ", err)
	}
	b := make([]byte, 2*len(frame))
	if n, err := unix.Read(to, b); err != nil || !bytes.Equal(b[:n], frame) {
		t.Errorf("%d bytes have come of %d: %v", n, len(frame), err)
	}
}

// settled waits until a connection has dropped what came before it: a frame is carried.
func settled(t *testing.T, from, to int) {
	t.Helper()
	b := make([]byte, 200)
	for range 100 {
		if _, err := unix.Write(from, b[:100]); err != nil {
			t.Fatal(err)
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}, 100); n == 1 {
			break
		}
	}
	for {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}, 200); n != 1 {
			return
		}
		if _, err := unix.Read(to, b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrunks: links in user space carry frames both ways and count them. A broken connection is reported with the name of the other server, and a
// new one follows. Only the share of the other server in the same deployment can connect.
func TestTrunks(t *testing.T) {
	all := sharesOf(t)
	fds := trunkEnds(t, all)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var checks [2]func() error
	for i, x := range all {
		var err error
		if checks[i], err = x.trunks.await(ctx); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, fds[0], fds[1])
	settled(t, fds[1], fds[0])
	frame := make([]byte, netdev.MTU+14)
	frame[12], frame[13], frame[len(frame)-1] = 0x88, 0xb5, 9
	tagged := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 5, 0x88, 0xb5}, make([]byte, 100)...)
	before := all[1].trunkStates()[0]
	cross(t, fds[0], fds[1], frame)
	cross(t, fds[1], fds[0], frame)
	if _, err := unix.Write(fds[0], tagged); err != nil { // the kernel takes the tag out at the end: 4 bytes fewer come
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fds[1]), Events: unix.POLLIN}}, 60000); n != 1 {
		t.Fatal("no frame with a tag has come: ", err)
	}
	s := all[1].trunkStates()[0]
	for range 6000 { // a frame arrives before its sender has counted it
		if s.ReceivedFrames-before.ReceivedFrames == 2 && s.SentFrames-before.SentFrames == 1 {
			break
		}
		<-time.After(10 * time.Millisecond)
		s = all[1].trunkStates()[0]
	}
	if s.To != 0 || s.Error != "" || s.ReceivedFrames-before.ReceivedFrames != 2 || s.SentFrames-before.SentFrames != 1 {
		t.Errorf("%v, before %v", s, before)
	}
	for _, q := range []*shareapi.Open{{From: 0, Vni: 78}, {From: 1, Vni: 77}, {From: 5, Vni: 77}, {From: -1, Vni: 77}} {
		q.Stream = shareapi.Stream_STREAM_TRUNK
		c, err := net.Dial("unix", filepath.Join(all[1].store.Dir, shareapi.PeersSocket))
		if err != nil {
			t.Fatal(err)
		}
		if err := shareapi.Begin(c, q); err == nil || !strings.Contains(err.Error(), "no links in user space to that server") {
			t.Errorf("%v: %v", q, err)
		}
		_ = c.Close()
	}
	for i, check := range checks {
		if err := check(); err != nil {
			t.Errorf("server %d: %v", i, err)
		}
	}
	to := all[0].trunks.byFar[1]
	to.mu.Lock()
	_ = to.conn.Close()
	to.mu.Unlock()
	breaks(t, checks[0], "links to server m2 (b) have in user space has broken")
	breaks(t, checks[1], "links to server m1 (a) have in user space has broken: the other end has ended it")
	for _, x := range all {
		if _, err := x.trunks.await(ctx); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, fds[0], fds[1])
	cross(t, fds[0], fds[1], frame)
}

// breaks waits until a check fails.
func breaks(t *testing.T, check func() error, want string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-tick.C {
		if err := check(); err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			return
		}
	}
	t.Errorf("nobody says %s", want)
}
