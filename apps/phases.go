// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"fmt"

	"github.com/mcastlab/mcastlab/rank/collective"
)

// Phases holds the details of a row whose algorithm consists of a barrier, a multicast and a handshake: the
// microseconds that a rank spends in each in an iteration, the mean over ranks and iterations.
type Phases struct {
	BarrierUS   float64 `json:"barrier_us"`
	MulticastUS float64 `json:"multicast_us"`
	HandshakeUS float64 `json:"handshake_us"`
}

// QuantityPhase is the quantity whose parts are the phases.
const QuantityPhase = "phase"

// PhaseNames returns the parts of QuantityPhase.
func PhaseNames() []string { return []string{"barrier", "multicast", "handshake"} }

// Key implements Details.
func (*Phases) Key() string { return "phases" }

// Quantity implements Details.
func (p *Phases) Quantity(name, of, which string) (v float64, known bool, err error) {
	if of != QuantityPhase {
		return 0, false, nil
	}
	switch which {
	case "barrier":
		return p.BarrierUS, true, nil
	case "multicast":
		return p.MulticastUS, true, nil
	case "handshake":
		return p.HandshakeUS, true, nil
	}
	return 0, true, fmt.Errorf("%s: no phase %q: use barrier, multicast or handshake", name, which)
}

// Phased gives the row the phases of all ranks in all iterations together. A rank without phases adds nothing; if none
// has any, the row has none.
func (r *Row) Phased(all []*collective.Phases, iterations int) {
	var sum collective.Phases
	n := 0
	for _, p := range all {
		if p != nil {
			sum.Add(*p)
			n += iterations
		}
	}
	if n == 0 {
		return
	}
	r.Details = &Phases{
		BarrierUS: sum.Barrier.Microseconds() / float64(n), MulticastUS: sum.Multicast.Microseconds() / float64(n),
		HandshakeUS: sum.Handshake.Microseconds() / float64(n),
	}
}
