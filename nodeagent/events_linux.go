// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/traces"
)

// Bounds of a node's events.
const (
	eventsHeld  = 1 << 16                // that wait to be sent
	eventsEvery = 200 * time.Millisecond // between batches, which bounds the loss by a kill
)

// linesBatch is the number of lines of the trace in a batch: gRPC takes 4 MiB.
const linesBatch = 1 << 13

// events collects the machine's reports until they are sent.
type events struct {
	mu    sync.Mutex
	all   []*nodeapi.Event
	cut   uint64
	lines [][]byte // of the trace
	short uint64   // lines that were dropped for lack of room
	trace *recorder
}

// recorder records the node's trace; the loop writes it and the watcher's stream reads it.
type recorder struct {
	mu  sync.Mutex
	rec *traces.Recorder
}

// record starts to collect a trace and returns the recorder that the loop has to call.
func (e *events) record(name string) *recorder {
	e.trace = &recorder{rec: traces.NewRecorder(name, e, e.line)}
	return e.trace
}

// line adds a line of the trace.
func (e *events) line(l *traces.Line) {
	b, err := json.Marshal(l)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil || len(e.lines) >= eventsHeld {
		e.short++
		return
	}
	e.lines = append(e.lines, b)
}

// Trace implements machine.Tracer.
func (r *recorder) Trace(now vtime.Time, e machine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Trace(now, e)
}

// TraceRequest implements machine.RequestTracer.
func (r *recorder) TraceRequest(now vtime.Time, q machine.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.TraceRequest(now, q)
}

// TraceQueue implements machine.QueueTracer.
func (r *recorder) TraceQueue(now vtime.Time, port, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.TraceQueue(now, port, bytes)
}

// Sent implements machine.Watcher.
func (r *recorder) Sent(port int, start vtime.Time, d vtime.Duration, landed vtime.Time, f *wire.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Sent(port, start, d, landed, f)
}

// Lost implements machine.Watcher.
func (r *recorder) Lost(now vtime.Time, port int, f *wire.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Lost(now, port, f)
}

func (r *recorder) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Flush()
}

// Trace implements machine.Tracer.
func (e *events) Trace(now vtime.Time, ev machine.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) >= eventsHeld {
		e.cut++
		return
	}
	e.all = append(e.all, nodeapi.EventOf(now, ev))
}

// take returns the collected events and empties the buffer.
func (e *events) take() (all []*nodeapi.Event, cut uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.all = e.all, nil
	return all, e.cut
}

// legacy encodes events that were not sent to any peer yet.
func (e *events) legacy() []byte {
	if e.trace != nil {
		e.trace.flush()
	}
	all, cut := e.take()
	b, err := proto.Marshal(&nodeapi.EventBatch{Events: all, Cut: cut, Trace: e.lines, TraceCut: e.short})
	if err != nil { // a text that is no UTF-8
		b, _ = proto.Marshal(&nodeapi.EventBatch{Cut: cut + uint64(len(all)), TraceCut: e.short + uint64(len(e.lines))})
	}
	return b
}

// takeOver continues with the events that the previous process had not sent.
func (e *events) takeOver(legacy []byte) error {
	var b nodeapi.EventBatch
	if err := proto.Unmarshal(legacy, &b); err != nil {
		return fmt.Errorf("take over events: %w", err)
	}
	e.all, e.cut, e.lines, e.short = b.Events, b.Cut, b.Trace, b.TraceCut
	return nil
}

// stream sends batches until the watcher goes, or until the node is stopped; then it sends a last
// batch.
func (e *events) stream(s nodeapi.Node_WatchServer, now func() vtime.Time, done <-chan struct{}) error {
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	for last := false; ; {
		// Inputs have lab times from before the clock's, so lines traced after this reading may be
		// earlier by the loop's lag, as the contract allows.
		until := now()
		if e.trace != nil {
			e.trace.flush()
		}
		all, cut := e.take()
		if err := s.Send(&nodeapi.EventBatch{Events: all, Until: int64(until), Cut: cut}); err != nil {
			return err
		}
		if err := e.sendLines(s, until); err != nil {
			return err
		}
		if last {
			return nil
		}
		select {
		case <-s.Context().Done():
			return nil
		case <-done:
			last = true
		case <-tick.C:
		}
	}
}

// sendLines sends the lines of the trace collected so far.
func (e *events) sendLines(s nodeapi.Node_WatchServer, until vtime.Time) error {
	e.mu.Lock()
	lines, short := e.lines, e.short
	e.lines = nil
	e.mu.Unlock()
	for len(lines) > 0 {
		n := min(linesBatch, len(lines))
		if err := s.Send(&nodeapi.EventBatch{Until: int64(until), Trace: lines[:n], TraceCut: short}); err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}
