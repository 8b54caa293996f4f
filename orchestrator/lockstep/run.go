// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package lockstep runs the workloads of a running lab in virtual time: the nodes advance together in rounds,
// and the run has the digest of its simulation. Other commands reach it between two rounds.
package lockstep

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// lockstepRun is a run in virtual time on a running lab (package drivers/lockstep). It drives the nodes
// as a simulation drives its servers, in the same order, and has the same digest.
type lockstepRun struct {
	*runner.Record
	ctx context.Context
	d   *orchestrator.Deployed

	streams context.Context // of the streams
	cut     func()          // ends it

	o      orchestrator.RunOptions
	cfg    sim.Config
	coord  *lockstep.Coordinator
	nodes  []*nodeStream
	caps   lockstepCaptures
	events []nodeEvent // that may not be written yet
	failed chan error  // the first error of a stream

	timeline *faults.Timeline
	manual   *manualFaults // what is done by hand
	stalls   stallMonitor
	programs bool // the ranks of the job are programs of this server
	running  *lockstepPrograms
	plane    lockstepControllers

	now   vtime.Time
	lease uint32
	emit  func(rank int, record []byte)
	hosts []int // of the running job
	steps int   // iterations begun
	all   int   // iterations of all workloads
	torn  error // why the nodes' accounts do not tell how the run went; nil: they do

	doing atomic.Pointer[runner.ProgressState]
}

// nodeStream is the stream to one node.
type nodeStream struct {
	name  string
	s     nodeapi.Node_LockstepClient
	words *wordQueue
	heard uint64
	ended *nodeapi.RanksEnded
	state *nodeapi.PartState
}

// Run runs a lab's workloads in virtual time. It is a Runner.
func Run(ctx context.Context, d *orchestrator.Deployed, o orchestrator.RunOptions) (*runner.Report, error) {
	ends, err := runner.MatchPorts(d.Graph, o.Captures)
	if err != nil {
		return nil, err
	}
	rec, err := runner.Begin(o.Base, d.Lab, d.Options.Engine.Name())
	if err != nil {
		return nil, err
	}
	// The streams outlive an interrupt by the time that nodes take to go back to what they were.
	streams, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	r := &lockstepRun{
		Record: rec, ctx: ctx, streams: streams, cut: cut, d: d, o: o, failed: make(chan error, 1), stalls: stallMonitor{node: -1},
		cfg: sim.Config{Spec: labspec.Fabric(d.Lab, d.Graph), OutOfBand: labspec.ChannelDelay(d.Lab)},
	}
	r.caps = lockstepCaptures{ends: ends, order: r.cfg.Order()}
	r.OnClose(r.caps.close)
	r.plane = lockstepControllers{r: r}
	r.Report.Fidelity.Reason = "virtual time, in lockstep"
	r.doing.Store(&runner.ProgressState{Doing: "handing over"})
	if err = r.plane.begin(); err == nil {
		err = r.open()
	}
	if err == nil {
		r.manual, err = r.serveManual()
	}
	if err != nil {
		r.torn = err
	} else {
		hide := r.showProgress()
		err = r.blame(r.workloads())
		hide()
	}
	if r.manual != nil {
		r.endUsers()
		err = errors.Join(err, r.manual.close())
	}
	if r.torn == nil && r.coord != nil { // also of a run whose ranks have failed
		err = errors.Join(err, r.account())
	}
	err = errors.Join(err, r.close())
	r.plane.over(err)
	if o.Progress != nil {
		o.Progress.Done()
	}
	return r.Report, r.Finish(ctx, d.Lab, err)
}

