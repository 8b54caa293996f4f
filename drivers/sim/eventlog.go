// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// eventLog keeps the reports of a lab's machines, or of one of its parts, until all parts have reached a later instant. Then
// reports are passed on in the order of their instants, those of one instant by node, and those of one node in the order in
// which they were made. The trigger of a report, and so its place within an instant, differs between the whole and parts: the
// end of a frame is noticed by a timer here, and there by the start of the next one.
type eventLog struct {
	net *Net

	// chunks has the reports, oldest first. At some instants there are a million of them: one list would be copied as it grows.
	// Invariant: no chunk is empty, and of the first, passed reports have been passed on, not all.
	chunks [][]report
	passed int
	spare  []report  // an empty chunk, or nil
	order  []*report // those that are passed on next; empty otherwise

	// Of a whole lab: itself alone, and the sequence that passes reports on.
	alone   [1]*eventLog
	passing logHeap
}

// chunkLen is the number of reports that a chunk has room for.
const chunkLen = 256

// orderMax is the number of reports for which a log keeps the memory to sort them.
const orderMax = 1 << 12

// report is an event of a machine, a work request, or the queue of a port.
type report struct {
	of  *reporter
	at  vtime.Time // of the loop
	now vtime.Time // as the machine has it
	e   machine.Event
	q   *machine.Request // instead of e
}

// eventQueue is the kind of an event with the number of bytes that wait at a port. No machine reports
// it.
const eventQueue = machine.EventKind(0xff)

// reporter is a node whose reports a tracer gets.
type reporter struct {
	node int
	to   machine.Tracer
}

// add returns a new report, which is to be filled in at once.
func (l *eventLog) add() *report {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last]) == chunkLen {
		if l.spare == nil {
			l.spare = make([]report, 0, chunkLen)
		}
		l.chunks, l.spare = append(l.chunks, l.spare), nil
		last++
	}
	l.chunks[last] = append(l.chunks[last], report{})
	return &l.chunks[last][len(l.chunks[last])-1]
}

// begin sorts the reports from before an instant. Instants only grow, so that these are the oldest.
func (l *eventLog) begin(before vtime.Time) {
	from := l.passed
	for _, c := range l.chunks {
		for from < len(c) && c[from].at < before {
			l.order = append(l.order, &c[from])
			from++
		}
		if from < len(c) {
			break
		}
		from = 0
	}
	slices.SortStableFunc(l.order, inOrder)
}

// inOrder orders reports by instant and node.
func inOrder(a, b *report) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.of.node, b.of.node))
}

// end removes the reports that begin has sorted.
func (l *eventLog) end() {
	for n := len(l.order); n > 0; {
		first := l.chunks[0]
		k := min(n, len(first)-l.passed)
		clear(first[l.passed : l.passed+k])
		n -= k
		if l.passed += k; l.passed == len(first) {
			l.chunks, l.passed, l.spare = slices.Delete(l.chunks, 0, 1), 0, first[:0]
		}
	}
	clear(l.order)
	if l.order = l.order[:0]; cap(l.order) > orderMax {
		l.order = nil
	}
}

// tracers returns tracers that keep the reports of nodes for those that of returns.
func (l *eventLog) tracers(of func(node int) machine.Tracer) func(node int) machine.Tracer {
	return func(node int) machine.Tracer {
		to := of(node)
		if to == nil {
			return nil
		}
		t := logTracer{l, &reporter{node, to}}
		if tracesAll(to) {
			return logRequests{t}
		}
		return t
	}
}

// tracesAll reports whether a tracer takes reports of work requests and of queues, too.
func tracesAll(t machine.Tracer) bool {
	_, requests := t.(machine.RequestTracer)
	_, queues := t.(machine.QueueTracer)
	return requests && queues
}

// keepReports returns tracers of a whole lab whose reports come in the order of those of a lab in parts. A tracer of work requests and queues
// gets its reports as they are made: it wants causes before effects, and in parts no user has one. A tracer to which it passes events on
// gets those in the order of the others.
func (n *Net) keepReports(of func(node int) machine.Tracer) func(node int) machine.Tracer {
	n.log = &eventLog{net: n}
	n.log.alone[0] = n.log
	kept := n.log.tracers(of)
	return func(node int) machine.Tracer {
		to := of(node)
		if to == nil || !tracesAll(to) {
			return kept(node)
		}
		if p, is := to.(machine.PassingTracer); is {
			p.PassThrough(func(next machine.Tracer) machine.Tracer { return logTracer{n.log, &reporter{node, next}} })
		}
		return to
	}
}

type logTracer struct {
	l  *eventLog
	of *reporter
}

// Trace implements machine.Tracer.
func (t logTracer) Trace(now vtime.Time, e machine.Event) { t.keep(now).e = e }

// keep adds a report, which is to be filled in at once.
func (t logTracer) keep(now vtime.Time) *report {
	n := t.l.net
	if n.log == t.l && len(t.l.chunks) > 0 && t.l.chunks[0][t.l.passed].at < n.now {
		n.passLog(n.now)
	}
	r := t.l.add()
	r.of, r.now, r.at = t.of, now, n.now
	return r
}

// passLog passes on the reports from before an instant, in a whole lab.
func (n *Net) passLog(before vtime.Time) {
	if l := n.log; l != nil && len(l.chunks) > 0 {
		pass(l.alone[:], &l.passing, before)
	}
}

// logRequests keeps reports of work requests and of queues, too.
type logRequests struct{ logTracer }

// TraceRequest implements machine.RequestTracer.
func (t logRequests) TraceRequest(now vtime.Time, q machine.Request) {
	t.keep(now).q = &q
}

// TraceQueue implements machine.QueueTracer.
func (t logRequests) TraceQueue(now vtime.Time, port, bytes int) {
	t.keep(now).e = machine.Event{Kind: eventQueue, Port: port, Value: int64(bytes)}
}

// writeLogs passes on the reports from before an instant that all parts have reached.
func (p *Parts) writeLogs(before vtime.Time) { pass(p.logs, &p.passing, before) }

// pass passes on the reports of logs that were made before an instant. heap is empty before and after.
func pass(logs []*eventLog, heap *logHeap, before vtime.Time) {
	for _, l := range logs {
		if l.begin(before); len(l.order) > 0 {
			heap.add(l.order)
		}
	}
	for heap.Len() > 0 {
		left := heap.Pop().Value
		left[0].pass()
		n := 1
		for n < len(left) && left[n].at < heap.Next() {
			left[n].pass()
			n++
		}
		if n < len(left) {
			heap.add(left[n:])
		}
	}
	for _, l := range logs {
		l.end()
	}
}

// pass passes a report on.
func (r *report) pass() {
	to := r.of.to
	switch {
	case r.q != nil:
		to.(machine.RequestTracer).TraceRequest(r.now, *r.q)
	case r.e.Kind == eventQueue:
		to.(machine.QueueTracer).TraceQueue(r.now, r.e.Port, int(r.e.Value))
	default:
		to.Trace(r.now, r.e)
	}
}

// logHeap has the reports of logs that are not passed on yet, by the first one of each log: no node is in two logs.
type logHeap struct{ queue.Heap[[]*report] }

func (h *logHeap) add(left []*report) { h.Push(left[0].at, uint64(left[0].of.node), left) }
