package machine

import (
	"github.com/mcastlab/mcastlab/machine/queue"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Flight is a frame on a link.
type Flight struct {
	At    vtime.Time // when it is handed to the machine at the other end
	Frame *wire.Frame
}

// Link is the driver's half of a transmitter: the rate, what is on the link, which event the
// link needs, and the account of what has come to its end. The driver reads when the machine
// wants to start (Next) and cannot change it; it starts no frame.
//
// The struct is two cache lines, the first with all that an arrival touches.
type Link struct {
	// next is when the machine would start its next frame; vtime.Never if none may be sent.
	// free is when the last committed frame has left. Both are the machine's: only methods
	// of Port write them. Invariant: once the machine has settled the port to an instant,
	// next is after that instant.
	next, free vtime.Time

	// flights is what is on the link. The machine appends to it, and the driver takes from it.
	// Invariant: it is in the order of At, since no frame starts before free.
	flights queue.FIFO[Flight]
	id      uint32

	// listed says that the link has been put into its driver's list. Calls into the machine
	// set it and Attend clears it. Invariant, between the events of a driver that uses Attend:
	// if it is clear, then the link is keyed, or it is empty and a wake event is due by next,
	// or it is empty and next is vtime.Never. A driver that looks at all links anyway leaves
	// it set.
	listed bool

	// keyed says that the head of flights has its event. Attend sets it and Land clears it.
	// Invariant: it is clear while the link is empty.
	keyed bool

	cut bool // RoCE frames are handed over once the header is there

	// Node and NodePort name the link's far end.
	Node, NodePort int32

	// Delay is the propagation delay plus the pipeline latency of the far end. A change is for
	// the frames that are committed from then on. It must not get shorter while frames are on
	// the link, which would overtake each other.
	Delay vtime.Duration

	bytePs16 int64 // picoseconds per byte, in 1/65536
	list     *list

	// Digest, Frames, Bytes and Payload are the account of what came to the end of the link,
	// whether or not a fault took it there. Only Account changes them.
	Digest        uint64
	Frames, Bytes uint64
	Payload       uint64 // bytes of messages, without any header

	// wake is when the wake event is that counts, or vtime.Never. Attend sets it and Woken
	// clears it. Wake events at other instants are out of date.
	wake vtime.Time
}

// list has the links that need the driver's attention after a call into a machine:
// something was committed to an idle link, or waits with nothing on it.
// Invariant: it has no link twice, since those that are listed are not put there again.
type list struct{ ids []uint32 }

// Links are all transmitters of one driver, by number.
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

// Ports returns the machine's halves of the transmitters from one number up to, but without,
// another: what a machine is made with. A driver does not keep them.
func (l Links) Ports(from, to int) []Port { return l.ports[from:to:to] }

// Listed returns the numbers of the links that need attention and empties the list. The slice
// is valid until the next call into a machine.
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

// Serialize returns how long size bytes occupy the transmitter at its present rate.
func (l *Link) Serialize(size int) vtime.Duration { return serialize(size, l.bytePs16) }

// Began returns when the transmission of a frame began that lands at the given instant, and
// how long it took the port. After a change of rate it is a guess for what was under way.
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

// Land takes the oldest frame off the link.
func (l *Link) Land() Flight {
	l.keyed = false
	return l.flights.Pop()
}

// Attend tells the driver which event the link needs now: the arrival of the frame
// at its head, or a wake. It clears the listing and remembers what was
// asked for; Land and Woken forget it again.
func (l *Link) Attend() (at vtime.Time, wake, needed bool) {
	l.listed = false
	if l.flights.Len() > 0 {
		if l.keyed {
			return 0, false, false
		}
		l.keyed = true
		return l.flights.First().At, false, true
	}
	// Not before next is known to be an instant: wake is in the other cache line. It may be
	// later than next, since a paced sender's next start may move forward.
	if l.next != vtime.Never && l.next < l.wake {
		l.wake = l.next
		return l.next, true, true
	}
	return 0, false, false
}

// Woken tells the link that a wake event has been taken from the queue, and reports whether
// that event still counts: an earlier one may have replaced it since.
func (l *Link) Woken(now vtime.Time) bool {
	if l.wake != now {
		return false
	}
	l.wake = vtime.Never
	return true
}

// Account adds an arriving frame to the link's account: its digest chains the time,
// the bytes and the fate of every frame it carried.
func (l *Link) Account(at vtime.Time, f *wire.Frame, lost bool) {
	fate := uint64(at) << 1
	if lost {
		fate |= 1
	}
	l.Digest = f.Mix(wire.MixWord(l.Digest, fate))
	l.Frames++
	l.Bytes += uint64(f.Len())
	if f.Kind() == wire.KindRoCE {
		l.Payload += uint64(f.PayloadLen())
	}
}
