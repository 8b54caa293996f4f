// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// runText runs a lab, given as its text after the name, in simulation.
func runText(t *testing.T, text string) (*Report, error) {
	t.Helper()
	l, err := lab.Parse("lab.mcl.yml", []byte("name: asked\n"+text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return Simulate(t.Context(), l, Options{Base: t.TempDir(), Check: true})
}

// TestPresets (GEN-8): each preset, a fabric of a paper that lab files select by its name, delivers every byte to every
// host (CON-18).
func TestPresets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one goroutine runs at a time")
	}
	for _, c := range []struct {
		shape, workload string
		hosts           int
	}{
		{"custom: {preset: back-to-back}", "bcast: {schemes: [binomial, chain, ud-multicast, uc-multicast], sizes: [0B, 64KiB], iterations: 1}", 2},
		{"custom: {preset: back-to-back}", "allgather: {schemes: [ring, multicast, uc-multicast], sizes: [64KiB], iterations: 1}", 2},
		{"custom: {preset: figtree}", "bcast: {schemes: [cepheus, binomial], sizes: [64KiB], iterations: 1}", 4},
		{"leaf-spine: {preset: ucc188}", "allgather: {schemes: [multicast], sizes: [1KiB], iterations: 1}", 188},
		{"three-layer: {preset: fig2}", "bcast: {schemes: [ud-multicast], sizes: [64B], iterations: 1, memory: bytes}", 1024},
	} {
		r, err := runText(t, "topology: {"+c.shape+"}\nworkloads: [{"+c.workload+"}]\n")
		if err != nil {
			t.Errorf("%s: %v", c.shape, err)
			continue
		}
		for i := range r.Results {
			if x := &r.Results[i]; x.Ranks != c.hosts || x.Verified == nil || !*x.Verified {
				t.Errorf("%s, %s: %d ranks, want %d, all verified", c.shape, x.Scheme, x.Ranks, c.hosts)
			}
		}
	}
}

// TestFanOutSizes (CEP-49): with 8 copies per switch the group of all hosts of a fat-tree of
// 9-port switches works, and with 7 its registration fails.
func TestFanOutSizes(t *testing.T) {
	const text = "topology: {fat-tree: {k: 9}}\nswitches: {fan-out: %}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [64B], iterations: 1}}]\n"
	r, err := runText(t, strings.ReplaceAll(text, "%", "8"))
	if err != nil {
		t.Fatal(err)
	}
	if x := &r.Results[0]; x.Ranks != 144 || x.Verified == nil || !*x.Verified {
		t.Errorf("%d ranks, want 144, verified", x.Ranks)
	}
	if _, err := runText(t, strings.ReplaceAll(text, "%", "7")); err == nil || !strings.Contains(err.Error(), "fan-out limit exceeded") {
		t.Errorf("with 7 copies: %v, want the limit", err)
	}
}
