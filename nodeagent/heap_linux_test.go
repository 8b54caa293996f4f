// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"runtime"
	"testing"
	"time"
)

// collected returns how often garbage has been collected because the program asked for it.
func collected() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumForcedGC
}

// TestGiveBack: a node gives memory back when it has been configured and, once it is at rest, after a run; not
// if the next run has begun by then.
func TestGiveBack(t *testing.T) {
	a := &agent{version: "test"}
	before := collected()
	configureAs(t, a, "leaf0", 2)
	defer a.replaceSockets(nil)
	if collected() == before {
		t.Error("what configuring the node has used is kept")
	}
	configured := a.node.configure
	run := func() {
		a.member.Store(true)
		a.mu.Lock()
		err := a.halt()
		a.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		before = collected()
		if err := a.restore(configured); err != nil {
			t.Fatal(err)
		}
	}
	run()
	late := time.After(20 * time.Second)
	for collected() == before {
		select {
		case <-time.After(restTime / 20):
		case <-late:
			t.Fatal("what a run has used is kept")
		}
	}
	run()
	a.member.Store(true)
	defer a.member.Store(false)
	<-time.After(restTime + restTime/4)
	if collected() != before {
		t.Error("a node that is part of a run gives memory back, which the run waits for")
	}
}
