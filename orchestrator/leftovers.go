// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// A run leaves a lab that stays up as it was deployed. Ranks release what they have made however
// they end. This file removes what they could not release: a group whose leader was killed, or a
// rank whose orchestrator was.

const (
	// tidyWait bounds how long a run that has ended may spend on that.
	tidyWait = 10 * time.Second
	// ownWait is the time limit for ranks to remove their own objects, and for switches to remove the
	// groups; drainWait that for frames in flight after that. The clock is no slower than restDilation.
	ownWait   = 2 * time.Second
	drainWait = 2 * time.Second
	// tidyRounds is the number of removals of leftovers: a registration in flight may install a
	// group again.
	tidyRounds = 3
)

// leftoversOf lists what runs have left on a node. The plain multicast groups of a lab with
// controllers are not listed: the controllers keep track of them.
func (d leftoverSearch) leftoversOf(n *counters.Node) (what []string) {
	h := n.Held
	if h == nil {
		return nil // it is gone
	}
	if h.Rank {
		what = append(what, "a rank")
	}
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			what = append(what, "1 "+one)
		case n > 1:
			what = append(what, fmt.Sprint(n, " ", many))
		}
	}
	count(h.Groups, "group", "groups")
	if !d.Plane.HasControllers() {
		count(h.Multicast, "multicast group", "multicast groups")
	}
	count(h.QPs, "queue pair", "queue pairs")
	count(h.MRs, "memory region", "memory regions")
	count(h.CQs, "completion queue", "completion queues")
	count(h.PDs, "protection domain", "protection domains")
	count(h.Others, "other resource", "other resources")
	count(h.Registrations, "registration", "registrations")
	count(h.Memberships, "membership", "memberships")
	return what
}

// leftovers returns, as text, what runs have left on each node, and the nodes concerned.
func (d leftoverSearch) leftovers(states []counters.Node) (text string, nodes []int) {
	var all []string
	for i := range states {
		if what := d.leftoversOf(&states[i]); len(what) > 0 {
			nodes = append(nodes, i)
			all = append(all, states[i].Node+": "+strings.Join(what, ", "))
		}
	}
	return strings.Join(all, "; "), nodes
}

// tidyBefore removes what an earlier run has left, the faults of its lab file among it; where
// there are controllers their leader removes those.
func (d leftoverSearch) tidyBefore(ctx context.Context) error {
	if !d.Plane.HasControllers() {
		if err := d.ResetFaults(ctx, faults.LabPrefix); err != nil {
			return err
		}
	}
	return d.tidy(ctx, "an earlier run")
}

// tidyAfter does the same after a run, on the nodes that still answer. What is left then is
// removed or named by the next run.
func (d leftoverSearch) tidyAfter(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tidyWait)
	defer stop()
	if !d.Plane.HasControllers() {
		_ = d.ResetFaults(ctx, faults.LabPrefix) // a node that has gone has none
	}
	if err := d.tidy(ctx, "the run"); err != nil {
		d.Log("%v", err)
	}
}

// tidy removes what a run has left: groups, ranks and what they have made, frames that are under
// way. It fails if something remains. whose names the run.
func (d leftoverSearch) tidy(ctx context.Context, whose string) error {
	states, err := d.settled(ctx, ownWait)
	if err != nil {
		return err
	}
	text, nodes := d.leftovers(states)
	for round := 0; text != ""; round++ {
		if round == tidyRounds {
			return fmt.Errorf("lab %s still has resources that %s has left (%s): mcastlab destroy it, and deploy it again", d.Lab.Name, whose, text)
		}
		d.Log("%s has left resources on lab %s, which are removed: %s", whose, d.Lab.Name, text)
		if err := d.release(ctx, nodes); err != nil {
			return fmt.Errorf("remove the resources that %s has left on lab %s: %w: mcastlab destroy it, and deploy it again", whose, d.Lab.Name, err)
		}
		if states, err = d.settled(ctx, drainWait); err != nil {
			return err
		}
		text, nodes = d.leftovers(states)
	}
	return nil
}

// settled returns the nodes' states once nothing of a run is left and no frame is under way, or
// when wait is over. Frames that a fault added by hand holds back do not count.
func (d leftoverSearch) settled(ctx context.Context, wait time.Duration) ([]counters.Node, error) {
	states := d.Look(ctx)
	for until, hurried := time.Now().Add(wait), false; ; states = d.Look(ctx) {
		frames := 0
		for i := range states {
			frames += states[i].Live
		}
		if text, _ := d.leftovers(states); text == "" && frames == 0 || time.Now().After(until) {
			return states, ctx.Err()
		}
		if !hurried {
			hurried = true
			if err := d.hurry(ctx, states); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery / 10):
		}
	}
}

// hurry speeds a clock that is slower than restDilation up to that.
func (d leftoverSearch) hurry(ctx context.Context, states []counters.Node) error {
	i := slices.IndexFunc(states, func(s counters.Node) bool { return s.Rate != nil })
	if i < 0 || states[i].Rate.Dilation <= restDilation {
		return nil
	}
	p, err := NewLabClock(ctx, d.Deployed, states[i].Node, *states[i].Rate)
	if err == nil {
		_, err = p.SetRate(ctx, restDilation)
	}
	return err
}

// release has nodes release what runs have left on them. A node that has died has nothing.
func (d leftoverSearch) release(ctx context.Context, nodes []int) error {
	errs := make([]error, len(d.Nodes))
	for _, i := range nodes {
		_, err := d.Nodes[i].Release(ctx, &nodeapi.ReleaseRequest{})
		if err != nil && status.Code(err) != codes.Unavailable {
			errs[i] = fmt.Errorf("node %s: %s", d.Nodes[i].Name, status.Convert(err).Message())
		}
	}
	return errors.Join(errs...)
}
