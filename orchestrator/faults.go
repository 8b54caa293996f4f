// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// FaultOf returns the message of a fault of the lab.
func (d *Deployed) FaultOf(f *lab.Fault, id string) (*nodeapi.Fault, error) {
	s, err := labspec.Fault(d.Lab, d.Graph, f, id)
	if err != nil {
		return nil, fmt.Errorf("fault %s: %w", id, err)
	}
	b, err := faults.Encode(&s, d.Graph)
	if err != nil {
		return nil, err
	}
	return &nodeapi.Fault{Id: id, Kind: string(s.Kind), Text: s.Text, Message: b}, nil
}

// AddFaults applies faults whose times count from origin.
func (d *Deployed) AddFaults(ctx context.Context, all []*nodeapi.Fault, origin vtime.Time) error {
	if len(all) == 0 {
		return nil
	}
	if run, ok := d.activeRun(); ok {
		var acts []*nodeapi.Act
		for _, f := range all { // its times count from the instant at which the run takes it
			acts = append(acts, &nodeapi.Act{What: &nodeapi.Act_Add{Add: f}})
		}
		return errors.Join(run.Do(ctx, acts), run.Close())
	}
	for _, f := range all {
		f.Origin = int64(origin)
	}
	return d.Plane.addFaults(ctx, all)
}

// Faults returns what is applied, each fault once with the counts of all nodes, in the
// order in which they were added.
func (d *Deployed) Faults(ctx context.Context) (all []*nodeapi.Fault, err error) {
	if look, _, ok, err := d.lookAtRun(ctx); ok {
		return MergeFaults(look.GetFaults()), err
	}
	lists := make([]*nodeapi.FaultList, len(d.Nodes))
	err = d.Each(func(i int) (err error) {
		if lists[i], err = d.Nodes[i].ListFaults(ctx, &nodeapi.InspectRequest{}); err != nil {
			return fmt.Errorf("list faults of node %s: %w", d.Nodes[i].Name, err)
		}
		return nil
	})
	if err == nil {
		more, perr := d.Plane.faults(ctx)
		lists, err = append(lists, more...), perr
	}
	return MergeFaults(lists), err
}

// MergeFaults returns the faults of all nodes' lists, each once with the counts of all nodes.
func MergeFaults(lists []*nodeapi.FaultList) (all []*nodeapi.Fault) {
	at := map[string]int{}
	for _, l := range lists {
		for _, f := range l.GetFaults() {
			i, ok := at[f.Id]
			if !ok {
				at[f.Id] = len(all)
				all = append(all, f)
				continue
			}
			all[i].Hit, all[i].On = all[i].Hit+f.Hit, all[i].On || f.On
			if faults.Kind(f.Kind).OfFrames() {
				all[i].Seen += f.Seen
			} else { // every node has counted the same times
				all[i].Seen = max(all[i].Seen, f.Seen)
			}
			all[i].Applied = append(all[i].Applied, f.Applied...)
		}
	}
	return all
}

// AwaitAgents waits until every node has a process: no workload begins before. Each node knows of
// all faults of the fabric, so that any one can be asked.
func (d *Deployed) AwaitAgents(ctx context.Context) error {
	i := 0
	for i+1 < len(d.Nodes) && d.Lost[i].Load() {
		i++
	}
	for said := false; ; said = true {
		list, err := d.Nodes[i].ListFaults(ctx, &nodeapi.InspectRequest{})
		if err != nil {
			return fmt.Errorf("list faults of node %s: %w", d.Nodes[i].Name, err)
		}
		k := slices.IndexFunc(list.Faults, func(f *nodeapi.Fault) bool { return f.On && faults.Kind(f.Kind) == faults.KindAgentCrash })
		if k < 0 {
			return nil
		}
		if !said {
			d.Log("no workload begins while fault %s is in force: %s", list.Faults[k].Id, list.Faults[k].Text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery / 10):
		}
	}
}

// ResetFaults removes the faults whose id begins with prefix; all, if it is empty.
func (d *Deployed) ResetFaults(ctx context.Context, prefix string) error {
	if run, ok := d.activeRun(); ok {
		return errors.Join(run.Do(ctx, []*nodeapi.Act{{What: &nodeapi.Act_Remove{Remove: prefix}}}), run.Close())
	}
	return d.Plane.resetFaults(ctx, prefix)
}

// Now returns the lab time of a running lab.
func (d *Deployed) Now(ctx context.Context) (vtime.Time, error) {
	if look, _, ok, err := d.lookAtRun(ctx); ok {
		return vtime.Time(look.GetLab()), err
	}
	r, err := d.Nodes[0].Inspect(ctx, &nodeapi.InspectRequest{})
	if err != nil {
		return 0, fmt.Errorf("inspect node %s: %w", d.Nodes[0].Name, err)
	}
	s, err := r.Decode()
	return nowOf(&s), err
}

// nowOf returns the lab time of a state.
func nowOf(s *counters.Node) vtime.Time { return vtime.Time(s.LabUS * float64(vtime.Microsecond)) }
