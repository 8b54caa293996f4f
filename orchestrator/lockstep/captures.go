// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// lockstepCaptures are the captures of a run in virtual time. The node at the end of a link tells of every
// frame that arrives there, for captures at both ends. The files are those of the simulation, byte for
// byte: frames are written in the order in which it handles their arrivals.
type lockstepCaptures struct {
	runner.Captures
	frameQueue
	ends  []topo.End
	users []*userCapture // that users have begun during the run; nil: ended
	links *sim.Net       // numbers the links
	order window.Order
}

// frameQueue holds frames until no earlier one can come.
type frameQueue struct {
	waiting []arrivedFrame
	taken   vtime.Time // all that arrived before it has been taken
}

// arrivedFrame is a frame that has arrived.
type arrivedFrame struct {
	now, at vtime.Time // when it arrived, and when it passed the port
	rank    uint64     // among the arrivals of that instant
	capture int
	bytes   []byte
}

// arrivedFramesMax is the number of queued frames at which those that are complete are written.
const arrivedFramesMax = 1 << 12

// add takes what a node tells.
func (k *lockstepCaptures) add(node int, x *nodeapi.CapturedFrame) error {
	var at topo.End
	queue := &k.frameQueue
	switch late := int(x.Capture) - len(k.ends); {
	case late < 0:
		at = k.ends[x.Capture]
	case late >= len(k.users):
		return fmt.Errorf("it tells of capture %d, which there is not", x.Capture)
	case k.users[late] == nil:
		return nil // it has ended meanwhile
	default:
		at, queue = k.users[late].end, &k.users[late].frameQueue
	}
	far := k.links.Graph().Peer(at.Node, at.Port)
	link := k.links.PortID(at.Node, at.Port)
	switch node {
	case far.Node:
	case at.Node:
		link = k.links.PortID(far.Node, far.Port)
	default:
		return fmt.Errorf("it tells of a capture at %s, where it has no part", k.links.Graph().PortName(at))
	}
	now := vtime.Time(x.Now)
	if now < queue.taken {
		return fmt.Errorf("it tells that a frame arrived at %v, after all have come to %v", now, queue.taken)
	}
	queue.waiting = append(queue.waiting, arrivedFrame{now, vtime.Time(x.At), uint64(link) ^ k.order.Mask(now), int(x.Capture), x.Frame})
	return nil
}

// take returns the frames that arrived before an instant, after which no earlier one comes, in the order in
// which the simulation handles their arrivals.
func (q *frameQueue) take(before vtime.Time) []arrivedFrame {
	slices.SortStableFunc(q.waiting, func(a, b arrivedFrame) int { return cmp.Or(cmp.Compare(a.now, b.now), cmp.Compare(a.rank, b.rank)) })
	n := 0
	for n < len(q.waiting) && q.waiting[n].now < before {
		n++
	}
	ready := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.taken = max(q.taken, before)
	return ready
}

// write writes all frames that arrived before an instant, after which no earlier one comes.
func (k *lockstepCaptures) write(before vtime.Time) {
	for _, f := range k.take(before) {
		k.Bytes(f.capture, f.now, f.at, f.bytes)
	}
}

// close writes what is left.
func (k *lockstepCaptures) close() error {
	k.write(vtime.Never)
	return k.Close()
}
