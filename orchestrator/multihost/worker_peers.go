// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Controllers reach nodes and each other at sockets in the nodes' folders, wherever these are: the folders of what is on other
// servers are made by the share, which passes bytes on to the share there, through the daemon of that server.

// peerSockets are the sockets of what is on other servers.
type peerSockets struct {
	stop context.CancelFunc
	all  sync.WaitGroup
}

// close ends them and their connections. There may be none.
func (f *peerSockets) close() {
	if f != nil {
		f.stop()
		f.all.Wait()
	}
}

// openPeers makes the sockets at which the controllers here reach nodes and controllers on other servers.
func (x *worker) openPeers(p *labPart) (f *peerSockets, err error) {
	here := false
	for _, at := range p.share.Controllers {
		here = here || at == p.share.Own
	}
	if !here || p.share.Peers == nil {
		return nil, nil
	}
	if len(p.share.Peers.Nodes) != len(p.share.Hosts) || x.o.DialPeer == nil {
		return nil, fmt.Errorf("a share of lab %s that cannot reach the others", p.Lab.Name)
	}
	ctx, stop := context.WithCancel(context.Background()) // until the share is removed
	f = &peerSockets{stop: stop}
	for i, n := range p.Graph.Nodes {
		if err == nil && !p.HasNode(i) {
			err = x.peerNode(ctx, f, p, n.Name, p.share.At[i], peerSocket{nodeapi.AgentSocket, shareapi.Stream_STREAM_AGENT})
		}
	}
	for i, name := range p.Lab.Replicas() {
		if at := p.share.Controllers[i]; err == nil && at != p.share.Own {
			err = x.peerNode(ctx, f, p, name, at,
				peerSocket{nodeapi.PeerSocket, shareapi.Stream_STREAM_RAFT}, peerSocket{nodeapi.CallsSocket, shareapi.Stream_STREAM_CALLS})
		}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// peerSocket is a socket of a node on another server, and the stream of a connection there.
type peerSocket struct {
	name   string
	stream shareapi.Stream
}

// peerNode makes the folder that a node would have here, with its sockets.
func (x *worker) peerNode(ctx context.Context, f *peerSockets, p *labPart, node string, server int, sockets ...peerSocket) error {
	dir, err := x.store.NodeDir(node) // empties it
	for _, q := range sockets {
		if err == nil {
			err = x.peerSocket(ctx, f, p, filepath.Join(dir, q.name), server, &shareapi.Open{Stream: q.stream, Node: node})
		}
	}
	if err != nil {
		return fmt.Errorf("make the sockets of node %s: %w", node, err)
	}
	return nil
}

// peerSocket makes one of them.
func (x *worker) peerSocket(ctx context.Context, f *peerSockets, p *labPart, path string, server int, q *shareapi.Open) error {
	l, err := net.Listen("unix", path)
	if err == nil {
		err = errors.Join(os.Chown(path, engine.UID, engine.UID), os.Chmod(path, 0o600))
	}
	if err != nil {
		if l != nil {
			_ = l.Close() // the first error is the one that counts
		}
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	f.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			f.all.Go(func() {
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				context.AfterFunc(ctx, func() { _ = c.Close() })
				far, err := x.dialPeer(ctx, p, server, q)
				if err != nil {
					return // the caller retries, and reports the failure
				}
				context.AfterFunc(ctx, func() { _ = far.Close() })
				shareapi.Join(c, far)
			})
		}
	})
	return nil
}

// peerWait bounds the time in which another server answers the header of a connection.
const peerWait = 5 * time.Second

// dialPeer connects to something on another server.
func (x *worker) dialPeer(ctx context.Context, p *labPart, server int, q *shareapi.Open) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	c, err := x.o.DialPeer(ctx, p.Lab.Name, p.share, server)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := shareapi.Begin(c, q); err != nil {
		_ = c.Close() // nothing is under way
		return nil, err
	}
	return c, nil
}

// listenHere makes a socket of the share's process.
func (x *worker) listenHere(ctx context.Context, name string) (net.Listener, error) {
	path := filepath.Join(x.store.Dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one that has died
		return nil, fmt.Errorf("open the share of lab %s: %w", x.lab, err)
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("open the share of lab %s: %w", x.lab, err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	return l, nil
}

// servePeers answers shares of the lab on other servers, until the socket is closed. They may reach agents and controllers here, and bring
// the frames of links in user space.
func (x *worker) servePeers(l net.Listener) {
	for {
		c, err := nodeapi.Accept(l.Accept, os.Stderr)
		if err != nil {
			return // closed
		}
		go func() {
			defer func() { _ = c.Close() }() // the other end has what it asked for
			q, err := shareapi.Accept(c)
			if err != nil {
				return // it has hung up
			}
			switch q.Stream {
			case shareapi.Stream_STREAM_AGENT:
				err = x.pass(c, q.Node, nodeapi.AgentSocket)
			case shareapi.Stream_STREAM_RAFT:
				err = x.pass(c, q.Node, nodeapi.PeerSocket)
			case shareapi.Stream_STREAM_CALLS:
				err = x.pass(c, q.Node, nodeapi.CallsSocket)
			case shareapi.Stream_STREAM_TRUNK:
				err = x.accept(c, q)
			default:
				err = shareapi.Reply(c, fmt.Errorf("%s is no stream for another server", q.Stream))
			}
			if err != nil {
				x.log("%s of another server: %v", q.Stream, err)
			}
		}()
	}
}
