// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/command"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/nodeagent/verbs"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// member is the node as a member of a run in virtual time.
type member struct {
	name     string
	id       int // of the node
	lab      *lab.Lab
	node     *lockstep.Node
	faults   *faults.Timeline
	lift     bool                                          // the row's faults are lifted when the objects of its ranks are released
	notes    func(now vtime.Time, added bool, text string) // of manual faults: one node reports them
	programs []rank.Program
	ranks    *sim.Ranks            // of the job that runs; nil: none
	trace    *traces.Recorder      // nil: the lab has no trace
	lines    []byte                // of the trace, that have not been sent yet
	taps     map[nodePort][]uint32 // numbers of the captures at each port
	turns    *verbs.Turns          // of programs of the server; nil: the lab runs none here
	server   *verbs.Server         // of those

	s    nodeapi.Node_LockstepServer
	exit func(code int)
}

// takeMemory takes the shared memory of a run: first the part that the node writes, then the part that
// it reads.
func (a *agent) takeMemory(fds []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var err error
	if m := a.memory; m != nil && m.Lacks(len(fds)) {
		err = m.Read(fds)
	} else {
		if m != nil {
			err = m.Close() // of a run that did not begin
		}
		if err == nil {
			a.memory, err = lockstep.NewNodeMemory(fds)
		}
	}
	if err == nil || a.noMemory == nil {
		a.noMemory = err
	}
}

// Lockstep implements nodeapi.NodeServer.
func (a *agent) Lockstep(s nodeapi.Node_LockstepServer) (err error) {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil {
		return status.Error(codes.InvalidArgument, "a run in virtual time begins with its opening")
	}
	before, m, err := a.enter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.restore(before)) }()
	defer func() { err = errors.Join(err, m.Close()) }()
	x := &member{name: open.Node, s: s, programs: a.programs, exit: os.Exit}
	orders := make(chan func() error, 1024)
	if err := x.build(open, a.sockets, m, orders); err != nil {
		return status.Errorf(codes.InvalidArgument, "make node %s part of a run: %v", open.Node, err)
	}
	if err := s.Send(&nodeapi.Word{What: &nodeapi.Word_Ready{Ready: true}}); err != nil {
		return err
	}
	a.part.Store(x.node.Part())
	defer a.part.Store(nil)
	if x.server != nil {
		a.inTurns.Store(x.server)
		defer a.inTurns.Store(nil)
	}
	received, ran := make(chan error, 1), make(chan struct{})
	go func() {
		err := x.receive(orders)
		x.leave(ran)
		received <- err
	}()
	err = x.run()
	if x.server != nil {
		x.turns.End()
		err = errors.Join(err, x.server.Close())
	}
	close(ran)
	if err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	return <-received
}

// unwindWait is the time that a node waits, after the end of a run, for a program that is outside package
// rank.
const unwindWait = 3 * time.Second

// leave waits until the node has left the run. A program that blocks outside package rank can only be ended
// with its process.
func (x *member) leave(ran <-chan struct{}) {
	for {
		number, _ := x.node.Part().Turn()
		select {
		case <-ran:
			return
		case <-time.After(unwindWait):
		}
		if n, task := x.node.Part().Turn(); task != "" && n == number {
			fmt.Fprintf(os.Stderr, "mcastlab node %s: %s does not end: it blocks outside package rank, so the node ends with it\n", x.name, task)
			x.exit(1)
		}
	}
}

// Turn implements nodeapi.NodeServer.
func (a *agent) Turn(context.Context, *nodeapi.InspectRequest) (*nodeapi.TurnReply, error) {
	part := a.part.Load()
	if part == nil {
		return &nodeapi.TurnReply{}, nil
	}
	number, task := part.Turn()
	return &nodeapi.TurnReply{Number: number, Task: task}, nil
}

// enter ends the node's configuration for the time of a run, and returns it.
func (a *agent) enter() (before []byte, m *lockstep.NodeMemory, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.leaving:
		return nil, nil, errLeaving()
	case a.node == nil:
		return nil, nil, status.Error(codes.FailedPrecondition, "the node is not configured, or part of another run")
	case a.noMemory != nil:
		err, a.noMemory = a.noMemory, nil
		return nil, nil, status.Error(codes.FailedPrecondition, err.Error())
	case a.memory == nil || !a.memory.Complete():
		return nil, nil, status.Error(codes.FailedPrecondition, "the run's shared memory has not been handed over")
	}
	before, m, a.memory = a.node.configure, a.memory, nil
	a.member.Store(true)
	return before, m, a.halt()
}

