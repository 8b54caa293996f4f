// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Flight is a frame on a link.
type Flight struct {
	At    vtime.Time // when the machine at the far end takes it
	Frame *wire.Frame
}

// Link is the driver's half of a transmitter: its rate, the frames in flight, the event that the
// link needs, and the counters of frames that have reached its end. The driver reads when the
// machine wants to start a frame (Next), but cannot change it and cannot start a frame.
//
// The struct has the size of two cache lines. The first holds all fields that an arrival uses.
type Link struct {
	// next is the time at which the machine would start its next frame, or vtime.Never if it may send
	// none. free is the time at which the transmitter becomes free. Only methods of Port write them.
	// Invariant: once the machine has settled the port to an instant, next is after that instant.
	next, free vtime.Time

	// flights holds the frames in flight. The machine appends to it, and the driver takes from
	// it. Invariant: it is in the order of At, because no frame starts before free.
	flights queue.FIFO[Flight]
	id      uint32

	// listed is set while the link is in its driver's list. Calls into the machine set it and Attend
	// clears it. Invariant, between the events of a driver that uses Attend: if it is clear, then the
	// link is keyed, or it is empty and a wake event is due by next, or it is empty and next is
	// vtime.Never. A driver that visits all links in any case leaves it set.
	listed bool

	// keyed is set if the oldest frame of flights has its event. Attend sets it and Land clears it.
	// Invariant: it is clear while the link is empty.
	keyed bool

	cut bool // RoCE frames are delivered when their header has arrived

	// Node and NodePort name the link's far end.
	Node, NodePort int32

	// Delay is the propagation delay plus the pipeline latency of the far end. A change applies to
	// frames that are committed later. Delay must not become shorter while frames are in flight,
	// because a later frame could then overtake them.
	Delay vtime.Duration

	bytePs16 int64 // picoseconds per byte, in 1/65536
	list     *list

	// Digest, Frames, Bytes and Payload account for the frames that have reached the end of the
	// link, including those that a fault dropped there. Only Account changes them, and Repeat and Probe for
	// frames that are not handled one by one.
	Digest        uint64
	Frames, Bytes uint64
	Payload       uint64 // bytes of messages, without any header

	// wake is the instant of the valid wake event, or vtime.Never. Attend sets it and Woken
	// clears it. Wake events at other instants are stale.
	wake vtime.Time
}

// list collects the links that need an event after a call into a machine: a frame was committed
// to an empty link, or a frame waits to start on an empty link. Invariant: it has no link twice,
// because a link that is listed is not added again.
type list struct {
	ids    []uint32
	pauses int // pause frames on all links
}

// Links holds all transmitters of one driver, by number.
type Links struct {
	ports []Port
	list  *list
}

// NewLinks returns idle transmitters.
func NewLinks(configs []PortConfig) Links {
	l := Links{make([]Port, len(configs)), &list{}}
	for i, c := range configs {
		l.ports[i].link = Link{
			next: vtime.Never, wake: vtime.Never, Delay: c.Delay, bytePs16: BytePs16(c.BitsPerSec),
			list: l.list, id: uint32(i), cut: c.CutThrough,
		}
	}
	return l
}

// Len returns the number of transmitters.
func (l Links) Len() int { return len(l.ports) }

// At returns the driver's half of a transmitter.
func (l Links) At(id int) *Link { return &l.ports[id].link }

// Pauses returns the number of pause frames on all links.
func (l Links) Pauses() int { return l.list.pauses }

// Ports returns the machine's halves of the transmitters with the numbers from up to to-1. A driver
// passes them to a new machine and does not keep them.
func (l Links) Ports(from, to int) []Port { return l.ports[from:to:to] }

// Lists reports whether any link needs an event.
func (l Links) Lists() bool { return len(l.list.ids) > 0 }

