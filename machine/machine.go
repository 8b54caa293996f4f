// Package machine is the contract between protocol cores (switch, NIC) and their drivers:
// the deterministic event loop, and the loop in real time.
//
// A core owns no clock, socket, goroutine, file or global (GEN-10). It is given frames and
// the time, and gives frames back by committing them to its ports. Port is the core's half
// of a transmitter: when it is free, and when the next frame would start. Link is the driver's
// half: rate, delay, and what is on the way. Queues, flow control and scheduling belong to the
// core.
//
// # Settling
//
// A core need not be called each time a transmitter falls idle. When the driver
// wants to know what a port did up to some instant it calls Settle, and the core
// commits, with their true start times, the frames whose transmission would have
// begun by then. While a frame is on the link, its arrival is when the driver settles, so a
// hop costs one event. These rules make the outcome the same as if the core had been called at
// every such instant:
//
//	R1  Before a core changes or reads a port's state at now it settles that port to
//	    strictly before now. Frames that arrive at now compete for a start at now.
//	R2  At one instant: arrivals first, in a seeded order; then starts; then timers.
//	R3  The driver settles the source port when a frame arrives from it. If Next is
//	    set and nothing is on the link, it wakes the port at Next.
//	R4  What a core knows of its buffers may be stale only upwards. If a limit is met
//	    with the stale figure it is met; otherwise the core settles all ports and looks again.
//	R5  While a start has a consequence elsewhere (a peer that was paused waits for
//	    room), NextTimeout is the earliest Next of all ports.
package machine

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// A Machine is a protocol core with numbered ports. All methods are called from one
// goroutine, with a time that never goes back.
type Machine interface {
	// HandleFrame takes a frame whose last bit (on a cut-through port: whose header)
	// arrived on the port at now. The frame is the machine's from here on.
	HandleFrame(now vtime.Time, port int, f *wire.Frame)

	// HandleTimeout is called at or after the instant NextTimeout gave. What starts at
	// now goes before it (R2): the machine settles to now, not to strictly before.
	HandleTimeout(now vtime.Time)

	// Settle commits every frame whose transmission on the port starts by until.
	Settle(until vtime.Time, port int)

	// NextTimeout returns the machine's earliest deadline. It may be too early, never too late.
	NextTimeout() (vtime.Time, bool)
}
