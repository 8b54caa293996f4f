// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// Streams carry orders to nodes and words from them. The coordinator calls it from one goroutine.
type Streams interface {
	// Hear handles words of a node until count of them have been handled since the run began.
	Hear(node int, count uint64) error
	// Reply and SetEntry send orders.
	Reply(at vtime.Time, node int, r outofband.Reply) error
	SetEntry(at vtime.Time, e wire.MulticastEntry) error
	// Alive returns the reason why the run cannot continue, or nil.
	Alive() error
	// Stopped reports whether the process of a node, for which the coordinator has waited for a while, is
	// stopped (SIGSTOP): then lab time stands still, and the wait does not count.
	Stopped(node int, waited time.Duration) bool
	// Stuck is called repeatedly when the lab has no event left, and none of its programs waits for something outside it:
	// that many wait for an event that cannot happen. The run waits until they have ended.
	Stuck(programs int)
	// Edge is called between rounds. What is done by hand is done here (Coordinator.Edge).
	Edge() error
}

// Coordinator grants the nodes of a lab how far they may advance.
type Coordinator struct {
	cfg     *sim.Config
	plan    *window.Plan
	streams Streams
	shared  *shared // with the nodes; of a lab that is spread over servers it is empty
	far     *far    // nil: all nodes are on this server
	nodes   []remote
	ledger  *window.Ledger
	channel *window.Channel
	faults  *sim.Schedule
	hosts   []int // by rank of the running job
	rounds  Rounds
	now     atomic.Int64 // for Now
	last    vtime.Time   // when something last happened, as of the end of Drain
	drains  bool         // Drain is under way: time does not rest at last
	edge    vtime.Time   // the last that Edge has returned
	look    vtime.Time   // the latest at which programs have resumed after input from outside the lab
	touched uint64       // programs' count of actions at their last check
	awaited uint64       // see Awaited
	err     error
}

// remote is a node as the coordinator sees it.
type remote struct {
	name   string
	grant  grant
	slot   slot
	round  uint32
	orders uint64 // that it has been sent
	due    uint64 // of them, those that its grants say
}

// NewCoordinator makes the shared memory of a run. HandOver hands it to the nodes.
func NewCoordinator(cfg *sim.Config) (*Coordinator, error) {
	c, err := newCoordinator(cfg)
	if err != nil {
		return nil, err
	}
	all := make([]bool, len(c.nodes))
	for i := range all {
		all[i] = true
	}
	s, err := newShared(cfg, all)
	if err != nil {
		return nil, err
	}
	c.shared = s
	for i := range c.nodes {
		c.nodes[i].grant = c.shared.grants[i]
	}
	return c, nil
}

// newCoordinator makes a coordinator without memory.
func newCoordinator(cfg *sim.Config) (*Coordinator, error) {
	g := cfg.Graph
	count := len(g.Nodes)
	of := make([]int, count)
	for i := range of {
		of[i] = i
	}
	c := &Coordinator{cfg: cfg, shared: &shared{}, nodes: make([]remote, count), faults: sim.NewSchedule(*cfg)}
	c.plan = window.NewPlan(count+1, sim.Paths(cfg, of, count))
	names, ends := make([]string, count), make([][]window.Far, count)
	for i := range g.Nodes {
		names[i] = g.Nodes[i].Name
		c.nodes[i].name = names[i]
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			ends[i] = append(ends[i], window.Far{Part: far.Node, Port: far.Port, Delay: sim.Reach(cfg, i, p)})
		}
	}
	c.ledger = window.NewLedger(names, ends)
	return c, nil
}

// Rounds counts the rounds of a run and their time.
type Rounds struct {
	Count  uint64
	Grants uint64 // to nodes, in all rounds together
	Bytes  uint64 // of messages to and from servers
}

// Rounds returns the counters of the rounds so far.
func (c *Coordinator) Rounds() Rounds { return c.rounds }

// HandOver gives every node the files of the shared memory. give hands files to a node and returns when
// the node has mapped them. Afterwards no process can write memory that another one owns.
func (c *Coordinator) HandOver(give func(node int, files []*os.File) error) error {
	if err := c.shared.handOver(give); err != nil {
		return err
	}
	for i := range c.nodes {
		c.nodes[i].slot = c.shared.slots[i]
	}
	return nil
}

