// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// board is the orchestrator's side of the out-of-band channel between the ranks of a job.
type board struct {
	clock  *orchestrator.LabClock
	step   func(ctx context.Context, what string) error // before each reported step
	emit   func(rank int, record []byte)
	note   func(rankhost.Step)              // records the steps shown to operators of external hosts
	warn   func(format string, args ...any) // to the user
	leases *orchestrator.Leases
	tables *multicastTables

	devices *devices // external hosts; nil: there are none
	group   uint32   // the McstID that the lab file names; 0: none

	stepping sync.Mutex // held for a whole step: any rank may report one

	mu      sync.Mutex
	channel *outofband.Board[call] // what ranks wait for
	ranks   []nodeapi.Node_JobClient
	sending []sync.Mutex
	late    *time.Timer // after a loss
	rest    rankActivity
}

// call is a request of a rank that waits for its reply.
type call struct {
	rank int
	id   uint64
}

// runJob runs a workload's ranks to their end.
func runJob(ctx context.Context, d *orchestrator.Deployed, w runner.Workload, b *board) error {
	b.tables = &multicastTables{d: d, run: b.leases.Run, switches: map[uint32][]int{}}
	defer b.tables.clear(ctx)
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := len(w.Hosts)
	if err := b.prepare(ctx, d, w); err != nil {
		return err
	}
	start := d.StartOf(w, b.clock.Now())
	external := func(i int) bool { return w.Peers != nil && w.Peers[i] != nil }
	for i, h := range w.Hosts {
		if external(i) {
			continue
		}
		s, err := d.Nodes[h].Job(ctx)
		if err != nil {
			return fmt.Errorf("start rank %d on %s: %w", i, d.Graph.Nodes[h].Name, err)
		}
		b.ranks[i] = s
	}
	errs, lost, silent := make([]error, n), make([]error, n), make([]bool, n)
	var all sync.WaitGroup
	defer b.devices.begin(ctx, b.put, cancel)()
	for i, h := range w.Hosts {
		if external(i) {
			b.rest.over[i] = true
			continue
		}
		all.Go(func() {
			defer func() { b.ended(i, outer.Err() == nil) }()
			err := b.serve(ctx, i, start)
			silent[i] = status.Code(err) == codes.Unavailable
			crashed := err != nil && strings.HasPrefix(err.Error(), nodeapi.Crashed)
			if b.channel.Spare(i) && ctx.Err() == nil && (silent[i] || crashed) {
				lost[i] = fmt.Errorf("rank %d (%s) was lost, and the others made no progress within %v: %w", i, d.Graph.Nodes[h].Name, lossWait, err)
				if silent[i] {
					d.Lost[h].Store(true)
				}
				b.hurry(cancel)
				context.AfterFunc(ctx, b.relax)
				err = b.lose(i)
			}
			if errs[i] = err; err != nil {
				errs[i] = b.devices.failed(ctx, fmt.Errorf("rank %d (%s): %w", i, d.Graph.Nodes[h].Name, err))
				cancel() // the others would wait for it
			}
		})
	}
	unwatch := b.watchDeadlock(ctx, d, len(start.Peers) > 0, cancel)
	all.Wait()
	unwatch()
	if outer.Err() != nil {
		return errors.Join(outer.Err(), b.outside())
	}
	if err := cmp.Or(b.devices.cause(), firstCause(errs)); err != nil {
		if dead := b.dead(); dead != nil && isCancel(err) {
			return dead
		}
		if gone := errors.Join(lost...); gone != nil && outer.Err() == nil && isCancel(err) {
			return gone
		}
		return err
	}
	return b.endAll(silent)
}

