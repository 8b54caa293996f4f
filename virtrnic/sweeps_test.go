// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// TestSweepTranscripts: random NICs behave as before, to the byte. Each line of the golden file stands
// for the transcript of a seed, with every frame, event, completion, refusal and counter. (go test
// ./virtrnic -run SweepTranscripts -transcripts DIR writes them, before and after a change, for diff.)
func TestSweepTranscripts(t *testing.T) {
	g := machinetest.NewDigest(t)
	for seed := range uint64(40) {
		for _, s := range []struct {
			name string
			run  func(r *rand.Rand) *pair
		}{
			{"chaos", func(r *rand.Rand) *pair { return chaosRun(t, r, true) }},
			{"torn", func(r *rand.Rand) *pair { return torn(t, r, true) }},
			{"gathered", func(r *rand.Rand) *pair { return gathered(t, r, true) }},
			{"repeated", func(r *rand.Rand) *pair { return repeated(t, r, true) }},
			{"slowed", func(*rand.Rand) *pair { return slowRun(t, seed, false) }},
		} {
			if s.name == "slowed" && seed >= 4 {
				continue // hundreds of frames each
			}
			p := s.run(rand.New(rand.NewPCG(seed, 31)))
			p.outcome()
			g.Add(fmt.Sprintf("%s-%d", s.name, seed), p.net.Log.String())
		}
	}
	g.Golden("sweeps")
}
