package nodeagent

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/apps/reducescatter"
	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/live"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// appByName returns the program of a workload; programs are the user's own.
func (n *node) appByName(name string, programs []rank.Program) (apps.App, error) {
	switch name {
	case program.Name:
		return program.App{Programs: programs}, nil
	case bcast.Name:
		return bcast.App{}, nil
	case allgather.Name:
		return allgather.App{}, nil
	case reducescatter.Name:
		return reducescatter.App{}, nil
	case fsdp.Name:
		return fsdp.App{}, nil
	case hpl.Name:
		return hpl.App{}, nil
	case storage.Name:
		return storage.App{Open: n.openStore, Clocked: true}, nil
	}
	return nil, fmt.Errorf("this agent has no program %q", name)
}

// runJob runs one rank to its end. The stream's first message starts it; when the
// orchestrator closes its side all ranks have ended and the rank's resources go.
func (n *node) runJob(s control.Node_JobServer, programs []rank.Program) error {
	if !n.job.TryLock() {
		return status.Error(codes.ResourceExhausted, "a rank is already running on this host")
	}
	defer n.job.Unlock()
	first, err := s.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil || int(start.Rank) >= len(start.Names) || len(start.Ips) != len(start.Names) {
		return status.Error(codes.InvalidArgument, "a job begins with its start")
	}
	app, err := n.appByName(start.App, programs)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	_ = n.crash() // of another job's time
	b := &board{host: n.host, s: s, replies: map[uint64]chan *control.ToRank{}, gone: make(chan struct{}), dead: make(chan struct{}), stopped: n.done}
	done := make(chan error, 1)
	n.host.Go(vtime.Time(start.Lab), func() {
		root := prng.New(n.lab.Seed)
		r, err := rank.New(rank.Config{
			ID: int(start.Rank), Size: len(start.Names), HostName: n.name, Names: start.Names, IPs: start.Ips,
			Host: n.host, Board: b, Peers: peersOf(start), Params: n.lab.RankParams(), Random: root.Derive(fmt.Sprintf("rank/%s/%d", start.Job, start.Rank)),
		})
		if err == nil {
			b.rank = r
			err = app.Run(r, start.Params)
		}
		done <- err
	})
	go b.receive()
	return n.endJob(b, done)
}

// peersOf returns, by rank, the external hosts of a job, or nil.
func peersOf(start *control.Start) []*rank.Peer {
	if len(start.Peers) == 0 {
		return nil
	}
	all := make([]*rank.Peer, len(start.Names))
	for _, p := range start.Peers {
		if int(p.Rank) < len(all) {
			all[p.Rank] = &rank.Peer{QPN: wire.QPN(p.Qpn), SendPSN: wire.PSN(p.SendPsn), ReceivePSN: wire.PSN(p.ReceivePsn), VA: p.Va, RKey: p.Rkey}
		}
	}
	return all
}

// endJob waits for the program's end or the orchestrator's, tells the former to the
// latter, and cleans up.
func (n *node) endJob(b *board, done <-chan error) error {
	var err error
	select {
	case err = <-done:
		if e := n.crash(); e != nil {
			err, b.rank = e, nil
		}
	case err = <-n.crashed:
		close(b.dead)
		n.host.Stop() // the task no longer writes to the board
		b.rank = nil
	case p := <-n.caught:
		err = fmt.Errorf("the program panicked: %v", p)
	case <-n.over:
		n.host.Stop()
		return status.Error(codes.Aborted, "the node's loop has ended: see its log")
	case <-b.gone:
		n.host.Stop()
		return status.Error(codes.Canceled, "the orchestrator has gone")
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if err := b.send(&control.FromRank{What: &control.FromRank_Done{Done: &control.Done{Error: text}}}); err != nil {
		return err
	}
	<-b.gone
	if b.rank != nil {
		n.host.Go(n.loop.Now(), b.rank.Close)
	}
	n.host.Stop()
	return nil
}

// board is the out-of-band channel as the rank sees it: calls to the orchestrator.
type board struct {
	host *live.Host
	s    control.Node_JobServer

	sending sync.Mutex
	mu      sync.Mutex
	last    uint64
	replies map[uint64]chan *control.ToRank
	gone    chan struct{} // closed when the orchestrator says no more
	dead    chan struct{} // closed when the host has crashed
	stopped <-chan struct{}
	rank    *rank.Rank // set by the rank's task before it ends
}

// receive hands replies to the calls that wait for them.
func (b *board) receive() {
	defer close(b.gone)
	for {
		m, err := b.s.Recv()
		if err != nil {
			return // io.EOF at the proper end
		}
		b.mu.Lock()
		c := b.replies[m.Id]
		delete(b.replies, m.Id)
		b.mu.Unlock()
		if c != nil {
			c <- m
		}
	}
}

func (b *board) send(m *control.FromRank) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if err := b.s.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("tell the orchestrator: %w", err)
	}
	return nil
}

