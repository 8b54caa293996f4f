// SPDX-License-Identifier: Apache-2.0

// Package traces writes the records of a run: events as JSON lines, captures that Wireshark opens.
package traces

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/checksum"
)

// EventsSchema names the format of events.jsonl; it stands in its first line.
const EventsSchema = "mcastlab/events/v1"

// eventsBytesMax bounds one file of events.
const eventsBytesMax = 64 << 20

// note is a line of events.jsonl about the run itself.
type note struct {
	TimeUS float64 `json:"t_us"`
	Event  string  `json:"event"`
	Data   any     `json:"data,omitempty"`
}

// Events writes events.jsonl. A line is complete or absent. A file that is full is rotated;
// without Rotate, events beyond its size are counted, and its last line gives their number. A
// lab in real time writes from many goroutines: those that follow its nodes, and the one that
// runs its workloads. So all methods are safe for concurrent use.
type Events struct {
	// Rotate, if set, sets aside the file that is full, which has the given number of lines. It returns
	// the next file, and the number of lines of older files that were deleted to make room for it.
	Rotate func(lines uint64) (next io.Writer, lost uint64, err error)

	mu      sync.Mutex
	observe func(node string, now vtime.Time, ev machine.Event) // nil: none
	w       *bufio.Writer
	sum     *checksum.Writer // of the file
	written int
	lines   uint64
	cut     uint64
	err     error
	text    []byte // of a node's event
}

// NewEvents starts the file with its schema.
func NewEvents(w io.Writer) *Events {
	e := &Events{sum: &checksum.Writer{W: w}}
	e.w = bufio.NewWriterSize(e.sum, 1<<16)
	e.put([]byte(schemaLine))
	return e
}

// schemaLine is the first line of a file.
const schemaLine = `{"schema":"` + EventsSchema + `"}`

// put writes a line. The caller holds the lock, or no other goroutine has the file yet.
func (e *Events) put(b []byte) {
	if e.err != nil {
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
	if _, err := e.w.Write(b); err != nil {
		e.err = fmt.Errorf("write event: %w", err)
	} else if err := e.w.WriteByte('\n'); err != nil {
		e.err = fmt.Errorf("write event: %w", err)
	}
}

// rotate continues in another file. The caller holds the lock.
func (e *Events) rotate() bool {
	e.end()
	if err := e.w.Flush(); e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return false
	}
	next, lost, err := e.Rotate(e.lines)
	if err != nil {
		e.err = fmt.Errorf("rotate events: %w", err)
		return false
	}
	e.cut += lost
	e.sum = &checksum.Writer{W: next}
	e.w.Reset(e.sum)
	e.written, e.lines = 0, 0
	e.put([]byte(schemaLine))
	return e.err == nil
}

// Note writes an event of the run itself.
func (e *Events) Note(now vtime.Time, event string, data any) {
	b, err := json.Marshal(note{TimeUS: now.Microseconds(), Event: event, Data: data})
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.err = cmp.Or(e.err, fmt.Errorf("write event: %w", err))
		return
	}
	e.put(b)
}

// Observe has f called with each event of a node from now on, those of one node in their order, and never twice at one time. f must
// not call the Events.
func (e *Events) Observe(f func(node string, now vtime.Time, ev machine.Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe = f
}

// Node returns the tracer of a node.
func (e *Events) Node(name string) machine.Tracer { return nodeEvents{e, name} }

// end writes the end line of a file, for which there is always room: the number of lines before it, and their
// checksum. The lock is held.
func (e *Events) end() {
	if e.err != nil {
		return
	}
	lines := e.lines
	if e.err = e.w.Flush(); e.err == nil {
		_, e.err = fmt.Fprintf(e.w, `{"event":"end","value":%d,%q:%q}`+"\n", lines, checksum.Key, e.sum.Sum())
	}
}

// Close writes the number of events that were cut and the end line, and flushes. A file without an end line is of a
// run that was killed, or is truncated.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cut > 0 && e.err == nil {
		b, _ := json.Marshal(map[string]any{"event": "cut", "value": e.cut, "text": "events beyond the size limit were left out"})
		_, e.err = e.w.Write(append(b, '\n'))
		e.lines++
	}
	e.end()
	if err := e.w.Flush(); err != nil && e.err == nil {
		e.err = fmt.Errorf("write events: %w", err)
	}
	return e.err
}

// Flush writes buffered events, so that readers see all of them.
func (e *Events) Flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.w.Flush(); err != nil && e.err == nil {
		e.err = fmt.Errorf("write events: %w", err)
	}
}

// Cut returns the number of events left out because of the size limit.
func (e *Events) Cut() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cut
}

type nodeEvents struct {
	e    *Events
	name string
}

// Trace implements machine.Tracer.
func (n nodeEvents) Trace(now vtime.Time, ev machine.Event) {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	if n.e.observe != nil {
		n.e.observe(n.name, now, ev)
	}
	n.e.text = appendEvent(n.e.text[:0], now, n.name, &ev)
	n.e.put(n.e.text)
}
