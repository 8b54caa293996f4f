// SPDX-License-Identifier: Apache-2.0

// Package runner runs the workloads of a lab and leaves their results in a folder of the run's
// own: the resolved lab, the seed and version, events, captures and the summary. The files are
// valid at any time, also after an interrupt.
package runner

import (
	"context"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/heap"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/traces"
)

// Options are the choices of a run that are not the lab's.
type Options struct {
	Base         string                           // run folders go there
	Captures     []string                         // patterns of port names: h0:0, leaf*:*
	CaptureBytes int64                            // all capture files together; 0: CaptureBytesDefault
	Check        bool                             // verify the invariants after every event
	Progress     Progress                         // may be nil
	Ledger       func([][]sim.Entry, bool)        // is called at the end with the simulation's ledger; may be nil
	Say          func(format string, args ...any) // prints to the user immediately; may be nil
	Env          apps.Env                         // of the workloads' programs
	Acts         []faults.Act                     // manual faults to replay (ReadActs)
	Workers      int                              // goroutines that simulate parts of the lab; 0: one; WorkersAuto: as many as pay
	NoSkip       bool                             // simulate repeated periods, too (sim.Config.Skip): the run is the same
	eager        bool                             // even when they have little to do, and with two parts each; for tests
}

// CaptureBytesDefault bounds the bytes of all captures of a run together.
const CaptureBytesDefault = 1 << 30

// Progress is called with the progress of a run, at least a few times per second while packets
// move.
type Progress interface {
	Update(ProgressState)
	Done()
}

// ProgressState is the progress of a run.
type ProgressState struct {
	Doing       string
	Step, Steps int // iterations begun, and in all
	LabTime     vtime.Time
	PacketHops  uint64
	AllHops     uint64        // of the whole run, as a rehearsal has them; 0: not known
	Waiting     func() string // most frequent reason of the ranks' waits; nil: not known
}

// simulation is a run on the event clock.
type simulation struct {
	*Record
	ctx    context.Context
	lab    *lab.Lab
	o      Options
	net    network
	caps   Captures
	faults timelines // nil: none
	before int       // iterations of the workloads that have ended
	steps  int       // iterations of all workloads
	heap   heap.Keeper
}

// network is a simulated lab, whole (sim.Net) or in parts (sim.Parts).
type network interface {
	turns
	Run(sim.Job) error
	Digest() uint64
	Now() vtime.Time
	Stats() sim.Stats
	Doing() (what string, steps int)
	Waiting() string
	Leftover() error
	Graph() *topo.Graph
	Ports() int
	PortID(node, port int) int
	Link(id int) *machine.Link
	LinkStats(port int) faults.Counts
	Of(node int) *sim.Net
}

// Simulate runs a lab's workloads on the event clock. The report holds the measurements even if the run
// ends with an error; it is nil if no workload was begun.
func Simulate(ctx context.Context, l *lab.Lab, o Options) (*Report, error) {
	if err := l.CheckSim(); err != nil {
		return nil, err
	}
	o.Env.Programs = catching(o.Env.Programs, o.Say)
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	ends, err := MatchPorts(g, o.Captures)
	if err != nil {
		return nil, err
	}
	rec, err := Begin(o.Base, l, "sim")
	if err != nil {
		return nil, err
	}
	r := &simulation{Record: rec, ctx: ctx, lab: l, o: o}
	r.OnClose(r.caps.Close)
	if err = r.build(g, ends); err == nil {
		err = r.workloads(g)
	}
	if o.Progress != nil {
		o.Progress.Done()
	}
	if aerr := r.account(); err == nil {
		err = aerr
	}
	if err == nil && o.Check {
		err = r.again(ctx, l)
	}
	return r.Report, r.Finish(ctx, l, err)
}

