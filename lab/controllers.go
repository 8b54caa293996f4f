// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/faults"
)

// replicaPrefix begins the names of controllers.
const replicaPrefix = "controller"

// Replicas returns the names of the lab's controllers. A lab whose state the command line keeps has
// none.
func (l *Lab) Replicas() (names []string) {
	if l.Controllers < 3 {
		return nil
	}
	for i := range l.Controllers {
		names = append(names, replicaPrefix+strconv.Itoa(i))
	}
	return names
}

// replicas returns the controllers that words mean, in order. It is an error if a word means
// none.
func (l *Lab) replicas(words Names) (names []string, err error) {
	all := l.Replicas()
	if all == nil {
		return nil, fmt.Errorf("the lab has no controllers: give it controllers: 3")
	}
	for _, w := range words {
		ok, err := matcher{l: l}.test(w)
		if err != nil {
			return nil, err
		}
		some := false
		for _, n := range all {
			if ok(n, topo.TierHost) {
				names, some = append(names, n), true
			}
		}
		if !some {
			return nil, fmt.Errorf("there is no controller %q%s", w, setting.Suggest(w, all))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// cuts returns the directions between some controllers and the others.
func cuts(some, all []string, direction string) (cut []faults.Way) {
	for _, a := range some {
		for _, b := range all {
			if slices.Contains(some, b) {
				continue
			}
			if direction != "in" {
				cut = append(cut, faults.Way{From: a, To: b})
			}
			if direction != "out" {
				cut = append(cut, faults.Way{From: b, To: a})
			}
		}
	}
	return cut
}

func (c *checking) checkControllers() {
	for _, name := range c.l.Replicas() {
		if _, taken := c.g.Find(name); taken {
			c.failf("topology", "topology: %s is the name of a controller: give the node another", name)
		}
	}
}
