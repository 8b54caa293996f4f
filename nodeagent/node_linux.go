// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/external"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/nodeagent/verbs"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// node is the node in one configuration: a machine and the loop that drives it.
type node struct {
	name  string
	id    int    // in the graph
	data  string // folder of the state that the node keeps across restarts; empty: none
	lab   *lab.Lab
	graph *topo.Graph
	loop  *live.Loop
	nic   *virtrnic.NIC      // of a host
	agent *mrp.Agent         // of a host
	sw    *virtswitch.Switch // of a switch
	host  *live.Host

	programs *verbs.Server     // that use libibverbs, at the NIC of a host
	out      *external.Adapter // of an external host

	events events
	ended  chan error    // error of the loop
	over   chan struct{} // closed when it has
	done   chan struct{} // closed when the node is stopped
	job    sync.Mutex    // held by the job that runs
	caught chan any
	exit   func(code int) // ends the process

	running atomic.Pointer[board] // of the job that runs

	configure []byte              // the configuration, for the next process of this node
	before    *counters.Node      // counters of earlier processes of this node; nil: there was none
	leaving   atomic.Bool         // set by an agent-crash: the process ends
	snooped   *virtswitch.Snooped // of a switch: its table at the crash
	finishing sync.Once

	faults  *faults.Timeline // only with the loop's lock
	routes  router           // of a switch
	crashed chan error       // why the host's programs have ended
}

func rateOf(r *nodeapi.Rate) live.Rate {
	return live.Rate{Mono: r.Mono, Lab: vtime.Time(r.Lab), Dilation: r.Dilation}
}

// newNode builds the machine of the lab file and starts its loop. x is the state that another process
// has left, which may be nil; left is called when an agent-crash has ended the loop.
func newNode(r *nodeapi.ConfigureRequest, sockets []int, data string, x *legacy, left func(*node)) (*node, error) {
	l, err := labspec.Decode(r.Lab)
	if err != nil {
		return nil, err
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, err
	}
	id, ok := g.Find(r.Node)
	if !ok {
		return nil, fmt.Errorf("the lab has no such node")
	}
	want := len(g.Nodes[id].Links)
	if l.ExternalHost(r.Node) != nil {
		want++ // the device's
	}
	if len(sockets) != want {
		return nil, fmt.Errorf("%d sockets for %d ports", len(sockets), want)
	}
	if r.Rate == nil || !(r.Rate.Dilation >= 1) {
		return nil, fmt.Errorf("the dilation of the clock has to be at least 1")
	}
	n := &node{
		name: r.Node, id: id, data: data, lab: l, graph: g, ended: make(chan error, 1), over: make(chan struct{}), done: make(chan struct{}),
		caught: make(chan any, 1), crashed: make(chan error, 1), exit: os.Exit,
	}
	if n.configure, err = proto.Marshal(r); err != nil {
		return nil, err
	}
	if err := n.build(id, sockets, rateOf(r.Rate), x); err != nil {
		return nil, err
	}
	if x != nil {
		if err := n.takeOver(x); err != nil {
			return nil, errors.Join(err, n.loop.Close())
		}
	}
	if err := n.showClock(); err != nil {
		return nil, errors.Join(err, n.loop.Close())
	}
	// The loop keeps one processor; another is for calls and ranks.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	go func() {
		err := n.loop.Run()
		if err != nil {
			fmt.Fprintf(os.Stderr, "mcastlab node %s: %v\n", n.name, err)
		}
		n.ended <- err
		close(n.over)
		if n.leaving.Load() {
			left(n)
		}
	}()
	return n, nil
}

// registrar returns the agent of the node's NIC.
func (n *node) registrar(nc virtrnic.Config, tag *wire.VLAN) *mrp.Agent {
	c := mrp.Config{IP: nc.IP, IPv6: nc.IPv6, Groups: nc.Groups, VLAN: tag, Pool: n.loop.Pool(), Sender: n.nic}
	if len(n.lab.Externals()) > 0 {
		c.RetriesMax = external.RepeatsMax
	}
	return mrp.New(c)
}

