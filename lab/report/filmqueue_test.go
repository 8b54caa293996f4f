// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces"
)

// pausedHost fills the queue before one host while the host pauses its switch.
const pausedHost = `name: shown
topology: {star: {hosts: 4}}
trace: messages
workloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 6}}]
faults: [{in: run, at: 100us, for: 50us, pause: {node: h3}}]
`

// TestFilmQueues: the queue before each link shows in the steps in which it waits, to within a quarter of the most that
// the switch has counted or 8 KiB; also if the lab is simulated in parts. Without a trace it is said not to be known.
func TestFilmQueues(t *testing.T) {
	for _, workers := range []int{1, 2} {
		film := filmOf(t, pausedHost, workers)
		if !film.Queues {
			t.Fatal("queues over time are not known")
		}
		most, until := map[int]float64{}, map[int]float64{}
		for _, f := range film.Frames {
			for _, p := range f.Queue {
				w := int(p[0])
				most[w], until[w] = max(most[w], p[1]), f.To
				if film.Ways[w].Name == "leaf0:3>h3:0" && f.To <= 100 && p[1] > traces.QueueStep {
					t.Errorf("%v bytes wait by %v us, before the pause", p[1], f.To)
				}
			}
		}
		for w := range film.Ways {
			peak := float64(film.Ways[w].Peak)
			if most[w] > peak || most[w] < min(peak*3/4, peak-traces.QueueStep) {
				t.Errorf("%s: %v bytes at most in steps, and the switch has counted %v", film.Ways[w].Name, most[w], peak)
			}
			if film.Ways[w].Name == "leaf0:3>h3:0" && (most[w] < 50_000 || until[w] < 150 || until[w] > 400) {
				t.Errorf("before the paused host %v bytes waited, until %v us", most[w], until[w])
			}
		}
	}
	if film := filmOf(t, strings.Replace(pausedHost, "trace: messages\n", "", 1), 1); film.Queues || !strings.Contains(strings.Join(film.Notes, " "), "Queues over time are known") {
		t.Errorf("without a trace: %v, %q", film.Queues, film.Notes)
	}
}

// filmOf simulates a lab and reads its folder as a film.
func filmOf(t *testing.T, text string, workers int) *Film {
	t.Helper()
	l, err := lab.Parse("shown.mcl.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	run, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	film, err := ReadFilm(run.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	return film
}
