// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"math"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

// TestPhases: barrier, multicast and handshake of an Allgather and of a broadcast add up to the time that ranks spend in it, none is
// missing, and the multicast takes at least what its bytes take on a link. Algorithms without phases have none.
func TestPhases(t *testing.T) {
	l, err := lab.Parse("f", []byte(`name: phases
topology: {star: {hosts: 5}}
links: {rate: 10Gbps, delay: 1us}
switches: {buffer: 4MB}
workloads:
  - allgather: {schemes: [multicast, ring], sizes: [64KiB], iterations: 3, warm-up: 1}
  - bcast: {schemes: [ud-multicast, uc-multicast, chain], sizes: [64KiB], iterations: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Results {
		p := apps.DetailsOf[apps.Phases](row)
		if has := strings.Contains(row.Scheme, "multicast"); has != (p != nil) {
			t.Errorf("%s has phases: %v", row.Scheme, p)
			continue
		} else if !has {
			continue
		}
		blocks := 1.0
		if row.Workload == "allgather" {
			blocks = 4
		}
		sum := p.BarrierUS + p.MulticastUS + p.HandshakeUS
		if p.BarrierUS < 2 || p.HandshakeUS <= 0 || sum > row.Source.Avg*1.0001 || sum < 0.8*row.Source.Avg {
			t.Errorf("%s %s: %+v, and ranks took %g us", row.Workload, row.Scheme, *p, row.Source.Avg)
		}
		if least := blocks * 65536 * 8 / 10e9 * 1e6; p.MulticastUS < 0.7*least || math.IsNaN(sum) {
			t.Errorf("%s %s: %g us of multicast, whose bytes take %g", row.Workload, row.Scheme, p.MulticastUS, least)
		}
	}
}
