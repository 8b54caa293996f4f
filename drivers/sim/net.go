// SPDX-License-Identifier: Apache-2.0

// Package sim runs a lab in virtual time. One event queue drives the switch and NIC cores that
// also run in containers. The same lab, seed and version give the same run, bit for bit, on any
// computer.
//
// The loop keeps these invariants:
//
//   - Time never goes back: the queue is monotone, and no event is scheduled before now.
//   - The events of one instant run in the order of their classes (package machine: arrivals, starts, timers).
//     Events of one class run in the order of their ids XORed with a mask that depends on the seed
//     and the instant. Map order and addresses decide nothing.
//   - A port with a frame on its link has exactly one pending arrival event, for the oldest frame.
//     A port with an empty link and a frame to send has a start event.
//   - node.armed is the instant of the node's one valid timer event; a timer event at another
//     instant is stale and does nothing.
//   - Tasks run only between events and one at a time. A task that waits is parked in Park.
//   - Every frame has one owner: a machine, a link, or the list of frames a fault has delayed.
package sim

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Config describes a simulation.
type Config struct {
	fabric.Spec
	// NoDigest turns the digest off, for benchmarks of the loop alone.
	NoDigest bool
	// Skip fast-forwards over periods that repeat (skip.go): the run is the same, event by event, and Stats.Skipped
	// counts the frames left out. Parts, and observers of each event, such as Check and Watch, skip nothing.
	Skip bool
	// Ledger records every frame that reaches the end of a link (Net.Ledger).
	Ledger bool
	// Check verifies the invariants after every event.
	Check bool
	// Trace, if set, returns the tracer of a node, or nil.
	Trace func(node int) machine.Tracer
	// Watch, if set, returns the watcher of a node's frames, or nil.
	Watch func(node int) machine.Watcher
	// Front, if set, returns the machine that drives the NIC of a host in place of the NIC itself. Not for NewParts, whose nodes
	// may get another pool.
	Front func(node int, nic *virtrnic.NIC, pool *wire.Pool) machine.Machine
	// RetryAfter is the time that a registrar waits for confirmations before it sends a registration
	// again, and RetriesMax the number of times that it does so. 0 selects the default of package mrp.
	RetryAfter vtime.Duration
	RetriesMax int
	// OutOfBand is the time that each message takes between a host and the server of the out-of-band
	// channel, and between that and a switch. 0 means that the channel takes no time.
	OutOfBand vtime.Duration
	// Local marks, by node, the nodes that this simulation drives; nil marks all. The others are driven
	// elsewhere, and Edge, which must be set then, takes the frames for them. A part of a lab needs
	// OutOfBand.
	Local []bool
	Edge  Edge

	layout *layout // that of all parts, of which this one is part; nil: it is made
	part   int32
	routes *routes    // those of all parts; nil: they are made
	pool   *wire.Pool // that of other parts on the same goroutine, too; nil: one is made
}

// Tap is called for each frame that passes a port, with the instant at which a capture at that
// port would record it. It must not keep the frame.
type Tap func(at vtime.Time, f *wire.Frame)

