// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// appByName returns the program of a workload; programs are the user's own.
func (n *node) appByName(name string, programs []rank.Program) (apps.App, error) {
	app, ok := registry.App(name, apps.Env{Programs: programs, OpenStore: n.openStore, Clocked: true})
	if !ok {
		return nil, fmt.Errorf("this agent has no program %q", name)
	}
	return app, nil
}

// runJob runs one rank to its end. The stream's first message starts it. The orchestrator closes
// its side when all ranks have ended; then the rank's resources are released.
func (n *node) runJob(s nodeapi.Node_JobServer, programs []rank.Program) error {
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
	n.forgetEnds()
	b := &board{host: n.host, s: s, calls: map[uint64]*question{}, gone: make(chan struct{}), released: make(chan struct{})}
	n.running.Store(b)
	defer n.running.Store(nil)
	done := make(chan error, 1)
	n.host.Go(vtime.Time(start.Lab), fmt.Sprintf("rank %d (%s)", start.Rank, n.name), func() {
		root, params := prng.New(n.lab.Seed), labspec.RankParams(n.lab)
		r, err := rankrun.Start(rankhost.Config{
			ID: int(start.Rank), Size: len(start.Names), HostName: n.name, Names: start.Names, IPs: start.Ips,
			Host: n.host, Board: b, Peers: peersOf(start), Params: &params, Random: root.Derive(fmt.Sprintf("rank/%s/%d", start.Job, start.Rank)),
		})
		if err == nil {
			b.rank = r // from now on it is released on every way out
			err = rankrun.Run(func() error { return app.Run(r, start.Params) })
		}
		done <- err
	})
	go b.receive()
	ended := make(chan struct{})
	defer close(ended)
	go n.observe(b, ended)
	err = n.endJob(b, done)
	n.abandon(b, err != nil)
	return err
}

// peersOf returns, by rank, the external hosts of a job, or nil.
func peersOf(start *nodeapi.Start) []*rankhost.Peer {
	if len(start.Peers) == 0 {
		return nil
	}
	all := make([]*rankhost.Peer, len(start.Names))
	for _, p := range start.Peers {
		if int(p.Rank) < len(all) {
			all[p.Rank] = &rankhost.Peer{QPN: wire.QPN(p.Qpn), SendPSN: wire.PSN(p.SendPsn), ReceivePSN: wire.PSN(p.ReceivePsn), VA: p.Va, RKey: p.Rkey}
		}
	}
	return all
}

// endJob waits until the program has ended or the connection of the orchestrator is closed. It reports
// the program's end to the orchestrator, and waits until the orchestrator releases the rank.
func (n *node) endJob(b *board, done <-chan error) error {
	var err error
	select {
	case err = <-done:
		if e := n.crash(); e != nil {
			err = e
		}
	case err = <-n.crashed:
	case p := <-n.caught:
		err = fmt.Errorf("the program panicked: %v", p)
	case <-n.over:
		if n.leaving.Load() {
			err = n.crash()
			break
		}
		n.endTasks()
		return status.Error(codes.Internal, "the node's loop has ended: see its log")
	case <-b.gone:
		return status.Error(codes.Canceled, "the orchestrator has gone")
	case <-b.released:
		return status.Error(codes.Canceled, "the rank was ended: another run begins")
	}
	if n.leaving.Load() { // the rank's objects end with the process
		if err == nil {
			return errLeaving() // it crashed before the rank had begun
		}
		return b.send(&nodeapi.FromRank{What: &nodeapi.FromRank_Done{Done: &nodeapi.Done{Error: err.Error()}}})
	}
	text := ""
	if err != nil {
		text = err.Error()
		n.abandon(b, true) // before the end is reported: the rank's requests must not continue
	}
	if err := b.send(&nodeapi.FromRank{What: &nodeapi.FromRank_Done{Done: &nodeapi.Done{Error: text}}}); err != nil {
		return err
	}
	select { // others may still need data that the rank has acknowledged
	case <-b.gone:
	case <-b.released:
	case <-n.over:
	}
	return nil
}

// forgetEnds forgets how jobs before this one ended.
func (n *node) forgetEnds() {
	_ = n.crash()
	select {
	case <-n.caught:
	default:
	}
}

// abandon unwinds the rank's program if it still runs, and releases all that the rank has made. A
// rank that is broken off stops sending at once, however long its program takes to unwind. A second
// call does nothing.
func (n *node) abandon(b *board, brokenOff bool) {
	if b.abandoned || n.leaving.Load() {
		return
	}
	b.abandoned = true
	select {
	case <-n.over:
		n.endTasks() // the NIC is removed, and all objects with it
		return
	default:
	}
	if brokenOff {
		n.loop.Call(vtime.Never, n.silence)
	}
	n.endTasks()
	if b.rank != nil {
		n.host.Go(n.loop.Now(), "the rank's end", rankrun.Of(b.rank).Abandon)
		n.endTasks()
	}
}