func (n *node) build(id int, sockets []int, rate live.Rate, x *legacy) error {
	mono, err := live.NewMonotonic()
	if err != nil {
		return err
	}
	spec := labspec.Fabric(n.lab, n.graph)
	c := live.Config{Mono: mono, Rate: rate}
	if x != nil {
		c.Left = &x.Left
	}
	var ports []machine.PortConfig
	var in live.Receiver
	for p, fd := range sockets {
		if p == len(n.graph.Nodes[id].Links) { // a device does not understand trains
			c.IO = append(c.IO, in.NewPacket(fd))
			c.Delays = append(c.Delays, 0)
			ports = append(ports, machine.PortConfig{BitsPerSec: int64(n.lab.HostRate())})
			break
		}
		c.IO = append(c.IO, in.NewIO(fd, n.lab.Runtime.IO == "trains"))
		far := n.graph.Peer(id, p)
		// The delay of the far end's transmitter on this link is also that of arrivals here:
		// propagation and this node's pipeline.
		c.Delays = append(c.Delays, spec.Port(far.Node, far.Port).Delay)
		ports = append(ports, spec.Port(id, p))
	}
	if n.loop, err = live.New(c); err != nil {
		return err
	}
	own := n.loop.Ports(ports)
	var trace machine.Tracer = &n.events
	if n.lab.Trace == lab.TraceMessages {
		r := n.events.record(n.name)
		trace = r
		n.loop.SetWatch(r)
	}
	n.faults = n.newTimeline(spec.Latency)
	if x := n.lab.ExternalHost(n.name); x != nil {
		n.out = external.New(external.Config{
			IP: n.graph.Nodes[id].IP, IPv6: n.graph.IPv6, Groups: n.graph.Groups, VLAN: spec.VLAN, Ports: own, Pool: n.loop.Pool(),
			Window: x.WindowFrames(n.lab.NICs.MTU), Known: n.known(), Trace: trace, Classes: spec.NICConfig(id).Classes,
		})
		n.nic = n.out.NIC() // which faults pause
		n.loop.Start(n.out, nil)
		return nil
	}
	if n.graph.Nodes[id].Kind == topo.Host {
		nc := spec.NICConfig(id)
		nc.Port, nc.Pool, nc.Trace = &own[0], n.loop.Pool(), trace
		n.nic = virtrnic.New(nc)
		n.agent = n.registrar(nc, spec.RegistrationTag())
		n.nic.SetStack(n.agent)
		n.host = live.NewHost(n.loop, n.nic, n.agent, n.panicked)
		n.programs = verbs.NewServer(verbs.Config{
			Loop: n.loop, NIC: n.nic, Pool: n.loop.Pool(), MTU: n.lab.NICs.MTU, Alias: managedIn(n.graph),
			Agent: n.agent, Groups: nc.Groups, Activate: labspec.RankParams(n.lab).Activate,
		})
		n.loop.Start(n.programs.Gate(), func(at vtime.Time) vtime.Time { return min(n.host.News(at), n.programs.News(at)) })
		return nil
	}
	spec.Joins = true
	sc, err := spec.SwitchConfig(id, &n.graph.Routes()[id-n.graph.Hosts])
	if err != nil {
		return errors.Join(err, n.loop.Close())
	}
	sc.Ports, sc.Pool, sc.Trace = own, n.loop.Pool(), trace
	n.sw = virtswitch.New(sc)
	n.loop.Start(n.sw, nil)
	return nil
}

// panicked records the value of a program's panic: that of the first of its tasks.
func (n *node) panicked(p any) {
	select {
	case n.caught <- p:
	default:
	}
}

// machine returns the machine that the node's loop drives.
func (n *node) machine() machine.Machine {
	switch {
	case n.sw != nil:
		return n.sw
	case n.out != nil:
		return n.out
	}
	return n.nic
}

