// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math"
	"math/bits"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// CutBytes is the number of bytes of a frame that a cut-through switch receives before it decides:
// the preamble and the headers up to the extension headers of RoCEv2.
const CutBytes = 82

// Port is the machine's half of a transmitter. Its methods return the time at which the transmitter is
// free, sets when it wants to start the next frame, and starts frames. The other half is the driver's
// (Link), which a machine cannot reach.
//
// Both halves are one value in memory, because the start of a frame determines its arrival, and
// because a hop should touch the memory of one transmitter only. Each half has methods for its own
// side. A driver passes the Ports to its machines and keeps the Links.
type Port struct{ link Link }

// PortConfig describes a transmitter and its link.
type PortConfig struct {
	BitsPerSec int64          // line rate, 1 Mb/s to 100 Tb/s
	Delay      vtime.Duration // propagation delay plus the pipeline latency of the far end
	CutThrough bool           // deliver RoCE frames when their header has arrived
}

// Serialize returns the time for which size bytes occupy a transmitter of this rate.
func (c PortConfig) Serialize(size int) vtime.Duration {
	return serialize(size, BytePs16(c.BitsPerSec))
}

// BytePs16 returns the time of one byte at the given rate, in 1/65536 picoseconds.
func BytePs16(bitsPerSec int64) int64 {
	// 8e12 * 65536 / rate does not fit 64 bits before the division.
	hi, lo := bits.Mul64(8_000_000_000_000, 1<<16)
	q, _ := bits.Div64(hi, lo, uint64(bitsPerSec))
	return int64(min(q, math.MaxInt64))
}

func serialize(size int, bytePs16 int64) vtime.Duration {
	return vtime.Duration((int64(size)*bytePs16 + 1<<15) >> 16)
}

// Next returns the instant that SetNext has recorded, or vtime.Never if no frame may start.
func (p *Port) Next() vtime.Time { return p.link.next }

// Free returns the end of transmission of the last committed frame, or the instant of a later
// HoldUntil.
func (p *Port) Free() vtime.Time { return p.link.free }

// Serialize returns the time for which size bytes occupy the transmitter at its present rate.
func (p *Port) Serialize(size int) vtime.Duration { return p.link.Serialize(size) }

// Commit starts a frame at start, which must not be before Free. size is the frame's WireLen. The
// driver becomes the owner of the frame.
func (p *Port) Commit(f *wire.Frame, size int, start vtime.Time) {
	if f.Kind() == wire.KindPFC {
		p.link.list.pauses++
	}
	p.CommitPacket(f, size, start)
}

// CommitPacket is Commit for a frame that is no pause frame. It does not read the frame, which has left the caches if it
// has waited, unless the link is one of a cut-through switch.
func (p *Port) CommitPacket(f *wire.Frame, size int, start vtime.Time) {
	l := &p.link
	l.free = start.Add(l.Serialize(size))
	at := l.free.Add(l.Delay)
	if l.cut && f.Kind() == wire.KindRoCE {
		at = start.Add(l.Serialize(min(size, CutBytes)) + l.Delay)
	}
	if x := (Flight{at, f}); !l.flights.Place(x) {
		l.flights.Push(x)
	}
	if !l.keyed && !l.listed {
		l.enlist()
	}
}

// SetNext records when the machine would start its next frame, or vtime.Never if it has none to
// send.
func (p *Port) SetNext(t vtime.Time) {
	l := &p.link
	l.next = t
	if t != vtime.Never && l.flights.Len() == 0 && !l.listed {
		l.enlist()
	}
}

// HoldUntil keeps the transmitter busy until t if it would be free earlier.
func (p *Port) HoldUntil(t vtime.Time) { p.link.free = max(p.link.free, t) }
