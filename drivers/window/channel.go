// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// Channel is the server's end of the out-of-band channel of a lab that is divided into parts. To the
// bounds it is a part of its own.
type Channel struct {
	order  Order
	delay  vtime.Duration
	server *outofband.Server

	// waiting are the requests that have not been handled. Invariant: those of one node are in the
	// order in which they were sent.
	waiting []request

	last vtime.Time // when the last request arrived that has been handled
}

type request struct {
	at         vtime.Time
	node, rank int
	q          outofband.Request
}

// Outlet takes the messages of the server, with the instant at which they arrive.
type Outlet interface {
	Reply(at vtime.Time, r outofband.Reply)
	SetEntry(at vtime.Time, e wire.MulticastEntry)
}

// NewChannel returns the channel of a job whose messages take delay in each direction.
func NewChannel(order Order, delay vtime.Duration, server *outofband.Server) *Channel {
	return &Channel{order: order, delay: delay, server: server}
}

// Request takes a request of a rank that arrives at the given instant.
func (c *Channel) Request(at vtime.Time, node, rank int, q outofband.Request) {
	c.waiting = append(c.waiting, request{at, node, rank, q})
}

// Next returns when the next request arrives, or vtime.Never if none is under way.
func (c *Channel) Next() vtime.Time {
	next := vtime.Never
	for i := range c.waiting {
		next = min(next, c.waiting[i].at)
	}
	return next
}

// Last returns when the last request arrived that has been handled, or 0 if none has been.
func (c *Channel) Last() vtime.Time { return c.last }

// Advance handles all requests that arrive before bound.
func (c *Channel) Advance(bound vtime.Time, out Outlet) {
	slices.SortStableFunc(c.waiting, func(a, b request) int {
		switch {
		case a.at != b.at:
			return int(min(1, max(-1, a.at-b.at)))
		default:
			m := c.order.Mask(a.at)
			return int(uint64(a.node)^m) - int(uint64(b.node)^m)
		}
	})
	n := 0
	for ; n < len(c.waiting) && c.waiting[n].at < bound; n++ {
		r := &c.waiting[n]
		c.last = r.at
		replies, entries := c.server.Handle(r.rank, r.q)
		at := r.at.Add(c.delay)
		for _, e := range entries {
			out.SetEntry(at, e)
		}
		for _, r := range replies {
			out.Reply(at, r)
		}
	}
	c.waiting = slices.Delete(c.waiting, 0, n)
}
