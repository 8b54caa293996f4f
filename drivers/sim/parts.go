// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Parts is a lab that is divided into parts, each of which a Net of its own drives, in one process and, with a crew, at the same time where that
// pays. It runs the jobs of a Net, with the same digest, the same results and the same events.
//
// Each worker of a crew has some of the parts, and does their shares of a round one after the other; which ones depends on the load so far. More
// parts than workers pay where a lab does not fit the processor's caches: the state of a part's nodes is fetched once in a round, and not with
// every event.
//
// With a crew, programs of hosts in different parts run at the same time, and so do calls of Job.Emit
// for their ranks. They must not share variables.
type Parts struct {
	// Observe, if set, is called between rounds, at least once in 32,768 events of each part. An error
	// that it returns ends the run.
	Observe func() error

	// Crew, if set, makes the crew that runs the workers' shares of a round at the same time. Without it they
	// are done one after the other.
	Crew func(workers int, work func(worker int)) Crew

	// Lift, if set, undoes the faults of a job for Job.Over, in one of Nets: in the last of them at once, in
	// a part when the objects of its ranks are destroyed. Job.Over itself is called once, before.
	Lift func(net int, now vtime.Time)

	// Eager lets parts run at the same time even when they have so little to do that it takes longer.
	Eager bool

	cfg     Config
	parts   []*Net
	layout  *layout
	deal    deal
	plan    *window.Plan
	bounds  []vtime.Time // by part: its grant in this round, or 0
	errs    []error      // by worker: of this round
	cross   crossings
	crew    Crew            // of the running job; nil: none
	busy    bool            // the last round had enough to do for more than one goroutine
	events  uint64          // of all parts when Observe was last called, or a round last began
	before  []uint64        // by part: its events when the last round ended
	inTurn  uint64          // Stats.InTurn
	logs    []*eventLog     // by part; nil without Config.Trace
	passing logHeap         // state of the merge in writeLogs; empty between its calls
	sent    [][]sentRequest // by part: requests to the server that it has not been given
	channel *window.Channel
	hosts   []int // by rank of the running job
	lease   uint32

	faults *Schedule
	now    vtime.Time // as of the end of the last job
}

// Crew does the shares of rounds. All does one round; End is called when there is none any more.
type Crew interface {
	All()
	End()
}

// sentRequest is a request of a rank on its way to the server of the out-of-band channel.
type sentRequest struct {
	at         vtime.Time
	node, rank int
	q          outofband.Request
}

// NewParts builds a lab in which node i is in part of[i]. Parts are numbered from 0 without gaps. Neighbouring
// parts have the same worker at first, of which there is one for each part at most.
func NewParts(cfg Config, of []int, workers int) (*Parts, error) {
	count := 0
	parts := make([]int32, len(of))
	for node, i := range of {
		parts[node] = int32(i)
		count = max(count, i+1)
	}
	cfg.layout, cfg.routes = newLayout(cfg.Graph, parts), &routes{graph: cfg.Graph}
	p := &Parts{cfg: cfg, layout: cfg.layout}
	p.deal = newDeal(count, workers)
	p.cross = newCrossings(p.deal.worker)
	p.sent = make([][]sentRequest, count)
	for i := range count {
		c := cfg
		c.part, c.Edge, c.pool = int32(i), partEdge{p, i}, &p.deal.pools[p.deal.worker[i]]
		if cfg.Trace != nil {
			l := &eventLog{}
			c.Trace = l.tracers(cfg.Trace)
			p.logs = append(p.logs, l)
		}
		n, err := New(c)
		if err != nil {
			return nil, err
		}
		if cfg.Trace != nil {
			p.logs[i].net = n
		}
		p.parts = append(p.parts, n)
	}
	cfg.routes.forget()
	p.faults = NewSchedule(cfg)
	workers = len(p.deal.shares)
	p.before = make([]uint64, count)
	p.bounds, p.errs = make([]vtime.Time, count), make([]error, workers)
	p.plan = window.NewPlan(count+1, Paths(&cfg, of, count))
	return p, nil
}

// Paths returns the ways between the parts of a lab. channel is the number of the out-of-band
// channel's server among them.
func Paths(cfg *Config, of []int, channel int) (paths []window.Path) {
	g := cfg.Graph
	for i := range g.Nodes {
		for port := range g.Nodes[i].Links {
			if far := g.Peer(i, port).Node; of[far] != of[i] {
				paths = append(paths, window.Path{From: of[i], To: of[far], Delay: Reach(cfg, i, port)})
			}
		}
		paths = append(paths, window.Path{From: of[i], To: channel, Delay: cfg.OutOfBand}, window.Path{From: channel, To: of[i], Delay: cfg.OutOfBand})
	}
	return paths
}