// restore gives the node the configuration that it had before a run.
func (a *agent) restore(before []byte) error {
	var r nodeapi.ConfigureRequest
	if err := proto.Unmarshal(before, &r); err != nil {
		return fmt.Errorf("restore the node: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.member.Store(false)
	if a.node != nil || a.leaving {
		return nil // it has been configured meanwhile
	}
	n, err := newNode(&r, a.sockets, a.data, nil, a.succeed)
	if err != nil {
		return fmt.Errorf("restore the node: %w", err)
	}
	a.node = n
	a.giveBackLater()
	return nil
}

// build builds the node's part of the lab.
func (x *member) build(open *nodeapi.Opening, sockets []int, m *lockstep.NodeMemory, orders <-chan func() error) error {
	l, err := labspec.Decode(open.Lab)
	if err != nil {
		return err
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return err
	}
	id, ok := g.Find(open.Node)
	if !ok {
		return fmt.Errorf("the lab has no such node")
	}
	ports := len(g.Nodes[id].Links)
	if len(sockets) != ports || m.Ports() != ports {
		return fmt.Errorf("%d sockets and rings for %d links, and the node has %d ports", len(sockets), m.Ports(), ports)
	}
	x.lab, x.id = l, id
	c := lockstep.NodeConfig{
		Sim:  sim.Config{Spec: labspec.Fabric(l, g), OutOfBand: labspec.ChannelDelay(l), Ledger: open.Ledger},
		Node: id, Memory: m, Key: open.TagKey, Orders: orders, Request: x.request, Alone: true,
	}
	c.Sim.Joins, c.Sim.QueriesRest = l.RunsPrograms(), true
	c.Sim.Trace = func(int) machine.Tracer { return x }
	if l.Trace == lab.TraceMessages {
		x.trace = traces.NewRecorder(open.Node, x, x.line)
		c.Sim.Trace, c.Sim.Watch = func(int) machine.Tracer { return x.trace }, func(int) machine.Watcher { return x.trace }
	}
	if l.RunsPrograms() && g.Nodes[id].Kind == topo.Host {
		x.turns = verbs.NewTurns()
		c.Programs = x.turns
		c.Sim.Front = func(_ int, nic *virtrnic.NIC, pool *wire.Pool) machine.Machine {
			x.server = verbs.NewServer(verbs.Config{Loop: turnLoop{x}, NIC: nic, Pool: pool, MTU: l.NICs.MTU, Alias: managedIn(g), Turns: x.turns})
			return x.server.Gate()
		}
	}
	var in live.Receiver
	for _, fd := range sockets {
		c.IO = append(c.IO, in.NewIO(fd, l.Runtime.IO == "trains"))
	}
	if x.node, err = lockstep.NewNode(c); err != nil {
		return err
	}
	x.taps = map[nodePort][]uint32{}
	for i, p := range open.Captures {
		if err := x.capture(&nodeapi.CaptureOrder{Capture: uint32(i), Port: p}); err != nil {
			return err
		}
	}
	specs, err := labspec.Timeline(l, g)
	if err != nil {
		return err
	}
	run, row := labspec.Rows(l, specs)
	x.faults = x.node.Part().NewTimeline(vtime.Duration(l.Switches.Reconverge), run...)
	x.faults.PerRow(row...)
	if id == 0 {
		x.notes = traces.ByHand(c.Sim.Trace(0))
	}
	return nil
}

// turnLoop is the loop of a member: the goroutine that drives the node carries out the requests of programs, within their
// turns.
type turnLoop struct{ x *member }

// Call implements verbs.Loop.
func (l turnLoop) Call(_ vtime.Time, f func(now vtime.Time)) bool {
	f(l.x.node.Part().Now())
	return true
}

// nodePort is a port of any node of the lab.
type nodePort struct{ node, port int }

// capture starts or stops the reports of the frames that arrive at the node and pass a captured port:
// its own, or one at the other end of its links.
func (x *member) capture(o *nodeapi.CaptureOrder) error {
	part := x.node.Part()
	g, p := part.Graph(), nodePort{int(o.GetPort().GetNode()), int(o.GetPort().GetPort())}
	if p.node >= len(g.Nodes) || p.port >= len(g.Nodes[p.node].Links) {
		return fmt.Errorf("a capture is at port %d of node %d, which the lab has not", p.port, p.node)
	}
	if o.End {
		x.taps[p] = slices.DeleteFunc(x.taps[p], func(k uint32) bool { return k == o.Capture })
	} else {
		x.taps[p] = append(x.taps[p], o.Capture)
	}
	part.SetTap(p.node, p.port, func(at vtime.Time, f *wire.Frame) {
		if len(x.taps[p]) == 0 {
			return
		}
		b := f.AppendTo(nil)
		for _, k := range x.taps[p] {
			x.tell(&nodeapi.Word{What: &nodeapi.Word_Captured{Captured: &nodeapi.CapturedFrame{Capture: k, Now: int64(part.Now()), At: int64(at), Frame: b}}})
		}
	})
	return nil
}

// Trace implements machine.Tracer: events of the node's machine are sent immediately.
func (x *member) Trace(now vtime.Time, e machine.Event) {
	x.tell(&nodeapi.Word{What: &nodeapi.Word_Event{Event: nodeapi.EventOf(now, e)}})
}

// lineBytes is the number of bytes of the trace in one message.
const lineBytes = 1 << 16

// line takes a line of the trace.
func (x *member) line(l *traces.Line) {
	b, err := json.Marshal(l)
	if err != nil {
		return // a text that is no UTF-8
	}
	if x.lines = append(append(x.lines, b...), '\n'); len(x.lines) >= lineBytes {
		x.tellLines()
	}
}

func (x *member) tellLines() {
	if len(x.lines) > 0 {
		x.tell(&nodeapi.Word{What: &nodeapi.Word_Trace{Trace: x.lines}})
		x.lines = nil
	}
}

// run advances as far as it is granted, until the stream ends.
func (x *member) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("node %s panicked: %v\n%s", x.name, p, debug.Stack())
		}
	}()
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // one processor is for the stream
	return x.node.Run()
}