// Net is a simulated lab.
type Net struct {
	graph  *topo.Graph
	cfg    Config
	layout *layout
	part   int32
	// place, starts and ends are those of layout; nil if the lab is whole.
	place, starts, ends []int32

	pool  *wire.Pool
	nodes []node // by place
	links machine.Links
	ports []port        // by place: of whom links is
	fault []faults.Link // by place of a link; nil if no link has a fault
	// inbound holds the frames of links that come from outside the part. Their places are those from own on.
	inbound []queue.FIFO[machine.Flight]
	own     int
	late    []agenda[*wire.Frame] // by place of a link: frames that a fault has delayed; nil until the first one
	lates   int                   // number of frames in late
	// latePauses is the number of pause frames in late.
	latePauses int
	// linkStats is indexed by place of a link and nil if there is no timeline.
	linkStats []faults.Counts
	calls     [3]int         // pending calls of the timeline, by their Keep
	applying  bool           // a timeline call is being made
	lastEnd   vtime.Time     // when the last fault ends that has begun and has an end
	pauseMax  vtime.Duration // longest time from the sending of a pause frame to the expiry of its pause
	pauseLate vtime.Duration // longest time by which a fault has delayed a pause frame
	moves     uint64         // arrivals of frames other than pauses, plus turns of tasks
	decider   window.Decider
	// Control, which may be nil, is the target of a timeline's faults of controllers. A simulation has
	// none. It is set before NewTimeline.
	Control   faults.ControlTarget
	judge     func(window.Due) window.Verdict // decides on a call of the timeline that is due
	verdict   window.Verdict                  // in a part of a lab: on that call
	stuck     bool                            // the run has ended while frames or work requests wait for ever
	postponed []timed                         // calls of the timeline that have been put off
	out       []Tap                           // by place of a link: at the sending end; nil if there is no tap
	in        []Tap                           // by place of a link: at the receiving end
	// watch is indexed by place and nil if there are no watchers. observed is set if there are taps or
	// watchers.
	watch    []machine.Watcher
	observed bool

	queue radixHeap
	far   agenda[event] // events whose instants do not fit a key
	coder
	now vtime.Time

	tasks   []*task
	ended   []int // numbers of tasks that have ended
	ready   []*task
	running *task
	turn    turn
	log     *eventLog // nil in a part, or without Config.Trace
	// pastStarts is set if the current event's class comes after the starts of its instant.
	pastStarts  bool
	timed       []timed
	freeTimed   []int         // free indices of timed
	overflow    agenda[timed] // calls for which timed has no room
	random      prng.Stream
	lease       uint32
	branches    []wire.MulticastEntry // entries that a program has set in the switches' multicast tables
	ledger      *ledger               // nil: none
	skips       *skipper              // nil: every event is done
	check       *checker
	interrupted bool       // Interrupt was called
	channel     *channel   // nil: the out-of-band channel takes no time
	last        vtime.Time // when something last happened; see rest
	baseline    [][]amount // contents of each node when the lab was built; nil without Check
	orphans     int        // groups that are never deleted: the leader crashed, or a registration came too late
	unfinished  error      // result of Unfinished: an open work request of the last job
	err         error      // ends the run
	doing       string     // the last report of the running job
	steps       int        // number of its reports
	sink        uint64

	reference func() bool // tests set it to replace step

	// Observe, if set, is called every 32,768 events. An error that it returns ends the run.
	Observe func() error

	stats Stats
}

// Stats counts the work of the loop.
type Stats struct {
	Events  uint64 // events handled
	Hops    uint64 // frames that arrived at the end of a link
	AckHops uint64 // acknowledgements among Hops
	Lost    uint64 // frames dropped by faults on links
	Wakes   uint64 // events that only started a frame
	Timers  uint64 // timer events of nodes
	Skipped uint64 // hops among Hops that were not done one by one
	Periods uint64 // periods left out, and the number of times
	Skips   uint64
	InTurn  uint64 // of a lab in parts: sum over the rounds of the events of the part that had most
}

// node is a machine with the loop's state of it.
type node struct {
	m     machine.Machine
	nic   *virtrnic.NIC      // nil for a switch
	sw    *virtswitch.Switch // nil for a host
	host  *host
	armed vtime.Time // instant of the valid timer event, or vtime.Never
	id    int32      // the node's number
	first int32      // place of the link of its first port
	// stalled is the instant at which the NIC was last stalled.
	stalled vtime.Time
}

