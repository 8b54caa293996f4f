// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// ShareOptions are the options of the process of a share.
type ShareOptions struct {
	orchestrator.Options
	// DialPeer calls the share of the lab on another server.
	DialPeer func(ctx context.Context, lab string, share *shareapi.Share, server int) (net.Conn, error)
	// ServeProgram runs a program on a node here, for a caller on another server: it answers the request, and passes what the
	// program reads and writes over the connection.
	ServeProgram func(ctx context.Context, d *orchestrator.Deployed, c net.Conn, q *shareapi.Open) error
}

// worker is the process of a share: it makes the share through the local engine, and then passes bytes between the deployer and the
// nodes. It decides nothing; what the deployer learns of nodes comes from them.
type worker struct {
	lab   string
	o     ShareOptions
	store *orchestrator.Store
	log   func(format string, args ...any)
	mu    sync.Mutex // of what changes the server
	part  *labPart   // nil: nothing has been made
	far   *peerSockets

	callers *callers

	// What start makes first: it stays, without a part, if start fails later.
	trunks *trunks
	hub    *netdev.Namespace
}

// ServeShare is the process of a server's share of a lab. It ends with the context.
func ServeShare(ctx context.Context, lab string, o ShareOptions) error {
	s, err := orchestrator.StoreOf(lab)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return fmt.Errorf("open the share of lab %s: %w", lab, err)
	}
	x := &worker{lab: lab, o: o, store: s, log: o.Log}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	peers, err := x.listenHere(ctx, shareapi.PeersSocket)
	if err != nil {
		return err
	}
	go x.servePeers(peers)
	l, err := x.listenHere(ctx, shareapi.Socket)
	if err != nil {
		return err
	}
	x.callers = x.serveCalls(ctx)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve the share of lab %s: %w", lab, err)
		}
		go x.serve(ctx, c)
	}
}

// serve accepts one connection, and closes it when its stream has ended.
func (x *worker) serve(ctx context.Context, c net.Conn) {
	q, err := shareapi.Accept(c)
	if err == nil && q.Stream == shareapi.Stream_STREAM_SHARE {
		if err = shareapi.Reply(c, nil); err == nil && x.callers.add(c) {
			return // gRPC closes it
		}
	}
	switch {
	case errors.Is(err, io.EOF): // a daemon has looked whether this process listens
	case err != nil:
		x.log("accept a stream: %v", err)
	default:
		if err := x.stream(ctx, c, q); err != nil {
			x.log("%s: %v", q.Stream, err)
		}
	}
	_ = c.Close() // the other end has what it asked for
}

// stream serves the stream of a connection.
func (x *worker) stream(ctx context.Context, c net.Conn, q *shareapi.Open) error {
	switch q.Stream {
	case shareapi.Stream_STREAM_PROGRAM:
		return x.program(ctx, c, q)
	case shareapi.Stream_STREAM_GROUPS:
		return x.groups(c, q.Node)
	case shareapi.Stream_STREAM_TAP:
		return x.tap(ctx, c, q)
	case shareapi.Stream_STREAM_CLOCK:
		return x.clock(c)
	case shareapi.Stream_STREAM_AGENT:
		return x.pass(c, q.Node, nodeapi.AgentSocket)
	case shareapi.Stream_STREAM_METRICS:
		return x.pass(c, q.Node, counters.MetricsSocket)
	case shareapi.Stream_STREAM_STEPS:
		return x.steps(ctx, c)
	}
	err := fmt.Errorf("%s is no stream that this version has", q.Stream)
	return errors.Join(err, shareapi.Reply(c, err))
}

// program runs a program on a node here, for its caller.
func (x *worker) program(ctx context.Context, c net.Conn, q *shareapi.Open) error {
	p, _, err := x.nodeHere(q.Node)
	if err != nil {
		return shareapi.Reply(c, err)
	}
	return x.o.ServeProgram(ctx, p.Deployed, c, q)
}

// start makes the share. What there is of the lab is removed first.
func (x *worker) start(ctx context.Context, share *shareapi.Share) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	l, err := labspec.Decode(share.Lab)
	if err != nil {
		return err
	}
	d, err := orchestrator.NewDeployed(l, x.o.Options)
	if err != nil {
		return err
	}
	if l.Name != x.lab || len(share.At) != len(d.Graph.Nodes) || len(share.Controllers) != len(l.Replicas()) || len(share.Names) != len(share.Hosts) {
		return fmt.Errorf("a share of lab %s with %d nodes, and this is that of lab %s", l.Name, len(share.At), x.lab)
	}
	p := &labPart{Deployed: d, share: share}
	d.Partition = p
	if _, err := p.outside(); err != nil {
		return err
	}
	x.far.close()
	if err := errors.Join(x.end(), x.o.Engine.Remove(ctx, l.Name)); err != nil {
		return err
	}
	if x.far, err = x.openPeers(p); err != nil {
		return err
	}
	if x.trunks, err = newTrunks(share); err != nil {
		return err
	}
	p.trunks = x.trunks
	if err := x.makeHub(p); err != nil {
		return err
	}
	if err := orchestrator.StartPartition(ctx, d); err != nil {
		return err
	}
	x.part = p
	x.begin(p)
	return nil
}

// end ends the links in user space, and the management network.
func (x *worker) end() error {
	err := x.trunks.close()
	x.trunks = nil
	if x.hub != nil {
		err = errors.Join(err, x.hub.Close())
	}
	x.hub = nil
	return err
}

