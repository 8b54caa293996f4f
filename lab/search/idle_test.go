// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// quietly runs a lab with the given lines and faults, once.
func quietly(t *testing.T, lines string, faults ...string) *labRun {
	t.Helper()
	text := "name: idle\nseed: 7\n" + lines + "\nfaults: [{" + strings.Join(faults, "}, {") + "}]\n"
	l := parse(t, text)
	r := runLab(context.Background(), l, t.TempDir(), 1, calmTimes, true)
	if r.long {
		t.Fatalf("%sdoes not end", text)
	}
	if v := r.judge(l); v != nil {
		t.Errorf("%s%v", text, v)
	}
	return r
}

// Labs in which no host acknowledges messages, or not all do.
const (
	unacknowledged = "topology: {m-port-n-tree: {m: 4, n: 2}}\n" +
		"workloads: [{many-to-many: {schemes: [%s], sizes: [4KiB], iterations: 1}}]"
	datagrams = "topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}\n" +
		"workloads: [{bcast: {schemes: [%s], sizes: [10000B], iterations: 1}}]"
	blocks = "topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}\n" +
		"workloads: [{allgather: {schemes: [%s], sizes: [10000B], iterations: 1}}]"
)

var unacknowledgedLabs = []string{
	fmt.Sprintf(unacknowledged, "cyclic"), fmt.Sprintf(unacknowledged, "cyclic-class"), fmt.Sprintf(unacknowledged, "opensm"),
	fmt.Sprintf(unacknowledged, "opensm-drawn"), fmt.Sprintf(unacknowledged, "unicast"),
	fmt.Sprintf(datagrams, "uc-multicast"), fmt.Sprintf(datagrams, "ud-multicast"), fmt.Sprintf(blocks, "multicast"), fmt.Sprintf(blocks, "uc-multicast"),
}

// instants are whens of faults that come again and again, or once in the midst of a run.
var instants = []string{"at: 3ns, for: 80ns, every: 97ns", "at: 1us, for: 400ns, every: 1.3us", "at: 5.2us, for: 30us"}

// patient are faults with a beginning that lose nothing, by when they come. The last pause of
// a storm lasts for a while after it.
var patient = map[string][]string{
	"rate-cut: {links: '*', rate: 10Gbps}":           instants,
	"pause: {node: h2}":                              instants,
	"pause-storm: {node: h2, gap: 50ns}":             {"at: 3ns, for: 80ns, every: 338us", "at: 5.2us, for: 30us"},
	"nic-stall: {nodes: [h2]}":                       instants,
	"slow-receiver: {nodes: [h2, h3], rate: 13Gbps}": instants,
}

// TestUnderWay: whatever fault begins, and whenever, a run continues as long as frames are under way
// that no receiver acknowledges, on links and where a fault holds them back: a fault that loses nothing
// lets it end well. It ended as a deadlock at the first fault that began when all requests had.
func TestUnderWay(t *testing.T) {
	r := quietly(t, fmt.Sprintf(unacknowledged, "opensm"), "at: 1ns, for: 81.88ns, slow-receiver: {nodes: [h6], rate: 13Gbps}")
	if r.err != nil {
		t.Error(r.err)
	}
	for _, lines := range unacknowledgedLabs {
		for kind, whens := range patient {
			for _, when := range whens {
				faults := []string{when + ", " + kind}
				if !strings.Contains(lines, "many-to-many") { // which a delay is refused to
					faults = append(faults, "delay: {frames: {kind: data}, delay: 2us, jitter: 1us}")
				}
				if r := quietly(t, lines, faults...); r.err != nil {
					t.Errorf("%s\n%s: %v", lines, faults, r.err)
				}
			}
		}
	}
}

