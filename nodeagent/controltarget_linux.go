// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"fmt"
	"os"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
)

// controlTarget is a controller as faults see it: the control plane of faults.Target, and
// nothing else. The timeline calls it with the node's lock held.
type controlTarget struct{ n *controllerNode }

// At implements faults.Clock.
func (t controlTarget) At(at vtime.Time, _ faults.Keep, f func(now vtime.Time)) {
	t.n.calls = append(t.n.calls, due{at, f})
	t.n.news()
}

// SetControl implements faults.ControlTarget.
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

// follow makes the replica crash or come back, as the latest fault demands.
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

// HeldBack implements faults.ControlTarget.
func (t controlTarget) HeldBack(cut []faults.Way) uint64 {
	if !slices.ContainsFunc(cut, func(c faults.Way) bool { return c.From == t.n.o.Name }) {
		return 0
	}
	return t.n.network.Held()
}