// prepare makes the board that of one workload.
func (b *board) prepare(ctx context.Context, d *orchestrator.Deployed, w runner.Workload) (err error) {
	if err := d.AwaitAgents(ctx); err != nil {
		return err
	}
	n := len(w.Hosts)
	programs := n
	for _, p := range w.Peers {
		if p != nil {
			programs--
		}
	}
	b.channel = outofband.New[call](programs, w.Spare)
	b.ranks, b.sending = make([]nodeapi.Node_JobClient, n), make([]sync.Mutex, n)
	b.rest = newRankActivity(n)
	b.group = w.Group
	b.devices, err = lookAfter(ctx, d, w, b.note)
	return err
}

// endAll tells the ranks, all of which have ended, to release their connections. silent marks
// ranks whose streams are gone.
func (b *board) endAll(silent []bool) error {
	var running []nodeapi.Node_JobClient
	for i, s := range b.ranks {
		if s != nil && !silent[i] {
			running = append(running, s)
		}
	}
	for _, s := range running {
		if err := s.CloseSend(); err != nil {
			return fmt.Errorf("end the job: %w", err)
		}
	}
	for _, s := range running {
		if _, err := s.Recv(); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("end the job: %w", err)
		}
	}
	return nil
}

// firstCause returns the first error that is not a consequence of another rank's.
func firstCause(errs []error) error {
	var echo error
	for _, err := range errs {
		switch {
		case err == nil:
		case isCancel(err):
			echo = err
		default:
			return err
		}
	}
	return echo
}

// serve answers one rank until its program ends.
func (b *board) serve(ctx context.Context, rank int, start *nodeapi.Start) error {
	s := b.ranks[rank]
	mine := &nodeapi.Start{
		App: start.App, Params: start.Params, Rank: uint32(rank), Names: start.Names, Ips: start.Ips, Job: start.Job, Lab: start.Lab, Peers: start.Peers,
	}
	if err := s.Send(&nodeapi.ToRank{What: &nodeapi.ToRank_Start{Start: mine}}); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if done := m.GetDone(); done != nil {
			if done.Error != "" {
				return errors.New(done.Error)
			}
			return nil
		}
		b.hear(rank, m)
		b.work(1)
		err = b.answer(ctx, call{rank, m.Id}, m)
		b.work(-1)
		if err != nil {
			return err
		}
	}
}

func (b *board) reply(c call, m *nodeapi.ToRank) error {
	m.Id = c.id
	b.mu.Lock()
	b.rest.replies[c.rank]++
	b.mu.Unlock()
	b.sending[c.rank].Lock()
	defer b.sending[c.rank].Unlock()
	err := b.ranks[c.rank].Send(m)
	if errors.Is(err, io.EOF) || b.channel.Spare(c.rank) {
		return nil // the stream has ended: the goroutine that serves that rank gets the error, which is not one of the rank served here
	}
	return err
}

// lossWait is the longest time without progress of the remaining ranks, from one report to the
// next, after one was lost: they may be waiting for the lost one.
const lossWait = 3 * time.Minute

// hurry ends the job when the ranks make no progress for lossWait.
func (b *board) hurry(cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late == nil {
		b.late = time.AfterFunc(lossWait, cancel)
	}
}

// relax undoes hurry.
func (b *board) relax() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late.Stop()
}

// further notes that the ranks have made progress.
func (b *board) further() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late != nil {
		b.late.Reset(lossWait)
	}
}

// lose continues without a rank.
func (b *board) lose(rank int) error {
	b.mu.Lock()
	all := b.channel.Lose(rank)
	b.mu.Unlock()
	return b.release(all)
}