// Reach is the shortest time from an event of a node to its effect at the far end of a port.
func Reach(cfg *Config, node, port int) vtime.Duration {
	c := cfg.Port(node, port)
	if in := cfg.Switch.Input; in != nil && in.Credits {
		return c.Delay // a credit takes no time of the link
	}
	return c.Delay + c.Serialize(shortest)
}

// shortest is at most the number of bytes of any frame on the wire that are on it before a switch
// takes the frame.
const shortest = 64

// partEdge takes the frames that leave a part. Parts call it at the same time.
type partEdge struct {
	p    *Parts
	part int
}

// Frame implements Edge.
func (e partEdge) Frame(port int, at vtime.Time, f *wire.Frame) (kept bool) {
	p := e.p
	n := p.parts[e.part]
	p.cross.push(e.part, p.partOf(int(n.links.At(n.startOf(port)).Node)), crossing{port, at, f})
	return true
}

// Request implements Edge.
func (e partEdge) Request(at vtime.Time, node, rank int, q *outofband.Request) {
	e.p.sent[e.part] = append(e.p.sent[e.part], sentRequest{at, node, rank, *q})
}

// Reply implements window.Outlet.
func (p *Parts) Reply(at vtime.Time, r outofband.Reply) {
	node := p.hosts[r.Rank]
	p.Of(node).Reply(at, node, r)
}

// SetEntry implements window.Outlet.
func (p *Parts) SetEntry(at vtime.Time, e wire.MulticastEntry) { p.Of(e.Switch).SetEntry(at, e) }

// Nets returns the simulations of the parts, and that of their schedule. All need the same timeline.
func (p *Parts) Nets() []*Net { return append(slices.Clone(p.parts), p.faults.Net()) }

// RestFaults makes the lab's clock that of its fault timeline, which may be changed then, between two jobs.
func (p *Parts) RestFaults() { p.faults.Rest(p.now) }

// Run runs a job as Net.Run does.
func (p *Parts) Run(spec Job) error {
	defer p.writeLogs(vtime.Never)
	if workers := len(p.deal.shares); p.Crew != nil && workers > 1 {
		p.crew = p.Crew(workers, p.work)
		defer p.crew.End()
	}
	over := spec.Over
	server := outofband.NewServer(len(spec.Hosts), spec.Spare, p.cfg.Server(func() (uint32, error) { return nextLease(&p.lease) }))
	p.channel = window.NewChannel(p.cfg.Order(), p.cfg.OutOfBand, server)
	p.hosts = spec.Hosts
	spec.all = newRoster(p.cfg.Graph, spec.Hosts)
	var ranks []*Ranks
	for i, n := range p.parts {
		if spec.Over = nil; over != nil && p.Lift != nil {
			spec.Over = func(now vtime.Time) { p.Lift(i, now) }
		}
		ranks = append(ranks, n.Begin(spec))
	}
	p.writeLogs(vtime.Never) // before events that the loop handles at this instant
	err := p.drain()
	if err != nil && !errors.Is(err, rankhost.ErrEnd) {
		for _, r := range ranks {
			r.Stop()
		}
		return err
	}
	var blocked []string
	for _, r := range ranks {
		blocked = append(blocked, r.Stop()...)
	}
	if err != nil {
		return rankhost.Ended(blocked)
	}
	slices.Sort(blocked)
	failed := Outcome(spec.all.errs, blocked)
	if over != nil {
		over(p.now)
		if p.RestFaults(); p.Lift != nil {
			p.Lift(len(p.parts), p.now)
		}
	}
	for _, r := range ranks {
		r.Release()
	}
	p.writeLogs(vtime.Never)
	for _, e := range server.End() {
		p.Of(e.Switch).setEntries([]wire.MulticastEntry{e})
	}
	if err := p.drain(); err != nil {
		return err
	}
	return failed
}

// Next implements window.Parts.
func (p *Parts) Next(next []vtime.Time) {
	for i, n := range p.parts {
		next[i] = n.Next()
		for _, r := range p.sent[i] {
			p.channel.Request(r.at, r.node, r.rank, r.q)
		}
		clear(p.sent[i])
		p.sent[i] = p.sent[i][:0]
	}
	p.cross.coming(next)
	p.writeLogs(slices.Min(next))
}

