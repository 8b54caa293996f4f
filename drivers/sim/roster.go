// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// roster has the ranks of a job, by rank. Parts of a lab share it: each reads the names and addresses, and
// writes the fields of the ranks that it drives.
type roster struct {
	names []string // of the hosts
	ips   []uint32 // of the hosts
	ranks []*rank.Rank
	errs  []error
}

func newRoster(g *topo.Graph, hosts []int) *roster {
	r := &roster{make([]string, len(hosts)), make([]uint32, len(hosts)), make([]*rank.Rank, len(hosts)), make([]error, len(hosts))}
	for i, node := range hosts {
		r.names[i], r.ips[i] = g.Nodes[node].Name, g.Nodes[node].IP
	}
	return r
}

// Outcome returns the error of a job from those of its ranks, and from the waits of ranks that had not
// ended.
func Outcome(errs []error, blocked []string) error {
	if err := firstError(errs); err != nil || len(blocked) == 0 {
		return err
	}
	return rankhost.Deadlock(blocked)
}

// firstError returns the error of a crash if there is one, else the error of the lowest rank that
// has one, else nil.
func firstError(errs []error) (first error) {
	for _, e := range errs {
		switch {
		case errors.Is(e, ErrCrashed):
			return e
		case first == nil:
			first = e
		}
	}
	return first
}
