// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// A part of a lab is a Net that drives some of its nodes; other Nets, in this process or in others,
// drive the rest. The driver of a part lets it advance to a bound before which all arrivals are known
// (conservative synchronisation), and then the part's nodes behave exactly as in the whole simulation:
// events have the same instants, classes and ids.
//
// A transmitter whose link leaves the part is treated in the plain way: it has a start event for
// every frame, at which the frame is handed to the edge at once. So a frame leaves the part before
// any event after its start is handled.

// Edge takes the frames and requests that leave a part of a lab.
type Edge interface {
	// Frame takes a frame that a transmitter of the part has started and that arrives at the far
	// end of its link at the given instant. It reports whether it keeps the frame, which it then puts
	// back into the part's pool itself.
	Frame(port int, at vtime.Time, f *wire.Frame) (kept bool)

	// Request takes a request that arrives at the server of the out-of-band channel at the given
	// instant. It does not keep q.
	Request(at vtime.Time, node, rank int, q *outofband.Request)
}

// happens notes that something happens now.
func (n *Net) happens() { n.last = n.now }

// rest makes the instant at which something last happened the current one. The queue must be empty.
// Later events that did nothing, such as timers that had been replaced, depend on how often a driver
// asked a machine for its deadline, so that parts of a lab would otherwise become idle at other
// instants than the whole.
func (n *Net) rest() {
	n.queue.last = 0
	n.from(n.last)
	n.now = n.last
}

// depart hands the frames on a link that leaves the part to the edge.
func (n *Net) depart(at int, l *machine.Link) {
	for l.InFlight() > 0 {
		fl := l.Land()
		if n.watch != nil {
			n.watchSent(at, l, fl.At, fl.Frame)
		}
		if !n.cfg.Edge.Frame(int(n.ports[at].id), fl.At, fl.Frame) {
			n.pool.Put(fl.Frame)
		}
	}
}

// Arrive takes a frame that arrives at the end of a link from a node outside the part. The frame is
// one of the part's pool. at must not be before a bound to which the part has advanced, and frames
// of one link come in the order of their arrival.
func (n *Net) Arrive(port int, at vtime.Time, f *wire.Frame) {
	q := &n.inbound[n.endOf(port)-n.own]
	q.Push(machine.Flight{At: at, Frame: f})
	if q.Len() == 1 {
		n.schedule(at, classArrival, port)
	}
}

// take returns the oldest frame that has arrived on a link from outside the part.
func (n *Net) take(place int) *wire.Frame {
	q := &n.inbound[place-n.own]
	f := q.Pop().Frame
	if q.Len() > 0 {
		n.schedule(q.First().At, classArrival, int(n.ports[place].id))
	}
	return f
}

// Reply takes a reply of the server of the out-of-band channel, which arrives at a rank's host at
// the given instant.
func (n *Net) Reply(at vtime.Time, node int, r outofband.Reply) {
	n.channel.post(at, node, message{reply: r})
}

// SetEntry changes an entry of a switch's multicast table at the given instant, or at once if that is below 0.
func (n *Net) SetEntry(at vtime.Time, e wire.MulticastEntry) {
	if at < 0 {
		n.setEntries([]wire.MulticastEntry{e})
	} else {
		n.channel.post(at, e.Switch, message{entry: e})
	}
}

// Order returns the order of events at one instant.
func (c *Config) Order() window.Order {
	random := prng.New(c.Seed)
	order := random.Derive("order")
	ports := 0
	for i := range c.Graph.Nodes {
		ports += len(c.Graph.Nodes[i].Links)
	}
	return window.Order{Key: order.Uint64(), Bits: uint(bits.Len(uint(max(ports, 8*c.Graph.Hosts, minTasks))))}
}

// Next returns the instant of the part's next event, or vtime.Never if there is none.
func (n *Net) Next() vtime.Time {
	if k, ok := n.queue.least(); ok {
		return n.when(k)
	}
	return n.far.first()
}

// Last returns the instant at which something last happened in the part.
func (n *Net) Last() vtime.Time { return n.last }

// Advance handles all events before bound, or those until Interrupt is called.
func (n *Net) Advance(bound vtime.Time) error {
	n.interrupted = false
	for n.err == nil && !n.interrupted && n.Next() < bound {
		n.step()
	}
	return n.err
}

// advance handles up to most of the events before bound.
func (n *Net) advance(bound vtime.Time, most int) error {
	for ; most > 0 && n.err == nil && n.Next() < bound; most-- {
		n.step()
	}
	return n.err
}

// Fault returns when the next call of the part's fault timeline is due, or vtime.Never if none is.
func (n *Net) Fault() vtime.Time {
	at := vtime.Never
	for i := range n.timed {
		if n.timed[i].fault {
			at = min(at, n.timed[i].at)
		}
	}
	return min(at, n.overflow.first())
}

// Meet handles all events that come before the calls of the timeline at an instant, and lets that be
// the current one.
func (n *Net) Meet(at vtime.Time) error {
	for n.err == nil && n.precedes(at) {
		n.step()
	}
	n.now = at
	return n.err
}

// precedes reports whether the next event comes before the calls at an instant.
func (n *Net) precedes(at vtime.Time) bool {
	k, ok := n.queue.least()
	if !ok {
		if n.far.first() > at || !n.skip() {
			return false
		}
		k, _ = n.queue.least()
	}
	next := n.when(k)
	return next < at || next == at && n.class(k) < classCall
}

// Census returns the contents of the part, for the verdict on a call of the timeline.
func (n *Net) Census() (c window.Census) {
	if c = n.tasksCensus(); !c.Awake {
		n.nodesCensus(&c)
	}
	return c
}

// Call makes the next call of the timeline, which must be due at the given instant, or puts it off.
// Then it handles the events that come before the next call at that instant.
func (n *Net) Call(at vtime.Time, v window.Verdict) error {
	if n.Fault() != at || n.Next() != at {
		return fmt.Errorf("make a call of the fault timeline at %v: the next one is due at %v", at, n.Fault())
	}
	n.verdict = v
	n.step()
	if v == window.Halt {
		return n.err
	}
	return n.Meet(at)
}

// Interrupt ends the Advance under way after the current event. The edge may call it.
func (n *Net) Interrupt() { n.interrupted = true }

// Rest makes now the current instant of a part that has no event left. It must not be before Last.
func (n *Net) Rest(now vtime.Time) {
	n.last = now
	n.rest()
}

// Ranks are those ranks of a job whose hosts are in a part.
type Ranks struct{ j *job }

// Begin starts the ranks of a job whose hosts are in the part.
func (n *Net) Begin(spec Job) *Ranks {
	r := &Ranks{n.begin(spec)}
	n.resume()
	return r
}

// Host returns a host of the part as ranks use it, for a task that does not go through package rank.
func (n *Net) Host(node int) rankhost.Host { return n.at(node).host }

// Stop unwinds the ranks that still wait, and returns the reason of each wait.
func (r *Ranks) Stop() (blocked []string) { return r.j.stop() }

// Release destroys all that the ranks have made.
func (r *Ranks) Release() {
	r.j.abandon()
	r.j.net.settled()
	r.j.net.resume()
}

// Errors returns the error of each rank of the job, nil for those that have ended without one and
// for those of other parts.
func (r *Ranks) Errors() []error { return r.j.errs }
