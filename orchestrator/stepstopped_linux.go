package orchestrator

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// A node of a run in virtual time whose process is stopped stops the lab's time. The run waits for it as long
// as it stays so, and says so.

// Waits for a node, after which the state of its process is looked at, and after which the user is told.
const (
	stoppedLook = time.Second
	stoppedTell = 5 * time.Second
)

// stops is what is known of the processes of nodes.
type stops struct {
	found []engine.Running // nil: nobody has asked yet
	next  time.Time        // of the next look
	node  int              // that was stopped at the last look; -1: none
	told  bool
}

// Stopped implements lockstep.Streams.
func (r *stepped) Stopped(node int, waited time.Duration) bool {
	s := &r.stops
	if waited < stoppedLook {
		return false
	}
	if time.Now().Before(s.next) {
		return s.node == node
	}
	s.next = time.Now().Add(stoppedLook)
	if s.found == nil {
		all, err := r.d.o.Engine.Find(r.ctx, r.d.Lab.Name)
		if err != nil {
			return false // it counts as a node that does not answer
		}
		s.found = all
	}
	name := r.nodes[node].name
	i := slices.IndexFunc(s.found, func(x engine.Running) bool { return x.Name == name })
	if i < 0 || !processStopped(s.found[i].PID) {
		s.node = -1
		return false
	}
	if s.node != node {
		s.node, s.told = node, false
	}
	if waited >= stoppedTell && !s.told && r.o.Say != nil {
		s.told = true
		r.o.Say("node %s is stopped, and lab time stands still at %v until it goes on: kill -CONT %d", name, r.coord.Now(), s.found[i].PID)
	}
	return true
}

// processStopped reports whether a process is stopped by a signal, or by a debugger.
func processStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, ok := bytes.Cut(b, []byte(") "))
	return ok && len(state) > 0 && (state[0] == 'T' || state[0] == 't')
}
