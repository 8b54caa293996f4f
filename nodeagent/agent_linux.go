// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the process of one node of a running lab: a switch, or a host
// with its NIC and the rank that runs on it. It is PID 1 of its container, holds no
// capability, and gets everything from the orchestrator: its sockets by handover, its
// configuration and its work over gRPC on a unix socket.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/nodeagent/verbs"
	"github.com/mcastlab/mcastlab/rank"
)

// messageMax bounds one message in either direction.
const messageMax = 16 << 20

// Serve runs the agent of a node whose directory is dir, until ctx ends. What the node keeps
// across restarts is in data, if that is not empty. version is reported to the orchestrator;
// programs are the user's own.
func Serve(ctx context.Context, dir, data, version string, programs []rank.Program) error {
	failpoint.Node("dies-at-start")
	if err := giveUpPrivileges(); err != nil {
		return err
	}
	if err := nameProcess(); err != nil {
		return err
	}
	a := &agent{version: version, data: data, programs: programs, execute: execute, failed: make(chan error, 1)}
	x, err := inherit()
	if err != nil {
		return err
	}
	if err := a.listen(dir, x); err != nil {
		return err
	}
	defer func() { _ = a.listeners[nodeapi.HandoverSocket].Close() }() // the process ends
	a.calls = a.server()
	if x != nil {
		if err := a.takeOver(x); err != nil {
			return err
		}
	}
	go takeFiles(a.listeners[nodeapi.HandoverSocket], os.Stderr, a.replaceSockets)
	go takeFiles(a.listeners[nodeapi.MemorySocket], os.Stderr, a.takeMemory)
	go a.takePrograms(a.listeners[nodeapi.ProgramSocket], os.Stderr)
	go func() { // a node without metrics is still a node
		if err := a.serveMetrics(ctx, a.listeners[counters.MetricsSocket]); err != nil {
			fmt.Fprintf(os.Stderr, "mcastlab node: %v\n", err)
		}
	}()
	go func() {
		<-ctx.Done()
		a.calls.Stop()
	}()
	if err := a.calls.Serve(a.listeners[nodeapi.AgentSocket]); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving && ctx.Err() == nil {
		return <-a.failed // a success replaces this process, so only an error gets here
	}
	return a.halt()
}

// listen opens the agent's sockets in a node's directory, or takes over those of the node's
// previous process.
func (a *agent) listen(dir string, x *legacy) error {
	a.listeners = map[string]*net.UnixListener{}
	for _, s := range []struct {
		name string
		open func(dir, name string) (*net.UnixListener, error)
	}{
		{counters.MetricsSocket, listenPrivate}, {nodeapi.ProgramSocket, listenPrograms},
		{nodeapi.HandoverSocket, listen}, {nodeapi.MemorySocket, listen}, {nodeapi.AgentSocket, listen},
	} {
		l, err := x.listener(s.name, func() (*net.UnixListener, error) { return s.open(dir, s.name) })
		if err != nil {
			return err
		}
		a.listeners[s.name] = l
	}
	return nil
}

// streamsMax is the number of calls that one connection may have open. A run has two for as long as it
// lasts.
const streamsMax = 64

// server returns the gRPC server of the agent's calls.
func (a *agent) server() *grpc.Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(messageMax), grpc.MaxSendMsgSize(messageMax), grpc.MaxConcurrentStreams(streamsMax), grpc.UnaryInterceptor(a.fence.Intercept))
	nodeapi.RegisterNodeServer(s, a)
	return s
}

// nameProcess sets the name that ps and top show: the file that a node was started from has no
// telling name.
func nameProcess() error {
	name := append([]byte("mcastlab"), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		return fmt.Errorf("name the process: %w", err)
	}
	return nil
}

// giveUpPrivileges makes sure that no thread can gain any by executing something.
func giveUpPrivileges() error {
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if e == syscall.ENOTSUP { // a build with cgo: this thread, and those it starts
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up privileges: %w", err)
		}
		return nil
	}
	if e != 0 {
		return fmt.Errorf("give up privileges: %w", e)
	}
	return nil
}

func listen(dir, name string) (*net.UnixListener, error) { return listenAt("unix", dir, name) }

// listenAt listens at a unix socket of a network's kind.
func listenAt(network, dir, name string) (*net.UnixListener, error) {
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return l, nil
}

// agent is the node's side of the control protocol.
type agent struct {
	nodeapi.UnimplementedNodeServer
	version  string
	data     string
	programs []rank.Program
	fence    nodeapi.Fence // of labs with controllers

	calls     *grpc.Server
	listeners map[string]*net.UnixListener // by the names of their sockets
	execute   func(*legacy) error          // replaces the process
	failed    chan error                   // the error if that failed

	// mu is held for reading by every call for as long as it uses the node, whose descriptors
	// close when it ends. Streams (Watch, Job) do not hold it: they end with the node.
	mu       sync.RWMutex
	sockets  []int
	memory   *lockstep.NodeMemory // of the run in virtual time that is about to begin, or nil
	noMemory error                // why there is none, first of all
	node     *node                // nil before the first Configure
	member   atomic.Bool          // part of a run in virtual time
	part     atomic.Pointer[sim.Net]
	inTurns  atomic.Pointer[verbs.Server] // of programs in that run; nil: it has none here
	leaving  bool                         // the process ends, and another one takes its place
}

// takeFiles waits for handovers. Errors are written to log.
func takeFiles(l *net.UnixListener, log io.Writer, take func(fds []int)) {
	for {
		err := nodeapi.ReceiveFiles(l, log, take)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			fmt.Fprintf(log, "mcastlab node: %v\n", err)
		}
	}
}

