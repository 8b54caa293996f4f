// SPDX-License-Identifier: Apache-2.0

// Package client sends commands to the controllers of a lab: to any of them, repeatedly until one
// answers. Each command has a number, and takes effect once however often it was sent.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// Times of a client.
const (
	tryWait  = 6 * time.Second // bounds a call to one replica
	backOff  = 20 * time.Millisecond
	backOffs = 500 * time.Millisecond // the longest
)

// ErrUnknown is the error of a command that was sent and whose outcome is not known.
var ErrUnknown = errors.New("the outcome of the command is not known")

// ErrRefused is the error of a command that the controller refuses.
var ErrRefused = errors.New("refused by the controller")

// Replica is the address of one controller.
type Replica struct {
	ID      string
	Target  string // for gRPC: unix:PATH
	Address string // to show; empty: its own report
}

// Client is one client of a lab's controllers. Its methods may be called from several
// goroutines.
type Client struct {
	id   string
	wait time.Duration
	all  []replica

	mu    sync.Mutex
	next  uint64          // number of the next command
	open  map[uint64]bool // commands without a result
	first int             // replica that answered last
}

type replica struct {
	Replica
	conn *grpc.ClientConn
	nodeapi.ControllerClient
}

// messageMax bounds one message in either direction.
const messageMax = 16 << 20

// New returns a client. wait is the time for which it repeats one command, at most controller.Retry.
func New(replicas []Replica, wait time.Duration, o ...grpc.DialOption) (*Client, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("name a client of the controllers: %w", err)
	}
	c := &Client{id: hex.EncodeToString(b[:]), wait: min(wait, controller.Retry), next: 1, open: map[uint64]bool{}}
	o = append(append([]grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: backOff, Multiplier: 1.5, MaxDelay: backOffs}, MinConnectTimeout: time.Second}),
		// The sockets are protected by their folders.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax)),
	}, nodeapi.Plain()...), o...)
	for _, r := range replicas {
		conn, err := grpc.NewClient(r.Target, o...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reach controller %s: %w", r.ID, err), c.Close())
		}
		c.all = append(c.all, replica{r, conn, nodeapi.NewControllerClient(conn)})
	}
	return c, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	var errs []error
	for _, r := range c.all {
		errs = append(errs, r.conn.Close())
	}
	return errors.Join(errs...)
}

// Do has a command take effect once, and returns its result. ErrRefused is definite; with
// ErrUnknown the command may have taken effect, or may still.
func (c *Client) Do(ctx context.Context, cmd controller.Command) (r controller.Result, err error) {
	until := time.Now().Add(c.wait)
	c.mu.Lock()
	cmd.Client, cmd.Seq, cmd.Until = c.id, c.next, until.UnixNano()
	c.next++
	c.open[cmd.Seq] = true
	c.mu.Unlock()
	err = c.ask(ctx, until, func(ctx context.Context, to nodeapi.ControllerClient) error {
		cmd.Low = c.low(cmd.Seq)
		b, err := cmd.Encode()
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		reply, err := to.Propose(ctx, &nodeapi.Proposal{Command: b})
		if err == nil {
			r, err = controller.DecodeResult(reply.Result)
		}
		return err
	})
	c.mu.Lock()
	delete(c.open, cmd.Seq) // it is not sent again, and the next command makes the controllers refuse copies that are under way
	c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		return r, errors.Join(fmt.Errorf("controllers, %s: %w", cmd.Kind, ErrUnknown), ctx.Err())
	case status.Code(err) == codes.InvalidArgument:
		return r, fmt.Errorf("controllers, %s: %w: %s", cmd.Kind, ErrRefused, status.Convert(err).Message())
	case err != nil:
		return r, fmt.Errorf("controllers, %s: %w: %w", cmd.Kind, ErrUnknown, err)
	case r.Error != "":
		return r, fmt.Errorf("controllers, %s: %w: %s", cmd.Kind, ErrRefused, r.Error)
	}
	return r, nil
}

// low returns the first command without a result, at most seq.
func (c *Client) low(seq uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.open { // the least
		seq = min(seq, s)
	}
	return seq
}

// ask calls one replica after the other until one answers.
func (c *Client) ask(ctx context.Context, until time.Time, call func(context.Context, nodeapi.ControllerClient) error) error {
	ctx, stop := context.WithDeadline(ctx, until)
	defer stop()
	c.mu.Lock()
	at := c.first
	c.mu.Unlock()
	pause := backOff
	for tries := 1; ; tries++ {
		one, end := context.WithTimeout(ctx, tryWait)
		err := call(one, c.all[at].ControllerClient)
		end()
		if err == nil || status.Code(err) == codes.InvalidArgument {
			c.mu.Lock()
			c.first = at
			c.mu.Unlock()
			return err
		}
		at = (at + 1) % len(c.all)
		if tries%len(c.all) != 0 && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no majority of %s has answered in %v (look with mcastlab controller ls, bring back dead ones with mcastlab deploy): %w",
				c.names(), c.wait, err)
		case <-time.After(pause):
		}
		pause = min(2*pause, backOffs)
	}
}

func (c *Client) names() string {
	var all []string
	for _, r := range c.all {
		all = append(all, r.ID)
	}
	return strings.Join(all, ", ")
}

// Read returns the controllers' state, with everything in it that was answered before.
func (c *Client) Read(ctx context.Context) (s *controller.State, err error) {
	err = c.ask(ctx, time.Now().Add(c.wait), func(ctx context.Context, to nodeapi.ControllerClient) error {
		reply, err := to.Read(ctx, &nodeapi.ReadRequest{})
		if err == nil {
			s, err = controller.DecodeState(reply.State)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask the controllers: %w", err)
	}
	return s, nil
}

// Await reads the state repeatedly until holds reports true.
func (c *Client) Await(ctx context.Context, what string, holds func(*controller.State) bool) error {
	pause := backOff / 4
	for until := time.Now().Add(c.wait); ; pause = min(2*pause, backOffs) {
		s, err := c.Read(ctx)
		switch {
		case err != nil:
			return err
		case holds(s):
			return nil
		case time.Now().After(until):
			return fmt.Errorf("wait for %s: the controllers have not reported it within %v", what, c.wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Status is a replica's report about itself, or that it does not answer.
type Status struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"` // leader, follower, candidate, crashed, gone
	Term    uint64 `json:"term"`
	Applied uint64 `json:"applied"`
	Leader  string `json:"leader"` // that it follows
}

// statusWait bounds how long a replica may take to report its status.
const statusWait = 2 * time.Second

// Status asks every replica for its status.
func (c *Client) Status(ctx context.Context) []Status {
	all := make([]Status, len(c.all))
	var wait sync.WaitGroup
	for i, r := range c.all {
		wait.Go(func() {
			ctx, stop := context.WithTimeout(ctx, statusWait)
			defer stop()
			all[i] = Status{ID: r.ID, Address: cmp.Or(r.Address, strings.TrimPrefix(r.Target, "unix:")), State: "gone"}
			if s, err := r.ControllerClient.Status(ctx, &nodeapi.StatusRequest{}); err == nil {
				all[i] = Status{ID: s.Id, Address: cmp.Or(r.Address, s.Address), State: s.State, Term: s.Term, Applied: s.Applied, Leader: s.Leader}
			}
		})
	}
	wait.Wait()
	return all
}
