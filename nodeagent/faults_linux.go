package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
)

// AddFaults implements control.NodeServer.
func (a *agent) AddFaults(ctx context.Context, r *control.FaultList) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	var specs []faults.Spec
	for _, f := range r.Faults {
		s, err := specOf(n.lab, n.graph, f)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "fault %s: %v", f.Id, err)
		}
		specs = append(specs, s)
	}
	epoch, err := control.EpochOf(ctx)
	if err != nil {
		return nil, err
	}
	n.loop.Call(vtime.Never, func(now vtime.Time) {
		for _, s := range specs {
			// A leader may have died after it told us.
			if epoch == 0 || !slices.ContainsFunc(n.faults.List(now), func(o faults.Status) bool { return o.ID == s.ID }) {
				n.faults.Add(now, s)
			}
		}
	})
	return n.listFaults(), nil
}

// specOf reads a fault by the rules of the lab file.
func specOf(l *lab.Lab, g *topo.Graph, f *control.Fault) (s faults.Spec, err error) {
	entry, err := l.ParseFault(f.Entry)
	if err != nil {
		return s, err
	}
	if s, err = entry.Spec(l, g, f.Id); err != nil {
		return s, err
	}
	s.From = s.From.Add(vtime.Duration(f.Origin))
	return s, nil
}

// ListFaults implements control.NodeServer.
func (a *agent) ListFaults(context.Context, *control.InspectRequest) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	return n.listFaults(), nil
}

// listFaults returns what is applied here, with its counts.
func (n *node) listFaults() (out *control.FaultList) {
	n.loop.Call(vtime.Never, func(now vtime.Time) { out = listed(n.faults.List(now)) })
	return out
}

// listed returns the message of a list of faults.
func listed(all []faults.Status) *control.FaultList {
	out := &control.FaultList{}
	for _, s := range all {
		out.Faults = append(out.Faults, &control.Fault{
			Id: s.ID, Kind: string(s.Kind), Entry: s.Text, On: s.On, Over: s.Over, Seen: s.Seen, Hit: s.Hit, Applied: s.Applied,
		})
	}
	return out
}

// goes returns what tells which faults a reset is about.
func goes(r *control.ResetRequest) func(id string) bool {
	return func(id string) bool {
		if len(r.Ids) > 0 {
			return slices.Contains(r.Ids, id)
		}
		return strings.HasPrefix(id, r.Prefix)
	}
}

// ResetFaults implements control.NodeServer.
func (a *agent) ResetFaults(_ context.Context, r *control.ResetRequest) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	gone := &control.FaultList{}
	n.loop.Call(vtime.Never, func(now vtime.Time) {
		for _, id := range n.faults.RemoveIf(now, goes(r)) {
			gone.Faults = append(gone.Faults, &control.Fault{Id: id})
		}
	})
	return gone, nil
}

// newTimeline returns the timeline of a node: it applies what concerns the node, and knows
// of all links, since routes depend on them.
func (n *node) newTimeline(latency func(node int) vtime.Duration) *faults.Timeline {
	n.routes = router{
		find: func(down []int) virtswitch.FIB {
			t, spec := n.graph.RoutesAt(n.id, down...), n.lab.Fabric(n.graph)
			return spec.FIB(n.id, &t)
		},
		call: func(f func()) { n.loop.Call(vtime.Never, func(vtime.Time) { f() }) },
		set:  func(t virtswitch.FIB) { n.sw.SetRoutes(t) },
	}
	return faults.NewTimeline(faults.Config{
		Graph: n.graph, Seed: n.lab.Seed, Reconverge: vtime.Duration(n.lab.Switches.Reconverge), Latency: latency,
		Owns: func(node int) bool { return node == n.id },
	}, target{n})
}

// target is the node as faults see it (faults.Target). The loop calls it under its lock.
type target struct{ n *node }

// At implements faults.Target.
func (t target) At(at vtime.Time, _ faults.Keep, f func(now vtime.Time)) { t.n.loop.At(at, f) }

// SetFault implements faults.Target.
func (t target) SetFault(from topo.End, l faults.Link) {
	if to := t.n.graph.Peer(from.Node, from.Port); to.Node == t.n.id {
		t.n.loop.SetFault(to.Port, l)
	}
}

// SetCarrier implements faults.Target.
func (t target) SetCarrier(now vtime.Time, at topo.End, up bool) {
	switch n := t.n; {
	case at.Node != n.id:
	case n.sw != nil:
		n.sw.SetCarrier(now, at.Port, up)
	default:
		n.nic.SetCarrier(now, up)
	}
}

// SetRoutes implements faults.Target.
func (t target) SetRoutes(_ vtime.Time, down []int) {
	if t.n.sw != nil {
		t.n.routes.want(down)
	}
}

// SetRate implements faults.Target.
func (t target) SetRate(now vtime.Time, at topo.End, rate int64) {
	if at.Node == t.n.id {
		t.n.machine().Settle(now, at.Port)
		t.n.ports[at.Port].SetRate(rate)
	}
}

// Sent implements faults.Target.
func (t target) Sent(at topo.End) uint64 { return t.n.loop.Sent(at.Port) }

// Pause implements faults.Target.
func (t target) Pause(now vtime.Time, node int, classes uint8, quanta uint16) {
	if node == t.n.id && t.n.nic != nil {
		t.n.nic.SendPause(now, classes, quanta)
	}
}

// Restart implements faults.Target.
func (t target) Restart(now vtime.Time, node int) (lost int) {
	n := t.n
	if node != n.id {
		return 0
	}
	if n.sw != nil {
		return n.sw.Restart(now)
	}
	n.agent.Restart()
	lost = n.nic.Restart(now)
	select {
	case n.crashed <- fmt.Errorf(control.Crashed+"%s at %v", n.name, now):
	default: // it has not been noticed yet
	}
	go n.host.Stop() // not under the loop's lock, which its tasks may wait for
	return lost
}

// WipeGroups implements faults.Target.
func (t target) WipeGroups(_ vtime.Time, node int) (groups int) {
	if node == t.n.id && t.n.sw != nil {
		groups = t.n.sw.WipeGroups()
	}
	return groups
}

// LimitGroups implements faults.Target.
func (t target) LimitGroups(_ vtime.Time, node int, room int) {
	if node == t.n.id && t.n.sw != nil {
		t.n.sw.LimitGroups(room)
	}
}

// Refused implements faults.Target.
func (t target) Refused(node int) (refused uint64) {
	if node == t.n.id && t.n.sw != nil {
		refused = t.n.sw.Stats().Refused
	}
	return refused
}

// Stall implements faults.Target.
func (t target) Stall(now vtime.Time, node int, on bool) {
	if node == t.n.id && t.n.host != nil {
		t.n.nic.Stall(now, on)
	}
}

// SetIntake implements faults.Target.
func (t target) SetIntake(now vtime.Time, node int, rate int64) {
	if node == t.n.id && t.n.host != nil {
		t.n.nic.SetIntake(now, rate)
	}
}

// Waited implements faults.Target.
func (t target) Waited(node int) (waited uint64) {
	if node == t.n.id && t.n.nic != nil {
		waited = t.n.nic.Stats().Waited
	}
	return waited
}

// crash returns why the programs of this host have ended, if it crashed since it was last
// asked.
func (n *node) crash() error {
	select {
	case err := <-n.crashed:
		return err
	default:
		return nil
	}
}

// SetControl implements faults.Target: a node of the fabric is no controller.
func (t target) SetControl(vtime.Time, []string, []faults.Way) {}

// HeldBack implements faults.Target.
func (t target) HeldBack([]faults.Way) uint64 { return 0 }
