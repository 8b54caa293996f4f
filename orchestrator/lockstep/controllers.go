// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// lockstepControllers is the lab's controllers as a run in virtual time has them. They live in wall time: lab time
// stands still while they decide, and what they have decided takes effect when a request that was handled
// at once would be answered. The run is therefore the simulation's, however long they take. Without
// controllers the run decides itself.
type lockstepControllers struct {
	r   *lockstepRun
	run string // as the controllers know it
	err error  // why they have not decided, which ends the run

	applied map[string]bool // ids of the faults that controllers have been given
}

// begin tells the controllers of the run. Faults that nodes had at rest end, as the nodes do.
func (p *lockstepControllers) begin() (err error) {
	p.run, err = p.r.d.BeginRun(p.r.ctx, p.r.Report.RunDir, true)
	return err
}

// over ends the faults that the run's timeline has applied to controllers, and tells them of its end.
func (p *lockstepControllers) over(err error) {
	d := p.r.d
	if !d.Plane.HasControllers() {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(p.r.ctx), orchestrator.EndWait)
	defer stop()
	if rerr := d.Plane.ResetControl(ctx, controlPrefix); rerr != nil {
		d.Log("the run's faults of controllers have not ended: %v", rerr)
	}
	d.EndRun(ctx, p.run, err)
}

// leaseGroup leases the lower half of a group's address that the run has not used.
func (r *lockstepRun) leaseGroup() (uint32, error) {
	if r.lease >= orchestrator.LeasesMax {
		return 0, fmt.Errorf("all %d group addresses of the run are used", orchestrator.LeasesMax)
	}
	r.lease++
	if !r.d.Plane.HasControllers() {
		return r.lease, nil
	}
	return r.lease, r.plane.lease(r.lease)
}

// planePatience is the time limit for the controllers before the user sees a message about the wait.
const planePatience = 5 * time.Second

// lease has the controllers lease an McstID, which has to be the given one: a simulation leases that one.
func (p *lockstepControllers) lease(want uint32) error {
	if p.err != nil {
		return p.err
	}
	r := p.r
	at := r.coord.Channel().Last().Add(r.cfg.OutOfBand)
	late := time.AfterFunc(planePatience, func() {
		if r.o.Say != nil {
			r.o.Say("lab time stays at %v: the controllers have not decided for %v", at, planePatience)
		}
	})
	x, err := r.d.Command(r.ctx, controller.Command{Kind: controller.KindLease, Run: p.run, Instant: int64(at)})
	late.Stop()
	switch {
	case r.ctx.Err() != nil:
		p.err = r.ctx.Err()
	case err != nil:
		p.err = fmt.Errorf("lease a group at %v of lab time: %w", at, err)
	case x.Lower != want:
		p.err = fmt.Errorf("lease a group at %v of lab time: the controllers give out %d, and the next of the run is %d: run it again", at, x.Lower, want)
	default:
		p.err = r.NoteLease(runner.Lease{At: at, Lower: want, Epoch: x.Epoch, Index: x.Index})
	}
	return p.err
}

// controlPrefix begins the ids by which controllers know what a run's timeline has applied to them. The next
// run resets what has them, if this one is killed.
const controlPrefix = faults.LabPrefix + "control-"

// SetControl implements faults.ControlTarget: the controllers have the faults of a run for as long as its
// timeline says, which is in lab time.
func (p *lockstepControllers) SetControl(_ vtime.Time, crashed []string, cut []faults.Way) {
	want := map[string]faults.Spec{}
	for _, c := range crashed {
		want[controlPrefix+"crash-"+c] = faults.Spec{Kind: faults.KindControllerCrash, Controllers: []string{c}}
	}
	for _, w := range cut {
		want[controlPrefix+"cut-"+w.From+"-"+w.To] = faults.Spec{Kind: faults.KindControlPartition, Cut: []faults.Way{w}}
	}
	r := p.r
	for id := range p.applied {
		if _, stays := want[id]; !stays {
			p.fail(r.d.Plane.ResetControl(r.ctx, id))
		}
	}
	var add []*nodeapi.Fault
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if p.applied[id] {
			continue
		}
		s := want[id]
		b, err := faults.Encode(&s, r.d.Graph)
		p.fail(err)
		add = append(add, &nodeapi.Fault{Id: id, Kind: string(s.Kind), Text: "of the run's timeline", Message: b})
	}
	p.fail(r.d.Plane.AddControl(r.ctx, add))
	p.applied = map[string]bool{}
	for id := range want {
		p.applied[id] = true
	}
}

// HeldBack implements faults.ControlTarget. The counts of a run are the simulation's.
func (p *lockstepControllers) HeldBack([]faults.Way) uint64 { return 0 }

// fail ends the run at the next edge.
func (p *lockstepControllers) fail(err error) {
	if p.err == nil && err != nil {
		p.err = err
	}
}
