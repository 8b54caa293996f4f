package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/internal/rankhost"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// Parts is a lab that is divided into parts, each of which a Net of its own drives. It is one
// process; its frames cross between parts as bytes. It runs what Net runs and comes to the same
// digest.
type Parts struct {
	cfg     Config
	parts   []*Net
	of      []int // by node: its part
	plan    *window.Plan
	bounds  []vtime.Time // by part: what it is granted in the next round, or 0
	channel *window.Channel
	hosts   []int // by rank of the running job
	lease   uint32
	store   []byte
	err     error

	faults *Schedule
	now    vtime.Time // as of the end of the last job
}

// NewParts builds a lab in which node i is in part of[i]. Parts are numbered from 0 without gaps.
func NewParts(cfg Config, of []int) (*Parts, error) {
	p := &Parts{cfg: cfg, of: of}
	count := 0
	for _, i := range of {
		count = max(count, i+1)
	}
	for i := range count {
		c := cfg
		c.Local, c.Edge = make([]bool, len(of)), partEdge{p, i}
		for node := range of {
			c.Local[node] = of[node] == i
		}
		n, err := New(c)
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, n)
	}
	p.faults = NewSchedule(cfg)
	p.bounds = make([]vtime.Time, count)
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
				c := cfg.Port(i, port)
				paths = append(paths, window.Path{From: of[i], To: of[far], Delay: c.Delay + c.Serialize(shortest)})
			}
		}
		paths = append(paths, window.Path{From: of[i], To: channel, Delay: cfg.OutOfBand}, window.Path{From: channel, To: of[i], Delay: cfg.OutOfBand})
	}
	return paths
}

// shortest is at most the number of bytes of any frame on the wire that are on it before a switch
// takes the frame.
const shortest = 64

// partEdge takes what leaves a part.
type partEdge struct {
	p    *Parts
	part int
}

// Frame implements Edge.
func (e partEdge) Frame(port int, at vtime.Time, f *wire.Frame) {
	p := e.p
	far := p.parts[p.of[p.parts[0].links.At(port).Node]]
	p.store = f.AppendTo(p.store[:0])
	g, err := far.pool.Parse(p.store)
	if err != nil {
		p.err = fmt.Errorf("frame of part %d at %v: %w", e.part, at, err)
		return
	}
	far.Arrive(port, at, g)
}

// Request implements Edge.
func (e partEdge) Request(at vtime.Time, node, rank int, q outofband.Request) {
	e.p.channel.Request(at, node, rank, q)
}

// Reply implements window.Outlet.
func (p *Parts) Reply(at vtime.Time, r outofband.Reply) {
	node := p.hosts[r.Rank]
	p.parts[p.of[node]].Reply(at, node, r)
}

// SetEntry implements window.Outlet.
func (p *Parts) SetEntry(at vtime.Time, e rankhost.Branches) { p.parts[p.of[e.Switch]].SetEntry(at, e) }

// Nets returns the simulations of the parts, and that of their schedule. All need the same timeline.
func (p *Parts) Nets() []*Net { return append(slices.Clone(p.parts), p.faults.Net()) }

// Run runs a job as Net.Run does.
func (p *Parts) Run(spec Job) error {
	server := outofband.NewServer(len(spec.Hosts), spec.Spare, p.cfg.Server(func() (uint32, error) { p.lease++; return p.lease, nil }))
	p.channel = window.NewChannel(p.cfg.Order(), p.cfg.OutOfBand, server)
	p.hosts = spec.Hosts
	var ranks []*Ranks
	for _, n := range p.parts {
		ranks = append(ranks, n.Begin(spec))
	}
	err := p.drain()
	if err != nil && !errors.Is(err, rankhost.ErrEnd) {
		return err
	}
	var blocked []string
	errs := make([]error, len(spec.Hosts))
	for _, r := range ranks {
		blocked = append(blocked, r.Stop()...)
		for i, err := range r.Errors() {
			if err != nil {
				errs[i] = err
			}
		}
	}
	if err != nil {
		return rankhost.Ended(blocked)
	}
	slices.Sort(blocked)
	failed := Outcome(errs, blocked)
	for _, r := range ranks {
		r.Release()
	}
	for _, e := range server.End() {
		p.parts[p.of[e.Switch]].setEntries([]rankhost.Branches{e})
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
	}
}

// Grant implements window.Parts.
func (p *Parts) Grant(part int, bound vtime.Time) { p.bounds[part] = bound }

// Round implements window.Parts.
func (p *Parts) Round() error {
	for i, n := range p.parts {
		if p.bounds[i] == 0 {
			continue
		}
		if err := n.Advance(p.bounds[i]); err != nil {
			return err
		}
		p.bounds[i] = 0
	}
	return p.err
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
	all := &window.Census{}
	for _, n := range p.parts {
		if err := do(n); err != nil {
			return nil, err
		}
	}
	for _, n := range p.parts {
		c := n.Census()
		all.Add(&c)
	}
	return all, p.err
}

// drain lets the parts advance until none has an event, or the run is halted.
func (p *Parts) drain() error {
	p.faults.Resume(p.now)
	halted, err := p.plan.Drain(p, p.channel, p.faults)
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
	one := p.parts[0]
	var links, completions []uint64
	for id := range one.links.Len() {
		links = append(links, p.parts[p.of[one.links.At(id).Node]].links.At(id).Digest)
	}
	for i := range one.nodes {
		if nic := p.parts[p.of[i]].nodes[i].nic; nic != nil {
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
