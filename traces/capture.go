// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Budget is the number of bytes that all captures of a run may write together.
type Budget struct {
	Left int64
	Cut  uint64 // frames that no longer fitted
}

// Capture writes the frames seen at one port as pcapng: an interface with the port's name, and
// lab time as time stamps (from the epoch on, in nanoseconds).
//
// Frames come nearly in the order of time, since a sent frame is reported when it arrives. Each
// is held back until no earlier one can come.
type Capture struct {
	w      *pcapgo.NgWriter
	budget *Budget
	slack  vtime.Duration
	held   queue.Heap[[]byte] // frames, those of one instant in the order in which they came here
	n      uint64             // frames that have come
	err    error
}

// blockOverhead is the size of the header and trailer that pcapng puts around a frame.
const blockOverhead = 32

// NewCapture starts a capture of the named port. slack bounds how late a frame may come after
// one of a later instant.
func NewCapture(w io.Writer, port string, slack vtime.Duration, budget *Budget) (*Capture, error) {
	ng, err := pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{
		Name: port, LinkType: layers.LinkTypeEthernet, SnapLength: 0, Description: "mcastlab port " + port,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "mcastlab"}})
	if err != nil {
		return nil, fmt.Errorf("start capture of %s: %w", port, err)
	}
	return &Capture{w: ng, budget: budget, slack: slack}, nil
}

// Frame adds a frame that passed the port at the given instant. now is the lab time:
// nothing earlier than now less the slack comes any more.
func (c *Capture) Frame(now, at vtime.Time, f *wire.Frame) {
	if c.fits(f.Len()) {
		c.add(now, at, f.AppendTo(nil))
	}
}

// Bytes adds a frame as it was seen on an interface. now and at are those of Frame.
func (c *Capture) Bytes(now, at vtime.Time, b []byte) {
	if c.fits(len(b)) {
		c.add(now, at, bytes.Clone(b))
	}
}

// fits takes the bytes of a frame from the budget.
func (c *Capture) fits(n int) bool {
	size := int64(n + blockOverhead)
	if c.budget.Left < size {
		c.budget.Cut++
		return false
	}
	c.budget.Left -= size
	return true
}

func (c *Capture) add(now, at vtime.Time, b []byte) {
	c.n++
	c.held.Push(at, c.n, b)
	for c.held.Len() > 0 && c.held.Next() < now.Add(-c.slack) {
		c.write(c.held.Pop())
	}
}

func (c *Capture) write(h queue.Due[[]byte]) {
	if c.err != nil {
		return
	}
	ns := int64(h.At) / int64(vtime.Nanosecond)
	err := c.w.WritePacket(gopacket.CaptureInfo{
		Timestamp: time.Unix(0, ns), CaptureLength: len(h.Value), Length: len(h.Value),
	}, h.Value)
	if err != nil {
		c.err = fmt.Errorf("write capture: %w", err)
	}
}

// Flush writes buffered frames, so that readers see all of them.
func (c *Capture) Flush() error {
	if err := c.w.Flush(); err != nil && c.err == nil {
		c.err = fmt.Errorf("write capture: %w", err)
	}
	return c.err
}

// Close writes the frames that are still buffered and flushes.
func (c *Capture) Close() error {
	for c.held.Len() > 0 {
		c.write(c.held.Pop())
	}
	if err := c.w.Flush(); err != nil && c.err == nil {
		c.err = fmt.Errorf("write capture: %w", err)
	}
	return c.err
}
