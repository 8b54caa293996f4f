// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"net"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// callers is the listener of the service Share: connections of deployers that have begun for its calls.
type callers struct {
	conns chan net.Conn
	at    net.Addr
	done  <-chan struct{}
}

// serveCalls serves the service Share until the context ends.
func (x *worker) serveCalls(ctx context.Context) *callers {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(shareapi.MessageMax), grpc.MaxSendMsgSize(shareapi.MessageMax),
		grpc.UnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			a, err := h(ctx, q)
			return a, x.failed(info.FullMethod, err)
		}),
		grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return x.failed(info.FullMethod, h(s, stream))
		}))
	shareapi.RegisterShareServer(s, &service{x: x, ctx: ctx})
	l := &callers{conns: make(chan net.Conn), at: &net.UnixAddr{Name: shareapi.Socket, Net: "unix"}, done: ctx.Done()}
	go func() { _ = s.Serve(l) }() // until it is stopped
	context.AfterFunc(ctx, s.Stop)
	return l
}

// failed logs the error of a call, and returns it without the status of another call that has failed here: codes.Unavailable has the deployer
// take the connection for broken.
func (x *worker) failed(method string, err error) error {
	if err == nil {
		return nil
	}
	x.log("%s: %v", strings.ToLower(path.Base(method)), err)
	return status.Error(codes.Unknown, err.Error())
}

// add hands over a connection. It reports whether the listener is open.
func (l *callers) add(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *callers) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: it closes with its context.
func (l *callers) Close() error { return nil }

// Addr implements net.Listener.
func (l *callers) Addr() net.Addr { return l.at }

// service is a worker's service Share. What changes the server has the context of the process: a deployer that has gone leaves no half of it.
type service struct {
	shareapi.UnimplementedShareServer
	x   *worker
	ctx context.Context
}

// Start implements shareapi.ShareServer.
func (s *service) Start(_ context.Context, q *shareapi.StartRequest) (*shareapi.StartReply, error) {
	return &shareapi.StartReply{}, s.x.start(s.ctx, q.Share())
}

// Probe implements shareapi.ShareServer.
func (s *service) Probe(_ *shareapi.ProbeRequest, stream grpc.ServerStreamingServer[shareapi.ProbeReply]) error {
	return s.x.probe(stream.Context(), stream.Send)
}

// Ready implements shareapi.ShareServer.
func (s *service) Ready(context.Context, *shareapi.ReadyRequest) (*shareapi.ReadyReply, error) {
	return &shareapi.ReadyReply{}, s.x.ready(s.ctx)
}

// Look implements shareapi.ShareServer.
func (s *service) Look(ctx context.Context, _ *shareapi.LookRequest) (*shareapi.LookReply, error) {
	all, err := s.x.look(ctx)
	return &shareapi.LookReply{Nodes: all}, err
}

// Trunks implements shareapi.ShareServer.
func (s *service) Trunks(context.Context, *shareapi.TrunksRequest) (*shareapi.TrunksReply, error) {
	return &shareapi.TrunksReply{Trunks: s.x.trunkStates()}, nil
}

// Logs implements shareapi.ShareServer.
func (s *service) Logs(ctx context.Context, q *shareapi.LogsRequest) (*shareapi.LogsReply, error) {
	b, err := s.x.logs(ctx, q.Node)
	return &shareapi.LogsReply{Log: b}, err
}

// Remove implements shareapi.ShareServer.
func (s *service) Remove(context.Context, *shareapi.RemoveRequest) (*shareapi.RemoveReply, error) {
	return &shareapi.RemoveReply{}, s.x.remove(s.ctx)
}

// Port implements shareapi.ShareServer.
func (s *service) Port(_ context.Context, q *shareapi.PortRequest) (*shareapi.PortReply, error) {
	return s.x.port(q.Node)
}

// Busy implements shareapi.ShareServer.
func (s *service) Busy(ctx context.Context, _ *shareapi.BusyRequest) (*shareapi.BusyReply, error) {
	seconds, err := orchestrator.CPUTimeHere(ctx, s.x.o.Engine, s.x.lab)
	return &shareapi.BusyReply{Seconds: seconds}, err
}
