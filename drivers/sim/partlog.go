package sim

import (
	"cmp"
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

// writeLogs passes on what was reported before an instant, to which all parts have come.
func (p *Parts) writeLogs(before vtime.Time) {
	all := p.passing[:0]
	for _, l := range p.logs {
		k := 0
		for k < len(l.reports) && l.reports[k].at < before {
			k++
		}
		all = append(all, l.reports[:k]...)
		l.reports = slices.Delete(l.reports, 0, k)
	}
	if p.passing = all; len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cause, b.cause))
	})
	for i := range all {
		r := &all[i]
		switch {
		case r.q != nil:
			r.to.(machine.RequestTracer).TraceRequest(r.now, *r.q)
		case r.queue != nil:
			r.to.(machine.QueueTracer).TraceQueue(r.now, r.queue.port, r.queue.bytes)
		default:
			r.to.Trace(r.now, r.e)
		}
	}
	clear(all) // nothing is kept alive from there
	if cap(all) > passingMax {
		p.passing = nil
	}
}

// passingMax is the largest number of reports for which room is kept.
const passingMax = 1 << 16
