package sim

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// partLog keeps what the machines of one part report until all parts have come to the same instant,
// so that the reports of a lab in parts are in the order of those of the whole: in that of the events of
// the loop that have caused them.
type partLog struct {
	net     *Net
	reports []report
	ready   int // in writeLogs: how many of them it passes on
	passed  int // and how many it has passed on
}

// report is an event of a machine with the event of the loop that has caused it.
type report struct {
	at    vtime.Time // of the loop
	cause uint64     // class and masked id; see Net.cause
	to    machine.Tracer
	now   vtime.Time // as the machine has it
	e     machine.Event
	q     *machine.Request // a report of a work request, instead of e
	queue *queueReport     // a report of a queue, instead of both
}

// queueReport says what waits at a port.
type queueReport struct{ port, bytes int }

// tracers returns tracers that keep the reports of nodes for those that of returns.
func (l *partLog) tracers(of func(node int) machine.Tracer) func(node int) machine.Tracer {
	return func(node int) machine.Tracer {
		to := of(node)
		if to == nil {
			return nil
		}
		_, requests := to.(machine.RequestTracer)
		_, queues := to.(machine.QueueTracer)
		if requests && queues {
			return partRequests{partTracer{l, to}}
		}
		return partTracer{l, to}
	}
}

type partTracer struct {
	l  *partLog
	to machine.Tracer
}

// Trace implements machine.Tracer.
func (t partTracer) Trace(now vtime.Time, e machine.Event) { t.keep(report{now: now, e: e}) }

func (t partTracer) keep(r report) {
	r.at, r.cause, r.to = t.l.net.now, t.l.net.cause, t.to
	t.l.reports = append(t.l.reports, r)
}

// partRequests keeps reports of work requests and of queues, too.
type partRequests struct{ partTracer }

// TraceRequest implements machine.RequestTracer.
func (t partRequests) TraceRequest(now vtime.Time, q machine.Request) {
	t.keep(report{now: now, q: &q})
}

// TraceQueue implements machine.QueueTracer.
func (t partRequests) TraceQueue(now vtime.Time, port, bytes int) {
	t.keep(report{now: now, queue: &queueReport{port, bytes}})
}

// writeLogs passes on what was reported before an instant, to which all parts have come. Reports of one part are in the order of
// their causes, and those of all parts are merged: thousands of hosts that end at the same time report a million events.
func (p *Parts) writeLogs(before vtime.Time) {
	all := logHeap(p.passing[:0])
	for i, l := range p.logs {
		for l.ready < len(l.reports) && l.reports[l.ready].at < before {
			l.ready++
		}
		if l.ready > 0 {
			all = append(all, logFront{&l.reports[0], i})
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		all[0].pass()
		l := p.logs[all[0].part]
		if l.passed++; l.passed < l.ready {
			all[0].report = &l.reports[l.passed]
			heap.Fix(&all, 0)
			continue
		}
		heap.Pop(&all)
		l.drop()
	}
	p.passing = all[:0]
}

// pass passes a report on.
func (r *report) pass() {
	switch {
	case r.q != nil:
		r.to.(machine.RequestTracer).TraceRequest(r.now, *r.q)
	case r.queue != nil:
		r.to.(machine.QueueTracer).TraceQueue(r.now, r.queue.port, r.queue.bytes)
	default:
		r.to.Trace(r.now, r.e)
	}
}

// drop removes the reports that have been passed on.
func (l *partLog) drop() {
	l.reports, l.ready, l.passed = slices.Delete(l.reports, 0, l.ready), 0, 0
	if len(l.reports) == 0 && cap(l.reports) > passingMax {
		l.reports = nil
	}
}

// logFront is the first report of a part that has not been passed on.
type logFront struct {
	*report
	part int
}

// logHeap has the fronts of parts, that of the earliest cause first, and of one cause that of the lowest part.
type logHeap []logFront

func (h logHeap) Len() int      { return len(h) }
func (h logHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h logHeap) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cause, b.cause), cmp.Compare(a.part, b.part)) < 0
}
func (h *logHeap) Push(x any) { *h = append(*h, x.(logFront)) }
func (h *logHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// passingMax is the largest number of reports of a part for which room is kept.
const passingMax = 1 << 10
