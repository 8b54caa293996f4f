// Package sim runs a lab on a deterministic event clock: the same switch and NIC cores
// as in containers, driven from one queue. One seed and one lab give one run, bit for
// bit, whatever the machine.
package sim

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Config describes a simulation.
type Config struct {
	fabric.Spec
	// NoDigest leaves the digest out, for benchmarks of the loop alone.
	NoDigest bool
	// Check verifies the invariants after every event.
	Check bool
	// Trace, if set, returns the tracer of a node, or nil.
	Trace func(node int) machine.Tracer
	// Watch, if set, returns who sees the frames of a node's ports, or nil.
	Watch func(node int) machine.Watcher
	// Registrar's waiting time and repeats; 0 chooses.
	RetryAfter vtime.Duration
	RetriesMax int
}

// Tap sees frames where a capture would: at a port, in one direction.
type Tap func(at vtime.Time, f *wire.Frame)

// Net is a simulated lab.
type Net struct {
	graph *topo.Graph
	cfg   Config
	pool  wire.Pool
	nodes []node
	ports []machine.Port
	from  []end // by port: who sends there
	list  machine.List
	fault []faults.Link         // by port; nil if no link has one
	late  []agenda[*wire.Frame] // by port: frames that a fault holds back; nil: none ever was
	lates int                   // how many those are
	// linkStats are by port; nil if there is no timeline.
	linkStats []faults.Counts
	begins    int // calls of the timeline that are due, by what they mean
	ends      int
	applying  bool           // one of them is being made
	lastEnd   vtime.Time     // when the last of the faults ends that have begun and have an end
	pauseMax  vtime.Duration // that a pause may take to come and to run out
	pauseLate vtime.Duration // and that a fault may have held one back
	moves     uint64         // arrivals but for those of pauses, and turns of tasks
	lull      lull
	stuck     bool     // the run has ended although there is something that stands still
	began     bool     // a fault has begun since it was last asked whether all is quiet
	held      []func() // put calls of the timeline back that came when nothing was left to do
	out       []Tap    // by port: at the sending end; nil if nobody looks
	in        []Tap    // by port: at the receiving end
	// watch is by node; nil if nobody does. looked says that there are taps or watchers.
	watch  []machine.Watcher
	looked bool

	queue    radixHeap
	far      agenda[event] // what is too far away for a key
	base     vtime.Time    // what keys count from
	now      vtime.Time
	idBits   uint
	orderKey uint64

	tasks   []*task
	ended   []int // numbers of tasks that have ended
	ready   []*task
	running *task
	turn    turn
	// pastStarts says that the event being handled comes after the starts of its instant.
	pastStarts bool
	timed      []timed
	untimed    []int                        // of timed, those that are free
	crowd      agenda[func(now vtime.Time)] // calls for which timed has no room
	random     prng.Stream
	lease      uint32
	branches   []rank.Branches // in the switches' multicast tables
	check      *checker
	fresh      [][]amount // what each node held when the lab was built; nil without check
	orphans    int        // groups that nobody deletes: their leader crashed, or a registration came late
	unfinished error      // of the last job, before it gave everything back
	err        error
	doing      string // what the job last said it is at
	steps      int    // how often it has
	sink       uint64

	reference func() bool // tests: steps in place of the loop's own

	// Observe, if set, is called every few ten thousand events; an error ends the run.
	Observe func() error

	stats Stats
}

// Stats counts what the loop did.
type Stats struct {
	Events  uint64
	Hops    uint64 // frames that arrived at the end of a link
	AckHops uint64 // of those, acknowledgements
	Lost    uint64 // frames dropped by faults on links
	Wakes   uint64 // events that only started a frame
	Timers  uint64
}

type end struct{ node, port int32 }

// node is a machine and what the loop keeps about it.
type node struct {
	m     machine.Machine
	nic   *virtrnic.NIC      // nil for a switch
	sw    *virtswitch.Switch // nil for a host
	host  *host
	armed vtime.Time // instant of the pending timer event, or Never
	first int        // first port
	// stalled is when the NIC was stalled last.
	stalled vtime.Time
}

// New builds a simulation.
func New(cfg Config) (*Net, error) {
	g := cfg.Graph
	n := &Net{graph: g, cfg: cfg, random: prng.New(cfg.Seed)}
	n.pool.Poison = cfg.Check
	order := n.random.Derive("order")
	n.orderKey = order.Uint64()
	n.buildPorts()
	tables := g.Routes()
	n.nodes = make([]node, len(g.Nodes))
	first := 0
	for i := range g.Nodes {
		count := len(g.Nodes[i].Links)
		ports := n.ports[first : first+count]
		nd := &n.nodes[i]
		*nd = node{armed: vtime.Never, first: first}
		first += count
		var trace machine.Tracer
		if cfg.Trace != nil {
			trace = cfg.Trace(i)
		}
		if cfg.Watch != nil {
			n.looked = true
			n.watch = append(n.watch, cfg.Watch(i))
		}
		if g.Nodes[i].Kind == topo.Host {
			n.buildHost(i, nd, &ports[0], trace)
			continue
		}
		if err := n.buildSwitch(i, nd, ports, &tables[i-g.Hosts], trace); err != nil {
			return nil, err
		}
	}
	n.idBits = uint(bits.Len(uint(max(len(n.ports), 8*g.Hosts, minTasks))))
	n.queue.touch = n.touch
	if cfg.Check {
		n.check = newChecker(n)
		n.note()
	}
	return n, nil
}