// managedIn returns a function that finds the fabric's number of the host that has an address on the
// management network.
func managedIn(g *topo.Graph) func(a netip.Addr) (ip uint32, ok bool) {
	return func(a netip.Addr) (ip uint32, ok bool) {
		i, ok := labspec.ManagementHost(a)
		if !ok || i >= g.Hosts {
			return 0, false
		}
		return g.Nodes[i].IP, true
	}
}

// known returns a function that reports whether an address is that of a host of the lab.
func (n *node) known() func(ip uint32) bool {
	ips := make(map[uint32]bool, n.graph.Hosts)
	for i := range n.graph.Hosts {
		ips[n.graph.Nodes[i].IP] = true
	}
	return func(ip uint32) bool { return ips[ip] }
}

// finish has watchers sent their last batch.
func (n *node) finish() { n.finishing.Do(func() { close(n.done) }) }

// stop ends ranks, programs and loop.
func (n *node) stop() error {
	n.finish()
	var err error
	if n.host != nil {
		n.endTasks()
		n.loop.Call(vtime.Never, n.programs.Restart) // so that programs get the event
		err = n.programs.Close()
	}
	n.loop.Stop()
	return errors.Join(err, <-n.ended, n.loop.Close())
}

// inspect returns the node's counters.
func (n *node) inspect() (*nodeapi.InspectReply, error) {
	s, err := n.state()
	if err != nil {
		return nil, err
	}
	return inspected(s)
}

func inspected(s counters.Node) (*nodeapi.InspectReply, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &nodeapi.InspectReply{State: b}, nil
}

// state returns the node's counters.
func (n *node) state() (s counters.Node, err error) {
	h := &counters.Held{Goroutines: runtime.NumGoroutine(), Files: openFiles(), Rank: n.running.Load() != nil}
	err = n.call(func(now vtime.Time) {
		links, _ := n.loop.StatsInCall()
		if n.sw != nil {
			n.sw.Age(now) // groups that have aged out are not shown
		}
		s = n.counted(links)
		s.LabUS, s.Live = now.Microseconds(), n.loop.Pool().Live
		switch {
		case n.sw != nil:
			h.Switch(n.sw, s.Groups)
		case n.out != nil:
			h.NIC(n.nic)
		default:
			h.NIC(n.nic)
			h.Agent(n.agent)
		}
	})
	r := n.loop.Rate()
	s.Rate = &counters.Rate{Mono: r.Mono, Lab: int64(r.Lab), Dilation: r.Dilation}
	if n.host != nil {
		s.Wait, h.Tasks = n.host.Waiting(), n.host.Tasks()
	}
	s.Held = h
	return s, err
}

// counted returns the counters of the machine and its ports, including those of earlier processes.
// It is called with the loop's lock, or after the loop has ended.
func (n *node) counted(links []live.LinkStats) counters.Node {
	s := counters.Node{Node: n.name}
	for i, c := range links {
		s.Ports = append(s.Ports, counters.Port{
			Port: i, Sent: c.Sent, SentBytes: c.SentBytes, Received: c.Received, ReceivedBytes: c.ReceivedBytes,
			Malformed: c.Malformed, LostToFault: c.Lost, CopiedByFault: c.Copied, HeldByFault: c.Held,
			KernelDrops: c.KernelDrops, Cut: c.Cut, Busy: c.Busy,
		})
	}
	switch {
	case n.sw != nil:
		s.Switch(n.sw, n.graph)
	case n.out != nil:
		s.Adapter(n.out)
	default:
		s.NIC(n.nic)
		s.Agent(n.agent)
		for _, group := range n.programs.Joined() {
			s.Joined = append(s.Joined, counters.Joined{Group: n.graph.Addr(group).String()})
		}
	}
	if n.before != nil {
		s.Plus(n.before)
	}
	return s
}

// openFiles returns the number of descriptors that the process has open, or 0 where that cannot be
// seen.
func openFiles() int {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	names, err := d.Readdirnames(-1)
	if errors.Join(err, d.Close()) != nil {
		return 0
	}
	return len(names) - 1 // but for the one that looks
}
