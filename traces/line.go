// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/mcastlab/mcastlab/internal/checksum"
)

// TraceSchema names the format of trace.jsonl; it stands in its first line.
const TraceSchema = "mcastlab/trace/v1"

// traceBytesMax bounds trace.jsonl.
const traceBytesMax = 1 << 30

// Kinds of line in trace.jsonl.
const (
	LineHost     = "host"     // Node has the address Src
	LineLink     = "link"     // Node's Port leads to port ToPort of To
	LineSent     = "sent"     // frames of one flow that left Node by Port
	LineLost     = "lost"     // a fault took a frame away at the end of the link into Port
	LinePosted   = "posted"   // a work request was posted to a send queue
	LineDone     = "done"     // a work request left its send queue; Text: why, if it failed
	LineReceived = "received" // a message was received
	LineEvent    = "event"    // an event of docs/counters.md; Text: its name
	LineMessage  = "message"  // a message as the workload counts them: an iteration
	LineWorkload = "workload" // a workload begins
	LineQueue    = "queue"    // Bytes wait at a switch's Port from At on, to within a quarter or 8 KiB
	LineGap      = "gap"      // no further lines came from Node
	LineCut      = "cut"      // Count lines beyond the limit were left out
	LineEnd      = "end"      // the trace ends here, after Count lines: without it the writer was killed, or the file was cut
)

// Kinds of packet.
const (
	PacketData     = "data"     // data of a SEND or WRITE, or a datagram
	PacketRead     = "read"     // the request of a READ or an atomic
	PacketResponse = "response" // the response to a READ or an atomic
	PacketAck      = "ack"
	PacketNak      = "nak" // an RNR NAK, too
	PacketCNP      = "cnp"
)

// Line is one line of trace.jsonl. Which fields count depends on its kind; times and spans
// are whole picoseconds of lab time.
type Line struct {
	Kind string `json:"k"`
	Node string `json:"n,omitempty"`
	At   int64  `json:"t"`
	Port int    `json:"p,omitempty"`

	To     string `json:"to,omitempty"`
	ToPort int    `json:"tp,omitempty"`

	// A flow: the kind of its packets, and the addresses and queue pair in them.
	Packet string `json:"w,omitempty"`
	Src    string `json:"src,omitempty"`
	Dst    string `json:"dst,omitempty"`
	DestQP uint32 `json:"dqp,omitempty"`

	// Count packets from PSN on, Step apart, the first of which began at At and each of
	// the others Gap after the one before. Each takes the port for Takes and is with the
	// neighbour Lands after it began.
	PSN   uint32 `json:"psn"`
	Count int    `json:"c,omitempty"`
	Step  uint32 `json:"s,omitempty"`
	Gap   int64  `json:"g,omitempty"`
	Takes int64  `json:"d,omitempty"`
	Lands int64  `json:"l,omitempty"`

	// A work request, and an event's numbers.
	Op       string `json:"op,omitempty"`
	QP       uint32 `json:"qp,omitempty"`
	Bytes    int64  `json:"b,omitempty"`
	Priority uint8  `json:"priorities,omitempty"`
	Value    int64  `json:"value,omitempty"`
	Group    string `json:"group,omitempty"`
	Text     string `json:"text,omitempty"`

	// A workload's message: it began at At.
	Workload  string   `json:"workload,omitempty"`
	Scheme    string   `json:"scheme,omitempty"`
	Iteration int      `json:"iteration,omitempty"`
	Hosts     []string `json:"hosts,omitempty"`    // of the ranks
	Received  []int64  `json:"received,omitempty"` // by rank, when it had everything; -1: it was the source
	Ended     int64    `json:"ended,omitempty"`    // when the last rank resumed
	Source    int64    `json:"source,omitempty"`   // when the source was done

	Sum string `json:"crc32c,omitempty"` // of all lines before the end
}

// Lines writes trace.jsonl. A line is complete or absent. Lines beyond the size limit are counted, and
// a line gives their number. The last line gives the number of lines before it.
type Lines struct {
	mu      sync.Mutex // nodes and the run itself write
	w       *bufio.Writer
	sum     *checksum.Writer
	written int
	lines   int
	cut     int
	err     error
}

// NewLines starts the file with its schema.
func NewLines(w io.Writer) *Lines {
	l := &Lines{sum: &checksum.Writer{W: w}}
	l.w = bufio.NewWriterSize(l.sum, 1<<16)
	l.bytes([]byte(`{"schema":"` + TraceSchema + `"}`))
	return l
}

// Write adds a line.
func (l *Lines) Write(v *Line) {
	b, _ := json.Marshal(v) // of plain values: it cannot fail
	l.bytes(b)
}

// Raw adds a line that another process has made.
func (l *Lines) Raw(b []byte) { l.bytes(b) }

func (l *Lines) bytes(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if l.written+len(b)+1 > traceBytesMax {
		l.cut++
		return
	}
	l.written += len(b) + 1
	l.lines++
	if _, l.err = l.w.Write(append(b, '\n')); l.err != nil {
		l.err = fmt.Errorf("write trace: %w", l.err)
	}
}

// Flush writes buffered lines, so that readers see all of them.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *Lines) flush() {
	if err := l.w.Flush(); err != nil && l.err == nil {
		l.err = fmt.Errorf("write trace: %w", err)
	}
}

// Close writes the number of lines that were cut and the end line, and flushes.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut > 0 {
		l.last(&Line{Kind: LineCut, Count: l.cut})
	}
	l.flush()
	l.last(&Line{Kind: LineEnd, Count: l.lines, Sum: l.sum.Sum()})
	l.flush()
	return l.err
}

// last writes a line for which there is always room. The lock is held.
func (l *Lines) last(v *Line) {
	if l.err != nil {
		return
	}
	b, _ := json.Marshal(v) // of plain values: it cannot fail
	l.lines++
	if _, l.err = l.w.Write(append(b, '\n')); l.err != nil {
		l.err = fmt.Errorf("write trace: %w", l.err)
	}
}

// Cut returns the number of lines left out because of the size limit.
func (l *Lines) Cut() int { return l.cut }