// receive passes orders on until the stream ends.
func (x *member) receive(orders chan<- func() error) error {
	defer x.node.End()
	defer close(orders)
	if x.turns != nil {
		defer x.turns.Stop()
	}
	for {
		o, err := x.s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		orders <- func() error { return x.carryOut(o) }
	}
}

// say sends a word. Only code that runs between events may call it.
func (x *member) say(w *nodeapi.Word) error {
	x.node.Said()
	if err := x.s.Send(w); err != nil {
		return fmt.Errorf("tell the orchestrator: %w", err)
	}
	return nil
}

func (x *member) request(at vtime.Time, rank int, q outofband.Request) error {
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return x.say(&nodeapi.Word{What: &nodeapi.Word_Request{Request: &nodeapi.ChannelRequest{At: int64(at), Rank: uint32(rank), Request: b}}})
}

// carryOut carries out an order. It runs between events.
func (x *member) carryOut(o *nodeapi.Order) error {
	switch w := o.What.(type) {
	case *nodeapi.Order_Begin:
		return x.begin(w.Begin)
	case *nodeapi.Order_Stop:
		return x.stop()
	case *nodeapi.Order_Release:
		if x.lift = w.Release; x.ranks != nil {
			x.ranks.Release()
			x.ranks = nil
		}
		return nil
	case *nodeapi.Order_Rest:
		x.node.Rest(vtime.Time(w.Rest))
		return nil
	case *nodeapi.Order_Reply:
		var r outofband.Reply
		if err := json.Unmarshal(w.Reply.Reply, &r); err != nil {
			return fmt.Errorf("read a reply: %w", err)
		}
		x.node.Reply(vtime.Time(w.Reply.At), r)
		return nil
	case *nodeapi.Order_Entry:
		e := w.Entry.Entry
		x.node.SetEntry(vtime.Time(w.Entry.At), wire.MulticastEntry{Group: e.Group, Ports: narrow(e.Ports), From: narrow(e.From)})
		return nil
	case *nodeapi.Order_Report:
		if x.trace != nil {
			x.trace.Flush()
			x.tellLines()
		}
		return x.report(true)
	case *nodeapi.Order_Look:
		return x.report(false)
	case *nodeapi.Order_Capture:
		return x.capture(w.Capture)
	case *nodeapi.Order_Act:
		a := faults.Act{At: vtime.Time(w.Act.At)}
		if f := w.Act.GetAdd(); f != nil {
			a.ID, a.Text, a.Fault = f.Id, f.Text, f.Message
		} else {
			prefix := w.Act.GetRemove()
			a.Reset = &prefix
		}
		return a.Apply(x.faults, x.node.Part().Graph(), x.lab.Replicas(), x.notes)
	}
	return fmt.Errorf("order %T is not known to this version", o.What)
}

func narrow(ports []uint32) (all []uint16) {
	for _, p := range ports {
		all = append(all, uint16(p))
	}
	return all
}

