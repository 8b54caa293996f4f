// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator"
)

const peersLab = "name: t-peers\ntopology: {star: {hosts: 2}}\ncontrollers: 3\n"

// sharesOf returns the processes of the shares of a lab on two servers: h0, controller0 and controller2 are on the first, the rest is on
// the second. Each reaches the other's peers' socket.
func sharesOf(t *testing.T) [2]*worker {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sockets of nodes are another user's: needs root")
	}
	l, err := lab.Parse("lab", []byte(peersLab))
	if err != nil {
		t.Fatal(err)
	}
	var all [2]*worker
	dial := func(ctx context.Context, _ string, _ *shareapi.Share, server int) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(all[server].store.Dir, shareapi.PeersSocket))
	}
	for i := range all {
		o := ShareOptions{Options: orchestrator.Options{Log: t.Logf}, DialPeer: dial}
		d, err := orchestrator.NewDeployed(l, o.Options)
		if err != nil {
			t.Fatal(err)
		}
		p := &labPart{Deployed: d, share: &shareapi.Share{
			At: make([]int, len(d.Graph.Nodes)), Own: i, Hosts: []string{"a", "b"}, Controllers: []int{0, 1, 0}, Peers: &shareapi.Peers{Nodes: []string{"m1", "m2"}},
		}}
		for k := range p.share.At {
			p.share.At[k] = min(k, 1)
		}
		dir, err := os.MkdirTemp("", "peers") // a socket's path has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		x := &worker{lab: l.Name, o: o, store: &orchestrator.Store{Dir: dir}, log: func(string, ...any) {}, part: p}
		peers, err := x.listenHere(t.Context(), shareapi.PeersSocket)
		if err != nil {
			t.Fatal(err)
		}
		go x.servePeers(peers)
		all[i] = x
	}
	return all
}

// echo answers at sockets of a node with the node's name and the bytes that come.
func (x *worker) echo(t *testing.T, node string, sockets ...string) {
	t.Helper()
	dir, err := x.store.NodeDir(node)
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		l, err := net.Listen("unix", filepath.Join(dir, socket))
		if err != nil {
			t.Fatal(err)
		}
		echoAt(t, node, l)
	}
}

func echoAt(t *testing.T, node string, l net.Listener) {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b [4]byte
			_, err = io.ReadFull(c, b[:])
			_, werr := c.Write([]byte(node + " " + string(b[:])))
			if errors.Join(err, werr, c.Close()) != nil {
				return
			}
		}
	}()
}

// TestFarSockets: a controller's share has sockets of the nodes and controllers on the other server, which lead there; they go with it.
func TestFarSockets(t *testing.T) {
	all := sharesOf(t)
	all[1].echo(t, "h1", nodeapi.AgentSocket)
	all[1].echo(t, "controller1", nodeapi.PeerSocket, nodeapi.CallsSocket)
	f, err := all[0].openPeers(all[0].part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, at := range [][2]string{{"h1", nodeapi.AgentSocket}, {"controller1", nodeapi.PeerSocket}, {"controller1", nodeapi.CallsSocket}} {
		node := at[0]
		c, err := net.Dial("unix", filepath.Join(all[0].store.NodePath(node), at[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil || string(b) != node+" ping" {
			t.Errorf("%s answers %q, %v", node, b, err)
		}
	}
	for _, path := range []string{"h0/" + nodeapi.AgentSocket, "controller2/" + nodeapi.PeerSocket, "controller1/" + nodeapi.AgentSocket} {
		if _, err := os.Stat(filepath.Join(all[0].store.Dir, "n", path)); err == nil {
			t.Errorf("there is a socket for %s", path)
		}
	}
	open, err := net.Dial("unix", filepath.Join(all[0].store.NodePath("h1"), nodeapi.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives the share")
	}
	if _, err := net.Dial("unix", filepath.Join(all[0].store.NodePath("h1"), nodeapi.AgentSocket)); err == nil {
		t.Error("a socket outlives the share")
	}
}

// TestPeersMay: shares on other servers reach what is here by its name, and may ask for nothing else.
func TestPeersMay(t *testing.T) {
	x := sharesOf(t)[1]
	x.echo(t, "h1", nodeapi.AgentSocket)
	for _, q := range []struct {
		stream     shareapi.Stream
		node, want string // in the error
	}{
		{shareapi.Stream_STREAM_AGENT, "h1", ""},
		{shareapi.Stream_STREAM_AGENT, "h0", "node h0 is not here"},
		{shareapi.Stream_STREAM_RAFT, "controller0", "node controller0 is not here"},
		{shareapi.Stream_STREAM_CALLS, "controller0", "node controller0 is not here"},
		{shareapi.Stream_STREAM_AGENT, "../d", "node ../d is not here"},
		{shareapi.Stream_STREAM_UNSPECIFIED, "", "no stream for another server"},
		{shareapi.Stream_STREAM_SHARE, "", "no stream for another server"},
		{shareapi.Stream_STREAM_METRICS, "h1", "no stream for another server"},
		{shareapi.Stream_STREAM_TAP, "h1", "no stream for another server"},
		{shareapi.Stream_STREAM_GROUPS, "h1", "no stream for another server"},
		{shareapi.Stream_STREAM_PROGRAM, "h1", "no stream for another server"},
		{shareapi.Stream_STREAM_CLOCK, "", "no stream for another server"},
		{shareapi.Stream_STREAM_STEPS, "", "no stream for another server"},
	} {
		c, err := net.Dial("unix", filepath.Join(x.store.Dir, shareapi.PeersSocket))
		if err != nil {
			t.Fatal(err)
		}
		err = shareapi.Begin(c, &shareapi.Open{Stream: q.stream, Node: q.node})
		if (err == nil) != (q.want == "") || err != nil && !strings.Contains(err.Error(), q.want) {
			t.Errorf("%s %s: %v, want %q", q.stream, q.node, err, q.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
