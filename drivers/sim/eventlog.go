package sim

import (
	"cmp"
	"container/heap"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// eventLog keeps what the machines of a lab, or of one of its parts, report until all parts have come to a later
// instant. Then reports are passed on in the order of their instants, those of one instant by node, and those of
// one node as they came. What has led to a report at a node, and so when at an instant it is made, is not the same in the whole
// and in parts: the end of a frame is noticed by a timer here, and there by the start of the next one.
type eventLog struct {
	net     *Net
	waiting []*nodeLog // those with reports, in no order
	spare   *logChunk
	first   vtime.Time // the instant of the first report, if there is one

	// Of a whole lab: itself alone, and what passing reports on takes.
	alone   [1]*eventLog
	passing logHeap
}

// nodeLog has the reports of one node, oldest first.
type nodeLog struct {
	node        int
	to          machine.Tracer
	first, last *logChunk // nil if there is none
	passed      int       // reports of the first chunk that have been passed on
}

// logChunk is some reports of a node. There are few at most instants, and at some a million: a rank that ends has some sixty.
type logChunk struct {
	reports [8]report
	n       int
	next    *logChunk
}

// report is an event of a machine.
type report struct {
	at    vtime.Time // of the loop
	now   vtime.Time // as the machine has it
	e     machine.Event
	q     *machine.Request // a report of a work request, instead of e
	queue *queueReport     // a report of a queue, instead of both
}

// queueReport says what waits at a port.
type queueReport struct{ port, bytes int }

// add returns a new report of a node, which is to be filled in at once.
func (l *eventLog) add(of *nodeLog) *report {
	if len(l.waiting) == 0 {
		l.first = l.net.now
	}
	if of.first == nil {
		l.waiting = append(l.waiting, of)
	}
	c := of.last
	if c == nil || c.n == len(c.reports) {
		if c = l.spare; c == nil {
			c = &logChunk{}
		}
		l.spare, c.next = c.next, nil
		if of.last == nil {
			of.first = c
		} else {
			of.last.next = c
		}
		of.last = c
	}
	c.n++
	return &c.reports[c.n-1]
}

// front returns the node's oldest report, or nil if it was not made before an instant.
func (of *nodeLog) front(before vtime.Time) *report {
	if of.first == nil {
		return nil
	}
	if r := &of.first.reports[of.passed]; r.at < before {
		return r
	}
	return nil
}

// drop removes the node's oldest report.
func (l *eventLog) drop(of *nodeLog) {
	c := of.first
	c.reports[of.passed] = report{}
	if of.passed++; of.passed < c.n {
		return
	}
	of.first, of.passed = c.next, 0
	if of.first == nil {
		of.last = nil
	}
	c.n, c.next, l.spare = 0, l.spare, c
}

// tracers returns tracers that keep the reports of nodes for those that of returns.
func (l *eventLog) tracers(of func(node int) machine.Tracer) func(node int) machine.Tracer {
	return func(node int) machine.Tracer {
		to := of(node)
		if to == nil {
			return nil
		}
		t := logTracer{l, &nodeLog{node: node, to: to}}
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

// inOrder returns tracers of a whole lab whose reports come in the order of those of a lab in parts. A tracer of work requests and queues
// gets its reports as they are made: it wants causes before effects, and in parts no user has one.
func (n *Net) inOrder(of func(node int) machine.Tracer) func(node int) machine.Tracer {
	n.log = &eventLog{net: n}
	n.log.alone[0] = n.log
	kept := n.log.tracers(of)
	return func(node int) machine.Tracer {
		if to := of(node); to == nil || tracesAll(to) {
			return to
		}
		return kept(node)
	}
}

type logTracer struct {
	l  *eventLog
	of *nodeLog
}

// Trace implements machine.Tracer.
func (t logTracer) Trace(now vtime.Time, e machine.Event) { t.keep(now).e = e }

// keep adds a report, which is to be filled in at once.
func (t logTracer) keep(now vtime.Time) *report {
	n := t.l.net
	if n.log == t.l && len(t.l.waiting) > 0 && t.l.first < n.now {
		n.passLog(n.now)
	}
	r := t.l.add(t.of)
	r.now, r.at = now, n.now
	return r
}

// passLog passes on what has been reported before an instant, in a whole lab.
func (n *Net) passLog(before vtime.Time) {
	if l := n.log; l != nil && len(l.waiting) > 0 {
		l.passing = pass(l.alone[:], l.passing, before)
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
	t.keep(now).queue = &queueReport{port, bytes}
}

// writeLogs passes on what was reported before an instant, to which all parts have come.
func (p *Parts) writeLogs(before vtime.Time) { p.passing = pass(p.logs, p.passing, before) }

// pass passes on the reports of logs that were made before an instant. Thousands of hosts that end at the same time report
// a million events. It returns the memory that it was given, or more.
func pass(logs []*eventLog, memory logHeap, before vtime.Time) logHeap {
	all := memory[:0]
	for _, l := range logs {
		for _, of := range l.waiting {
			if r := of.front(before); r != nil {
				all = append(all, logFront{r.at, of, l})
			}
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		of, l := all[0].of, all[0].log
		of.first.reports[of.passed].pass(of.to)
		l.drop(of)
		if r := of.front(before); r != nil {
			all[0].at = r.at
			heap.Fix(&all, 0)
		} else {
			heap.Pop(&all)
		}
	}
	for _, l := range logs {
		left := l.waiting[:0]
		for _, of := range l.waiting {
			if of.first != nil {
				left = append(left, of)
			}
		}
		clear(l.waiting[len(left):])
		l.waiting = left
	}
	return all
}

// pass passes a report on.
func (r *report) pass(to machine.Tracer) {
	switch {
	case r.q != nil:
		to.(machine.RequestTracer).TraceRequest(r.now, *r.q)
	case r.queue != nil:
		to.(machine.QueueTracer).TraceQueue(r.now, r.queue.port, r.queue.bytes)
	default:
		to.Trace(r.now, r.e)
	}
}

// logFront is a node whose oldest report was made at an instant.
type logFront struct {
	at  vtime.Time
	of  *nodeLog
	log *eventLog
}

// logHeap has the node with the earliest report first, and of several the one with the lowest number.
type logHeap []logFront

func (h logHeap) Len() int      { return len(h) }
func (h logHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h logHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].of.node, h[j].of.node)) < 0
}
func (h *logHeap) Push(x any) { *h = append(*h, x.(logFront)) }
func (h *logHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
