// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
)

const star = "name: x\ntopology: {star: {hosts: 4}}\n"

// read returns a lab and its graph.
func read(t *testing.T, text string) (*lab.Lab, *topo.Graph) {
	t.Helper()
	l, err := lab.Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	return l, g
}

// TestGraph: a lab has the graph and the machines that its file describes; one without a
// topology has none.
func TestGraph(t *testing.T) {
	l, g := read(t, star+"seed: 7\nlinks: {rate: 400Gbps, ip: 6}\n")
	if g.Hosts != 4 || g.Switches() != 1 || !g.IPv6 || g.Links[0].Rate != 400e9 {
		t.Errorf("%d hosts, %d switches, IPv6 %v, links of %d bit/s", g.Hosts, g.Switches(), g.IPv6, g.Links[0].Rate)
	}
	if s := Fabric(l, g); s.Graph != g || s.Seed != 7 {
		t.Errorf("machines of graph %p with seed %d, want %p and 7", s.Graph, s.Seed, g)
	}
	if _, err := Graph(&lab.Lab{}); err == nil {
		t.Error("a lab without a topology has a graph")
	}
}

// TestRankParams: ranks learn the round trip and the class that waits if a scheme has a
// fallback, from the lab and from its resolved form alike.
func TestRankParams(t *testing.T) {
	for text, on := range map[string]bool{ // each is its own case
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: full}}], sizes: [1KiB]}}]":              true,
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: off}}], sizes: [1KiB]}}]":               false,
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [1KiB]}}]":           true,
		"workloads: [{hpl: {n: [64], nb: [32], grids: [1x4], bcast: [cepheus], fallback: partial}}]": true,
	} {
		l, _ := read(t, star+text)
		again, _ := read(t, string(l.Resolved()))
		p := RankParams(l)
		if RankParams(again) != p {
			t.Errorf("%s: resolved, it gives ranks other settings", text)
		}
		if (p.RTT > 2*vtime.Microsecond) != on || on && p.LowClass>>2 != 8 {
			t.Errorf("%s: %+v", text, p)
		}
	}
}

// TestPeers: ranks know the queue pairs of the external hosts among them.
func TestPeers(t *testing.T) {
	l, g := read(t, star+"hosts:\n  - {name: h3, kind: external, external: {qpn: 0x42, send-psn: 100, receive-psn: 100}}\n")
	peers := Peers(l, g, []int{0, 3})
	if len(peers) != 2 || peers[0] != nil || peers[1] == nil || peers[1].QPN != 0x42 || peers[1].SendPSN != 100 {
		t.Errorf("peers %+v", peers)
	}
	if Peers(l, g, []int{0, 1}) != nil {
		t.Error("peers without an external host")
	}
}

// TestTimeline: faults have the values of the file and its defaults, in the file's order; one that
// names a node or link that the graph lacks is an error with its number.
func TestTimeline(t *testing.T) {
	l, g := read(t, star+"faults:\n  - {at: 1ms, agent-crash: {nodes: leaf0}}\n  - {at: 2ms, link-down: {links: h2-leaf0}}\n")
	all, err := Timeline(l, g)
	if err != nil || len(all) != 2 {
		t.Fatalf("the timeline is %+v, %v", all, err)
	}
	if a := all[0]; a.ID != faults.LabPrefix+"0" || a.From != vtime.Time(vtime.Millisecond) || a.For != lab.AgentCrashDefault {
		t.Errorf("the crash is %+v", a)
	}
	if b := all[1]; b.ID != faults.LabPrefix+"1" || b.Kind != faults.KindLinkDown || !slices.Equal(b.Links, []int{2}) {
		t.Errorf("the second fault is %+v", b)
	}
	l.Faults[1].LinkDown.Links = lab.Names{"h9-leaf0"}
	if _, err := Timeline(l, g); err == nil || !strings.HasPrefix(err.Error(), "faults[1]: no link is called") {
		t.Errorf("a link that there is not: %v", err)
	}
}

// TestKeeps: replicas with a store are those that keep something.
func TestKeeps(t *testing.T) {
	l, g := read(t, star+"workloads: [{storage: {schemes: [unicasts], bs: [4KiB], client: h2, durability: fsync}}]\n")
	if got := Keeps(l, g); !slices.Equal(got, []string{"h0", "h1", "h3"}) {
		t.Errorf("%v keep something", got)
	}
	l.Workloads[0].Storage.Durability = "memory"
	if got := Keeps(l, g); len(got) != 0 {
		t.Errorf("with durability memory %v keep something", got)
	}
}

// TestLinkRates: one rate, or the slowest and the fastest.
func TestLinkRates(t *testing.T) {
	for text, want := range map[string]string{ // each is its own case
		star: "100Gbps",
		"name: x\ntopology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}\nlinks: {tiers: {leaf-spine: {rate: 400Gbps}}}\n": "100Gbps to 400Gbps",
	} {
		if l, g := read(t, text); LinkRates(l, g) != want {
			t.Errorf("%q: %s, want %s", text, LinkRates(l, g), want)
		}
	}
}
