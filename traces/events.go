// Package traces writes what a run leaves behind: events as JSON lines, captures that
// Wireshark opens.
package traces

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// EventsSchema names the format of events.jsonl; it stands in its first line.
const EventsSchema = "mcastlab/events/v1"

// eventsBytesMax bounds one file of events.
const eventsBytesMax = 64 << 20

// record is one line of events.jsonl.
type record struct {
	TimeUS   float64 `json:"t_us"`
	Node     string  `json:"node,omitempty"`
	Event    string  `json:"event"`
	Port     *int    `json:"port,omitempty"`
	Priority *uint8  `json:"priorities,omitempty"` // bit mask
	QP       uint32  `json:"qp,omitempty"`
	PSN      *uint32 `json:"psn,omitempty"`
	Group    string  `json:"group,omitempty"`
	Value    *int64  `json:"value,omitempty"`
	Text     string  `json:"text,omitempty"`
	Data     any     `json:"data,omitempty"`
}

// Events writes events.jsonl. A line is complete or absent. A file that is full is rotated;
// without Rotate, events beyond its size are counted, and its last line gives their number. A
// lab in real time writes from many goroutines: those that follow its nodes, and the one that
// runs its workloads. So all methods are safe for concurrent use.
type Events struct {
	// Rotate, if set, sets aside the file that is full, which has the given number of lines. It
	// returns the next file, and how many lines of older files were deleted to make room for
	// it.
	Rotate func(lines uint64) (next io.Writer, lost uint64, err error)

	mu      sync.Mutex
	w       *bufio.Writer
	written int
	lines   uint64 // beside the first
	cut     uint64
	err     error
}

// NewEvents starts the file with its schema.
func NewEvents(w io.Writer) *Events {
	e := &Events{w: bufio.NewWriterSize(w, 1<<16)}
	e.put(map[string]string{"schema": EventsSchema})
	return e
}

func (e *Events) line(v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(v)
}

// put writes a line. The lock is held, or nobody else knows the file yet.
func (e *Events) put(v any) {
	if e.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		e.err = fmt.Errorf("write event: %w", err)
		return
	}
	if e.written += len(b) + 1; e.written > eventsBytesMax {
		if e.Rotate == nil || !e.rotate() {
			e.cut++
			return
		}
		e.written += len(b) + 1
	}
	e.lines++
	if _, err := e.w.Write(append(b, '\n')); err != nil {
		e.err = fmt.Errorf("write event: %w", err)
	}
}

// rotate goes on in another file. The lock is held.
func (e *Events) rotate() bool {
	if e.err = e.w.Flush(); e.err != nil {
		return false
	}
	next, lost, err := e.Rotate(e.lines)
	if err != nil {
		e.err = fmt.Errorf("rotate events: %w", err)
		return false
	}
	e.cut += lost
	e.w.Reset(next)
	e.written, e.lines = 0, 0
	e.put(map[string]string{"schema": EventsSchema})
	return e.err == nil
}

// Note writes an event of the run itself.
func (e *Events) Note(now vtime.Time, event string, data any) {
	e.line(record{TimeUS: now.Microseconds(), Event: event, Data: data})
}

// Node returns the tracer of a node.
func (e *Events) Node(name string) machine.Tracer { return nodeEvents{e, name} }

// Close writes the number of events that were cut and the end line, which holds the number of
// lines before it, and flushes. A file without an end line is of a run that was killed, or is
// truncated.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cut > 0 && e.err == nil {
		b, _ := json.Marshal(map[string]any{"event": "cut", "value": e.cut, "text": "events beyond the size limit were left out"})
		_, e.err = e.w.Write(append(b, '\n'))
		e.lines++
	}
	if e.err == nil {
		b, _ := json.Marshal(map[string]any{"event": "end", "value": e.lines})
		_, e.err = e.w.Write(append(b, '\n'))
	}
	if err := e.w.Flush(); err != nil && e.err == nil {
		e.err = fmt.Errorf("write events: %w", err)
	}
	return e.err
}

// Flush makes what was written so far readable.
func (e *Events) Flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.w.Flush(); err != nil && e.err == nil {
		e.err = fmt.Errorf("write events: %w", err)
	}
}

// Cut returns how many events were left out for size.
func (e *Events) Cut() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut
}

type nodeEvents struct {
	e    *Events
	name string
}

// Trace implements machine.Tracer: of an event the fields its kind has are written.
func (n nodeEvents) Trace(now vtime.Time, ev machine.Event) {
	r := record{TimeUS: now.Microseconds(), Node: n.name, Event: ev.Kind.String(), Text: ev.Text, QP: uint32(ev.QP)}
	psn := uint32(ev.PSN)
	if ev.Group != 0 {
		r.Group = wire.AddrOf(ev.Group).String()
	}
	switch ev.Kind {
	case machine.EventDrop:
		r.Port = &ev.Port
		if ev.QP != 0 {
			r.PSN = &psn
		}
	case machine.EventPauseSent, machine.EventPauseReceived:
		r.Port, r.Priority, r.Value = &ev.Port, &ev.Priority, &ev.Value
	case machine.EventPauseStorm, machine.EventPauseStormOver:
		r.Port, r.Priority = &ev.Port, &ev.Priority
	case machine.EventGroupAdded, machine.EventGroupRegions:
		r.Port, r.Value = &ev.Port, &ev.Value
	case machine.EventFallback, machine.EventReturn, machine.EventProbe, machine.EventMemberLost:
		r.Value = &ev.Value
	case machine.EventGroupActive:
		r.PSN, r.Value = &psn, &ev.Value
	case machine.EventSourceSwitch, machine.EventAckRepeated:
		r.Port, r.PSN = &ev.Port, &psn
	case machine.EventNakSent, machine.EventNakReceived, machine.EventTimeout, machine.EventRetransmit, machine.EventNakAggregated:
		r.PSN = &psn
	}
	n.e.line(r)
}