// Close unmaps the shared memory, or ends the connections to servers.
func (c *Coordinator) Close() error {
	err := c.shared.close()
	if c.far == nil {
		return err
	}
	for i := range c.nodes {
		err = errors.Join(err, c.nodes[i].grant.unmap(), c.nodes[i].slot.unmap())
	}
	for _, m := range c.far.servers {
		if merr := m.Close(); merr != nil {
			err = errors.Join(err, c.lost(m, fmt.Errorf("its daemon has gone before the run ended: %w", merr)))
		}
	}
	return err
}

// Begin makes the streams those of the run, and the channel that of a job.
func (c *Coordinator) Begin(s Streams, hosts []int, server *outofband.Server) {
	c.streams, c.hosts = s, hosts
	c.channel = window.NewChannel(c.cfg.Order(), c.cfg.OutOfBand, server)
}

// Ordered notes that an order has been sent to a node, and that it concerns an instant: vtime.Never
// if it is carried out as soon as possible.
func (c *Coordinator) Ordered(node int, at vtime.Time) {
	c.nodes[node].orders++
	c.ledger.Sent(node, at)
}

// Channel returns the server's end of the out-of-band channel.
func (c *Coordinator) Channel() *window.Channel { return c.channel }

// Settle has the nodes carry out the orders they have been sent. No lab time passes.
func (c *Coordinator) Settle() error {
	for i := range c.nodes {
		if n := &c.nodes[i]; n.orders > n.due {
			if c.Grant(i, 0); !c.drains {
				c.ledger.Allow(i, c.last) // an order may start something now, also before frames that are under way since a halt
			}
		}
	}
	return c.Round()
}

// Drain lets the nodes advance until none has an event, or until the run is halted, and returns the
// instant at which something last happened.
func (c *Coordinator) Drain() (last vtime.Time, halted bool, err error) {
	c.faults.Resume(c.last)
	c.drains = true
	defer func() { c.drains = false }()
	if halted, err = c.plan.Drain(c, c.channel, c.faults); err != nil {
		return 0, halted, err
	}
	c.last = max(c.last, c.channel.Last())
	for i := range c.nodes {
		c.last = max(c.last, vtime.Time(c.nodes[i].slot.last().Load()))
	}
	return c.last, halted, nil
}

// Faults returns the simulation that makes the calls of the lab's fault timeline. It needs the timeline
// of the nodes' parts.
func (c *Coordinator) Faults() *sim.Net { return c.faults.Net() }

// RestFaults makes the instant at which something last happened that of the lab's fault timeline, which may
// be changed then, between two jobs.
func (c *Coordinator) RestFaults() { c.faults.Rest(c.last) }

// Meet implements window.Parts.
func (c *Coordinator) Meet(at vtime.Time) (*window.Census, error) { return c.together(at, stepMeet) }

// Call implements window.Parts.
func (c *Coordinator) Call(at vtime.Time, v window.Verdict) (*window.Census, error) {
	return c.together(at, stepCall+uint32(v))
}

// together grants all nodes the same step, and returns the contents of the nodes afterwards.
func (c *Coordinator) together(at vtime.Time, step uint32) (*window.Census, error) {
	for i := range c.nodes {
		c.grant(i, at, step)
	}
	if err := c.Round(); err != nil {
		return nil, err
	}
	all := &window.Census{}
	for i := range c.nodes {
		x := c.nodes[i].slot.census()
		all.Add(&x)
	}
	return all, nil
}

// Edge returns the next instant for an order that is carried out at an instant of its own: no node has
// handled an event that comes later. The order has to be sent to all nodes, and be noted as a call of the
// fault timeline (Faults), before the next round. Only Streams.Edge may ask.
func (c *Coordinator) Edge() vtime.Time {
	c.edge = max(c.edge, c.last, c.channel.Last())
	for i := range c.nodes {
		c.edge = max(c.edge, vtime.Time(c.nodes[i].slot.now().Load()))
	}
	c.edge++
	return c.edge
}

// Next implements window.Parts.
func (c *Coordinator) Next(next []vtime.Time) {
	if err := c.streams.Edge(); err != nil && c.err == nil {
		c.err = err
	}
	if err := c.lookOutside(); err != nil && c.err == nil {
		c.err = err
	}
	for i := range c.nodes {
		next[i] = c.ledger.Next(i)
	}
}

// Request takes a request of a rank, which node has said in its last round, and which arrives at an instant. Only
// Streams.Hear may call it.
func (c *Coordinator) Request(at vtime.Time, node, rank int, q outofband.Request) error {
	if err := c.ledger.Check(node, at, c.cfg.OutOfBand); err != nil {
		return err
	}
	c.channel.Request(at, node, rank, q)
	return nil
}