// Listed returns the numbers of the links that need an event, and empties the list. The slice is
// valid until the next call into a machine.
func (l Links) Listed() []uint32 {
	ids := l.list.ids
	l.list.ids = ids[:0]
	return ids
}

func (l *Link) enlist() {
	l.listed = true
	l.list.ids = append(l.list.ids, l.id)
}

// ID returns the link's number in the driver.
func (l *Link) ID() int { return int(l.id) }

// Next returns when the machine would start its next frame, or vtime.Never if none may be sent.
func (l *Link) Next() vtime.Time { return l.next }

// SetRate sets the rate, in bit/s, of the frames that are committed from now on.
func (l *Link) SetRate(bitsPerSec int64) { l.bytePs16 = BytePs16(bitsPerSec) }

// Serialize returns the time for which size bytes occupy the transmitter at its present rate.
func (l *Link) Serialize(size int) vtime.Duration { return serialize(size, l.bytePs16) }

// Began returns when the transmission of a frame that lands at the given instant began, and how
// long it occupied the port. For frames that were in flight during a change of rate the result is
// an estimate.
func (l *Link) Began(landed vtime.Time, f *wire.Frame) (start vtime.Time, d vtime.Duration) {
	size := f.WireLen()
	d = l.Serialize(size)
	first := d
	if l.cut && f.Kind() == wire.KindRoCE {
		first = l.Serialize(min(size, CutBytes))
	}
	return landed.Add(-l.Delay - first), d
}

// InFlight returns the number of frames on the link.
func (l *Link) InFlight() int { return l.flights.Len() }

// Flying returns frame i on the link, oldest first.
func (l *Link) Flying(i int) Flight { return *l.flights.At(i) }

// Oldest returns the oldest frame on the link, where it is kept until Land takes it, or nil.
func (l *Link) Oldest() *Flight { return l.flights.Oldest() }

// Land takes the oldest frame off the link.
func (l *Link) Land() Flight {
	l.keyed = false
	f := l.flights.Pop()
	if f.Frame.Kind() == wire.KindPFC {
		l.list.pauses--
	}
	return f
}

// Attend returns the event that the link needs now: the arrival of its oldest frame or, if wake is
// set, the start of its next one. needed is false if the link needs none, or if Attend has already
// returned it. Land and Woken end an event.
func (l *Link) Attend() (at vtime.Time, wake, needed bool) {
	l.listed = false
	if l.flights.Len() > 0 {
		if l.keyed {
			return 0, false, false
		}
		l.keyed = true
		return l.flights.First().At, false, true
	}
	// wake is compared last, because it is in the other cache line. It may be later than next,
	// because the next start of a paced sender may become earlier.
	if l.next != vtime.Never && l.next < l.wake {
		l.wake = l.next
		return l.next, true, true
	}
	return 0, false, false
}

// Woken records that the link's wake event at now has occurred, and reports whether that event is
// valid. An earlier one may have replaced it.
func (l *Link) Woken(now vtime.Time) bool {
	if l.wake != now {
		return false
	}
	l.wake = vtime.Never
	return true
}

// Account counts a frame that has reached the end of the link. The digest chains the time, the bytes
// and the fate of every frame.
func (l *Link) Account(at vtime.Time, f *wire.Frame, lost bool) {
	l.Digest = f.Mix(chain(l.Digest, at, lost))
	l.Frames++
	l.Bytes += uint64(f.Len())
	if f.Kind() == wire.KindRoCE {
		l.Payload += uint64(f.PayloadLen())
	}
}

// chain folds the time and the fate of a frame into a digest.
func chain(digest uint64, at vtime.Time, lost bool) uint64 {
	fate := uint64(at) << 1
	if lost {
		fate |= 1
	}
	return wire.MixWord(digest, fate)
}

// Repeat updates the digest as Account does for a repeated frame.
func (l *Link) Repeat(at vtime.Time, f *wire.Repeat) { l.Digest = f.Next(chain(l.Digest, at, false)) }
