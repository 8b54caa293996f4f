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

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/counters"
	"github.com/mcastlab/mcastlab/faults"
)

// A lab that stays up is given back as it was deployed. Ranks release what they have made on
// every way out; what is looked for here is what they could not: a group whose leader was
// killed, a rank whose orchestrator was.

const (
	// tidyWait bounds what a run that has ended may spend on that.
	tidyWait = 10 * time.Second
	// ownWait is how long ranks may take to give back what they have made, and switches to hear
	// of it; drainWait how long frames may be under way after that. The clock is no slower than
	// restDilation.
	ownWait   = 2 * time.Second
	drainWait = 2 * time.Second
	// tidyRounds is how often remains are taken away: a registration that was under way may
	// install a group again.
	tidyRounds = 3
)

// remains says what runs have left on a node, or nothing. Of the plain multicast groups of a
// lab with controllers those know.
func (d *Deployed) remains(n *counters.Node) (what []string) {
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
	if d.plane == nil {
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

// left says what runs have left, node by node, and on which nodes.
func (d *Deployed) left(states []counters.Node) (text string, nodes []int) {
	var all []string
	for i := range states {
		if what := d.remains(&states[i]); len(what) > 0 {
			nodes = append(nodes, i)
			all = append(all, states[i].Node+": "+strings.Join(what, ", "))
		}
	}
	return strings.Join(all, "; "), nodes
}

// tidyBefore takes away what an earlier run has left. Faults of its lab file go, too; where
// there are controllers their leader sees to that.
func (d *Deployed) tidyBefore(ctx context.Context) error {
	if d.plane == nil {
		if err := d.ResetFaults(ctx, faults.LabPrefix); err != nil {
			return err
		}
	}
	return d.tidy(ctx, "an earlier run")
}

// tidyAfter does so after a run, of whatever still answers. What is left then the next run
// takes away, or names.
func (d *Deployed) tidyAfter(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tidyWait)
	defer stop()
	if d.plane == nil {
		_ = d.ResetFaults(ctx, faults.LabPrefix) // a node that has gone has none
	}
	if err := d.tidy(ctx, "the run"); err != nil {
		d.log("%v", err)
	}
}

// tidy takes away what a run has left: groups, ranks and what they have made, frames that are
// under way. It fails if that cannot be. whose names the run.
func (d *Deployed) tidy(ctx context.Context, whose string) error {
	states, err := d.settled(ctx, ownWait)
	if err != nil {
		return err
	}
	text, nodes := d.left(states)
	for round := 0; text != ""; round++ {
		if round == tidyRounds {
			return fmt.Errorf("lab %s still has what %s has left (%s): mcastlab destroy it, and deploy it again", d.Lab.Name, whose, text)
		}
		d.log("%s has left something on lab %s, which is taken away: %s", whose, d.Lab.Name, text)
		if err := d.release(ctx, nodes); err != nil {
			return fmt.Errorf("take away what %s has left on lab %s: %w: mcastlab destroy it, and deploy it again", whose, d.Lab.Name, err)
		}
		if states, err = d.settled(ctx, drainWait); err != nil {
			return err
		}
		text, nodes = d.left(states)
	}
	return nil
}

// settled returns what nodes tell of themselves once nothing of a run is left and no frame
// under way, or when they have had so long for it. Frames that a fault holds back which was
// added by hand stay where they are.
func (d *Deployed) settled(ctx context.Context, wait time.Duration) ([]counters.Node, error) {
	states := d.Look(ctx)
	for until, hurried := time.Now().Add(wait), false; ; states = d.Look(ctx) {
		frames := 0
		for i := range states {
			frames += states[i].Live
		}
		if text, _ := d.left(states); text == "" && frames == 0 || time.Now().After(until) {
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

// hurry makes a clock that is slower than that of a lab at rest as fast as that.
func (d *Deployed) hurry(ctx context.Context, states []counters.Node) error {
	i := slices.IndexFunc(states, func(s counters.Node) bool { return s.Rate != nil })
	if i < 0 || states[i].Rate.Dilation <= restDilation {
		return nil
	}
	p, err := newPace(d, *states[i].Rate)
	if err == nil {
		_, err = p.set(ctx, restDilation)
	}
	return err
}

// release has nodes take back what runs have left on them. One that has gone has nothing.
func (d *Deployed) release(ctx context.Context, nodes []int) error {
	errs := make([]error, len(d.nodes))
	for _, i := range nodes {
		_, err := d.nodes[i].Release(ctx, &control.ReleaseRequest{})
		if err != nil && status.Code(err) != codes.Unavailable {
			errs[i] = fmt.Errorf("node %s: %s", d.nodes[i].name, status.Convert(err).Message())
		}
	}
	return errors.Join(errs...)
}
