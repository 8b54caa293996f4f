// SPDX-License-Identifier: Apache-2.0

package window

import "github.com/mcastlab/mcastlab/core/vtime"

// Grantee is a part's own end of the Ledger: the instant that it has passed, and so the frames that are invalid. The zero value
// has passed nothing.
//
// A part may have been granted much more than it had events for: all others had theirs, such as a timer, far away. The grant
// beyond its events does not bind it when programs resume after input from outside the lab (Ledger.Allow): from there, which is
// before all that parts had announced, frames may come.
type Grantee struct {
	bound vtime.Time // all events before it have been handled
	floor vtime.Time // of the grant: no neighbour can have sent a frame that arrives before it
	look  vtime.Time // the latest at which programs have resumed
}

// Begin begins a grant, before any frame is taken: floor is Ledger.Floor, look the instant at which programs last resumed, here or
// elsewhere.
func (g *Grantee) Begin(floor, look vtime.Time) {
	if g.floor = floor; look != g.look {
		g.look, g.bound = look, min(g.bound, look)
	}
}

// Allow lets programs of the part resume at an instant: it is Ledger.Allow.
func (g *Grantee) Allow(at vtime.Time) { g.bound = min(g.bound, at) }

// Soonest returns when a frame can arrive at the earliest that the part has not taken yet.
func (g *Grantee) Soonest() vtime.Time { return max(g.bound, g.floor) }

// Advanced notes that the part has handled all events before bound, and that next is the first after them.
func (g *Grantee) Advanced(bound, next vtime.Time) { g.bound = max(g.bound, min(bound, next)) }

// Rest records that the part is at an instant, which may be before its grant.
func (g *Grantee) Rest(at vtime.Time) { g.bound = at }
