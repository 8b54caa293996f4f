// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// Propose implements nodeapi.ControllerServer.
func (r *Replica) Propose(ctx context.Context, q *nodeapi.Proposal) (*nodeapi.ProposalReply, error) {
	c, err := controller.DecodeCommand(q.Command)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if c.Client == "" {
		return nil, status.Errorf(codes.InvalidArgument, "%s is the leader's own command", c.Kind)
	}
	l, err := r.alive()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if l.raft.State() != raft.Leader {
		return pass(ctx, l, q.Passed, func(ctx context.Context, to nodeapi.ControllerClient) (*nodeapi.ProposalReply, error) {
			return to.Propose(ctx, &nodeapi.Proposal{Command: q.Command, Passed: true})
		})
	}
	result, err := l.propose(ctx, c)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "%s: %v", r.c.ID, err)
	}
	b, err := result.Encode()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &nodeapi.ProposalReply{Result: b}, nil
}

// Read implements nodeapi.ControllerServer. The state that it returns includes every command that
// any replica had answered before the call.
func (r *Replica) Read(ctx context.Context, q *nodeapi.ReadRequest) (*nodeapi.ReadReply, error) {
	l, err := r.alive()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if l.raft.State() != raft.Leader {
		return pass(ctx, l, q.Passed, func(ctx context.Context, to nodeapi.ControllerClient) (*nodeapi.ReadReply, error) {
			return to.Read(ctx, &nodeapi.ReadRequest{Passed: true})
		})
	}
	b, err := l.readIndex(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "%s: %v", r.c.ID, err)
	}
	return &nodeapi.ReadReply{State: b}, nil
}

// readIndex returns a linearizable read of the state: a majority confirmed this leader after the
// call, and the leader has applied all that was committed before.
func (l *life) readIndex(ctx context.Context) ([]byte, error) {
	l.mu.Lock()
	leads := l.leads
	l.mu.Unlock()
	if leads == 0 {
		return nil, errors.New("it does not lead yet") // entries of older terms may not be committed
	}
	index := l.raft.CommitIndex()
	if err := l.raft.VerifyLeader().Error(); err != nil {
		return nil, err
	}
	for l.raft.AppliedIndex() < index {
		var news <-chan struct{}
		if news = l.machine.look(func(*controller.State) {}); l.raft.AppliedIndex() >= index {
			break
		}
		select {
		case <-news:
		case <-time.After(time.Millisecond): // no news came: entries of raft's own change no state
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.machine.read()
}

// pass passes a call on to the leader, once.
func pass[T any](ctx context.Context, l *life, passed bool, call func(context.Context, nodeapi.ControllerClient) (T, error)) (reply T, err error) {
	if passed {
		return reply, status.Errorf(codes.Unavailable, "%s does not lead", l.r.c.ID)
	}
	_, leader := l.raft.LeaderWithID()
	if leader == "" || string(leader) == l.r.c.ID {
		return reply, status.Errorf(codes.Unavailable, "%s knows of no leader", l.r.c.ID)
	}
	to, err := l.peer(string(leader))
	if err != nil {
		return reply, status.Error(codes.Unavailable, err.Error())
	}
	ctx, stop := context.WithTimeout(ctx, 2*l.r.c.Timing.Call) // shorter than the caller's own limit, so that it can try again
	defer stop()
	reply, err = call(ctx, to)
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Canceled {
		err = status.Errorf(codes.Unavailable, "%s: leader %s does not answer", l.r.c.ID, leader)
	}
	return reply, err
}

// peer returns the connection to another replica, over the control network.
func (l *life) peer(id string) (nodeapi.ControllerClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers == nil {
		return nil, errCrashed
	}
	c := l.peers[id]
	if c == nil {
		var err error
		dial := func(ctx context.Context, _ string) (net.Conn, error) {
			return l.r.c.Network.calls.dial(id, l.r.c.Timing.Call)
		}
		c, err = grpc.NewClient("passthrough:///"+id, append(nodeapi.Plain(), grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: l.r.c.Timing.Call,
			}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax)))...)
		if err != nil {
			return nil, err
		}
		l.peers[id] = c
	}
	return nodeapi.NewControllerClient(c), nil
}

// Status implements nodeapi.ControllerServer: of this replica alone.
func (r *Replica) Status(context.Context, *nodeapi.StatusRequest) (*nodeapi.ReplicaStatus, error) {
	s := &nodeapi.ReplicaStatus{Id: r.c.ID, Address: r.c.Network.socket(r.c.ID, nodeapi.PeerSocket), State: "crashed"}
	l, err := r.alive()
	if err != nil {
		return s, nil //nolint:nilerr // the reply has the state down
	}
	_, leader := l.raft.LeaderWithID()
	s.State, s.Term, s.Applied, s.Leader = stateName(l.raft.State()), l.raft.CurrentTerm(), l.raft.AppliedIndex(), string(leader)
	return s, nil
}

func stateName(s raft.RaftState) string {
	return map[raft.RaftState]string{raft.Follower: "follower", raft.Candidate: "candidate", raft.Leader: "leader", raft.Shutdown: "ended"}[s]
}
