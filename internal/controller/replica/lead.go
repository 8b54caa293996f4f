// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/mcastlab/mcastlab/internal/controller"
)

// Effects are the changes that a leader makes at the nodes of a lab. Each call carries the leader's
// epoch, and each may be repeated: nodes identify a fault by its id, and a group by its address.
type Effects interface {
	// Adopt makes all nodes refuse requests of leaders of older epochs, and gives each its missing
	// entries: nodes may have restarted.
	Adopt(ctx context.Context, epoch uint64, l *controller.Lab) error
	// AddFaults applies faults.
	AddFaults(ctx context.Context, epoch uint64, l *controller.Lab, all []controller.Fault) error
	// RemoveFaults removes faults.
	RemoveFaults(ctx context.Context, epoch uint64, l *controller.Lab, ids []string) error
	// SetGroup sets or removes a plain multicast group's entries in switches.
	SetGroup(ctx context.Context, epoch uint64, l *controller.Lab, g *controller.Group, on bool) error
}

// Times of a leader.
const (
	effectWait = 5 * time.Second        // bounds an effect; nodes that take longer count as gone
	lookAgain  = 500 * time.Millisecond // interval at which nodes that were gone are tried again
)

// follow leads whenever raft makes this replica the leader, until ctx ends.
func (l *life) follow(ctx context.Context) {
	stop := func() {}
	for {
		select {
		case <-ctx.Done():
			stop()
			return
		case leads := <-l.raft.LeaderCh():
			stop() // the term may have changed since
			stop = func() {}
			if leads {
				stop = l.begin(ctx)
			}
		}
	}
}

// begin starts to lead. The function that it returns makes it stop, and waits until it has.
func (l *life) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.lead(ctx)
	}()
	return func() { cancel(); <-done }
}

// lead makes the changes at nodes that the state demands, as long as this replica leads.
func (l *life) lead(ctx context.Context) {
	var r controller.Result
	for err := errCrashed; err != nil; {
		if r, err = l.propose(ctx, controller.Command{Kind: controller.KindLead, Replica: l.r.c.ID}); err == nil {
			break
		}
		select {
		case <-ctx.Done(): // this replica no longer leads
			return
		case <-time.After(lookAgain / 10):
		}
	}
	l.setLeads(r.Epoch)
	l.say("leads in epoch %d", r.Epoch)
	defer func() {
		l.setLeads(0)
		l.say("does not lead any more in epoch %d", r.Epoch)
	}()
	if l.r.c.Effects == nil {
		<-ctx.Done()
		return
	}
	a := actor{l: l, epoch: r.Epoch, adopted: map[string]uint64{}}
	for ctx.Err() == nil {
		news, again := a.act(ctx)
		wait := time.NewTimer(lookAgain)
		if !again {
			wait.Stop()
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-wait.C:
		}
		wait.Stop()
	}
}

func (l *life) setLeads(epoch uint64) {
	l.mu.Lock()
	l.leads = epoch
	l.mu.Unlock()
}

// actor carries out the effects of one epoch, one after the other.
type actor struct {
	l       *life
	epoch   uint64
	adopted map[string]uint64 // by lab: its generation, plus 1
}

// act carries out the pending effects. again reports that some failed and have to be tried again; news
// is closed when the state has changed.
func (a *actor) act(ctx context.Context) (news <-chan struct{}, again bool) {
	var labs []controller.Lab
	news = a.l.machine.look(func(s *controller.State) {
		for i := range s.Labs {
			if x := &s.Labs[i]; x.Phase == controller.PhaseUp && (x.Pending() || a.adopted[x.Name] != x.Generation+1) {
				labs = append(labs, clone(x))
			}
		}
	})
	for i := range labs {
		x := &labs[i]
		if a.adopted[x.Name] != x.Generation+1 {
			if err := a.try(ctx, func(ctx context.Context) error { return a.l.r.c.Effects.Adopt(ctx, a.epoch, x) }); err != nil {
				a.l.say("adopt lab %s: %v", x.Name, err)
				again = true
			} else {
				a.adopted[x.Name] = x.Generation + 1
			}
		}
		done := a.pending(ctx, x)
		if len(done) == 0 || ctx.Err() != nil {
			continue
		}
		if _, err := a.l.propose(ctx, controller.Command{Kind: controller.KindDone, Lab: x.Name, Epoch: a.epoch, Done: done}); err != nil {
			again = true // tried again if this replica still leads
		}
	}
	return news, again
}