// tell sends what needs no reply.
func (b *board) tell(m *control.FromRank) {
	// If the orchestrator has gone the rank is unwound at its next wait.
	_ = b.send(m)
}

// ask sends a call and returns its reply; the host's other tasks go on meanwhile.
func (b *board) ask(why string, m *control.FromRank) (reply *control.ToRank) {
	c := make(chan *control.ToRank, 1)
	b.mu.Lock()
	b.last++
	m.Id = b.last
	b.replies[m.Id] = c
	b.mu.Unlock()
	b.tell(m)
	b.host.Await(why, func() (vtime.Time, bool) {
		select {
		case reply = <-c:
			return vtime.Never, true
		case <-b.gone:
			return 0, false
		case <-b.dead:
			return 0, false
		case <-b.stopped:
			return 0, false
		}
	})
	return reply
}

// Put implements rank.Board.
func (b *board) Put(key string, value []byte) {
	b.tell(&control.FromRank{What: &control.FromRank_Put{Put: &control.Put{Key: key, Value: value}}})
}

// Get implements rank.Board.
func (b *board) Get(key, why string) []byte {
	return b.ask(why, &control.FromRank{What: &control.FromRank_Get{Get: key}}).GetValue()
}

// Barrier implements rank.Board. All ranks go on at one instant of lab time, which the
// orchestrator puts far enough ahead for its message to arrive.
func (b *board) Barrier() {
	m := b.ask("the other ranks to synchronise", &control.FromRank{What: &control.FromRank_Barrier{Barrier: true}})
	for at := vtime.Time(m.GetRelease()); b.host.Now() < at; {
		b.host.Park(at, "the common start")
	}
}

// Report implements rank.Board. The orchestrator may change the clock's rate before it
// answers.
func (b *board) Report(what string) {
	b.ask("the orchestrator", &control.FromRank{What: &control.FromRank_Report{Report: what}})
}

// Emit implements rank.Board.
func (b *board) Emit(record []byte) {
	b.tell(&control.FromRank{What: &control.FromRank_Record{Record: record}})
}

// LeaseGroup implements rank.Board.
func (b *board) LeaseGroup() (uint32, error) {
	return leased(b.ask("a group address", &control.FromRank{What: &control.FromRank_Lease{Lease: true}}))
}

func leased(reply *control.ToRank) (uint32, error) {
	l := reply.GetLease()
	if l.GetError() != "" {
		return 0, errors.New(l.GetError())
	}
	return l.GetGroup(), nil
}

// Multicast implements rank.Board.
func (b *board) Multicast(hosts []uint32) (uint32, error) {
	return leased(b.ask("the switches to know a group", &control.FromRank{What: &control.FromRank_Multicast{Multicast: &control.Multicast{Hosts: hosts}}}))
}

// EndMulticast implements rank.Board.
func (b *board) EndMulticast(group uint32) error {
	_, err := leased(b.ask("the switches to forget a group", &control.FromRank{What: &control.FromRank_Multicast{Multicast: &control.Multicast{End: group}}}))
	return err
}
