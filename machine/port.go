package machine

import (
	"math"
	"math/bits"

	"github.com/mcastlab/mcastlab/machine/queue"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// CutBytes is how much of a frame a cut-through switch waits for: preamble and
// headers up to the extension headers of RoCEv2.
const CutBytes = 82

// Flight is a frame on a link.
type Flight struct {
	At    vtime.Time // when it is handed to the machine at the other end
	Frame *wire.Frame
}

// Port is one transmitter and the link behind it. The driver owns it; the machine
// at its near end reads Free, sets Next and calls Commit.
//
// The struct is two cache lines, the first with all that an arrival touches.
type Port struct {
	Next vtime.Time // when the next frame would start; vtime.Never if none may be sent
	Free vtime.Time // when the last committed frame has left

	flights queue.FIFO[Flight] // what is on the link
	id      uint32
	listed  bool
	keyed   bool // driver: the head of the ring has its event
	cut     bool

	// Node and NodePort name the link's far end. They are the driver's.
	Node, NodePort int32

	delay    vtime.Duration // propagation, and the far end's pipeline
	bytePs16 int64          // picoseconds per byte, in 1/65536
	list     *List

	// Digest, Frames, Bytes and Payload are the driver's account of the link.
	Digest        uint64
	Frames, Bytes uint64
	Payload       uint64     // bytes of messages, without any header
	wake          vtime.Time // driver: when the pending wake event is, or Never
}

// List collects the ports that need the driver's attention after a call into a
// machine: something was committed to an idle link, or waits with nothing on it.
type List struct{ ids []uint32 }

// Take returns the listed ports and empties the list. The slice is valid until the
// next call into a machine.
func (l *List) Take() []uint32 {
	ids := l.ids
	l.ids = l.ids[:0]
	return ids
}

// PortConfig describes a transmitter and its link.
type PortConfig struct {
	ID         uint32         // unique among the driver's ports
	BitsPerSec int64          // line rate, 1 Mb/s to 100 Tb/s
	Delay      vtime.Duration // propagation delay plus the pipeline latency of the far end
	CutThrough bool           // hand RoCE frames over once the header is there
	List       *List
}

// NewPort returns an idle port.
func NewPort(c PortConfig) Port {
	return Port{
		Next: vtime.Never, wake: vtime.Never, delay: c.Delay, bytePs16: BytePs16(c.BitsPerSec),
		list: c.List, id: c.ID, cut: c.CutThrough,
	}
}

// BytePs16 returns the time of one byte at the given rate, in 1/65536 picoseconds.
func BytePs16(bitsPerSec int64) int64 {
	// 8e12 * 65536 / rate does not fit 64 bits before the division.
	hi, lo := bits.Mul64(8_000_000_000_000, 1<<16)
	q, _ := bits.Div64(hi, lo, uint64(bitsPerSec))
	return int64(min(q, math.MaxInt64))
}

// ID returns the port's number in the driver.
func (p *Port) ID() uint32 { return p.id }

// Delay returns the propagation delay plus the pipeline latency of the far end.
func (p *Port) Delay() vtime.Duration { return p.delay }

// SetRate sets the rate of the frames that are committed from now on.
func (p *Port) SetRate(bitsPerSec int64) { p.bytePs16 = BytePs16(bitsPerSec) }

// Serialize returns how long size bytes occupy the transmitter.
func (p *Port) Serialize(size int) vtime.Duration {
	return vtime.Duration((int64(size)*p.bytePs16 + 1<<15) >> 16)
}

// Commit starts the frame at start, which is not before Free. size is its WireLen.
func (p *Port) Commit(f *wire.Frame, size int, start vtime.Time) {
	p.Free = start.Add(p.Serialize(size))
	at := p.Free.Add(p.delay)
	if p.cut && f.Kind() == wire.KindRoCE {
		at = start.Add(p.Serialize(min(size, CutBytes)) + p.delay)
	}
	p.flights.Push(Flight{at, f})
	if !p.keyed && !p.listed {
		p.attend()
	}
}

// SetNext records when the next frame would start, or vtime.Never.
func (p *Port) SetNext(t vtime.Time) {
	p.Next = t
	if t != vtime.Never && p.flights.Len() == 0 && !p.listed {
		p.attend()
	}
}

func (p *Port) attend() {
	p.listed = true
	p.list.ids = append(p.list.ids, p.id)
}

// InFlight returns the number of frames on the link.
func (p *Port) InFlight() int { return p.flights.Len() }

// Flying returns frame i on the link, oldest first.
func (p *Port) Flying(i int) Flight { return *p.flights.At(i) }

// Land takes the oldest frame off the link.
func (p *Port) Land() Flight {
	p.keyed = false
	return p.flights.Pop()
}

// Attend tells the driver which event the port needs now: the arrival of the frame
// at the head of its link, or a wake. It clears the listing and remembers what was
// asked for; Land and Woken forget it again.
func (p *Port) Attend() (at vtime.Time, wake, needed bool) {
	p.listed = false
	if p.flights.Len() > 0 {
		if p.keyed {
			return 0, false, false
		}
		p.keyed = true
		return p.flights.First().At, false, true
	}
	// Not before Next is known to be an instant: wake is in the other cache line. It may be
	// later than Next, since a paced sender's next start may move forward.
	if p.Next != vtime.Never && p.Next < p.wake {
		p.wake = p.Next
		return p.Next, true, true
	}
	return 0, false, false
}

// Woken tells the port that a wake event has been taken from the queue, and reports whether
// that event still counts: an earlier one may have replaced it since.
func (p *Port) Woken(now vtime.Time) bool {
	if p.wake != now {
		return false
	}
	p.wake = vtime.Never
	return true
}

// Account adds an arriving frame to the link's account: its digest chains the time,
// the bytes and the fate of every frame it carried.
func (p *Port) Account(at vtime.Time, f *wire.Frame, lost bool) {
	fate := uint64(at) << 1
	if lost {
		fate |= 1
	}
	p.Digest = f.Mix(wire.MixWord(p.Digest, fate))
	p.Frames++
	p.Bytes += uint64(f.Len())
	if f.Kind() == wire.KindRoCE {
		p.Payload += uint64(f.PayloadLen())
	}
}