// pending carries out the pending effects of a lab, and returns those whose outcome is known.
func (a *actor) pending(ctx context.Context, x *controller.Lab) (done []controller.Done) {
	var add []controller.Fault
	var remove []string
	for _, f := range x.Faults {
		switch f.Stage {
		case controller.StageAdding:
			add = append(add, f)
		case controller.StageRemoving:
			remove = append(remove, f.ID)
		}
	}
	note := func(err error, d controller.Done) {
		if ctx.Err() != nil {
			return // whether it took effect is not known
		}
		if err != nil {
			d.Error = err.Error()
		}
		done = append(done, d)
	}
	e := a.l.r.c.Effects
	if len(add) > 0 {
		err := a.try(ctx, func(ctx context.Context) error { return e.AddFaults(ctx, a.epoch, x, add) })
		for _, f := range add {
			note(err, controller.Done{Fault: f.ID, Stage: f.Stage})
		}
	}
	if len(remove) > 0 {
		err := a.try(ctx, func(ctx context.Context) error { return e.RemoveFaults(ctx, a.epoch, x, remove) })
		for _, id := range remove {
			note(err, controller.Done{Fault: id, Stage: controller.StageRemoving})
		}
	}
	for i := range x.Groups {
		g := &x.Groups[i]
		if g.Stage != controller.StageAdding && g.Stage != controller.StageRemoving {
			continue
		}
		on := g.Stage == controller.StageAdding
		err := a.try(ctx, func(ctx context.Context) error { return e.SetGroup(ctx, a.epoch, x, g, on) })
		note(err, controller.Done{Lower: g.Lower, Stage: g.Stage})
	}
	return done
}

func (a *actor) try(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, effectWait)
	defer stop()
	return f(ctx)
}

// clone copies the fields of a lab that effects read.
func clone(x *controller.Lab) controller.Lab {
	c := *x
	c.Faults = append([]controller.Fault{}, x.Faults...)
	c.Groups = append([]controller.Group{}, x.Groups...) // their hosts never change, so a shallow copy will do
	c.Leases, c.Runs = nil, nil
	return c
}

func (l *life) say(format string, args ...any) {
	fmt.Fprintf(l.r.c.Log, "%s controller %s: "+format+"\n", append([]any{time.Now().UTC().Format("15:04:05.000"), l.r.c.ID}, args...)...)
}

// enqueueWait bounds how long a command waits for raft to take it.
const enqueueWait = 2 * time.Second

// propose has a command replicated. An error means that its outcome is not known, if it was
// not raft.ErrNotLeader.
func (l *life) propose(ctx context.Context, c controller.Command) (controller.Result, error) {
	c.At = time.Now().UnixNano()
	b, err := c.Encode()
	if err != nil {
		return controller.Result{}, err
	}
	f := l.raft.Apply(b, enqueueWait)
	done := make(chan error, 1)
	go l.watch(f, done)
	select {
	case err = <-done:
	case <-ctx.Done():
		return controller.Result{}, ctx.Err()
	}
	if err != nil {
		return controller.Result{}, err
	}
	return f.Response().(controller.Result), nil
}

// watch waits for an entry, and longer than its client does. A leader that commits nothing has
// a disk that hangs, while its heartbeats keep other replicas from being elected. watch
// therefore mutes the leader until its disk answers, so that another can be elected. If the
// disk does not answer for too long the replica ends.
func (l *life) watch(f raft.ApplyFuture, done chan<- error) {
	ended := make(chan error, 1)
	go func() { ended <- f.Error() }()
	muted := false
	for tries := 1; ; tries++ {
		stall := time.NewTimer(l.r.c.Timing.Stall)
		select {
		case err := <-ended:
			stall.Stop()
			if muted {
				l.r.c.Network.mute(-1)
			}
			done <- err
			return
		case <-stall.C:
		}
		switch {
		case tries == stallsMax:
			l.r.broke(fmt.Errorf("nothing has been committed for %v: the disk hangs", stallsMax*l.r.c.Timing.Stall))
		case !muted && l.raft.State() == raft.Leader:
			muted = true
			l.r.c.Network.mute(1)
			l.say("has committed nothing for %v: it falls silent, so that another replica is elected", l.r.c.Timing.Stall)
		}
	}
}

// stallsMax is the number of waits of Timing.Stall after which a leader's disk counts as broken.
const stallsMax = 4