// begin starts the node's rank of a job, if it has one.
func (x *member) begin(start *nodeapi.Start) error {
	app, ok := registry.App(start.App, apps.Env{Programs: x.programs, OpenStore: pebblestore.NewMemory().Open})
	if !ok {
		return fmt.Errorf("this agent has no program %q", start.App)
	}
	job := sim.Job{
		Name: start.Job, Params: labspec.RankParams(x.lab),
		Program: x.program(start, app),
		Emit: func(rank int, record []byte) {
			x.tell(&nodeapi.Word{What: &nodeapi.Word_Record{Record: &nodeapi.RankRecord{Rank: uint32(rank), Record: record}}})
		},
		Report: func(what string) { x.tell(&nodeapi.Word{What: &nodeapi.Word_Doing{Doing: what}}) },
		Over: func(now vtime.Time) {
			if x.lift {
				x.faults.EndRow(now)
			}
		},
	}
	g := x.node.Part().Graph()
	for _, name := range start.Names {
		h, ok := g.Find(name)
		if !ok {
			return fmt.Errorf("job %s has a rank on %s, which the lab has not", start.Job, name)
		}
		job.Hosts = append(job.Hosts, h)
	}
	x.faults.BeginRow(vtime.Time(start.Lab))
	x.ranks = x.node.Part().Begin(job)
	return nil
}

// program returns the program of the node's rank in a job: for a program of this server it has its turns, and records
// its begin and end.
func (x *member) program(start *nodeapi.Start, app apps.App) func(*rank.Rank) error {
	if _, ok := app.(command.App); !ok {
		return func(r *rank.Rank) error { return app.Run(r, start.Params) }
	}
	return func(r *rank.Rank) error {
		h := x.node.Part().Host(x.id)
		from := h.Now()
		waited, err := x.turns.Run(r.ID(), h)
		if err != nil {
			return err
		}
		b, err := json.Marshal(apps.Exit{Rank: r.ID(), Host: x.name, From: from, To: h.Now(), Waited: waited})
		if err == nil {
			rankrun.Of(r).Emit(b)
		}
		return err
	}
}

// tell sends a word of a rank. If the orchestrator is gone, the stream's end ends the run.
func (x *member) tell(w *nodeapi.Word) { _ = x.say(w) }

// stop unwinds the tasks that still wait, and reports the ends of the ranks.
func (x *member) stop() error {
	ended := &nodeapi.RanksEnded{}
	if x.ranks != nil {
		ended.Blocked = x.ranks.Stop()
		for i, err := range x.ranks.Errors() {
			if err != nil {
				ended.Errors = append(ended.Errors, &nodeapi.RankError{Rank: uint32(i), Error: err.Error(), Crashed: errors.Is(err, sim.ErrCrashed)})
			}
		}
	}
	return x.say(&nodeapi.Word{What: &nodeapi.Word_Ended{Ended: ended}})
}

// report sends the node's counters of the run so far; whole: with every frame, if that was asked for.
func (x *member) report(whole bool) error {
	part, g := x.node.Part(), x.node.Part().Graph()
	id, _ := g.Find(x.name)
	c := counters.Node{Node: x.name, LabUS: part.Now().Microseconds()}
	st := part.Stats()
	p := &nodeapi.PartState{Events: st.Events, AckHops: st.AckHops, Lost: st.Lost}
	var ledger [][]sim.Entry
	if whole {
		ledger, whole = part.Ledger()
		p.LedgerCut = !whole
	}
	for i := range g.Nodes[id].Links {
		far := g.Peer(id, i)
		in := part.Link(part.PortID(far.Node, far.Port))
		faulty := part.LinkStats(part.PortID(far.Node, far.Port))
		c.Ports = append(c.Ports, counters.Port{
			Port: i, Received: in.Frames, ReceivedBytes: in.Bytes,
			Malformed: faulty.Malformed, LostToFault: faulty.Lost, CopiedByFault: faulty.Copied, HeldByFault: faulty.Held,
		})
		k := &nodeapi.LinkState{Digest: in.Digest, Frames: in.Frames, Bytes: in.Bytes, Payload: in.Payload, Foreign: x.node.Foreign(i)}
		if ledger != nil {
			for _, e := range ledger[part.PortID(far.Node, far.Port)] {
				k.At, k.With = append(k.At, int64(e.At)), append(k.With, e.Digest)
			}
		}
		p.Links = append(p.Links, k)
	}
	if sw := part.Switch(id); sw != nil {
		c.Switch(sw, g)
	} else {
		c.NIC(part.NIC(id))
		c.Agent(part.Agent(id))
		p.Completions = part.NIC(id).Digest()
	}
	p.Faults = listed(x.faults.List(part.Now())).Faults
	if err := part.Leftover(); err != nil {
		p.Left = err.Error()
	}
	var err error
	if p.Node, err = json.Marshal(c); err != nil {
		return err
	}
	return x.say(&nodeapi.Word{What: &nodeapi.Word_State{State: p}})
}
