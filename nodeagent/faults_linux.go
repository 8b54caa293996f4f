package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// applied is a fault as this node has it: at the end of links into it, or on its NIC.
type applied struct {
	spec   *control.Fault
	links  []*faults.Impairment
	ports  []int        // of links
	pauses *uint64      // PFC frames sent
	over   *atomic.Bool // no more of them
}

// AddFaults implements control.NodeServer.
func (a *agent) AddFaults(_ context.Context, r *control.FaultList) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	for _, f := range r.Faults {
		if err := n.addFault(f); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "fault %s: %v", f.Id, err)
		}
	}
	return n.listFaults(), nil
}

// ListFaults implements control.NodeServer.
func (a *agent) ListFaults(context.Context, *control.InspectRequest) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	return n.listFaults(), nil
}

// ResetFaults implements control.NodeServer.
func (a *agent) ResetFaults(_ context.Context, r *control.ResetRequest) (*control.FaultList, error) {
	n, err := a.configured()
	if err != nil {
		return nil, err
	}
	gone := &control.FaultList{}
	n.faulty.Lock()
	defer n.faulty.Unlock()
	old := n.faults
	n.faults = nil
	for p := range n.chains { // each port by itself
		n.loop.SetFault(p, nil)
	}
	n.chains = nil
	for _, f := range old {
		if !strings.HasPrefix(f.spec.Id, r.Prefix) {
			n.put(f)
			continue
		}
		gone.Faults = append(gone.Faults, f.spec)
		if f.pauses != nil {
			f.over.Store(true)
			n.loop.Call(vtime.Never, func(now vtime.Time) { n.nic.SendPause(now, 1<<f.spec.Priority, 0) })
		}
	}
	return gone, nil
}

// put keeps a fault and has the loop ask those of its parts that are links'.
func (n *node) put(a applied) {
	n.faults = append(n.faults, a)
	if n.chains == nil {
		n.chains = map[int]faults.Chain{}
	}
	for i, m := range a.links {
		p := a.ports[i]
		// A chain of its own: the loop may be asking the old one.
		n.chains[p] = append(slices.Clip(n.chains[p]), m)
		n.loop.SetFault(p, n.chains[p])
	}
}

// addFault applies what concerns this node.
func (n *node) addFault(f *control.Fault) error {
	n.faulty.Lock()
	defer n.faulty.Unlock()
	if f.Kind == "pause" {
		return n.addPause(f)
	}
	m := faults.Impairment{Delay: vtime.Duration(f.Delay), From: vtime.Time(f.From), Until: vtime.Time(f.Until)}
	switch f.Kind {
	case "loss":
		m.Loss = f.Rate
	case "corrupt":
		m.Corrupt = f.Rate
	case "duplicate":
		m.Duplicate = f.Rate
	case "reorder":
		m.Reorder = f.Rate
	default:
		return fmt.Errorf("this agent knows no fault %q", f.Kind)
	}
	links, err := lab.MatchLinks(n.graph, f.Links)
	if err != nil {
		return err
	}
	root := prng.New(n.lab.Seed)
	have := applied{spec: f}
	for _, k := range links {
		l := &n.graph.Links[k]
		for _, dir := range [2][2]topo.End{{l.A, l.B}, {l.B, l.A}} {
			if dir[1].Node != n.id {
				continue
			}
			own := m
			own.Random = root.Derive(fmt.Sprintf("fault/%s/%s", f.Id, n.graph.PortName(dir[0])))
			have.links, have.ports = append(have.links, &own), append(have.ports, dir[1].Port)
			f.Applied = append(f.Applied, n.graph.PortName(dir[1]))
		}
	}
	if len(have.links) > 0 {
		n.put(have)
	}
	return nil
}

// pauseQuantumBits is what one pause quantum stands for: 512 bit times (802.1Q 36).
const pauseQuantumBits = 512

// addPause makes this host's NIC send PFC frames, if it is the one.
func (n *node) addPause(f *control.Fault) error {
	if f.Node != n.name {
		return nil
	}
	if n.nic == nil {
		return fmt.Errorf("%s is a switch: pauses come from hosts", f.Node)
	}
	until := vtime.Time(f.Until)
	if until == 0 {
		until = vtime.Never
	}
	rate := n.graph.Links[n.graph.Nodes[n.id].Links[0]].Rate
	full := vtime.Duration(float64(faults.PauseQuantaMax*pauseQuantumBits) / float64(rate) * float64(vtime.Second))
	sent, over := new(uint64), new(atomic.Bool)
	for _, s := range faults.PauseSteps(vtime.Time(f.From), until, full) {
		n.loop.At(s.At, func(now vtime.Time) {
			if over.Load() {
				return
			}
			*sent++
			n.nic.SendPause(now, 1<<f.Priority, s.Quanta)
		})
	}
	f.Applied = append(f.Applied, n.graph.PortName(topo.End{Node: n.id}))
	n.faults = append(n.faults, applied{spec: f, pauses: sent, over: over})
	return nil
}

// listFaults returns what is applied here, with its counts.
func (n *node) listFaults() *control.FaultList {
	out := &control.FaultList{}
	n.faulty.Lock()
	defer n.faulty.Unlock()
	n.loop.Call(vtime.Never, func(vtime.Time) { // the loop counts
		for _, a := range n.faults {
			f := a.spec
			f.Seen, f.Hit = 0, 0
			for _, m := range a.links {
				f.Seen, f.Hit = f.Seen+m.Seen, f.Hit+m.Hit
			}
			if a.pauses != nil {
				f.Seen, f.Hit = *a.pauses, *a.pauses
			}
			out.Faults = append(out.Faults, f)
		}
	})
	return out
}
