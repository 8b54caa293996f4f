// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
)

// routes makes the tables of all switches, once for all parts of a lab: they take longer to make, and more
// memory, than the share of one part. Parts that ask do so one after the other.
type routes struct {
	graph  *topo.Graph
	down   []int        // the links without which tables are
	tables []topo.Table // by switch; nil: they have not been made
}

// without returns the tables of a lab in which the given links, in ascending order, are down.
func (r *routes) without(down []int) []topo.Table {
	if r.tables != nil && slices.Equal(r.down, down) {
		return r.tables
	}
	r.down = slices.Clone(down)
	if len(down) == 0 {
		r.tables = r.graph.Routes()
	} else {
		r.tables = r.graph.RoutesWithout(down...)
	}
	return r.tables
}

// forget lets go of the tables.
func (r *routes) forget() { r.tables = nil }