// silence makes every queue pair of the NIC stop.
func (n *node) silence(now vtime.Time) {
	n.nic.QPs(func(q *virtrnic.QP) {
		// One in RESET has nothing under way; any other may go to ERR.
		_ = n.nic.ModifyQP(now, q, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState)
	})
}

// board is the rank's side of the out-of-band channel: calls to the orchestrator.
type board struct {
	host *live.Host
	s    nodeapi.Node_JobServer

	sending sync.Mutex
	mu      sync.Mutex
	last    uint64
	calls   map[uint64]*question
	replies uint64        // replies received
	gone    chan struct{} // closed when the orchestrator's stream has ended
	rank    *rank.Rank    // set by the rank's task before it ends

	release   sync.Once
	released  chan struct{} // closed when the rank is to be given up
	abandoned bool
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
		q := b.calls[m.Id]
		delete(b.calls, m.Id)
		b.replies++
		b.mu.Unlock()
		if q != nil {
			q.reply = m
			close(q.came)
		}
	}
}

func (b *board) send(m *nodeapi.FromRank) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if err := b.s.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("tell the orchestrator: %w", err)
	}
	return nil
}

// tell sends a message that needs no reply.
func (b *board) tell(m *nodeapi.FromRank) {
	// If the orchestrator is gone the rank is unwound at its next wait.
	_ = b.send(m)
}

// question is a call of the rank that waits for its reply.
type question struct {
	came  chan struct{} // closed when the reply is there
	reply *nodeapi.ToRank
}

func (q *question) answered() bool {
	select {
	case <-q.came:
		return true
	default:
		return false
	}
}

// ask sends a call and returns its reply; the host's other tasks run meanwhile. It returns nil once
// over, which may be nil, reports that the wait is over. The host unwinds a task that still waits when
// the job ends or the host crashes.
func (b *board) ask(why string, m *nodeapi.FromRank, over func() bool) *nodeapi.ToRank {
	q := &question{came: make(chan struct{})}
	b.mu.Lock()
	b.last++
	m.Id = b.last
	b.calls[m.Id] = q
	b.mu.Unlock()
	b.tell(m)
	for !q.answered() {
		if over != nil && over() {
			return nil
		}
		b.host.ParkBeside(why, q.came)
	}
	return q.reply
}

// Put implements rankhost.Board.
func (b *board) Put(key string, value []byte) {
	b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Put{Put: &nodeapi.Put{Key: key, Value: value}}})
}

// Get implements rankhost.Board.
func (b *board) Get(key, why string, over func() bool) (value []byte, ok bool) {
	m := b.ask(why, &nodeapi.FromRank{What: &nodeapi.FromRank_Get{Get: key}}, over)
	return m.GetValue(), m != nil
}

// Take implements rankhost.Board. The orchestrator keeps taken values: running labs have few ranks.
func (b *board) Take(key, why string, over func() bool) ([]byte, bool) { return b.Get(key, why, over) }

// Barrier implements rankhost.Board. All ranks resume at one instant of lab time, which the
// orchestrator chooses late enough for its message to arrive.
func (b *board) Barrier(over func() bool) bool {
	m := b.ask("the other ranks to synchronise", &nodeapi.FromRank{What: &nodeapi.FromRank_Barrier{Barrier: true}}, over)
	if m == nil {
		return false
	}
	for at := vtime.Time(m.GetRelease()); b.host.Now() < at; {
		b.host.Park(at, "the common start")
	}
	return true
}

// Report implements rankhost.Board. The orchestrator may change the clock's rate before it
// answers.
func (b *board) Report(what string) {
	b.ask("the orchestrator", &nodeapi.FromRank{What: &nodeapi.FromRank_Report{Report: what}}, nil)
}

// Emit implements rankhost.Board.
func (b *board) Emit(record []byte) {
	b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Record{Record: record}})
}

// LeaseGroup implements rankhost.Board.
func (b *board) LeaseGroup() (uint32, error) {
	return leased(b.ask("a group address", &nodeapi.FromRank{What: &nodeapi.FromRank_Lease{Lease: true}}, nil))
}

func leased(reply *nodeapi.ToRank) (uint32, error) {
	l := reply.GetLease()
	if l.GetError() != "" {
		return 0, errors.New(l.GetError())
	}
	return l.GetGroup(), nil
}

// Multicast implements rankhost.Board.
func (b *board) Multicast(hosts []uint32) (uint32, error) {
	return leased(b.ask("the switches to know a group", &nodeapi.FromRank{What: &nodeapi.FromRank_Multicast{Multicast: &nodeapi.Multicast{Hosts: hosts}}}, nil))
}

// EndMulticast implements rankhost.Board.
func (b *board) EndMulticast(group uint32) error {
	_, err := leased(b.ask("the switches to forget a group", &nodeapi.FromRank{What: &nodeapi.FromRank_Multicast{Multicast: &nodeapi.Multicast{End: group}}}, nil))
	return err
}
