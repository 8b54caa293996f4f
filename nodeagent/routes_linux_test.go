// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"slices"
	"sync"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestRouter: while routes are found the loop's lock is free; of several changes meanwhile
// only the last is installed, and nothing once the loop has ended.
func TestRouter(t *testing.T) {
	var lock sync.Mutex
	var set [][]int
	ended := false
	begun, goOn, installed := make(chan []int), make(chan bool), make(chan bool, 9)
	r := router{
		find: func(down []int) virtswitch.FIB {
			if !lock.TryLock() { // as long as only a search could have it
				t.Fatal("a search has the loop's lock")
			}
			lock.Unlock()
			begun <- down
			<-goOn
			return virtswitch.FIB{Sets: [][]uint16{{uint16(len(down))}}}
		},
		call: func(f func(now vtime.Time)) {
			lock.Lock()
			defer lock.Unlock()
			if !ended {
				f(0)
			}
		},
	}
	r.set = func(_ vtime.Time, f virtswitch.FIB) {
		set = append(set, slices.Clone(r.down))
		if int(f.Sets[0][0]) != len(r.down) {
			t.Errorf("routes without %v are installed for %v", f.Sets[0][0], r.down)
		}
		installed <- true
	}
	want := func(down ...int) { r.call(func(vtime.Time) { r.want(down) }) }
	want(1)
	if got := <-begun; !slices.Equal(got, []int{1}) {
		t.Errorf("looks for routes without %v", got)
	}
	want(1, 2)
	want(1, 2, 3)
	goOn <- true
	select {
	case got := <-begun:
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("then looks for routes without %v", got)
		}
	case <-installed:
		t.Fatal("routes are installed that are not wanted any more")
	}
	goOn <- true
	<-installed
	want()
	<-begun
	goOn <- true
	<-installed
	r.call(func(vtime.Time) {
		if len(set) != 2 || len(set[0]) != 3 || len(set[1]) != 0 || r.busy {
			t.Errorf("installed %v, busy %v", set, r.busy)
		}
	})
	want(5)
	<-begun
	r.call(func(vtime.Time) { ended = true })
	goOn <- true // the search ends, and with it the call that waits for it
	select {
	case <-begun:
		t.Error("searches again though the loop has ended")
	case <-installed:
		t.Error("installs though the loop has ended")
	default:
	}
}