// TestPatience: frames that stand still while other faults come and go are waited for as long as a
// fault, a pause, a timer, a link or a slow adapter may hold it, however often they come.
func TestPatience(t *testing.T) {
	const (
		often = "for: 1us, every: 2us, nic-stall: {nodes: [h1]}"
		pairs = "topology: {star: {hosts: 4}}\nworkloads: [{bcast: {schemes: [%s], sizes: [10000B], iterations: 1}}]"
	)
	tree := fmt.Sprintf(unacknowledged, "opensm")
	star := fmt.Sprintf(pairs, "uc-multicast")
	for name, c := range map[string]struct {
		lines  string
		faults []string
	}{
		"a pause":           {tree, []string{"for: 20ms, pause: {node: h2}", often}},
		"a stall":           {tree, []string{"for: 20ms, nic-stall: {nodes: [h2]}", often}},
		"a slow adapter":    {tree, []string{"slow-receiver: {nodes: [h2], rate: 1Mbps}", "for: 5us, every: 20us, nic-stall: {nodes: [h1]}"}},
		"a slow link":       {tree, []string{"rate-cut: {links: '*', rate: 1Mbps}", "for: 10us, every: 20us, slow-receiver: {nodes: [h1], rate: 1Gbps}"}},
		"a long link":       {"links: {delay: 5ms}\\nswitches: {buffer: 2GiB}\\n" + tree, []string{often}},
		"a held frame":      {star, []string{"delay: {frames: {kind: data}, delay: 5ms}", often}},
		"a storm's end":     {"links: {rate: 1Gbps}\\n" + tree, []string{"for: 1us, pause-storm: {node: h2}", often}},
		"a repeat":          {fmt.Sprintf(pairs, "chain"), []string{"loss: {nth: [1]}", often}},
		"a stalled timer":   {fmt.Sprintf(pairs, "chain"), []string{"loss: {nth: [1]}", "for: 1us, every: 2us, nic-stall: {nodes: ['h*']}"}},
		"a watchdog":        {fmt.Sprintf(pairs, "unicast") + "\\nswitches: {watchdog: {detect: 20ms}}", []string{"pause: {node: h3}", often}},
		"takes turns twice": {tree, []string{"for: 9us, every: 10us, nic-stall: {nodes: [h2]}", "for: 9us, every: 10.1us, pause: {node: h2}"}},
	} {
		if r := quietly(t, strings.ReplaceAll(c.lines, "\\n", "\n"), c.faults...); (r.err != nil) != (name == "a watchdog") {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

// TestStandstill: a run ends soon when all remaining frames stand still for good, whatever faults
// recur: as a deadlock, or as its ranks end. It continued to the end of lab time before.
func TestStandstill(t *testing.T) {
	const quick = "topology: {star: {hosts: 4}}\nnics: {timeout: 262us}\n"
	tried := 0
	for _, lines := range append([]string{
		quick + "workloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 1}}]",
		quick + "workloads: [{bcast: {schemes: [chain], sizes: [1MiB], iterations: 1}}]",
		quick + "workloads: [{reduce-scatter: {schemes: [in-network], sizes: [10000B], iterations: 1}}]",
		"topology: {star: {hosts: 4}}\nnics: {timeout: infinite}\nworkloads: [{bcast: {schemes: [chain], sizes: [1MiB], iterations: 1}}]",
	}, unacknowledgedLabs...) {
		for _, forever := range []string{"pause: {node: h3}", "pause-storm: {node: h3}", "nic-stall: {nodes: [h3]}", "for: 1us, every: 100us, pause-storm: {node: h3}"} {
			for _, beside := range []string{
				"at: 1s, rate-cut: {rate: 1Gbps}", "for: 50us, every: 50us, pause: {node: h1}", "for: 1us, every: 2us, nic-stall: {nodes: [h1]}",
				"for: 30us, every: 50us, slow-receiver: {nodes: [h1, h3], rate: 1Gbps}", "pause-storm: {node: h2, gap: 1us}",
			} {
				if tried++; !sweeps.Takes(t, tried) || testing.Short() && (uint64(tried)+sweeps.Day(t))%21 != 0 {
					continue
				}
				if r := quietly(t, lines, forever, beside); r.err == nil {
					t.Errorf("%s\n%s, %s: it ended well", lines, forever, beside)
				}
			}
		}
	}
}