// open hands the shared memory to the nodes and opens their streams.
func (r *lockstepRun) open() (err error) {
	if err := r.d.AwaitAgents(r.ctx); err != nil {
		return err
	}
	if r.coord, err = r.d.Access.Coordinator(r.ctx, &r.cfg); err != nil {
		return err
	}
	specs, err := labspec.Timeline(r.d.Lab, r.d.Graph)
	if err != nil {
		return err
	}
	if r.d.Plane.HasControllers() {
		r.coord.Faults().Control = &r.plane
	}
	run, row := labspec.Rows(r.d.Lab, specs)
	r.timeline = r.coord.Faults().NewTimeline(vtime.Duration(r.d.Lab.Switches.Reconverge), run...)
	r.timeline.PerRow(row...)
	if err := r.Meet(r.d.Lab, r.d.Graph, 0); err != nil {
		return err
	}
	if r.Trace != nil {
		r.TraceFabric(r.d.Graph, &r.cfg.Spec)
	}
	r.caps.links = r.coord.Faults()
	if err := r.caps.Open(r.caps.links, r.Folder, r.caps.ends, r.o.CaptureBytes); err != nil {
		return err
	}
	var captures []*nodeapi.PortRef
	for _, e := range r.caps.ends {
		captures = append(captures, &nodeapi.PortRef{Node: uint32(e.Node), Port: uint32(e.Port)})
	}
	if err := r.d.Access.HandOver(r.coord); err != nil {
		return err
	}
	r.nodes = make([]*nodeStream, len(r.d.Nodes))
	message, err := labspec.Encode(r.d.Lab)
	if err != nil {
		return err
	}
	key := r.d.Access.TagKey()
	err = r.d.Each(func(i int) error {
		n := &nodeStream{name: r.d.Nodes[i].Name, words: newWordQueue()}
		s, err := r.d.Nodes[i].Lockstep(r.streams)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		n.s = s
		open := &nodeapi.Opening{Node: n.name, Lab: message, Ledger: r.o.Ledger != nil, Captures: captures, TagKey: key}
		if err := s.Send(&nodeapi.Order{What: &nodeapi.Order_Open{Open: open}}); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		if _, err := s.Recv(); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		r.nodes[i] = n
		go r.listen(n)
		return nil
	})
	for i := range r.o.Acts {
		if err == nil {
			err = r.act(&r.o.Acts[i])
		}
	}
	return err
}

// listen takes a node's words until its stream ends.
func (r *lockstepRun) listen(n *nodeStream) {
	defer n.words.close()
	for {
		w, err := n.s.Recv()
		if err != nil {
			select {
			case r.failed <- fmt.Errorf("node %s, at %v of lab time: %w", r.d.Access.Where(n.name), r.coord.Now(), err):
			default: // another node was first
			}
			return
		}
		n.words.put(w)
	}
}

// Alive implements lockstep.Streams.
func (r *lockstepRun) Alive() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}

