package nodeagent

import (
	"fmt"
	"os"
	"slices"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// controlTarget is a controller as faults see it (faults.Target): it has no links and no
// machine. The timeline calls it with the node's lock held.
type controlTarget struct{ n *controllerNode }

// At implements faults.Target.
func (t controlTarget) At(at vtime.Time, _ faults.Keep, f func(now vtime.Time)) {
	t.n.calls = append(t.n.calls, due{at, f})
	t.n.news()
}

// SetControl implements faults.Target.
func (t controlTarget) SetControl(_ vtime.Time, crashed []string, cut []faults.Way) {
	var to []string
	for _, c := range cut {
		if c.From == t.n.o.Name {
			to = append(to, c.To)
		}
	}
	t.n.network.Cut(to)
	t.n.down.Store(slices.Contains(crashed, t.n.o.Name))
	go t.n.follow() // not under the lock: it takes a while
}

// follow makes the replica crash or come back, as was last said.
func (n *controllerNode) follow() {
	n.act.Lock()
	defer n.act.Unlock()
	act, what := n.replica.Start, "come back"
	if n.down.Load() {
		act, what = n.replica.Crash, "crash"
	}
	if err := act(); err != nil {
		fmt.Fprintf(os.Stderr, "mcastlab node: %s: %s: %v\n", n.o.Name, what, err)
	}
}

// HeldBack implements faults.Target.
func (t controlTarget) HeldBack(cut []faults.Way) uint64 {
	if !slices.ContainsFunc(cut, func(c faults.Way) bool { return c.From == t.n.o.Name }) {
		return 0
	}
	return t.n.network.Held()
}

// The others are of links, switches and hosts.

// SetFault implements faults.Target.
func (controlTarget) SetFault(topo.End, faults.Link) {}

// SetCarrier implements faults.Target.
func (controlTarget) SetCarrier(vtime.Time, topo.End, bool) {}

// SetRoutes implements faults.Target.
func (controlTarget) SetRoutes(vtime.Time, []int) {}

// SetRate implements faults.Target.
func (controlTarget) SetRate(vtime.Time, topo.End, int64) {}

// Sent implements faults.Target.
func (controlTarget) Sent(topo.End) uint64 { return 0 }

// Pause implements faults.Target.
func (controlTarget) Pause(vtime.Time, int, uint8, uint16) {}

// Restart implements faults.Target.
func (controlTarget) Restart(vtime.Time, int) int { return 0 }

// WipeGroups implements faults.Target.
func (controlTarget) WipeGroups(vtime.Time, int) int { return 0 }

// LimitGroups implements faults.Target.
func (controlTarget) LimitGroups(vtime.Time, int, int) {}

// Refused implements faults.Target.
func (controlTarget) Refused(int) uint64 { return 0 }

// Stall implements faults.Target.
func (controlTarget) Stall(vtime.Time, int, bool) {}

// SetIntake implements faults.Target.
func (controlTarget) SetIntake(vtime.Time, int, int64) {}

// Waited implements faults.Target.
func (controlTarget) Waited(int) uint64 { return 0 }