// answer carries out one request of a rank.
func (b *board) answer(ctx context.Context, c call, m *nodeapi.FromRank) error {
	switch q := m.What.(type) {
	case *nodeapi.FromRank_Rest, *nodeapi.FromRank_Outside:
		return nil // heard
	case *nodeapi.FromRank_Put:
		return b.put(q.Put.Key, q.Put.Value)
	case *nodeapi.FromRank_Get:
		return b.get(c, q.Get)
	case *nodeapi.FromRank_Barrier:
		return b.barrier(c)
	case *nodeapi.FromRank_Record:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.emit(c.rank, q.Record)
		return nil
	case *nodeapi.FromRank_Report:
		b.further()
		if err := b.steps(ctx, q.Report); err != nil {
			return err
		}
		return b.reply(c, &nodeapi.ToRank{What: &nodeapi.ToRank_Ok{Ok: true}})
	case *nodeapi.FromRank_Lease:
		if b.group != 0 {
			return b.lease(c, b.group, rested(ctx, b.tables.d, b.group))
		}
		lower, err := b.leases.Next(ctx, c.rank)
		return b.lease(c, b.tables.d.Graph.Groups.Net()|lower, err)
	case *nodeapi.FromRank_Multicast:
		if end := q.Multicast.End; end != 0 {
			return b.lease(c, end, b.tables.end(ctx, end))
		}
		if p := b.leases.Plane; p.HasControllers() {
			lower, err := p.Multicast(ctx, b.leases.Run, fmt.Sprint("rank ", c.rank), q.Multicast.Hosts)
			return b.lease(c, wire.MulticastNet|lower, err)
		}
		lower, err := b.leases.Next(ctx, c.rank)
		if err == nil {
			err = b.tables.begin(ctx, wire.MulticastNet|lower, q.Multicast.Hosts)
		}
		return b.lease(c, wire.MulticastNet|lower, err)
	}
	return fmt.Errorf("unknown message %T", m.What)
}

// steps handles the reported steps of all ranks one after the other.
func (b *board) steps(ctx context.Context, what string) error {
	b.stepping.Lock()
	defer b.stepping.Unlock()
	return b.step(ctx, what)
}

// lease replies with a group's address, or with the error that kept one from being leased.
func (b *board) lease(c call, group uint32, err error) error {
	l := &nodeapi.Lease{Group: group}
	if err != nil {
		l.Error = err.Error()
	}
	return b.reply(c, &nodeapi.ToRank{What: &nodeapi.ToRank_Lease{Lease: l}})
}

func (b *board) put(key string, value []byte) error {
	if err := b.outward(key, value); err != nil {
		return err
	}
	b.mu.Lock()
	readers := b.channel.Put(key, value)
	b.mu.Unlock()
	var errs []error
	for _, c := range readers {
		errs = append(errs, b.reply(c, &nodeapi.ToRank{What: &nodeapi.ToRank_Value{Value: value}}))
	}
	return errors.Join(errs...)
}

// outward hands on what ranks put for external hosts.
func (b *board) outward(key string, value []byte) error {
	rest, external := strings.CutPrefix(key, rankhost.ExternalKey)
	switch {
	case !external, strings.HasPrefix(rest, rankhost.ReadyKey), strings.HasPrefix(rest, rankhost.DoneKey):
		return nil
	case strings.HasPrefix(rest, rankhost.FinishKey):
		return b.devices.finish(key, value)
	}
	return b.devices.tell(value)
}

func (b *board) get(c call, key string) error {
	b.mu.Lock()
	v, ok := b.channel.Get(c.rank, c, key)
	b.mu.Unlock()
	if !ok {
		if strings.HasPrefix(key, rankhost.ExternalKey+rankhost.ReadyKey) {
			b.devices.await(key)
		}
		return nil
	}
	return b.reply(c, &nodeapi.ToRank{What: &nodeapi.ToRank_Value{Value: v}})
}

// barrier resumes all ranks at one instant of lab time once all have reached it.
func (b *board) barrier(c call) error {
	b.mu.Lock()
	all := b.channel.Arrive(c.rank, c)
	b.mu.Unlock()
	return b.release(all)
}

// release resumes ranks from a barrier.
func (b *board) release(all []call) error {
	if all == nil {
		return nil
	}
	at := b.clock.Ahead(orchestrator.ReleaseLead + time.Duration(b.clock.Deployed.Access.Trip()))
	var errs []error
	for _, w := range all {
		errs = append(errs, b.reply(w, &nodeapi.ToRank{What: &nodeapi.ToRank_Release{Release: int64(at)}}))
	}
	return errors.Join(errs...)
}
