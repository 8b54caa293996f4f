// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// router computes a switch's routes when links fail or return, and installs them. It visits every leaf
// of the fabric, which in a large one takes longer than frames may wait: only the last step has the
// loop's lock.
type router struct {
	find func(down []int) virtswitch.FIB
	call func(f func(now vtime.Time)) // with the loop's lock, or not at all once the loop has ended
	set  func(now vtime.Time, t virtswitch.FIB)

	// Only with the loop's lock.
	down   []int // links
	wanted int   // how often routes were asked for
	busy   bool  // a goroutine looks for them
}

// want requests routes that avoid the links that are down. It is called with the loop's lock.
func (r *router) want(down []int) {
	r.down = slices.Clone(down)
	r.wanted++
	if !r.busy {
		r.busy = true
		go r.follow()
	}
}

// follow finds routes until they are those that were asked for last.
func (r *router) follow() {
	for done := false; !done; {
		var down []int
		asked := 0
		r.call(func(vtime.Time) { down, asked = r.down, r.wanted })
		if asked == 0 {
			return // the loop has ended
		}
		t := r.find(down)
		done = true
		r.call(func(now vtime.Time) {
			if done = asked == r.wanted; done {
				r.busy = false
				r.set(now, t)
			}
		})
	}
}