// build builds the network.
func (r *simulation) build(g *topo.Graph, ends []topo.End) (err error) {
	of, workers := r.parts(g)
	r.Meta.Workers = workers
	c := sim.Config{
		Spec: labspec.Fabric(r.lab, g), Check: r.o.Check, OutOfBand: labspec.ChannelDelay(r.lab), Ledger: r.o.Ledger != nil,
		Skip:  !r.o.NoSkip,
		Trace: func(node int) machine.Tracer { return r.Events.Node(g.Nodes[node].Name) },
	}
	if r.Trace != nil {
		r.TraceFabric(g, &c.Spec)
		c.Trace, c.Watch = r.traceNodes(g)
	}
	if of != nil {
		return r.divide(g, c, of)
	}
	n, err := sim.New(c)
	if err != nil {
		return fmt.Errorf("build lab: %w", err)
	}
	r.net = n
	if err := r.caps.Open(n, r.Folder, ends, r.o.CaptureBytes); err != nil {
		return err
	}
	for i, e := range ends {
		n.SetTap(e.Node, e.Port, func(at vtime.Time, f *wire.Frame) { r.caps.Frame(i, n.Now(), at, f) })
	}
	n.Observe = r.observe
	if err := r.Meet(r.lab, g, 0); err != nil {
		return err
	}
	t, err := Inject(n, r.lab)
	if err == nil && len(r.o.Acts) > 0 && t == nil {
		t = n.NewTimeline(vtime.Duration(r.lab.Switches.Reconverge))
	}
	if t != nil {
		r.faults = timelines{t}
	}
	for i := range r.o.Acts {
		a := &r.o.Acts[i]
		if err == nil {
			err = a.Apply(t, g, r.lab.Replicas(), traces.ByHand(c.Trace(0)))
		}
		if err == nil {
			err = r.NoteAct(a)
		}
	}
	return err
}

// account writes the counters of the simulation into the record.
func (r *simulation) account() error {
	if r.net == nil {
		return nil
	}
	r.Report.Digest = fmt.Sprintf("%016x", r.net.Digest())
	if n, whole := r.net.(*sim.Net); whole && r.o.Ledger != nil {
		r.o.Ledger(n.Ledger())
	}
	s := r.net.Stats()
	m := &r.Meta
	m.LabUS, m.Events, m.PacketHops, m.AckHops, m.FramesLost = r.net.Now().Microseconds(), s.Events, s.Hops, s.AckHops, s.Lost
	m.EventsInTurn, m.HopsLeftOut = s.InTurn, s.Skipped
	if r.faults != nil {
		r.Report.Faults = r.Record.Faults(faultRows(r.faults.list(r.net.Now())))
	}
	r.Report.CaptureCut = r.caps.Cut()
	m.CaptureCut, m.CaptureFiles = r.caps.Cut(), r.caps.Files()
	all := r.count()
	if r.ctx.Err() == nil { // else a program that was abandoned may still use it
		r.net, r.faults = nil, nil // merging all takes memory, too
	}
	r.heap.Done()
	return r.Counters(all)
}

// count records the counters of all nodes.
func (r *simulation) count() []counters.Node {
	const piece = 256 // nodes
	all := make([]counters.Node, len(r.net.Graph().Nodes))
	onCores((len(all)+piece-1)/piece, func(i int) {
		for at := i * piece; at < min(len(all), (i+1)*piece); at++ {
			r.countNode(at, &all[at])
		}
	})
	return all
}

func (r *simulation) countNode(i int, c *counters.Node) {
	g := r.net.Graph()
	c.Node, c.LabUS, c.Ports = g.Nodes[i].Name, r.net.Now().Microseconds(), make([]counters.Port, len(g.Nodes[i].Links))
	for p := range c.Ports {
		far := g.Peer(i, p)
		out, in := r.net.Link(r.net.PortID(i, p)), r.net.Link(r.net.PortID(far.Node, far.Port))
		faulty := r.net.LinkStats(r.net.PortID(far.Node, far.Port))
		c.Ports[p] = counters.Port{
			Port: p, Sent: out.Frames, SentBytes: out.Bytes, Received: in.Frames, ReceivedBytes: in.Bytes,
			Malformed: faulty.Malformed, LostToFault: faulty.Lost, CopiedByFault: faulty.Copied, HeldByFault: faulty.Held,
		}
	}
	n := r.net.Of(i)
	if sw := n.Switch(i); sw != nil {
		c.Switch(sw, g)
		return
	}
	c.NIC(n.NIC(i))
	if a := n.Agent(i); a != nil {
		c.Agent(a)
	}
}