// Hear implements lockstep.Streams.
func (r *lockstepRun) Hear(node int, count uint64) error {
	n := r.nodes[node]
	for ; n.heard < count; n.heard++ {
		w, ok := n.words.take(lockstep.PatienceDefault)
		if !ok {
			return cmp.Or(r.Alive(), fmt.Errorf("node %s: it has sent %d words, and only %d have come", n.name, count, n.heard))
		}
		if err := r.hear(node, w); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	return nil
}

func (r *lockstepRun) hear(node int, w *nodeapi.Word) error {
	switch x := w.What.(type) {
	case *nodeapi.Word_Request:
		var q outofband.Request
		if err := json.Unmarshal(x.Request.Request, &q); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		rank := int(x.Request.Rank)
		if rank >= len(r.hosts) || r.hosts[rank] != node {
			return fmt.Errorf("it speaks for rank %d, which is not its own", rank)
		}
		return r.coord.Request(vtime.Time(x.Request.At), node, rank, q)
	case *nodeapi.Word_Record:
		if int(x.Record.Rank) >= len(r.hosts) {
			return fmt.Errorf("it speaks for rank %d, which there is not", x.Record.Rank)
		}
		r.emit(int(x.Record.Rank), x.Record.Record)
	case *nodeapi.Word_Doing:
		r.steps++
		r.doing.Store(&runner.ProgressState{Doing: x.Doing, Step: r.steps, Steps: r.all})
	case *nodeapi.Word_Captured:
		if err := r.caps.add(node, x.Captured); err != nil {
			return err
		}
		if len(r.caps.waiting) >= arrivedFramesMax {
			r.caps.write(r.coord.Horizon())
		}
	case *nodeapi.Word_Event:
		if r.events = append(r.events, nodeEvent{node, x.Event}); len(r.events) >= nodeEventsMax {
			r.writeEvents(r.coord.Horizon())
		}
	case *nodeapi.Word_Trace:
		if r.Trace == nil {
			return errors.New("it tells of messages, of which the run keeps no trace")
		}
		for line := range bytes.Lines(x.Trace) {
			r.Trace.Raw(bytes.TrimSuffix(line, []byte("\n")))
		}
	case *nodeapi.Word_Ended:
		r.nodes[node].ended = x.Ended
	case *nodeapi.Word_State:
		r.nodes[node].state = x.State
	default:
		return fmt.Errorf("it says %T, which this version does not know", w.What)
	}
	return nil
}

// Reply implements lockstep.Streams.
func (r *lockstepRun) Reply(at vtime.Time, node int, x outofband.Reply) error {
	if r.plane.err != nil {
		return r.plane.err // no decision of the controllers: a rank does not continue without it
	}
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return r.send(node, &nodeapi.Order{What: &nodeapi.Order_Reply{Reply: &nodeapi.ChannelReply{At: int64(at), Reply: b}}})
}

// SetEntry implements lockstep.Streams.
func (r *lockstepRun) SetEntry(at vtime.Time, e wire.MulticastEntry) error {
	m := &nodeapi.MulticastEntry{Group: e.Group, Ports: widen(e.Ports), From: widen(e.From)}
	return r.send(e.Switch, &nodeapi.Order{What: &nodeapi.Order_Entry{Entry: &nodeapi.TableEntry{At: int64(at), Entry: m}}})
}

func widen(ports []uint16) (all []uint32) {
	for _, p := range ports {
		all = append(all, uint32(p))
	}
	return all
}

func (r *lockstepRun) send(node int, o *nodeapi.Order) error {
	if err := r.nodes[node].s.Send(o); err != nil {
		return errors.Join(r.Alive(), fmt.Errorf("tell node %s: %w", r.nodes[node].name, err))
	}
	return nil
}

// tell gives all nodes an order, and returns when they have carried it out.
func (r *lockstepRun) tell(o *nodeapi.Order) error {
	for i := range r.nodes {
		if err := r.send(i, o); err != nil {
			r.torn = err
			return err
		}
		r.coord.Ordered(i, vtime.Never)
	}
	r.torn = r.coord.Settle()
	return r.torn
}

// workloads runs one workload after the other.
func (r *lockstepRun) workloads() error {
	all, err := runner.Prepare(r.d.Lab, r.d.Graph, r.d.Env())
	if err != nil {
		return err
	}
	for _, w := range all {
		r.all += w.Steps
	}
	for i, w := range all {
		r.RowBegins(r.now)
		err := r.Measure(w, func() vtime.Time { return r.now }, func(emit func(int, []byte)) error {
			r.emit = emit
			return r.job(w, i == len(all)-1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// job runs one workload, or a row of one, as sim.Parts does. The faults of the row are lifted unless it is
// the last.
func (r *lockstepRun) job(w runner.Workload, last bool) (failed error) {
	r.hosts = w.Hosts
	r.coord.RestFaults()
	r.timeline.BeginRow(r.now)
	server := outofband.NewServer(len(w.Hosts), w.Spare, r.cfg.Server(r.leaseGroup))
	r.coord.Begin(r, w.Hosts, server)
	if k, is := r.d.Lab.Workloads[w.Of].Chosen().Kind.(apps.HostPrograms); is {
		r.programs = true
		defer func() { r.programs = false }()
		programs, err := r.startPrograms(w, k.HostProgram())
		if err != nil {
			return err
		}
		r.running = programs
		defer func() {
			r.running = nil
			failed = errors.Join(failed, programs.end(failed))
		}()
	}
	if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Begin{Begin: r.d.StartOf(w, r.now)}}); err != nil {
		return err
	}
	ended := r.drain()
	if ended != nil && !errors.Is(ended, rankhost.ErrEnd) {
		return ended
	}
	if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Stop{Stop: true}}); err != nil {
		return err
	}
	if ended != nil {
		return rankhost.Ended(r.blocked())
	}
	failed = r.outcome(len(w.Hosts))
	for _, e := range server.End() {
		if err := r.SetEntry(-1, e); err != nil {
			return err
		}
		r.coord.Ordered(e.Switch, vtime.Never)
	}
	return errors.Join(failed, r.release(last))
}

// outcome returns the error of a job whose ranks have been stopped.
func (r *lockstepRun) outcome(ranks int) error {
	errs := make([]error, ranks)
	for _, n := range r.nodes {
		for _, e := range n.ended.Errors {
			if int(e.Rank) < ranks {
				errs[e.Rank] = rankError{e}
			}
		}
	}
	return sim.Outcome(errs, r.blocked())
}

// blocked returns what the tasks wait for that had not ended when their job was stopped.
func (r *lockstepRun) blocked() (all []string) {
	for _, n := range r.nodes {
		all = append(all, n.ended.Blocked...)
	}
	slices.Sort(all)
	return all
}

// rankError is the error of a rank as its node tells it.
type rankError struct{ *nodeapi.RankError }

// Error implements error.
func (e rankError) Error() string { return e.RankError.Error }

// Is reports whether the rank's host has crashed, if that is what target says.
func (e rankError) Is(target error) bool { return target == sim.ErrCrashed && e.Crashed }

// drain lets the nodes advance until nothing is under way.
func (r *lockstepRun) drain() error {
	last, halted, err := r.coord.Drain()
	r.writeEvents(vtime.Never)
	if err != nil {
		if !errors.Is(err, rankhost.ErrEnd) { // which happens between events
			r.torn = err
		}
		return err
	}
	if r.now = last; halted {
		return nil // with events left
	}
	return r.tell(&nodeapi.Order{What: &nodeapi.Order_Rest{Rest: int64(last)}})
}

// account enters what the nodes have seen into the report.
func (r *lockstepRun) account() error {
	if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Report{Report: true}}); err != nil {
		return err
	}
	g := r.d.Graph
	all, err := r.counted()
	if err != nil {
		return err
	}
	var links, completions []uint64
	var ledger [][]sim.Entry
	whole := true
	for _, n := range r.nodes {
		if n.state.Left != "" {
			return fmt.Errorf("node %s: %s", n.name, n.state.Left)
		}
		whole = whole && !n.state.LedgerCut
		r.Meta.Events += n.state.Events
		r.Meta.AckHops += n.state.AckHops
		r.Meta.FramesLost += n.state.Lost
	}
	for i := range r.nodes {
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			x := r.nodes[far.Node].state.Links[far.Port]
			links = append(links, x.Digest)
			var entries []sim.Entry
			for k := range min(len(x.At), len(x.With)) {
				entries = append(entries, sim.Entry{At: vtime.Time(x.At[k]), Digest: x.With[k]})
			}
			ledger = append(ledger, entries)
		}
		if i < g.Hosts {
			completions = append(completions, r.nodes[i].state.Completions)
		}
	}
	r.Report.Digest = fmt.Sprintf("%016x", sim.CombineDigests(links, completions))
	if r.o.Ledger != nil {
		r.o.Ledger(ledger, whole)
	}
	r.tellForeign()
	if n := r.coord.Awaited(); n > 0 {
		r.Report.Fidelity.Reason += fmt.Sprintf(", not deterministic: programs have gone on %d times for what this server had done", n)
	}
	r.Report.Faults = r.Faults(r.faultRows())
	r.caps.write(vtime.Never)
	r.Report.CaptureCut, r.Meta.CaptureCut, r.Meta.CaptureFiles = r.caps.Cut(), r.caps.Cut(), r.caps.Files()
	r.Meta.LabUS, r.Meta.PacketHops = r.now.Microseconds(), r.coord.Hops()
	rounds := r.coord.Rounds()
	r.Meta.Rounds, r.Meta.Grants, r.Meta.RoundBytes = rounds.Count, rounds.Grants, rounds.Bytes
	return r.Counters(all)
}

