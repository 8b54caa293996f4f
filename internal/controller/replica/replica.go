// SPDX-License-Identifier: Apache-2.0

// Package replica is one of the controllers of a lab: package controller's state machine,
// replicated with raft over unix sockets. Any replica takes any call and passes it on to the
// leader, which alone asks nodes for effects. Each effect carries the leader's epoch (raft's
// term), and nodes refuse an older one than they have seen.
package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// Timing are raft's times. Zero values choose those of a lab: an election takes about two
// seconds, a leader without a majority gives up after half of one.
type Timing struct {
	Heartbeat, Election, Lease time.Duration
	// Call bounds a call from one replica to another.
	Call time.Duration
	// Stall is the time that a leader may take to commit an entry before it falls silent and another leads;
	// after four times that its disk counts as broken.
	Stall time.Duration
	// SnapshotAfter is the number of entries in the log at which a snapshot is made, and Trailing the
	// number of entries before it that are kept.
	SnapshotAfter, Trailing uint64
}

func (t *Timing) fill() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.Heartbeat, time.Second)
	set(&t.Election, time.Second)
	set(&t.Lease, 500*time.Millisecond)
	set(&t.Call, 2*time.Second)
	set(&t.Stall, 30*time.Second)
	if t.SnapshotAfter == 0 {
		t.SnapshotAfter = 1024
	}
	if t.Trailing == 0 {
		t.Trailing = 1024
	}
}

// Config describes a replica.
type Config struct {
	ID       string
	Replicas []string // all of them, with this one
	Network  *Network
	Data     string // folder of the log and the snapshots
	Effects  Effects
	Timing   Timing
	Log      io.Writer // of changes of leadership, and of effects that fail
	// Fail is called with the reason when the replica cannot continue: its disk has failed.
	Fail func(error)
}

// Replica is one controller. It can crash and start again.
type Replica struct {
	nodeapi.UnimplementedControllerServer
	c     Config
	calls *grpc.Server // of other replicas

	mu   sync.Mutex
	life *life // nil: it has crashed
	down error // why life is nil
}

// life is one incarnation of a replica, from a start to the next crash: what it has in memory.
type life struct {
	r       *Replica
	raft    *raft.Raft
	disk    *disk
	trans   *raft.NetworkTransport
	machine *machine
	stop    context.CancelFunc
	all     sync.WaitGroup

	mu    sync.Mutex
	peers map[string]*grpc.ClientConn
	leads uint64 // epoch this replica leads in; 0: it does not
}

// New starts a replica with the contents of its folder.
func New(c Config) (*Replica, error) {
	if !slices.Contains(c.Replicas, c.ID) {
		return nil, fmt.Errorf("controller %s is none of %v", c.ID, c.Replicas)
	}
	c.Timing.fill()
	r := &Replica{c: c, calls: grpc.NewServer(grpc.MaxRecvMsgSize(messageMax), grpc.MaxSendMsgSize(messageMax))}
	if err := r.Start(); err != nil {
		return nil, err
	}
	nodeapi.RegisterControllerServer(r.calls, r)
	go func() { _ = r.calls.Serve(c.Network.calls.side()) }() // until the network is closed
	return r, nil
}

// messageMax bounds one message in either direction.
const messageMax = 16 << 20

// Start starts a replica that has crashed.
func (r *Replica) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life != nil {
		return nil
	}
	l, err := r.begin()
	if err != nil {
		return fmt.Errorf("start controller %s: %w", r.c.ID, err)
	}
	r.life, r.down = l, nil
	return nil
}

// begin starts an incarnation from the log and the snapshots on the disk.
func (r *Replica) begin() (_ *life, err error) {
	log := hclog.NewNullLogger() // a replica that is down would fill the others' logs
	d, err := openDisk(r.c.Data, log, r.broke)
	if err != nil {
		return nil, err
	}
	if err := d.understood(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: r.c.Network.raft.side(), MaxPool: 3, Timeout: r.c.Timing.Call, Logger: log,
	})
	l := &life{r: r, disk: d, trans: trans, machine: newMachine(), peers: map[string]*grpc.ClientConn{}}
	fail := func(err error) (*life, error) { return nil, errors.Join(err, trans.Close(), d.Close()) }
	known, err := raft.HasExistingState(d, d, d.snapshots)
	if err != nil {
		return fail(fmt.Errorf("look for an older log: %w", err))
	}
	cfg := r.raftConfig(log)
	if !known {
		var all raft.Configuration
		for _, id := range r.c.Replicas {
			all.Servers = append(all.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
		}
		if err := raft.BootstrapCluster(cfg, d, d, d.snapshots, trans, all); err != nil {
			return fail(fmt.Errorf("begin the log: %w", err))
		}
	}
	if l.raft, err = raft.NewRaft(cfg, l.machine, d, d, d.snapshots, trans); err != nil {
		return fail(err)
	}
	d.started.Store(true)
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.all.Go(func() { l.follow(ctx) })
	return l, nil
}

func (r *Replica) raftConfig(log hclog.Logger) *raft.Config {
	c, t := raft.DefaultConfig(), &r.c.Timing
	c.LocalID, c.Logger = raft.ServerID(r.c.ID), log
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = t.Heartbeat, t.Election, t.Lease
	c.CommitTimeout = 10 * time.Millisecond
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = t.SnapshotAfter, t.Trailing, 10*time.Second
	c.NoLegacyTelemetry = true
	return c
}

// broke ends the replica for good because its disk has failed.
func (r *Replica) broke(err error) {
	if r.c.Fail != nil {
		go r.c.Fail(err) // not on this goroutine: raft waits for the write
	}
}

// errCrashed is the error of calls to a replica that is down.
var errCrashed = errors.New("the controller has crashed")

// Crash discards at once what the replica has in memory; what is on the disk stays.
func (r *Replica) Crash() error {
	r.mu.Lock()
	l := r.life
	r.life, r.down = nil, errCrashed
	r.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.end()
}

// end stops raft and closes connections and the disk.
func (l *life) end() error {
	l.stop()
	errs := []error{l.trans.Close()}
	if down := l.raft.Shutdown(); !l.disk.stuck.Load() {
		errs = append(errs, down.Error())
	}
	l.all.Wait()
	l.mu.Lock()
	for _, c := range l.peers { // independent of each other
		errs = append(errs, c.Close())
	}
	l.peers = nil
	l.mu.Unlock()
	if l.disk.stuck.Load() {
		return errors.Join(errs...) // raft still uses the disk: both end with the process
	}
	return errors.Join(append(errs, l.disk.Close())...)
}

// Close ends the replica.
func (r *Replica) Close() error {
	err := r.Crash()
	r.calls.Stop()
	return err
}

// alive returns the present incarnation, or an error if the replica is down.
func (r *Replica) alive() (*life, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life, r.down
}

// Snapshot makes a snapshot now, and shortens the log.
func (r *Replica) Snapshot() error {
	l, err := r.alive()
	if err != nil {
		return err
	}
	if err := l.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	return nil
}

// State returns the bytes of the replica's own state, which may be behind the leader's.
func (r *Replica) State() ([]byte, error) {
	l, err := r.alive()
	if err != nil {
		return nil, err
	}
	return l.machine.read()
}

// Leads returns the epoch in which the replica believes to lead, or 0.
func (r *Replica) Leads() uint64 {
	l, err := r.alive()
	if err != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}