// Reply implements window.Outlet.
func (c *Coordinator) Reply(at vtime.Time, r outofband.Reply) {
	node := c.hosts[r.Rank]
	c.sent(node, at, c.streams.Reply(at, node, r))
}

// SetEntry implements window.Outlet.
func (c *Coordinator) SetEntry(at vtime.Time, e wire.MulticastEntry) {
	c.sent(e.Switch, at, c.streams.SetEntry(at, e))
}

func (c *Coordinator) sent(node int, at vtime.Time, err error) {
	c.Ordered(node, at)
	if err != nil && c.err == nil {
		c.err = err
	}
}

// Grant implements window.Parts.
func (c *Coordinator) Grant(node int, bound vtime.Time) { c.grant(node, bound, stepAdvance) }

func (c *Coordinator) grant(node int, bound vtime.Time, step uint32) {
	n := &c.nodes[node]
	n.round++
	n.due = n.orders
	c.ledger.Grant(node)
	n.grant.bound().Store(int64(bound))
	n.grant.step().Store(step)
	n.grant.orders().Store(n.due)
	n.grant.look().Store(int64(c.look))
	n.grant.check().Store(0)
}

// aliveEvery is the number of rounds after which the coordinator checks whether the run may continue. A
// round takes 0.1 ms or so.
const aliveEvery = 64

// Round implements window.Parts. It waits until all granted nodes have used up their grants. Nodes in
// whose sockets much waits take it, too.
func (c *Coordinator) Round() error {
	if c.rounds.Count++; c.rounds.Count%aliveEvery == 0 {
		if err := c.streams.Alive(); err != nil {
			return err
		}
	}
	if c.err != nil {
		return c.err
	}
	for i := range c.nodes {
		if c.ledger.Late(i) {
			c.Grant(i, 0)
		}
	}
	c.ledger.Run()
	granted := c.ledger.Granted()
	for _, i := range granted {
		c.nodes[i].grant.floor().Store(int64(c.ledger.Floor(i)))
	}
	run := c.roundHere
	if c.far != nil {
		run = c.roundFar
	}
	c.rounds.Grants += uint64(len(granted))
	if err := run(); err != nil {
		return err
	}
	for _, i := range granted {
		if err := c.collect(i); err != nil {
			return err
		}
	}
	if len(granted) > 0 && c.ledger.From(granted[0]) != vtime.Never {
		c.now.Store(max(c.now.Load(), int64(c.ledger.From(granted[0]))))
	}
	c.ledger.End()
	return nil
}

// roundHere runs a round of nodes that are all on this server.
func (c *Coordinator) roundHere() error {
	begin := time.Now()
	counted := begin // wall clock from which the wait counts
	return c.shared.round(c.ledger.Granted(), func(i int) uint32 { return c.nodes[i].round }, func(i int) error {
		if err := c.streams.Alive(); err != nil {
			return err
		}
		if c.streams.Stopped(i, time.Since(begin)) {
			counted = time.Now()
		}
		if time.Since(counted) > 2*PatienceDefault {
			return fmt.Errorf("node %s has not come to the end of its round within %v", c.nodes[i].name, 2*PatienceDefault)
		}
		return nil
	})
}

// collect records a node's report after a round.
func (c *Coordinator) collect(i int) error {
	n := &c.nodes[i]
	if now := vtime.Time(n.slot.now().Load()); now < 0 || now >= vtime.Never-1 {
		return fmt.Errorf("node %s says that it is at %v", n.name, now)
	}
	if err := c.ledger.Report(i, vtime.Time(n.slot.next().Load()), func(port int) vtime.Time { return vtime.Time(n.slot.first(port).Load()) }); err != nil {
		return err
	}
	return c.streams.Hear(i, n.slot.words().Load())
}

// Now returns how far the lab has come. Any goroutine may ask.
func (c *Coordinator) Now() vtime.Time { return vtime.Time(c.now.Load()) }

// Horizon returns an instant before which nothing happens any more. It may be called while words of
// nodes are handled.
func (c *Coordinator) Horizon() vtime.Time {
	return min(c.channel.Next(), c.faults.Next(), c.ledger.Horizon()) // a reply, and a fault that begins or ends, are events, too
}

// Hops returns the number of frames that have arrived at the ends of links.
func (c *Coordinator) Hops() (all uint64) {
	for i := range c.nodes {
		if s := c.nodes[i].slot; s.region != nil {
			all += s.hops().Load()
		}
	}
	return all
}
