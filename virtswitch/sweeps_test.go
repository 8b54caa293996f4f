// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// outcome returns all that came out of the switch, its counters and its groups.
func (l *lone) outcome() string {
	l.net.Log = &strings.Builder{}
	for i, s := range l.stub {
		l.net.Logf("port %d: headers %08x, %d groups, %d bytes\n%s", i, s.sum, l.sw.PortLoad(i), l.sw.Occupancy(i, 3), strings.Join(s.got, "\n"))
	}
	l.counts()
	for _, g := range l.sw.Groups() {
		l.net.Logf("%+v", g)
	}
	return l.net.Log.String()
}

// TestSweepTranscripts: a switch handles random frames, faults and commands as before, to the byte.
// Each line of the golden file stands for the transcript of a seed. (go test ./virtswitch -run
// SweepTranscripts -transcripts DIR writes them, before and after a change, for diff.)
func TestSweepTranscripts(t *testing.T) {
	g := machinetest.NewDigest(t)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 37))
		data := make([]byte, 4+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		add := func(name string, l *lone) { g.Add(fmt.Sprintf("%s-%d", name, seed), l.outcome()) }
		add("fuzz", fuzzRun(t, data))
		for k := range 3 {
			add(fmt.Sprint("noise", k), noise(t, r))
		}
		add("reductions", reductions(t, r))
		add("again", again(t, r))
		add("crossed", crossRun(t, seed, false))
		if seed < 4 {
			add("burst", burst(t, r))
			add("damaged", damaged(t, r))
			add("restarted", restarted(t, r))
		}
	}
	g.Golden("sweeps")
}
