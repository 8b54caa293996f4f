// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// tierRun runs a short message over two switches up and down and returns its time in us and
// the run's digest.
func tierRun(t *testing.T, topology, links string) (us float64, digest string) {
	t.Helper()
	l, err := lab.Parse("lab.mcl.yml", fmt.Appendf(nil,
		"name: tiers\ntopology: %s\nlinks: %s\nworkloads: [{bcast: {schemes: [unicast], ranks: [h0, h3], sizes: [1000B], iterations: 1}}]\n", topology, links))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results[0].JCT.P50, r.Digest
}

// TestTiers: a tier's rate and delay are those of its links, in both directions, and of no others;
// giving every tier the parameters of links changes nothing.
func TestTiers(t *testing.T) {
	const shape = "{leaf-spine: {leaves: 2, spines: 1, hosts: 2}}"
	base, digest := tierRun(t, shape, "{rate: 100Gbps}")
	for _, same := range []string{
		"{rate: 25Gbps, tiers: {host-leaf: {rate: 100Gbps}, leaf-spine: {rate: 100Gbps}}}",
		"{delay: 3us, tiers: {host-leaf: {delay: 600ns}, leaf-spine: {delay: 600ns}}}",
	} {
		if us, d := tierRun(t, shape, same); us != base || d != digest {
			t.Errorf("%s: %v us and digest %s, without tiers %v us and %s", same, us, d, base, digest)
		}
	}
	const wire = 14 + 20 + 8 + 12 + 1000 + 4 + 24 // Ethernet to ICRC, and the overhead of a frame
	bits := func(gbps float64) float64 { return wire * 8 / gbps / 1000 }
	for links, less := range map[string]float64{
		"{tiers: {leaf-spine: {rate: 400Gbps}}}":                       2 * (bits(100) - bits(400)),
		"{tiers: {host-leaf: {rate: 25Gbps}}}":                         2 * (bits(100) - bits(25)),
		"{tiers: {leaf-spine: {delay: 100ns}, host-leaf: {delay: 0}}}": 2*0.5 + 2*0.6,
	} {
		if us, _ := tierRun(t, shape, links); math.Abs(base-us-less) > 1e-6 {
			t.Errorf("%s: %v us less than %v, want %v", links, base-us, base, less)
		}
	}
	// A link by hand that says its own rate keeps it.
	hand := "{custom: {hosts: [h0, h3], switches: [a, b], links: [h0-a, {ends: a-b, rate: 10Gbps}, h3-b]}}"
	own, _ := tierRun(t, hand, "{tiers: {host-leaf: {rate: 50Gbps}}}")
	flat, _ := tierRun(t, strings.ReplaceAll(hand, ", rate: 10Gbps", ""), "{rate: 50Gbps}")
	if got, want := own-flat, bits(10)-bits(50); math.Abs(got-want) > 1e-6 {
		t.Errorf("a link of 10 Gbps between tiers of 50: %v us more, want %v", got, want)
	}
}

// TestTierNames: each shape has the tiers it is said to have, and refuses others.
func TestTierNames(t *testing.T) {
	all := []string{"host-leaf", "leaf-spine", "leaf-agg", "agg-core", "core-core"}
	for topology, has := range map[string]string{
		"{star: {hosts: 3}}":                             "host-leaf",
		"{leaf-spine: {leaves: 2, spines: 1, hosts: 2}}": "host-leaf leaf-spine",
		"{fat-tree: {k: 4}}":                             "host-leaf leaf-agg agg-core",
		"{three-layer: {preset: ft1024}}":                "host-leaf leaf-agg agg-core",
		"{m-port-n-tree: {m: 4, n: 2}}":                  "host-leaf leaf-agg",
		"{m-port-n-tree: {m: 4, n: 4}}":                  "host-leaf leaf-agg agg-core core-core",
		"{custom: {hosts: [x, y], switches: [a, b, c], links: [x-a, y-b, a-b, a-c, b-c]}}": "host-leaf leaf-agg",
	} {
		for _, tier := range all {
			_, err := lab.Parse("lab.mcl.yml", fmt.Appendf(nil, "name: t\ntopology: %s\nlinks: {tiers: {%s: {rate: 40Gbps}}}\n", topology, tier))
			if want := slices.Contains(strings.Fields(has), tier); (err == nil) != want {
				t.Errorf("%s: %s: %v, want it to be there: %v", topology, tier, err, want)
			}
		}
	}
}
