// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// AddFaults implements nodeapi.NodeServer.
func (a *agent) AddFaults(ctx context.Context, r *nodeapi.FaultList) (*nodeapi.FaultList, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	var specs []faults.Spec
	for _, f := range r.Faults {
		s, err := specOf(n.lab, n.graph, f)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "fault %s: %v", f.Id, err)
		}
		specs = append(specs, s)
	}
	epoch, err := nodeapi.EpochOf(ctx)
	if err != nil {
		return nil, err
	}
	var list *nodeapi.FaultList
	err = n.call(func(now vtime.Time) {
		for _, s := range specs {
			// A leader may have died after its call.
			if epoch == 0 || !slices.ContainsFunc(n.faults.List(now), func(o faults.Status) bool { return o.ID == s.ID }) {
				n.faults.Add(now, s)
				n.noteByHand(now, machine.EventFaultAdded, s.ID, ": "+s.Text)
			}
		}
		list = listed(n.faults.List(now)) // at once: one of them may end the process
	})
	return list, err
}

// specOf reads the message of a fault.
func specOf(l *lab.Lab, g *topo.Graph, f *nodeapi.Fault) (s faults.Spec, err error) {
	if s, err = faults.Decode(f.Message, g, l.Replicas()); err != nil {
		return s, err
	}
	s.ID, s.Text = f.Id, f.Text
	s.From = s.From.Add(vtime.Duration(f.Origin))
	return s, nil
}

// ListFaults implements nodeapi.NodeServer.
func (a *agent) ListFaults(context.Context, *nodeapi.InspectRequest) (*nodeapi.FaultList, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	return n.listFaults()
}

// listFaults returns the faults applied here, with their counts.
func (n *node) listFaults() (out *nodeapi.FaultList, err error) {
	err = n.call(func(now vtime.Time) { out = listed(n.faults.List(now)) })
	return out, err
}

// listed returns the message of a list of faults.
func listed(all []faults.Status) *nodeapi.FaultList {
	out := &nodeapi.FaultList{}
	for _, s := range all {
		out.Faults = append(out.Faults, &nodeapi.Fault{
			Id: s.ID, Kind: string(s.Kind), Text: s.Text, On: s.On, Over: s.Over, Seen: s.Seen, Hit: s.Hit, Applied: s.Applied,
		})
	}
	return out
}

// noteByHand records as an event that a fault which is not of the lab file was added or removed. All
// nodes have all faults; only the first node reports them.
func (n *node) noteByHand(now vtime.Time, kind machine.EventKind, id, more string) {
	if n.id == 0 && !strings.HasPrefix(id, faults.LabPrefix) {
		n.events.Trace(now, machine.Event{Kind: kind, Text: id + more})
	}
}

// goes returns a predicate that reports whether a reset removes the fault with an id.
func goes(r *nodeapi.ResetRequest) func(id string) bool {
	return func(id string) bool {
		if len(r.Ids) > 0 {
			return slices.Contains(r.Ids, id)
		}
		return strings.HasPrefix(id, r.Prefix)
	}
}

// ResetFaults implements nodeapi.NodeServer.
func (a *agent) ResetFaults(_ context.Context, r *nodeapi.ResetRequest) (*nodeapi.FaultList, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	gone := &nodeapi.FaultList{}
	err = n.call(func(now vtime.Time) {
		for _, id := range n.faults.RemoveIf(now, goes(r)) {
			gone.Faults = append(gone.Faults, &nodeapi.Fault{Id: id})
			n.noteByHand(now, machine.EventFaultRemoved, id, "")
		}
	})
	return gone, err
}

// newTimeline returns the timeline of a node: it applies the faults of the node, and has all links,
// since routes depend on them.
func (n *node) newTimeline(latency func(node int) vtime.Duration) *faults.Timeline {
	n.routes = router{
		find: func(down []int) virtswitch.FIB {
			t, spec := n.graph.RoutesAt(n.id, down...), labspec.Fabric(n.lab, n.graph)
			spec.Joins = true
			return spec.FIB(n.id, &t, down...)
		},
		call: func(f func(now vtime.Time)) { n.loop.Call(vtime.Never, f) },
		set:  func(now vtime.Time, t virtswitch.FIB) { n.sw.SetRoutes(now, t) },
	}
	t := target{n}
	parts := faults.Target{Clock: t, Links: t}
	if n.graph.Nodes[n.id].Kind == topo.Host {
		parts.Hosts = hostTarget{n}
	} else {
		parts.Switches = switchTarget{n}
	}
	return faults.NewTimeline(faults.Config{
		Graph: n.graph, Seed: n.lab.Seed, Reconverge: vtime.Duration(n.lab.Switches.Reconverge), Latency: latency,
		Owns: func(node int) bool { return node == n.id },
	}, parts)
}

// crash returns why the programs of this host have ended, if the host crashed since the last call.
func (n *node) crash() error {
	select {
	case err := <-n.crashed:
		return err
	default:
		return nil
	}
}