// New builds a simulation at instant 0 in which no task runs. It returns an error if the switch
// settings do not fit the topology.
func New(cfg Config) (*Net, error) {
	g := cfg.Graph
	n := &Net{graph: g, cfg: cfg, random: prng.New(cfg.Seed), pool: cfg.pool}
	if n.pool == nil {
		n.pool = &wire.Pool{}
	}
	n.pool.Poison = cfg.Check
	n.order = cfg.Order()
	n.placeNodes()
	n.buildLinks()
	if cfg.Ledger {
		n.ledger = newLedger(n.Ports())
	}
	if cfg.OutOfBand > 0 {
		n.channel = newChannel(n, cfg.OutOfBand)
	}
	if cfg.Watch != nil {
		n.watch = make([]machine.Watcher, len(n.nodes))
	}
	if cfg.Trace != nil && n.place == nil {
		n.cfg.Trace = n.keepReports(cfg.Trace)
	}
	for at := range n.nodes {
		if err := n.buildNode(at); err != nil {
			return nil, err
		}
	}
	if n.place == nil {
		n.cfg.routes.forget()
	}
	if cfg.Skip && n.place == nil && !cfg.Check && !cfg.Ledger && cfg.Watch == nil && cfg.Front == nil {
		n.skips = newSkipper(n)
	}
	n.judge = n.judgeWhole
	if n.place != nil {
		n.judge = func(window.Due) window.Verdict { return n.verdict }
	}
	n.idBits = n.order.Bits
	n.from(0)
	n.queue.prefetch = n.prefetch
	if cfg.Check {
		n.check = newChecker(n)
		n.noteBaseline()
	}
	return n, nil
}

// minTasks is the number of tasks (ranks and workers), and of timed calls, for which any lab has
// room. A large lab has room for eight per host.
const minTasks = 1 << 15

// buildNode builds the machine at a place.
func (n *Net) buildNode(at int) error {
	cfg, nd := &n.cfg, &n.nodes[at]
	i := int(nd.id)
	first := int(nd.first)
	ports := n.links.Ports(first, first+len(n.graph.Nodes[i].Links))
	var trace machine.Tracer
	if cfg.Trace != nil {
		trace = cfg.Trace(i)
	}
	if cfg.Watch != nil {
		n.observed = true
		n.watch[at] = cfg.Watch(i)
	}
	if n.graph.Nodes[i].Kind == topo.Host {
		n.buildHost(i, nd, &ports[0], trace)
		return nil
	}
	return n.buildSwitch(i, nd, ports, &cfg.routes.without(nil)[i-n.graph.Hosts], trace)
}

func (n *Net) buildHost(i int, nd *node, port *machine.Port, trace machine.Tracer) {
	c := n.cfg.NICConfig(i)
	c.Port, c.Pool, c.Trace = port, n.pool, trace
	nd.nic = virtrnic.New(c)
	agent := mrp.New(mrp.Config{
		IP: c.IP, IPv6: c.IPv6, Groups: c.Groups, VLAN: n.cfg.RegistrationTag(), Pool: n.pool, Sender: nd.nic,
		RetryAfter: n.cfg.RetryAfter, RetriesMax: n.cfg.RetriesMax,
	})
	nd.nic.SetStack(agent)
	nd.m = nd.nic
	if n.cfg.Front != nil {
		nd.m = n.cfg.Front(i, nd.nic, n.pool)
	}
	nd.host = &host{net: n, node: i, nic: nd.nic, agent: agent, armed: vtime.Never, calls: map[uint64]*pending{}}
}

func (n *Net) buildSwitch(i int, nd *node, ports []machine.Port, t *topo.Table, trace machine.Tracer) error {
	c, err := n.cfg.SwitchConfig(i, t)
	if err != nil {
		return err
	}
	c.Ports, c.Pool, c.Trace = ports, n.pool, trace
	nd.sw = virtswitch.New(c)
	nd.m = nd.sw
	return nil
}

// Graph returns the topology.
func (n *Net) Graph() *topo.Graph { return n.graph }

// Now returns the lab time.
func (n *Net) Now() vtime.Time { return n.now }

// Doing returns the running job's last report of its progress, and the number of its reports.
func (n *Net) Doing() (what string, steps int) { return n.doing, n.steps }

// Stats returns the counts so far.
func (n *Net) Stats() Stats { return n.stats }

