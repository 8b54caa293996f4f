// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Recorder makes the lines of trace.jsonl from the events of one node and from the frames that
// leave it. Packets of a flow that follow each other in equal steps are one line, so a message
// that nothing disturbs costs two lines per port.
//
// It is a machine.PassingTracer, a machine.RequestTracer, a machine.QueueTracer and a machine.Watcher.
type Recorder struct {
	node  string
	next  machine.Tracer // gets events, too; may be nil
	out   func(*Line)
	runs  map[flow]*run
	order []*run // of runs, so that the output does not depend on the order of the map
	free  []vtime.Time
	waits []int // by port, as the last line had it
}

// QueueStep is the smallest change of a queue, in bytes, for which a line is written; for a long queue it is a
// quarter of the earlier length. One or two packets that come and go cause no line.
const QueueStep = 8 << 10

// flow holds the fields that consecutive packets have in common.
type flow struct {
	port     int
	packet   string
	src, dst uint32
	qp       wire.QPN
}

// run is packets of a flow, in equal steps of time and number.
type run struct {
	flow  flow
	count int
	first wire.PSN
	last  wire.PSN
	step  int
	start vtime.Time
	end   vtime.Time // start of the last packet
	gap   vtime.Duration
	takes vtime.Duration
	lands vtime.Duration
}

// NewRecorder returns the recorder of a node. out gets its lines, one by one.
func NewRecorder(node string, next machine.Tracer, out func(*Line)) *Recorder {
	return &Recorder{node: node, next: next, out: out, runs: map[flow]*run{}}
}

// PassThrough implements machine.PassingTracer.
func (r *Recorder) PassThrough(through func(machine.Tracer) machine.Tracer) {
	if r.next != nil {
		r.next = through(r.next)
	}
}

// Trace implements machine.Tracer.
func (r *Recorder) Trace(now vtime.Time, e machine.Event) {
	if r.next != nil {
		r.next.Trace(now, e)
	}
	l := Line{
		Kind: LineEvent, Node: r.node, At: int64(now), Port: e.Port, PSN: uint32(e.PSN), QP: uint32(e.QP),
		Priority: e.Priority, Value: e.Value, Op: e.Kind.String(), Text: e.Text,
	}
	if e.Group != 0 {
		l.Group = wire.AddrOf(e.Group).String()
	}
	r.out(&l)
}

// TraceRequest implements machine.RequestTracer.
func (r *Recorder) TraceRequest(now vtime.Time, q machine.Request) {
	l := Line{
		Kind: LinePosted, Node: r.node, At: int64(now), Op: q.Op, QP: uint32(q.QP), Dst: wire.AddrOf(q.Peer).String(), DestQP: uint32(q.PeerQP),
		PSN: uint32(q.PSN), Count: int(q.Packets), Bytes: int64(q.Bytes), Text: q.Text,
	}
	switch q.Kind {
	case machine.RequestDone:
		l.Kind = LineDone
	case machine.RequestReceived:
		l.Kind, l.Src, l.Dst = LineReceived, wire.AddrOf(q.Peer).String(), wire.AddrOf(q.To).String()
	}
	r.out(&l)
}

// TraceQueue implements machine.QueueTracer.
func (r *Recorder) TraceQueue(now vtime.Time, port, bytes int) {
	for len(r.waits) <= port {
		r.waits = append(r.waits, 0)
	}
	last := r.waits[port]
	if change := max(bytes-last, last-bytes); change < max(QueueStep, last/4) && (bytes > 0 || last == 0) {
		return
	}
	r.waits[port] = bytes
	r.out(&Line{Kind: LineQueue, Node: r.node, At: int64(now), Port: port, Bytes: int64(bytes)})
}

// packetOf returns the kind of a RoCE packet.
func packetOf(f *wire.Frame) string {
	op := f.OpCode()
	switch {
	case op == wire.OpCNP:
		return PacketCNP
	case op == wire.OpAcknowledge:
		if f.AETH().Syndrome.IsACK() {
			return PacketAck
		}
		return PacketNak
	case op.Is(wire.OpResponse):
		return PacketResponse
	case op == wire.OpReadRequest || op == wire.OpCompareSwap || op == wire.OpFetchAdd:
		return PacketRead
	}
	return PacketData
}

// Sent implements machine.Watcher.
func (r *Recorder) Sent(port int, start vtime.Time, d vtime.Duration, landed vtime.Time, f *wire.Frame) {
	if f.Kind() != wire.KindRoCE {
		return
	}
	for len(r.free) <= port {
		r.free = append(r.free, 0)
	}
	// A port sends one frame at a time: one that seems to have begun before the last one
	// had left was under way when the rate changed.
	if late := r.free[port].Sub(start); late > 0 {
		start, d = start.Add(late), max(0, d-late)
	}
	r.free[port] = start.Add(d)
	k := flow{port, packetOf(f), f.SrcIP(), f.DstIP(), f.DestQP()}
	psn, lands := f.PSN(), landed.Sub(start)
	o := r.runs[k]
	if o == nil {
		o = &run{flow: k}
		r.runs[k] = o
		r.order = append(r.order, o)
	} else if o.add(psn, start, d, lands) {
		return
	}
	r.write(o)
	*o = run{flow: k, count: 1, first: psn, last: psn, start: start, end: start, takes: d, lands: lands}
}

// add adds a packet to the run, if it fits.
func (o *run) add(psn wire.PSN, start vtime.Time, d, lands vtime.Duration) bool {
	step, gap := psn.Sub(o.last), start.Sub(o.end)
	switch {
	case o.count == 0 || d != o.takes || lands != o.lands || step <= 0:
		return false
	case o.count == 1:
		o.step, o.gap = step, gap
	case step != o.step || gap != o.gap:
		return false
	}
	o.count++
	o.last, o.end = psn, start
	return true
}

// write makes a line of a run.
func (r *Recorder) write(o *run) {
	if o.count == 0 {
		return
	}
	l := Line{
		Kind: LineSent, Node: r.node, At: int64(o.start), Port: o.flow.port, Packet: o.flow.packet, Src: wire.AddrOf(o.flow.src).String(),
		Dst: wire.AddrOf(o.flow.dst).String(), DestQP: uint32(o.flow.qp), PSN: uint32(o.first), Count: o.count,
		Takes: int64(o.takes), Lands: int64(o.lands),
	}
	if o.count > 1 {
		l.Step, l.Gap = uint32(o.step), int64(o.gap)
	}
	o.count = 0
	r.out(&l)
}

// Lost implements machine.Watcher.
func (r *Recorder) Lost(now vtime.Time, port int, f *wire.Frame) {
	if f.Kind() != wire.KindRoCE {
		return
	}
	r.out(&Line{
		Kind: LineLost, Node: r.node, At: int64(now), Port: port, Packet: packetOf(f), Src: wire.AddrOf(f.SrcIP()).String(),
		Dst: wire.AddrOf(f.DstIP()).String(), DestQP: uint32(f.DestQP()), PSN: uint32(f.PSN()),
	})
}

// Flush makes lines of all packets seen so far.
func (r *Recorder) Flush() {
	for _, o := range r.order {
		r.write(o)
	}
}