// minTasks is how many ranks, workers and timed calls there can be at least; a large
// lab has room for eight per host.
const minTasks = 1 << 15

// buildPorts makes one transmitter per node and port, in node order.
func (n *Net) buildPorts() {
	g := n.graph
	for i := range g.Nodes {
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			c := n.cfg.Port(i, p)
			c.ID, c.List = uint32(len(n.ports)), &n.list
			port := machine.NewPort(c)
			port.Node, port.NodePort = int32(far.Node), int32(far.Port)
			n.ports = append(n.ports, port)
			n.from = append(n.from, end{int32(i), int32(p)})
		}
	}
}

func (n *Net) buildHost(i int, nd *node, port *machine.Port, trace machine.Tracer) {
	c := n.cfg.NICConfig(i)
	c.Port, c.Pool, c.Trace = port, &n.pool, trace
	nd.nic = virtrnic.New(c)
	agent := mrp.New(mrp.Config{
		IP: c.IP, IPv6: c.IPv6, VLAN: n.cfg.RegistrationTag(), Pool: &n.pool, Sender: nd.nic, RetryAfter: n.cfg.RetryAfter, RetriesMax: n.cfg.RetriesMax,
	})
	nd.nic.SetStack(agent)
	nd.m = nd.nic
	nd.host = &host{net: n, node: i, nic: nd.nic, agent: agent}
}

func (n *Net) buildSwitch(i int, nd *node, ports []machine.Port, t *topo.Table, trace machine.Tracer) error {
	c, err := n.cfg.SwitchConfig(i, t)
	if err != nil {
		return err
	}
	c.Ports, c.Pool, c.Trace = ports, &n.pool, trace
	nd.sw = virtswitch.New(c)
	nd.m = nd.sw
	return nil
}

// Graph returns the topology.
func (n *Net) Graph() *topo.Graph { return n.graph }

// Now returns the lab time.
func (n *Net) Now() vtime.Time { return n.now }

// Doing returns what the running job last said it is at, and how often it has said so.
func (n *Net) Doing() (what string, steps int) { return n.doing, n.steps }

// Stats returns what was counted so far.
func (n *Net) Stats() Stats { return n.stats }

// Switch returns the switch at a node, or nil.
func (n *Net) Switch(node int) *virtswitch.Switch { return n.nodes[node].sw }

// NIC returns the NIC at a node, or nil.
func (n *Net) NIC(node int) *virtrnic.NIC { return n.nodes[node].nic }

// SetMulticast makes an IP multicast group of the given hosts: those that receive and
// those that only send. It replaces what the group was.
func (n *Net) SetMulticast(ip uint32, members, senders []int) error {
	entries, err := n.cfg.Multicast(ip, members, senders)
	if err != nil {
		return err
	}
	n.endMulticast(ip)
	for _, e := range entries {
		n.nodes[e.Switch].sw.SetMulticast(e.Multicast)
	}
	return nil
}

// endMulticast takes an IP multicast group out of all switches.
func (n *Net) endMulticast(ip uint32) {
	for i := range n.nodes {
		if sw := n.nodes[i].sw; sw != nil {
			sw.SetMulticast(virtswitch.Multicast{IP: ip})
		}
	}
}

// Agent returns the registration agent of a host, or nil.
func (n *Net) Agent(node int) *mrp.Agent {
	if h := n.nodes[node].host; h != nil {
		return h.agent
	}
	return nil
}

// PortID returns the number of the transmitter at a node's port.
func (n *Net) PortID(node, port int) int { return n.nodes[node].first + port }

// Port returns the transmitter with the given number.
func (n *Net) Port(id int) *machine.Port { return &n.ports[id] }

// Ports returns the number of transmitters.
func (n *Net) Ports() int { return len(n.ports) }

// SetFault puts a fault on the direction of a link that leaves the given port.
func (n *Net) SetFault(port int, f faults.Link) {
	if n.fault == nil {
		n.fault = make([]faults.Link, len(n.ports))
	}
	n.fault[port] = f
}

// SetTap shows a port's frames to tap: those it sends when their last bit has left,
// those it receives when it has come. Calls for one port are not in the order of time.
func (n *Net) SetTap(node, port int, tap Tap) {
	if n.out == nil {
		n.out, n.in = make([]Tap, len(n.ports)), make([]Tap, len(n.ports))
	}
	n.looked = true
	n.out[n.PortID(node, port)] = tap
	far := n.graph.Peer(node, port)
	n.in[n.PortID(far.Node, far.Port)] = tap
}

// Digest combines what every link carried and every completion, in order of link and
// host.
func (n *Net) Digest() uint64 {
	var d uint64
	for i := range n.ports {
		d = wire.MixWord(d, n.ports[i].Digest)
	}
	for i := range n.nodes {
		if nic := n.nodes[i].nic; nic != nil {
			d = wire.MixWord(d, nic.Digest())
		}
	}
	return d
}
