// Package collective holds the algorithms that move one rank's data to all: over
// in-network multicast, and over unicast connections as the systems do that it is
// compared with. Each is a short file whose doc comment gives its closed form.
//
// Symbols of the closed forms: N ranks, r = N-1 receivers, M bytes, B the link rate,
// S(m, L) the time of one message of m bytes over L links, start to last bit:
//
//	S(m, L) = wire(m)/B + (L-1)(t_pkt + switch latency) + L d
//
// where wire(m) is m with all headers and gaps, t_pkt the time of the last packet and
// d a link's delay. Host cost is left out; it adds per message.
package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Times are the instants at which a rank was done with a broadcast.
type Times struct {
	Received vtime.Time // it holds the whole message (the root from the start)
	Done     vtime.Time // and everything it sent is acknowledged
}

// Bcast is one rank's side of a broadcast algorithm. It is used for one message after
// another.
type Bcast interface {
	// Begin posts the receives of a message of n bytes at the start of b. Once all
	// ranks have returned from it, all call Run.
	Begin(b *rank.Buffer, n, root int) error
	// Run moves the message and returns when this rank has no more to do.
	Run() (Times, error)
	// Close takes back what the algorithm holds in the fabric. All ranks call it.
	Close() error
}

// Options are the parameters of a scheme.
type Options struct {
	// Label tells several instances of one algorithm in a job apart.
	Label string `json:"-"`
	// Slices is the number of pieces of a chain: 0 means as many as there are ranks.
	Slices int `json:"slices,omitempty"`
}

// scheme is an entry of the list of algorithms.
type scheme struct {
	name string
	make func(r *rank.Rank, o Options) (Bcast, error)
}

func schemes() []scheme {
	return []scheme{
		{"binomial", newBinomial},
		{"cepheus", newCepheus},
		{"chain", newChain},
		{"unicast", newUnicast},
	}
}

// Names returns the names of all broadcast algorithms in alphabetical order.
func Names() (names []string) {
	for _, s := range schemes() {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// NewBcast prepares a broadcast algorithm on a rank: connections, groups. All ranks
// of the job must call it.
func NewBcast(name string, r *rank.Rank, o Options) (Bcast, error) {
	for _, s := range schemes() {
		if s.name == name {
			b, err := s.make(r, o)
			if err != nil {
				return nil, fmt.Errorf("prepare broadcast %s: %w", name, err)
			}
			return b, nil
		}
	}
	return nil, fmt.Errorf("no broadcast algorithm %q: use %s", name, strings.Join(Names(), ", "))
}

// relative numbers the ranks from the root on.
func relative(r *rank.Rank, root int) int { return (r.ID() - root + r.Size()) % r.Size() }

// absolute undoes relative.
func absolute(r *rank.Rank, root, rel int) int { return (rel + root) % r.Size() }

// connectAll connects the rank to each of the given peers in a fixed order. Both
// sides of every connection must do so.
func connectAll(r *rank.Rank, peers []int) error {
	for _, p := range peers {
		if _, err := r.Connect(p); err != nil {
			return err
		}
	}
	return nil
}
