package machine

import (
	"math"
	"math/bits"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// CutBytes is how much of a frame a cut-through switch waits for: preamble and
// headers up to the extension headers of RoCEv2.
const CutBytes = 82

// Port is the machine's half of a transmitter: when it is free, when the machine wants to
// start the next frame, and the start of each frame. It has no way to the link behind it,
// which is the driver's half (Link).
//
// Both halves are one value, since a start on one side is an arrival on the other, and
// since a hop should touch no more memory than that of one transmitter. Each half has
// methods for its own side alone: a driver that has handed its ports over keeps the Links,
// and a machine never sees those.
type Port struct{ link Link }

// PortConfig describes a transmitter and its link.
type PortConfig struct {
	BitsPerSec int64          // line rate, 1 Mb/s to 100 Tb/s
	Delay      vtime.Duration // propagation delay plus the pipeline latency of the far end
	CutThrough bool           // hand RoCE frames over once the header is there
}

// Serialize returns how long size bytes occupy a transmitter of this rate.
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

// Next returns when the next frame would start, or vtime.Never if none may.
func (p *Port) Next() vtime.Time { return p.link.next }

// Free returns when the last committed frame has left, or the instant of a later HoldUntil.
func (p *Port) Free() vtime.Time { return p.link.free }

// Serialize returns how long size bytes occupy the transmitter at its present rate.
func (p *Port) Serialize(size int) vtime.Duration { return p.link.Serialize(size) }

// Commit starts the frame at start, which is not before Free. size is its WireLen.
// The frame is the driver's from here on.
func (p *Port) Commit(f *wire.Frame, size int, start vtime.Time) {
	l := &p.link
	l.free = start.Add(l.Serialize(size))
	at := l.free.Add(l.Delay)
	if l.cut && f.Kind() == wire.KindRoCE {
		at = start.Add(l.Serialize(min(size, CutBytes)) + l.Delay)
	}
	l.flights.Push(Flight{at, f})
	if !l.keyed && !l.listed {
		l.enlist()
	}
}

// SetNext records when the next frame would start, or vtime.Never.
func (p *Port) SetNext(t vtime.Time) {
	l := &p.link
	l.next = t
	if t != vtime.Never && l.flights.Len() == 0 && !l.listed {
		l.enlist()
	}
}

// HoldUntil makes the transmitter busy until t, if it would be free earlier.
func (p *Port) HoldUntil(t vtime.Time) { p.link.free = max(p.link.free, t) }
