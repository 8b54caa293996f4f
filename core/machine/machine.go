// SPDX-License-Identifier: Apache-2.0

// Package machine is the contract between the protocol cores (switch and NIC) and their drivers: the
// simulator's event loop in virtual time, and the loop of a node's process.
//
// A core owns no clock, socket, goroutine, file or global (GEN-10). Its inputs are frames and the
// time, and it outputs a frame by committing it to a port. Port is the core's half of a
// transmitter: when it is free, and when the next frame would start. Link is the driver's half:
// rate, delay, and the frames in flight. The core owns queues, flow control and scheduling.
package machine

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// A Machine is a protocol core with numbered ports. All methods are called from one goroutine,
// with a time that never goes back. There are three kinds of them:
//
//   - input: HandleFrame and HandleTimeout change the core's state, and may commit frames to any port;
//   - settling: Settle commits the frames that have begun to leave a port meanwhile, with the effects
//     of their start there: a completion, room in a buffer;
//   - query: NextTimeout returns when HandleTimeout is due. A call of any other method can move it.
//
// # Settling
//
// The driver need not call a core each time a transmitter becomes idle. When the driver needs to
// know what a port has sent up to an instant, it calls Settle, and the core commits the frames
// whose transmission has begun by then, with their true start times. While a frame is on the link,
// the driver settles the port at the frame's arrival, so that a hop costs one event. Five rules
// make the outcome the same as if the core had been called whenever a transmitter became idle.
// Comments in cores and drivers cite them by these names:
//
//   - Settle before input (core): before a core changes or reads a port's state at now, it settles
//     that port to strictly before now. Frames that arrive at now compete for a start at now.
//   - Arrivals, starts, timers (both): at one instant arrivals come first, in a seeded order; then
//     starts; then timers.
//   - Settle the sender (driver): the driver settles the source port when a frame arrives from it.
//     If Next is set and no frame is on the link, it wakes the port at Next.
//   - Never underestimate occupancy (core): a core may take its buffers for fuller than they are,
//     and never for emptier. If the estimate is within a limit, so is the occupancy. Otherwise the
//     core settles all ports and compares again.
//   - Starts are deadlines (core): while a start has a consequence at another port (a paused peer
//     waits for buffer space), NextTimeout is no later than the earliest Next of all ports.
//
// drivers/machinetest wakes every port at every start and needs none of the rules; drivers/sim is
// compared with it, digest for digest.
type Machine interface {
	// HandleFrame takes a frame whose last bit arrived on the port at now. On a cut-through port
	// it is the header that arrived at now. The machine becomes the owner of the frame.
	HandleFrame(now vtime.Time, port int, f *wire.Frame)

	// HandleTimeout is called at or after the instant that NextTimeout returned. Starts
	// go before timers, so the machine settles its ports to now and not to strictly before.
	HandleTimeout(now vtime.Time)

	// Settle commits every frame whose transmission on the port starts at or before until.
	Settle(until vtime.Time, port int)

	// NextTimeout returns the machine's earliest deadline, and false if there is none. It may be too
	// early but never too late.
	NextTimeout() (vtime.Time, bool)
}