// observe is called while events are handled: here interrupts are noticed.
func (r *simulation) observe() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.heap.Grown()
	if r.o.Progress != nil {
		doing, done := r.net.Doing()
		r.o.Progress.Update(ProgressState{
			Doing: doing, Step: r.before + done, Steps: r.steps, LabTime: r.net.Now(), PacketHops: r.net.Stats().Hops, Waiting: r.net.Waiting,
		})
	}
	return nil
}

// workloads runs one workload after the other on the same fabric.
func (r *simulation) workloads(g *topo.Graph) error {
	all, err := Prepare(r.lab, g, r.o.Env)
	if err != nil {
		return err
	}
	for _, w := range all {
		r.steps += w.Steps
	}
	for i, w := range all {
		if err := r.workload(w, i == len(all)-1); err != nil {
			return err
		}
		r.before += w.Steps
	}
	return nil
}

// workload runs a workload, or a row of one. After the last of them its faults need not be lifted.
func (r *simulation) workload(w Workload, last bool) error {
	rows, before := len(r.Report.Results), r.traffic(w.Hosts)
	r.RowBegins(r.net.Now())
	r.beginFaults()
	over := r.rowOver(last)
	program, err := apps.ProgramOf(w.App, w.Params)
	if err != nil {
		return err
	}
	err = r.Measure(w, r.net.Now, func(emit func(rank int, record []byte)) error {
		err := aside(r.ctx, r.net, outsideSay(&r.o.Env, r.o.Say), func() error {
			return r.net.Run(sim.Job{
				Name: w.Label, Hosts: w.Hosts, Params: labspec.RankParams(r.lab), Over: over,
				Spare: w.Spare, Program: program, Emit: emit,
			})
		})
		if over == nil && r.faults != nil {
			r.RowEnds(faultRows(r.faults.list(r.net.Now())), false)
		}
		return err
	})
	if rows+1 == len(r.Report.Results) {
		t := r.traffic(w.Hosts)
		r.Report.Results[rows].Traffic = &apps.Traffic{
			Links: t.Links - before.Links, Payload: t.Payload - before.Payload, Sent: t.Sent - before.Sent, Received: t.Received - before.Received,
		}
	}
	if err == nil {
		err = r.net.Leftover()
	}
	return err
}

// rowOver returns the function to call at the end of a row before another begins: it lifts the row's
// faults, and records their hits. It returns nil if there is nothing to lift.
func (r *simulation) rowOver(last bool) func(now vtime.Time) {
	if last || !r.faults.byRow() {
		return nil
	}
	return func(now vtime.Time) {
		r.RowEnds(faultRows(r.faults.list(now)), true)
		if _, whole := r.net.(*sim.Net); whole {
			r.faults[0].EndRow(now)
		}
	}
}

// traffic returns the bytes that links have carried so far, all, and those of some hosts.
func (r *simulation) traffic(hosts []int) (t apps.Traffic) {
	for id := range r.net.Ports() {
		t.Links += r.net.Link(id).Bytes
		t.Payload += r.net.Link(id).Payload
	}
	for _, h := range hosts {
		far := r.net.Graph().Peer(h, 0)
		t.Sent += r.net.Link(r.net.PortID(h, 0)).Bytes
		t.Received += r.net.Link(r.net.PortID(far.Node, far.Port)).Bytes
	}
	return t
}