// Grant implements window.Parts.
func (p *Parts) Grant(part int, bound vtime.Time) { p.bounds[part] = bound }

// Round implements window.Parts.
func (p *Parts) Round() error {
	if p.crew != nil && p.events >= p.deal.next {
		p.redeal()
	}
	p.cross.turn()
	if p.crew != nil && (p.busy || p.Eager) {
		p.crew.All()
	} else {
		for worker := range p.errs {
			p.work(worker)
		}
	}
	if err := errors.Join(p.errs...); err != nil {
		return err
	}
	events, most := uint64(0), uint64(0)
	for _, share := range p.deal.shares {
		sum := uint64(0)
		for _, i := range share {
			now := p.parts[i].stats.Events
			events += now
			sum += now - p.before[i]
			p.before[i] = now
		}
		most = max(most, sum)
	}
	p.inTurn += most
	p.busy = events-p.events >= busyEvents
	before := p.events
	p.events = events
	if p.Observe != nil && before/observeEvery != events/observeEvery {
		return p.Observe()
	}
	return nil
}

// busyEvents is the number of events in a round from which on the next round is given to more than
// one goroutine. Waking one takes as long as some tens of events.
const busyEvents = 200

// work does a worker's share of a round. Shares of different workers may be done at the same time.
func (p *Parts) work(worker int) {
	p.errs[worker] = nil
	for _, part := range p.deal.shares[worker] {
		n := p.parts[part]
		p.cross.land(part, n)
		p.cross.reclaim(part, n.pool)
		if bound := p.bounds[part]; bound != 0 {
			p.bounds[part] = 0
			if err := n.advance(bound, observeEvery); err != nil {
				p.errs[worker] = err
			}
		}
	}
}

// Meet implements window.Parts.
func (p *Parts) Meet(at vtime.Time) (*window.Census, error) {
	return p.census(func(n *Net) error { return n.Meet(at) })
}

// Call implements window.Parts.
func (p *Parts) Call(at vtime.Time, v window.Verdict) (*window.Census, error) {
	return p.census(func(n *Net) error { return n.Call(at, v) })
}

func (p *Parts) census(do func(n *Net) error) (*window.Census, error) {
	p.exchange()
	all := &window.Census{}
	for _, n := range p.parts {
		if err := do(n); err != nil {
			return nil, err
		}
	}
	p.exchange()
	for i, n := range p.parts {
		c := n.Census()
		if i != p.deal.shares[p.deal.worker[i]][0] {
			c.Live = 0 // the pool of a worker's parts is one, and has been counted
		}
		all.Add(&c)
	}
	return all, nil
}

// exchange gives every part the frames that are on their way to it.
func (p *Parts) exchange() {
	p.cross.turn()
	for i, n := range p.parts {
		p.cross.land(i, n)
	}
	for range 2 {
		for i, n := range p.parts {
			p.cross.reclaim(i, n.pool)
		}
		p.cross.turn()
	}
}

// drain lets the parts advance until none has an event, or the run is halted.
func (p *Parts) drain() error {
	p.faults.Resume(p.now)
	halted, err := p.plan.Drain(p, p.channel, p.faults)
	p.exchange()
	p.writeLogs(vtime.Never)
	if err != nil {
		return err
	}
	if halted {
		p.now = p.faults.Net().Now()
		return nil
	}
	p.now = max(p.now, p.channel.Last())
	for _, n := range p.parts {
		p.now = max(p.now, n.Last())
	}
	for _, n := range p.parts {
		n.Rest(p.now)
	}
	return nil
}

// Digest combines the digests of all links and NICs as Net.Digest does.
func (p *Parts) Digest() uint64 {
	var links, completions []uint64
	for id := range p.Ports() {
		links = append(links, p.Link(id).Digest)
	}
	for i := range p.cfg.Graph.Hosts {
		if nic := p.Of(i).NIC(i); nic != nil {
			completions = append(completions, nic.Digest())
		}
	}
	return CombineDigests(links, completions)
}

// CombineDigests returns the digest of a lab from those of its links, in the order of nodes and
// their ports, and from those of the completions of its NICs.
func CombineDigests(links, completions []uint64) (d uint64) {
	for _, x := range append(links, completions...) {
		d = wire.MixWord(d, x)
	}
	return d
}
