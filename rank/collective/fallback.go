// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective/fallback"
)

// Values of Options.Fallback: the reaction of a broadcast by in-network multicast to multicast that
// does not work.
const (
	FallbackOff     = "off"     // the broadcast ends with an error
	FallbackFull    = "full"    // all ranks leave multicast (Cepheus §V-D)
	FallbackPartial = "partial" // ranks that hold up the others are served by unicast
)

// ErrLost is returned at a rank that the source has given up.
var ErrLost = fallback.ErrLost

// safeguard is cepheus with a fallback.
type safeguard struct{ *fallback.Bcast }

func newSafeguard(r *rank.Rank, o *Options) (Algorithm, error) {
	b, err := fallback.New(r, fallback.Config{Label: o.Label, Partial: o.Fallback == FallbackPartial, NewRelay: newOverlay})
	if err != nil {
		return nil, err
	}
	return safeguard{b}, nil
}

// Run implements Algorithm.
func (s safeguard) Run() (t Times, err error) {
	t.Received, t.Done, err = s.Bcast.Run()
	return t, err
}

// overlay is a relay as the fallback uses it.
type overlay struct{ *relay }

// newOverlay returns a relay over a chain, in as many slices as there are ranks, or else over
// a binomial tree.
func newOverlay(r *rank.Rank, chain bool) fallback.Relay {
	if chain {
		return overlay{&relay{r: r, o: Options{Slices: r.Size()}, shapes: []shape{ring}}}
	}
	return overlay{&relay{r: r, o: Options{Slices: 1}, shapes: []shape{binomial}}}
}

// Run implements fallback.Relay.
func (o overlay) Run() (received vtime.Time, err error) {
	t, err := o.relay.Run()
	return t.Received, err
}

// Received implements fallback.Relay.
func (o overlay) Received() bool {
	for _, s := range o.streams {
		if len(s.recv) < len(s.pieces) && s.parent >= 0 {
			return false
		}
		for _, q := range s.recv {
			if !q.OK() {
				return false
			}
		}
	}
	return len(o.streams) > 0
}

// ServedApart reports whether the source sent the last message to this rank alone.
func ServedApart(a Algorithm) bool {
	s, ok := a.(safeguard)
	return ok && s.Bcast.ServedApart()
}