// ready hands the nodes their sockets.
func (x *worker) ready(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.part == nil {
		return errors.New("it has nothing of this lab")
	}
	outside, err := x.part.outside()
	if err != nil {
		return err
	}
	return orchestrator.HandOverSockets(ctx, x.part.Deployed, outside)
}

// look lists the nodes here, and their interfaces.
func (x *worker) look(ctx context.Context) ([]*shareapi.Node, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found, err := x.o.Engine.Find(ctx, x.lab)
	if err != nil {
		return nil, err
	}
	var all []*shareapi.Node
	for _, r := range found {
		n := &shareapi.Node{Name: r.Name, Pid: int32(r.PID)}
		if x.part != nil && r.PID > 0 {
			if i, ok := x.part.Graph.Find(r.Name); ok {
				s, err := netdev.Open(r.PID)
				if err != nil {
					n.Pid = 0 // it has ended meanwhile
				} else if err := errors.Join(x.interfaces(s, i, n), s.Close()); err != nil {
					return nil, fmt.Errorf("node %s: %w", r.Name, err)
				}
			}
		}
		all = append(all, n)
	}
	return all, nil
}

// interfaces looks which interfaces a node has.
func (x *worker) interfaces(s *netdev.Namespace, node int, n *shareapi.Node) (err error) {
	if n.Up, err = s.Ports(len(x.part.Graph.Nodes[node].Links)); err == nil && x.hub != nil {
		n.Managed, err = s.Attached(orchestrator.ManagementNet(node))
	}
	return err
}

// trunkStates returns the states of links in user space.
func (x *worker) trunkStates() []*shareapi.TrunkState {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.part == nil {
		return nil
	}
	return x.part.trunks.states()
}

// logs returns the log of a node, and nothing of one that is not here.
func (x *worker) logs(ctx context.Context, node string) ([]byte, error) {
	found, err := x.o.Engine.Find(ctx, x.lab)
	for _, r := range found {
		if r.Name == node {
			return x.o.Engine.Logs(ctx, x.lab, node)
		}
	}
	return nil, err
}

// remove removes the share, but for this process and its socket.
func (x *worker) remove(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.part = nil
	x.far.close()
	x.far = nil
	if err := errors.Join(x.end(), x.o.Engine.Remove(ctx, x.lab)); err != nil {
		return err
	}
	for _, name := range []string{"n", "d", shareapi.PeersSocket, shareapi.Socket} {
		if err := os.RemoveAll(filepath.Join(x.store.Dir, name)); err != nil {
			return fmt.Errorf("remove the share of lab %s: %w", x.lab, err)
		}
	}
	if _, err := os.Stat(filepath.Join(x.store.Dir, "state.json")); errors.Is(err, fs.ErrNotExist) { // the deployer is elsewhere
		return x.store.Remove()
	}
	return nil
}

// made returns the share, which has to have been made.
func (x *worker) made() (*labPart, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.part == nil {
		return nil, errors.New("it has nothing of this lab")
	}
	return x.part, nil
}

// nodeHere looks whether a node of the lab, or a controller, is here; a controller has no number.
func (x *worker) nodeHere(node string) (p *labPart, number int, err error) {
	if p, err = x.made(); err != nil {
		return nil, 0, err
	}
	i, ok := p.Graph.Find(node)
	switch {
	case ok && p.HasNode(i):
		return p, i, nil
	case p.HasController(node):
		return p, -1, nil
	}
	return nil, 0, fmt.Errorf("node %s is not here", node)
}

// pass answers, and passes bytes between a connection and a socket of a node.
func (x *worker) pass(c net.Conn, node, socket string) error {
	_, _, err := x.nodeHere(node)
	var far net.Conn
	if err == nil {
		far, err = net.Dial("unix", filepath.Join(x.store.NodePath(node), socket))
	}
	if err := shareapi.Reply(c, err); err != nil || far == nil {
		return err
	}
	shareapi.Join(c, far)
	return nil
}

// groups answers, and passes messages between a connection and the socket of programs on a host.
func (x *worker) groups(c net.Conn, node string) error {
	_, _, err := x.nodeHere(node)
	var far *net.UnixConn
	if err == nil {
		far, err = nodeapi.DialProgram(filepath.Join(x.store.NodePath(node), nodeapi.ProgramSocket))
	}
	if err := shareapi.Reply(c, err); err != nil || far == nil {
		return err
	}
	shareapi.JoinPackets(shareapi.NewPackets(c), far)
	return nil
}

// steps hands the nodes here the memory of a run in virtual time, and serves its rounds.
func (x *worker) steps(ctx context.Context, c net.Conn) error {
	r, err := x.relay(ctx)
	if err := shareapi.Reply(c, err); err != nil || r == nil {
		return err
	}
	return errors.Join(r.Serve(c), r.Close())
}

func (x *worker) relay(ctx context.Context) (*lockstep.Relay, error) {
	p, err := x.made()
	if err != nil {
		return nil, err
	}
	local := make([]bool, len(p.Graph.Nodes))
	for i := range local {
		local[i] = p.HasNode(i)
	}
	check, err := p.trunks.await(ctx)
	if err != nil {
		return nil, err
	}
	r, err := lockstep.NewRelay(&sim.Config{Spec: labspec.Fabric(p.Lab, p.Graph)}, local)
	if err != nil {
		return nil, err
	}
	r.Links = check
	if err := r.HandOver(func(node int, files []*os.File) error { return orchestrator.HandOverMemory(p.Deployed, node, files) }); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