// Switch returns the switch at a node, or nil.
func (n *Net) Switch(node int) *virtswitch.Switch { return n.of(node).sw }

// NIC returns the NIC at a node, or nil.
func (n *Net) NIC(node int) *virtrnic.NIC { return n.of(node).nic }

// of returns a node, an empty one if it is not in the part.
func (n *Net) of(id int) *node {
	if !n.local(id) {
		return &node{}
	}
	return n.at(id)
}

// SetMulticast installs a plain IP multicast group in the switches, replacing any former one of
// that address. members are the nodes of the receiving hosts; senders are those of hosts that
// only send.
func (n *Net) SetMulticast(ip uint32, members, senders []int) error {
	entries, err := n.cfg.Multicast(ip, members, senders)
	if err != nil {
		return err
	}
	n.endMulticast(ip)
	for _, e := range entries {
		n.at(e.Switch).sw.SetMulticast(e)
	}
	return nil
}

// endMulticast removes a plain IP multicast group from all switches.
func (n *Net) endMulticast(ip uint32) {
	for i := range n.nodes {
		if sw := n.nodes[i].sw; sw != nil {
			sw.SetMulticast(wire.MulticastEntry{Group: ip})
		}
	}
}

// Of returns the simulation that has a node: this one, as Parts.Of returns one of several.
func (n *Net) Of(int) *Net { return n }

// Agent returns the registration agent of a host, or nil.
func (n *Net) Agent(node int) *mrp.Agent {
	if h := n.of(node).host; h != nil {
		return h.agent
	}
	return nil
}

// Pool returns the pool of the lab's frames. A frame that is handed to a node comes from it.
func (n *Net) Pool() *wire.Pool { return n.pool }

// PortID returns the number of the transmitter at a node's port.
func (n *Net) PortID(node, port int) int { return n.layout.port(node, port) }

// Link returns the link behind the transmitter with the given number, or nil if it neither starts nor ends in the
// part.
func (n *Net) Link(id int) *machine.Link {
	if at, ok := n.linkOf(id); ok {
		return n.links.At(at)
	}
	return nil
}

// Delay returns the propagation delay of the link that leaves the transmitter with the given number, of any in the lab.
func (n *Net) Delay(id int) vtime.Duration {
	e := n.layout.end(id)
	return n.cfg.Port(e.Node, e.Port).Delay
}

// Ports returns the number of transmitters of the lab.
func (n *Net) Ports() int { return n.layout.ports() }

// SetFault sets the faults of the direction of a link that leaves the transmitter with the given
// number. Those of a link that is not in the part do nothing here.
func (n *Net) SetFault(port int, f faults.Link) {
	if n.fault == nil {
		n.fault = make([]faults.Link, n.links.Len())
	}
	if at, ok := n.linkOf(port); ok {
		n.fault[at] = f
	}
}

// SetTap makes tap see a port's frames: a sent frame at the instant at which its last bit left,
// a received frame at the instant at which its last bit arrived. The calls for one port are not
// in the order of their instants.
func (n *Net) SetTap(node, port int, tap Tap) {
	if n.out == nil {
		n.out, n.in = make([]Tap, n.links.Len()), make([]Tap, n.links.Len())
	}
	n.observed = true
	if at, ok := n.linkOf(n.PortID(node, port)); ok {
		n.out[at] = tap
	}
	far := n.graph.Peer(node, port)
	if at, ok := n.linkOf(n.PortID(far.Node, far.Port)); ok {
		n.in[at] = tap
	}
}

// Digest combines the frames of every link and the completions of every NIC, in the order of
// links and then of hosts.
func (n *Net) Digest() uint64 {
	var d uint64
	for i := range n.links.Len() {
		d = wire.MixWord(d, n.links.At(i).Digest)
	}
	for i := range n.nodes {
		if nic := n.nodes[i].nic; nic != nil {
			d = wire.MixWord(d, nic.Digest())
		}
	}
	return d
}
