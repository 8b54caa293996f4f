// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
)

// TestSleepers: a task that is woken while it sleeps, and sleeps on, has one event still. Of
// each that is left over another came once, so that a program's events grew with the square
// of its length.
func TestSleepers(t *testing.T) {
	n := newStar(t)
	const sleeps, kicks = 200, 10
	err := n.Run(Job{Name: "sleep", Hosts: []int{0}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
		w := r.Go("kick", func() error {
			for range sleeps * kicks {
				r.Sleep(vtime.Microsecond / kicks)
				r.Notify()
			}
			return nil
		})
		for range sleeps {
			r.Sleep(vtime.Microsecond)
		}
		return w.Join()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Stats().Events; got > sleeps*(kicks+1)+sleeps {
		t.Errorf("%d events for %d sleeps", got, sleeps*(kicks+1))
	}
}