// replaceSockets takes sockets; later ones replace them.
func (a *agent) replaceSockets(fds []int) {
	a.mu.Lock()
	if a.leaving {
		a.mu.Unlock()
		select {} // the sender gets no answer, and the sockets are closed with the process
	}
	defer a.mu.Unlock()
	if err := a.halt(); err != nil {
		fmt.Fprintf(os.Stderr, "mcastlab node: %v\n", err)
	}
	for _, fd := range a.sockets {
		_ = unix.Close(fd) // replaced
	}
	a.sockets = fds
}

// halt ends the node's present configuration.
func (a *agent) halt() error {
	if a.node == nil {
		return nil
	}
	n := a.node
	a.node = nil
	return n.stop()
}

// Configure implements nodeapi.NodeServer.
func (a *agent) Configure(_ context.Context, r *nodeapi.ConfigureRequest) (*nodeapi.ConfigureReply, error) {
	// The fence is raised before the old node ends, and without the lock, for which calls of older
	// epochs still wait: none of them reaches the new node.
	a.fence.Raise(r.Epoch)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving {
		return nil, errLeaving()
	}
	if err := a.halt(); err != nil {
		return nil, status.Errorf(codes.Internal, "end the old configuration: %v", err)
	}
	n, err := newNode(r, a.sockets, a.data, nil, a.succeed)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "configure node %s: %v", r.Node, err)
	}
	giveBack()
	a.node = n
	return &nodeapi.ConfigureReply{Pid: uint32(os.Getpid()), Version: a.version}, nil
}

// memberWait is the time that a call waits for the end of a run in virtual time. A node notices within
// a fraction of it that its run was broken off.
const memberWait = time.Second

// configured returns the node, or an error before the first Configure. The node does not change until
// done is called.
func (a *agent) configured() (n *node, done func(), err error) {
	for begin := time.Now(); a.member.Load() && time.Since(begin) < memberWait; {
		time.Sleep(memberWait / 100)
	}
	a.mu.RLock()
	if a.node == nil {
		a.mu.RUnlock()
		if a.member.Load() {
			return nil, nil, status.Error(codes.FailedPrecondition, "the node is part of a run in virtual time: wait until it ends")
		}
		return nil, nil, status.Error(codes.FailedPrecondition, "the node is not configured yet")
	}
	if a.node.leaving.Load() {
		a.mu.RUnlock()
		return nil, nil, errLeaving()
	}
	return a.node, a.mu.RUnlock, nil
}

// errStopped returns why the node's loop has been stopped.
func (n *node) errStopped() error {
	if n.leaving.Load() {
		return errLeaving()
	}
	return status.Error(codes.FailedPrecondition, "the node's configuration has ended")
}

// call runs f as an input of the node's machine.
func (n *node) call(f func(now vtime.Time)) error {
	if !n.loop.Call(vtime.Never, f) {
		return n.errStopped()
	}
	return nil
}

// SetRate implements nodeapi.NodeServer.
func (a *agent) SetRate(_ context.Context, r *nodeapi.Rate) (*nodeapi.LagReply, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	lag, ok := n.loop.SetRate(rateOf(r))
	if !ok {
		return nil, n.errStopped()
	}
	if err := n.showClock(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &nodeapi.LagReply{Sent: nodeapi.HistogramOf(lag.Sent), Acted: nodeapi.HistogramOf(lag.Acted)}, nil
}

// Inspect implements nodeapi.NodeServer.
func (a *agent) Inspect(context.Context, *nodeapi.InspectRequest) (*nodeapi.InspectReply, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	return n.inspect()
}

// Answer implements nodeapi.NodeServer.
func (a *agent) Answer(_ context.Context, r *nodeapi.AnswerRequest) (*nodeapi.AnswerReply, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	if n.out == nil {
		return nil, status.Error(codes.FailedPrecondition, "the node is not an external host")
	}
	asker := n.graph.Nodes[0].IP
	if n.id == 0 {
		asker = n.graph.Nodes[1].IP // there are two hosts at least
	}
	return &nodeapi.AnswerReply{}, n.call(func(now vtime.Time) {
		n.out.Answer(wire.QPN(r.Qpn))
		n.out.Watch(now, asker)
	})
}

// SetMulticast implements nodeapi.NodeServer.
func (a *agent) SetMulticast(_ context.Context, r *nodeapi.MulticastEntry) (*nodeapi.MulticastReply, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	if n.sw == nil {
		return nil, status.Error(codes.FailedPrecondition, "the node is not a switch")
	}
	m := wire.MulticastEntry{Group: r.Group}
	for _, p := range r.Ports {
		m.Ports = append(m.Ports, uint16(p))
	}
	for _, p := range r.From {
		m.From = append(m.From, uint16(p))
	}
	return &nodeapi.MulticastReply{}, n.call(func(vtime.Time) { n.sw.SetMulticast(m) })
}

// Watch implements nodeapi.NodeServer.
func (a *agent) Watch(_ *nodeapi.WatchRequest, s nodeapi.Node_WatchServer) error {
	n, done, err := a.configured()
	if err != nil {
		return err
	}
	done()
	return n.events.stream(s, n.loop.Now, n.done)
}

// Job implements nodeapi.NodeServer.
func (a *agent) Job(s nodeapi.Node_JobServer) error {
	n, done, err := a.configured()
	if err != nil {
		return err
	}
	done()
	if n.host == nil {
		return status.Error(codes.FailedPrecondition, "the node does not run ranks")
	}
	return n.runJob(s, a.programs)
}
