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
	net *Net

	// chunks has the reports, oldest first. At some instants there are a million of them: one list would be copied as it grows.
	// Invariant: no chunk is empty, and of the first, passed reports have been passed on, not all.
	chunks [][]report
	passed int
	spare  []report // an empty chunk, or nil
}

// chunkLen is how many reports a chunk has room for.
const chunkLen = 256

// add returns a new report, which is to be filled in at once.
func (l *partLog) add() *report {
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

// front returns the oldest report, if it was made before an instant, else nil.
func (l *partLog) front(before vtime.Time) *report {
	if len(l.chunks) == 0 {
		return nil
	}
	if r := &l.chunks[0][l.passed]; r.at < before {
		return r
	}
	return nil
}

// drop removes the oldest report.
func (l *partLog) drop() {
	first := l.chunks[0]
	first[l.passed] = report{}
	if l.passed++; l.passed == len(first) {
		l.chunks, l.passed, l.spare = slices.Delete(l.chunks, 0, 1), 0, first[:0]
	}
}

// report is an event of a machine with the event of the loop that has caused it.
type report struct {
	at    vtime.Time // of the loop
	cause uint64     // class and masked id; see Net.cause
	act   uint64     // of the timeline of faults, up to then; see Net.act
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
func (t partTracer) Trace(now vtime.Time, e machine.Event) { t.keep(now).e = e }

// keep adds a report, which is to be filled in at once.
func (t partTracer) keep(now vtime.Time) *report {
	r := t.l.add()
	r.now, r.at, r.cause, r.act, r.to = now, t.l.net.now, t.l.net.cause, t.l.net.act, t.to
	return r
}

// partRequests keeps reports of work requests and of queues, too.
type partRequests struct{ partTracer }

// TraceRequest implements machine.RequestTracer.
func (t partRequests) TraceRequest(now vtime.Time, q machine.Request) {
	t.keep(now).q = &q
}

// TraceQueue implements machine.QueueTracer.
func (t partRequests) TraceQueue(now vtime.Time, port, bytes int) {
	t.keep(now).queue = &queueReport{port, bytes}
}

// writeLogs passes on what was reported before an instant, to which all parts have come. Reports of one part are in the order of
// their causes, and those of all parts are merged: thousands of hosts that end at the same time report a million events.
func (p *Parts) writeLogs(before vtime.Time) {
	all := logHeap(p.passing[:0])
	for i, l := range p.logs {
		if r := l.front(before); r != nil {
			all = append(all, logFront{r, i})
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		first := &all[0]
		l := p.logs[first.part]
		first.pass()
		l.drop()
		if first.report = l.front(before); first.report != nil {
			heap.Fix(&all, 0)
		} else {
			heap.Pop(&all)
		}
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
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cause, b.cause), cmp.Compare(a.act, b.act), cmp.Compare(a.part, b.part)) < 0
}
func (h *logHeap) Push(x any) { *h = append(*h, x.(logFront)) }
func (h *logHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
