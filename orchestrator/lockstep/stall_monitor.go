// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// A node of a run in virtual time whose process is stopped, or whose program does not come back to package rank,
// stops the lab's time. The run waits for it as long as it stays so, and says so.

// Waits for a node: until the state of its process is checked, and until the user sees a message.
const (
	stallLook   = time.Second
	stallReport = 5 * time.Second
)

// stallMonitor tracks the processes of nodes.
type stallMonitor struct {
	found []engine.Running // nil: nobody has asked yet
	next  time.Time        // of the next look
	node  int              // that was stopped, or outside, at the last look; -1: none
	told  bool
	turn  uint64 // of the task that is outside package rank
	away  *runner.OutsideError
}

// Stopped implements lockstep.Streams.
func (r *lockstepRun) Stopped(node int, waited time.Duration) bool {
	s := &r.stalls
	if waited < stallLook {
		return false
	}
	if time.Now().Before(s.next) {
		return s.node == node
	}
	s.next = time.Now().Add(stallLook)
	why := r.stoppedBy(node)
	if why == "" {
		why = r.outsideOn(node, waited)
	}
	if why == "" {
		s.node = -1
		return false
	}
	if s.node != node {
		s.node, s.told = node, false
	}
	if waited >= stallReport && !s.told && r.o.Say != nil {
		s.told = true
		r.o.Say("%s", why)
	}
	return true
}

// stoppedBy returns what to say of a node whose process is stopped, and nothing of one that is not.
func (r *lockstepRun) stoppedBy(node int) string {
	s := &r.stalls
	if !r.d.Access.Local() {
		return "" // its process is elsewhere; that it does not answer is said in the end
	}
	if s.found == nil {
		all, err := r.d.Options.Engine.Find(r.ctx, r.d.Lab.Name)
		if err != nil {
			return "" // it counts as a node that does not answer
		}
		s.found = all
	}
	name := r.nodes[node].name
	i := slices.IndexFunc(s.found, func(x engine.Running) bool { return x.Name == name })
	if i < 0 || !processStopped(s.found[i].PID) {
		return ""
	}
	return fmt.Sprintf("node %s is stopped, and lab time stays at %v until it continues: kill -CONT %d", name, r.coord.Now(), s.found[i].PID)
}

// outsideOn returns what to say of a node on which a task has kept its turn since the last look, and nothing of
// another. waited is how long the node has been waited for.
func (r *lockstepRun) outsideOn(node int, waited time.Duration) string {
	ctx, cancel := context.WithTimeout(r.ctx, stallLook)
	defer cancel()
	t, err := r.d.Nodes[node].Turn(ctx, &nodeapi.InspectRequest{})
	if err != nil || t.Task == "" {
		r.stalls.away = nil
		return ""
	}
	if r.stalls.away == nil || r.stalls.turn != t.Number {
		r.stalls.turn, r.stalls.away = t.Number, &runner.OutsideError{Task: t.Task, HostProgram: r.programs}
		return ""
	}
	r.stalls.away.For = waited
	return r.stalls.away.Error()
}

// blame adds to the error of a run that was interrupted the program that it waited for.
func (r *lockstepRun) blame(err error) error {
	if x := r.stalls.away; x != nil && x.For > 0 && r.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", r.ctx.Err(), *x)
	}
	return err
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