// counted returns the counters of the nodes. The frames that left a port are those that came in at the
// far end.
func (r *lockstepRun) counted() ([]counters.Node, error) {
	g := r.d.Graph
	all := make([]counters.Node, len(r.nodes))
	for i, n := range r.nodes {
		if err := json.Unmarshal(n.state.Node, &all[i]); err != nil {
			return nil, fmt.Errorf("read the counters of node %s: %w", n.name, err)
		}
		if len(n.state.Links) != len(g.Nodes[i].Links) || len(all[i].Ports) != len(g.Nodes[i].Links) {
			return nil, fmt.Errorf("node %s tells of %d links, and has %d", n.name, len(n.state.Links), len(g.Nodes[i].Links))
		}
	}
	for i := range r.nodes {
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			x := r.nodes[far.Node].state.Links[far.Port]
			all[i].Ports[p].Sent, all[i].Ports[p].SentBytes = x.Frames, x.Bytes
		}
	}
	return all, nil
}

func (r *lockstepRun) faultLists() (all []*nodeapi.FaultList) {
	for _, n := range r.nodes {
		all = append(all, &nodeapi.FaultList{Faults: n.state.Faults})
	}
	return all
}

// close ends the streams. The nodes go back to their configurations.
func (r *lockstepRun) close() error {
	var errs []error
	late := time.AfterFunc(orchestrator.RestoreWait, r.cut)
	defer late.Stop()
	for _, n := range r.nodes {
		if n != nil {
			errs = append(errs, n.s.CloseSend())
		}
	}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		<-n.words.over
	}
	if r.coord != nil {
		errs = append(errs, r.coord.Close())
	}
	return errors.Join(errs...)
}

// showProgress tells the progress display how it goes, until the returned function is called. A
// rehearsal beside the run tells how much there is to do.
func (r *lockstepRun) showProgress() (hide func()) {
	if r.o.Progress == nil {
		return func() {}
	}
	var hops atomic.Uint64
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if reh, err := runner.Rehearse(ctx, r.d.Lab, r.d.Env(), nil); err == nil {
			hops.Store(reh.Hops())
		}
	}()
	shown := orchestrator.ShowEvery(r.ctx, r.o.Progress, func() runner.ProgressState {
		p := *r.doing.Load()
		p.LabTime, p.PacketHops, p.AllHops = r.coord.Now(), r.coord.Hops(), hops.Load()
		return p
	})
	return func() { shown(); stop(); <-ended }
}
