// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mcastlab/mcastlab/core/wire"
)

// minimal is a lab with as little as a lab needs.
const minimal = `name: mini
topology: {star: {hosts: 4}}
workloads:
  - bcast: {schemes: [cepheus], sizes: [64B]}
`

// examples returns the paths of all example labs.
func examples(t testing.TB) (files []string) {
	t.Helper()
	for _, pattern := range []string{"../examples/*.mcl.yml", "../examples/*/*.mcl.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 3 {
		t.Fatalf("only %d examples found", len(files))
	}
	return files
}

// switchKeys sets every key of switches that a core is given, and the VLAN.
const switchKeys = `links: {vlan: 12}
switches:
  pfc: {priorities: [5], alpha: 0.125, quanta: 1000}
  ecn: {enabled: true, priorities: [5], kmin: 100kB, kmax: 400kB, pmax: 0.01}
  watchdog: {enabled: true, detect: 1ms, restore: 2ms, action: forward}
  scheduling: [1, 2, 0, 0, 0, 4, 0, 0]
  classes: [{dscp: 26, priority: 5}, {pcp: 1, priority: 2}]
  cnp-filter: {window: 20us}
  feedback-delay: 300ns
  accelerator: look-aside
  buffer: 16MB
  rules: gleam
  groups: 100
  group-memory: 64kB
  fan-out: 3
  group-age: 5s
`

// TestSwitchSettings: the switch settings of a file reach the cores of switches.
func TestSwitchSettings(t *testing.T) {
	l, err := Parse("switches", []byte(minimal+switchKeys))
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.graph()
	if err != nil {
		t.Fatal(err)
	}
	spec := l.fabric(g)
	leaf := g.Hosts
	c, err := spec.SwitchConfig(leaf, &g.Routes()[0])
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.PFC.Lossless, c.PFC.Alpha, c.PFC.Quanta, c.ECN.Classes, c.ECN.Kmin[0], c.ECN.Kmax[0], c.ECN.Pmax, c.Watchdog, c.Weights,
		c.Classes.DSCP[26], c.Classes.DSCP[27], c.Classes.PCP[1], c.CNPWindow, c.FeedbackDelay, c.LookAside.Links, c.LookAside.Rate, spec.VLAN)
	want := "32 0.125 1000 32 100000 400000 0.01 {1ms 2ms true} [1 2 0 0 0 4 0 0] 5 3 2 20us 300ns 4 100000000000 12"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c := spec.NICConfig(0); c.VLAN != 12 || c.Classes[26] != 5 {
		t.Errorf("the adapters have VLAN %d and priority %d for DSCP 26", c.VLAN, c.Classes[26])
	}
	if l, err = Parse("plain", []byte(minimal+"switches: {ecn: true, cnp-filter: false}\n")); err != nil {
		t.Fatal(err)
	}
	spec = l.fabric(g)
	if c, _ = spec.SwitchConfig(leaf, &g.Routes()[0]); c.ECN.Classes != 8 || c.ECN.Kmin[0] != 400e3 || c.ECN.Kmax[0] != 1600e3 || c.CNPWindow != 0 || c.Watchdog.Detect != 0 {
		t.Errorf("ecn: true gives %+v, cnp-filter: false a window of %v", c.ECN, c.CNPWindow)
	}
}

// TestResume: the lab file chooses the queue length at which a paused neighbour is resumed, and so does the HPCC paper
// with its parameters and thresholds. The length of a round of recovery reaches the adapters.
func TestResume(t *testing.T) {
	for text, want := range map[string][2]int{ // each is its own case: offset and byte counter
		"switches: {pfc: {alpha: 0.125}}":                                                                      {0, 0},
		"switches: {pfc: {alpha: 0.125, resume-offset: 5kB}}":                                                  {5000, 0},
		"switches: {pfc: {resume-offset: 5kB}}\nnics: {congestion: dcqcn}":                                     {5000, 10e6},
		"switches: {ecn: true, pfc: {alpha: 0.125}}\nnics: {congestion: dcqcn, byte-counter: 1MB}":             {0, 1e6},
		"switches: {ecn: true}\nnics: {congestion: dcqcn-hpcc}":                                                {0, 0},
		"switches: {ecn: true, pfc: {alpha: 0.125}}\nnics: {congestion: dcqcn-hpcc}":                           {3072, 0},
		"switches: {ecn: true, pfc: {alpha: 0.125, resume-offset: 1B}}\nnics: {congestion: dcqcn-hpcc}":        {1, 0},
		"switches: {ecn: true, pfc: {enabled: false, alpha: 0.125}}\nnics: {congestion: dcqcn-hpcc}":           {0, 0},
		"switches: {ecn: true, pfc: {alpha: 0.125}}\nnics: {congestion: dcqcn-connectx, byte-counter: 1000kB}": {0, 1e6},
	} {
		l, err := Parse("x", []byte(minimal+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := [2]int{l.switchSettings().PFC.ResumeOffset}
		if set := l.NICs.settings().Congestion; set != nil {
			got[1] = int(set.ByteCounter)
		}
		if got != want {
			t.Errorf("%s: offset and byte counter %v, want %v", text, got, want)
		}
	}
}

// TestSwitchKeys: no setting of the core is out of a lab file's reach, and no key of switches
// changes nothing.
func TestSwitchKeys(t *testing.T) {
	l, err := Parse("switches", []byte(minimal+switchKeys))
	if err != nil {
		t.Fatal(err)
	}
	usual, err := Parse("usual", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	a, b := reflect.ValueOf(usual.switchSettings()), reflect.ValueOf(l.switchSettings())
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if name != "Input" && reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) { // queues: input does not go with an accelerator
			t.Errorf("no key of switches changes %s: pass one on in switchSettings, and set it in switchKeys", name)
		}
	}
	for i := range reflect.TypeFor[Switches]().NumField() {
		key := reflect.TypeFor[Switches]().Field(i).Tag.Get("yaml")
		switch key {
		case "latency", "forwarding", "reconverge": // these are for the driver
		case "queues", "replication", "flow-control": // TestManyToMany
		case "group-net": // TestFamily
		default:
			if !strings.Contains(switchKeys, "  "+key+":") {
				t.Errorf("switches.%s is not in switchKeys, where what it changes is seen", key)
			}
		}
	}
}

// TestFamily: the address family reaches nodes and adapters; IPv4 is the default.
func TestFamily(t *testing.T) {
	for _, c := range []struct{ text, host, line string }{
		{"", "10.0.0.1/8", "  ip: 4\n  vlan: 0\n"},
		{"switches: {group-net: 11.0.0.0/16}\n", "10.0.0.1/8", "  group-net: \"11.0.0.0/16\"\n"},
		{"links: {ip: 4}\n", "10.0.0.1/8", "  ip: 4\n  vlan: 0\n"},
		{"links: {ip: 6, vlan: 9}\n", "fd6d:6361:7374::a00:1/96", "  ip: 6\n  vlan: 9\n"},
	} {
		l, err := Parse("family", []byte(minimal+c.text))
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.graph()
		if err != nil {
			t.Fatal(err)
		}
		spec := l.fabric(g)
		n := spec.NICConfig(0)
		if host := g.Prefix(0); host.String() != c.host || n.IPv6 != host.Addr().Is6() || n.VLAN != spec.VLAN {
			t.Errorf("%q: host %v, adapter IPv6 %v, VLAN %d", c.text, host, n.IPv6, n.VLAN)
		}
		sw, err := spec.SwitchConfig(g.Hosts, &g.Routes()[0])
		if err != nil {
			t.Fatal(err)
		}
		want := wire.GroupNet
		if l.Switches.GroupNet != "" {
			want = 11 << 24
		}
		if n.Groups.Net() != want || sw.GroupRange.Net() != want || g.Groups.Net() != want {
			t.Errorf("%q: McstIDs are of %v for adapters, %v for switches", c.text, wire.AddrOf(n.Groups.Net()), wire.AddrOf(sw.GroupRange.Net()))
		}
		if text := string(l.Resolved()); !strings.Contains(text, c.line) {
			t.Errorf("%q: resolved to\n%s", c.text, text)
		}
	}
}

// TestAdapters: a file's settings of retransmission and congestion reach the adapters.
func TestAdapters(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "none go-back-n"},
		// Two links of 600ns and one switch of 400ns each way, frames of 342ns: 3.884us at 12.5 B/ns.
		{"nics: {congestion: dcqcn-connectx, retransmit: irn}\n", "300us irn 48550 100us 320us"},
		// 24 bytes more in each of four frames, less the rounding to nanoseconds.
		{"links: {ip: 6, vlan: 5}\nnics: {congestion: dcqcn-connectx, retransmit: irn}\n", "300us irn 48650 100us 320us"},
		{"nics: {congestion: dcqcn, retransmit: irn, irn: {cap: 64kB, rto-low: 50us, rto-high: 1ms}}\n", "55us irn 64000 50us 1ms"},
	} {
		l, err := Parse("adapters", []byte(minimal+c.text))
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.graph()
		if err != nil {
			t.Fatal(err)
		}
		spec := l.fabric(g)
		n, got := spec.NICConfig(0), "none"
		if n.Congestion != nil {
			got = n.Congestion.RateTimer.String()
		}
		if n.IRN == nil {
			got += " go-back-n"
		} else {
			got += fmt.Sprint(" irn ", n.IRN.Cap, " ", n.IRN.RTOLow, " ", n.IRN.RTOHigh)
		}
		if got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

// TestResolvedRoundTrip: writing every default out and reading that gives the same lab.
func TestResolvedRoundTrip(t *testing.T) {
	texts := map[string]string{"minimal": minimal}
	for _, f := range examples(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(b)
	}
	texts["custom"] = `name: by-hand
topology:
  custom:
    hosts: [a, b]
    switches: [s1, s2]
    links: ["a-s1", {ends: "s1:1-s2:0", rate: 400Gbps, delay: 2us}, b-s2]
switches: {pfc: {xoff: 40kB, priorities: [3, 4]}, forwarding: cut-through}
nics: {host-cost: {post: 200ns}, timeout: infinite, rnr-retries: infinite}
workloads:
  - bcast: {schemes: [{chain: {slices: 4, label: quarters}}, chain, {rdmc: {block: 64KiB}}, {name: k-nomial, radix: 8}, 1ring, long], warm-up: 3, root: b, ranks: [b, "a"], sizes: [0B, 1kB], iterations: 7}
  - allgather: {schemes: [ring, {multicast: {parallel: ranks}}, {name: uc-multicast, label: two, parallel: 2, subgroups: 4, workers: 2, chunk: 64KiB, staging: 100, alpha: 2ms, engine: dpa, per-chunk: 300ns, copy-time: 1us, flag-time: 2us}], sizes: [1kB], warm-up: 1}
faults:
  - {at: 1ms, for: 2ms, loss: {links: "a-s1", rate: 1e-3}}
  - {pause: {node: a}}
expect: ["bcast.chain.1kB.jct.p50 < 5"]
`
	texts["switches"] = minimal + switchKeys
	texts["empty lists"] = minimal + "switches: {pfc: {priorities: []}, ecn: {priorities: []}}\nlabels: []\n"
	for name, text := range texts { // independent of each other
		l, err := Parse(name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		resolved := l.Resolved()
		again, err := Parse(name, resolved)
		if err != nil {
			t.Errorf("%s: its resolved form does not read: %v\n%s", name, err, resolved)
			continue
		}
		if !reflect.DeepEqual(l, again) {
			t.Errorf("%s: reading the resolved form gives another lab\n%s\n%s", name, resolved, again.Resolved())
		}
		if short, err := Parse(name, l.Compact()); err != nil || !reflect.DeepEqual(l, short) {
			t.Errorf("%s: reading the compact form gives another lab, %v\n%s", name, err, l.Compact())
		}
	}
}

// TestErrors: each mistake is one line with its place, the mistake and a remedy.
func TestErrors(t *testing.T) {
	const head = "name: x\ntopology: {star: {hosts: 4}}\n"
	for _, c := range []struct{ text, want string }{
		{"", "lab: the file is empty: it needs at least name, topology and workloads"},
		{"# nothing\n", "lab: the file is empty: it needs at least name, topology and workloads"},
		{"name: x\n\ttopology: 1\n", "lab:2:1: a tab indents the line: YAML wants spaces"},
		{"name: x\ntoplogy: {star: {hosts: 4}}\n", `lab:2:1: unknown key "toplogy", did you mean "topology"?`},
		{"name: x\ntopology: {ring: {hosts: 4}}\n", `lab:2:12: unknown key "ring": use fat-tree, three-layer, leaf-spine, m-port-n-tree, star or custom`},
		{"name: x\ntopology: {fat-tree: {k: 65}}\n", "lab:2:11: topology: fat-tree with k = 65: k must be 2 to 64 (65536 hosts)"},
		{"name: x\ntopology: {fat-tree: {}}\n", `lab:2:22: topology.fat-tree needs "k": ports per switch, 2 to 64; k^3/4 hosts; with an odd k the halves are rounded down, and the pods are k`},
		{"name: x\ntopology: {leaf-spine: {leaves: 2, hosts: 2}}\n", "lab:2:11: topology: leaf-spine of 2 leaves, 0 spines and 2 hosts per leaf: each must be at least 1"},
		{"name: x\ntopology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2, total: 5}}\n", "lab:2:11: topology: leaf-spine with 5 hosts in total: 2 leaves with 1 to 2 hosts have 2 to 4"},
		{"name: x\ntopology: {leaf-spine: {preset: ucc189}}\n", `lab:2:33: topology.leaf-spine.preset cannot be "ucc189", did you mean "ucc188"? Use ucc188`},
		{"name: x\ntopology: {custom: {hosts: [a, b, c], switches: [], links: [a-b]}}\n", "lab:2:11: topology: hosts a and b are joined directly, put a switch between them, or leave all other nodes out"},
		{"name: x\ntopology: {custom: {preset: back-to-back}}\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [64B]}\n", "lab:4:23: cepheus is multicast by switches, and hosts that are joined back to back have none: use another scheme, or topology: {star: {hosts: 2}}"},
		{"name: x\n", "lab: topology has 0 shapes, it needs one: fat-tree, three-layer, leaf-spine, m-port-n-tree, star or custom"},
		{"name: x\ntopology: {star: {hosts: 4}, fat-tree: {k: 4}}\n", "lab:2:11: topology has 2 shapes, it needs one: fat-tree, three-layer, leaf-spine, m-port-n-tree, star or custom"},
		{"topology: {star: {hosts: 4}}\n", "lab:1:1: the lab has no name: add name: my-lab"},
		{"name: My Lab\ntopology: {star: {hosts: 4}}\n", `lab:1:7: "My Lab" cannot be the name of a lab: use a lower-case letter, then up to 39 lower-case letters, digits and hyphens`},
		{"name: ../etc\ntopology: {star: {hosts: 4}}\n", `lab:1:7: "../etc" cannot be the name of a lab: use a lower-case letter, then up to 39 lower-case letters, digits and hyphens`},
		{head + "links: {rate: 100GB}\n", `lab:3:15: links.rate: "100GB" needs a number and a unit (Tbps, Gbps, Mbps, kbps, bps), for example 100Gbps`},
		{head + "links: {delay: 5}\n", `lab:3:16: links.delay: duration "5" needs a number and one of the units s, ms, us, ns, ps (600ns)`},
		{head + "links: {delay: -1us}\n", `lab:3:16: links.delay: duration "-1us" is negative`},
		{head + "links: {delay: 9223372s}\n", `lab:3:16: links.delay: duration "9223372s" is more than a day: use at most 86400s`},
		{head + "links: {delay: 1.1s}\n", "lab:3:16: links.delay of 1.1s is more than a second"},
		{head + "switches: {feedback-delay: 2s}\n", "lab:3:28: switches.feedback-delay of 2s is more than a second"},
		{head + "switches: {buffer: 2000TiB}\n", `lab:3:20: switches.buffer: "2000TiB" is out of range or not whole`},
		{head + "runtime: {channel-delay: 2s}\n", "lab:3:26: runtime.channel-delay of 2s is more than a second"},
		{head + "runtime: {clock: lockstep, channel-delay: 0s}\n", "lab:3:43: runtime.channel-delay must be above 0 with clock: lockstep: nodes advance by themselves as far as the shortest delays allow"},
		{head + "runtime: {clock: lockstep, dilation: 100}\n", "lab:3:38: runtime.dilation slows the wall clock down, which clock: lockstep does not follow: leave one of them out"},
		{head + "nics: {rnr-timer: 2s}\n", "lab:3:19: nics.rnr-timer of 2s is more than a second"},
		{head + "nics: {host-cost: {post: 2s}}\n", "lab:3:26: nics.host-cost.post of 2s is more than a second"},
		{head + "workloads: [{hpl: {n: [8], nb: [4], grids: [1x2], bcast: [1ring], gflops: NaN}}]\n", `lab:3:75: workloads[0].hpl.gflops: "NaN" is not a number`},
		{head + "switches: {flow-control: credits}\n", `lab:3:26: switches.flow-control can be credits only with queues: input, where packets wait at their input port`},
		{head + "switches: {queues: input, flow-control: credits, pfc: false}\n", `lab:3:41: switches.flow-control: credits is for the priorities of switches.pfc, which is off: leave pfc out`},
		{head + "switches: {queues: input, flow-control: credits, pfc: {xoff: 1kB}}\n", `lab:3:55: switches.pfc has thresholds, and with flow-control: credits an input holds one packet: remove xoff, xon, resume-offset and alpha`},
		{head + "switches: {queues: input, flow-control: credits, pfc: {resume-offset: 1kB}}\n", `lab:3:55: switches.pfc has thresholds, and with flow-control: credits an input holds one packet: remove xoff, xon, resume-offset and alpha`},
		{head + "links: {vlan: 7}\nswitches: {queues: input, flow-control: credits, classes: [{pcp: 4, priority: 4}, {dscp: 4, priority: 3}, {pcp: 3, priority: 4}]}\n",
			`lab:4:107: NICs count credits by the code point of a tagged packet, 3, and switches would return them for priority 4, so both would wait for good: give priority 3, or remove flow-control: credits`},
		{head + "switches: {queues: input, flow-control: credits}\nfaults: [{loss: {rate: 1%}}]\n", `lab:4:10: faults can lose a credit, which stops a link for good: remove them, or flow-control: credits`},
		{head + "workloads: [{bcast: {schemes: [{chain: {transport: ud}}], sizes: [1B]}}]\n", "lab:3:52: broadcast scheme chain has no transport: it is for broadcasts by unicast"},
		{head + "workloads: [{bcast: {schemes: [{unicast: {transport: ud, pace: 5}}], sizes: [1B]}}]\n", "lab:3:64: scheme unicast over ud has no pace: it has per-chunk and alpha"},
		{head + "workloads: [{bcast: {schemes: [{unicast: {per-chunk: 1us}}], sizes: [1B]}}]\n", "lab:3:54: scheme unicast has no per-chunk: it is for uc-multicast or ud-multicast, and for broadcasts by unicast with transport: rc-chunks or ud"},
		{head + "workloads: [{storage: {schemes: [unicasts], bs: [1B], copy: 2s}}]\n", "lab:3:61: workloads[0].storage.copy of 2s is more than a second"},
		{head + "workloads: [{bcast: {schemes: [{uc-multicast: {per-chunk: 2s}}], sizes: [1B]}}]\n", "lab:3:59: workloads[0].bcast.schemes[0].per-chunk of 2s is more than a second"},
		{head + "workloads: [{reduce-scatter: {schemes: [{ring: {pace: 5}}], sizes: [4B]}}]\n", "lab:3:55: scheme ring has no pace: it is for uc-multicast or ud-multicast"},
		{head + "faults: [{at: 86401s, restart: {nodes: h0}}]\n", `lab:3:15: faults[0].at: duration "86401s" is more than a day: use at most 86400s`},
		{"name: x\ntopology: {custom: {hosts: [a, b], switches: [s], links: [a-s, {ends: b-s, delay: 2s}]}}\n", "lab:2:83: topology.custom.links[1].delay of 2s is more than a second"},
		{head + "switches: {buffer: 1kB}\n", "lab:3:20: switches.buffer of 1kB is too small for a few frames: use at least 64KiB"},
		{head + "switches: {buffer: 128KiB}\n", "lab:3:20: switches.buffer of 128KiB is too small: PFC on the 4 ports of leaf0 reserves 148116 bytes; use a larger buffer, a smaller xoff, or pfc: false"},
		{head + "switches: {pfc: perhaps}\n", `lab:3:17: switches.pfc: "perhaps" is not true, false or a mapping`},
		{head + "nics: {irn: {cap: 1MB}}\n", "lab:3:13: nics.irn has no effect with retransmit: go-back-n: write retransmit: irn"},
		{head + "nics: {retransmit: irn, irn: {rto-low: 200ns}}\n", "lab:3:40: nics.irn.rto-low of 200ns is shorter than the 3.53648us in which a packet of 4096 bytes can be acknowledged at best: every packet would be repeated"},
		{head + "links: {delay: 30us}\nnics: {retransmit: irn}\n", "lab:4:20: nics.irn.rto-low of 100us is shorter than the 121.13648us in which a packet of 4096 bytes can be acknowledged at best: every packet would be repeated"},
		{head + "nics: {retransmit: irn, irn: {rto-low: 1ms}}\n", "lab:3:30: nics.irn: rto-low of 1ms and rto-high of 320us: both have to be more than 0, and rto-high not less than rto-low"},
		{head + "nics: {congestion: timely}\n", `lab:3:20: nics.congestion cannot be "timely": use none, dcqcn, dcqcn-connectx or dcqcn-hpcc`},
		{head + "switches: {ecn: yes}\n", `lab:3:17: switches.ecn: "yes" is not true, false or a mapping`},
		{head + "switches: {ecn: {kmin: 2MB, kmax: 1MB}}\n", "lab:3:17: switches.ecn: kmin of 2MB is above kmax, 1MB"},
		{head + "switches: {ecn: {pmax: 2}}\n", "lab:3:24: switches.ecn.pmax of 2 is not a probability: use 0 to 1"},
		{head + "switches: {ecn: {priorities: [8]}}\n", "lab:3:31: priority 8 is not 0 to 7"},
		{head + "switches: {pfc: {alpha: 100}}\n", "lab:3:25: switches.pfc.alpha of 100 is not 0.0078125 to 64, or 0 for static thresholds"},
		{head + "switches: {pfc: {alpha: 1, xoff: 1MB}}\n", "lab:3:25: switches.pfc has alpha, for dynamic thresholds, and static ones: leave xoff and xon out, or alpha (resume-offset goes with either)"},
		{head + "switches: {pfc: {resume-offset: 3KiB, xon: 1MB}}\n", "lab:3:33: switches.pfc has resume-offset and xon, which say the same: leave one out"},
		{head + "switches: {pfc: {resume-offset: 0B}}\n", "lab:3:33: switches.pfc.resume-offset of 0B is not 1B or more"},
		{head + "nics: {byte-counter: 1MB}\n", "lab:3:22: nics.byte-counter has no effect with congestion: none, which has none: use dcqcn or dcqcn-connectx"},
		{head + "nics: {congestion: dcqcn, byte-counter: 0B}\n", "lab:3:41: nics.byte-counter of 0B is not 1B or more"},
		{head + "switches: {pfc: {xon: 9MB}}\n", "lab:3:23: switches.pfc.xon of 9MB is above xoff, 3971443 bytes by default on the 4 ports of leaf0: use a smaller xon, or set xoff too"},
		{head + "switches: {pfc: {quanta: 3}}\n", "lab:3:26: switches.pfc.quanta of 3 is not 256 to 65535"},
		{head + "switches: {watchdog: {enabled: true, detect: 0}}\n", "lab:3:46: switches.watchdog.detect of 0 takes every pause for a storm"},
		{head + "switches: {watchdog: {action: flood}}\n", `lab:3:31: switches.watchdog.action cannot be "flood": use drop or forward`},
		{head + "switches: {scheduling: [1, 2]}\n", "lab:3:24: switches.scheduling has 2 shares: give one for each of the eight priorities, 0 for strict"},
		{head + "switches: {scheduling: [0, 0, 0, 256, 0, 0, 0, 0]}\n", "lab:3:34: share 256 is not 0 to 255"},
		{head + "switches: {classes: [{dscp: 64, priority: 1}]}\n", "lab:3:29: 64 is not a DSCP from 0 to 63"},
		{head + "switches: {classes: [{priority: 1}]}\n", "lab:3:22: switches.classes[0] needs either dscp or pcp"},
		{head + "switches: {cnp-filter: {window: 0}}\n", "lab:3:33: switches.cnp-filter.window of 0 counts nothing; to pass all notifications write cnp-filter: false"},
		{"name: x\ntopology: {fat-tree: {k: 4}}\nswitches: {accelerator: look-aside}\n", "lab:3:25: switches.accelerator can be look-aside in a lab of one switch only: packets to a group cannot be routed between switches"},
		{head + "switches: {group-net: 10.255.0.0/24}\n", `lab:3:23: group-net "10.255.0.0/24" is not a network like 10.254.0.0/16: write an IPv4 address that ends in .0.0, and /16`},
		{head + "switches: {group-net: 10.255.1.0/16}\n", `lab:3:23: group-net "10.255.1.0/16" is not a network like 10.254.0.0/16: write an IPv4 address that ends in .0.0, and /16`},
		{head + "switches: {group-net: 10.253.0.0/16}\n", "lab:3:23: group-net 10.253.0.0/16 has addresses of hosts or switches, which are in 10.0.0.0 to 10.253.255.255: use 10.254.0.0/16, 10.255.0.0/16, or one outside 10.0.0.0/8"},
		{head + "switches: {group-net: 239.1.0.0/16}\n", "lab:3:23: group-net 239.1.0.0/16 is not of unicast addresses, which adapters demand for RC: use one of 1.0.0.0 to 223.255.255.255 other than 127.0.0.0/8"},
		{head + "switches: {group-memory: 0B}\n", "lab:3:26: switches.group-memory of 0B has room for no group: use more, or leave it out"},
		{head + "workloads:\n  - bcast: {schemes: [{chain: {cutoff: before-barrier}}], sizes: [64B]}\n", `lab:4:40: scheme chain has no cutoff: it is for uc-multicast or ud-multicast`},
		{head + "links: {ip: 5}\n", `lab:3:13: links.ip cannot be "5": use 4 or 6`},
		{head + "links: {ip: ipv6}\n", `lab:3:13: links.ip: "ipv6" is not a whole number`},
		{head + "links: {ipv: 6}\n", `lab:3:9: unknown key "ipv", did you mean "ip"?`},
		{head + "links: {vlan: 4095}\n", "lab:3:15: links.vlan of 4095 is not 1 to 4094, or 0 for none"},
		{head + "switches: {rules: cephus}\n", `lab:3:19: switches.rules cannot be "cephus", did you mean "cepheus"? Use fixed, cepheus or gleam`},
		{head + "nics: {mtu: 1500}\n", `lab:3:13: nics.mtu cannot be "1500": use 256, 512, 1024, 2048 or 4096; it is RoCE's path MTU, 4096 where Ethernet frames have 9000 bytes`},
		{head + "nics: {rnr-retries: 9}\n", `lab:3:21: nics.rnr-retries: "9" is not a number from 0 to 6, or infinite`},
		{head + "nics: {window: 4}\n", "lab:3:16: nics.window of 4 packets is used up before the next acknowledgement is requested (ack-every 16): use at least 16"},
		{head + "nics: {icrc: flag}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [1B]}}]\n", "lab:3:14: nics.icrc can be flag only where all workloads use memory: phantom"},
		{head + "workloads:\n  - bcast: {schemes: [cepheos], sizes: [64B]}\n", `lab:4:23: no broadcast scheme "cepheos", did you mean "cepheus"?`},
		{head + "workloads:\n  - bcast: {schemes: [rmdc], sizes: [64B]}\n", `lab:4:23: no broadcast scheme "rmdc", did you mean "rdmc"?`},
		{head + "workloads:\n  - bcast: {schemes: [telepathy], sizes: [64B]}\n", `lab:4:23: no broadcast scheme "telepathy": use 1ring, 1ringM, 2ring, 2ringM, binary-tree, binomial, cepheus, chain, double-binary-tree, gleam, k-nomial, long, longM, pipelined-binary-tree, rdmc, scatter-allgather, uc-multicast, ud-multicast or unicast`},
		{head + "workloads:\n  - bcast: {schemes: [{rdmc: {block: 0B}}], sizes: [64B]}\n", `lab:4:38: block of 0B: use 1B to 2GiB`},
		{head + "workloads:\n  - bcast: {schemes: [{rdmc: {block: 0}}], sizes: [64B]}\n", `lab:4:38: workloads[0].bcast.schemes[0].block: "0" needs a number and a unit (TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B), for example 64KiB`},
		{head + "workloads:\n  - bcast: {schemes: [{rdmc: {slices: 4}}], sizes: [64B]}\n", `lab:4:39: scheme rdmc has no slices: it has block`},
		{head + "workloads:\n  - bcast: {schemes: [{binomial: {radix: 4}}], sizes: [64B]}\n", `lab:4:42: scheme binomial has no radix`},
		{head + "workloads:\n  - bcast: {schemes: [{k-nomial: {radix: 1}}], sizes: [64B]}\n", `lab:4:42: radix of 1: a tree needs a radix of at least 2`},
		{head + "workloads:\n  - bcast: {schemes: [{k-nomial: {raddix: 4}}], sizes: [64B]}\n", `lab:4:35: unknown parameter "raddix", did you mean "radix"?`},
		{head + "workloads:\n  - bcast: {schemes: [{chain: {slices: 0}}], sizes: [64B]}\n", `lab:4:40: workloads[0].bcast.schemes[0].slices: "0" is not a number from 1 on, or ranks`},
		{head + "workloads:\n  - bcast: {schemes: [gleam], sizes: [64B]}\n", `lab:4:23: scheme gleam is multicast by the rules of that paper, and the switches have the rules fixed: set switches.rules to gleam, or use cepheus`},
		{head + "workloads:\n  - bcast: {schemes: [{rdmc: {block: 1B}}], sizes: [64B, 1MiB]}\n", `lab:4:38: 1MiB in blocks of 1B are more than the 8192 a connection takes: use at least 128B`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], warm-up: -1}\n", `lab:4:56: warm-up of -1 is not 0 to 1048576`},
		{head + "workloads:\n  - allgather: {schemes: [binomial], sizes: [64B]}\n", `lab:4:27: no allgather scheme "binomial": use cepheus, linear, multicast, recursive-doubling, ring or uc-multicast`},
		{head + "workloads:\n  - allgather: {schemes: [{ring: {parallel: 2}}], sizes: [64B]}\n", `lab:4:45: scheme ring has no parallel`},
		{head + "workloads:\n  - allgather: {schemes: [{multicast: {parallel: 0}}], sizes: [64B]}\n", `lab:4:50: workloads[0].allgather.schemes[0].parallel: "0" is not a number from 1 on, or ranks`},
		{head + "workloads:\n  - allgather: {schemes: [{multicast: {workers: 3, subgroups: 2}}], sizes: [64B]}\n", `lab:4:49: 3 receive workers for 2 subgroups: each needs one of its own, so use 1 to 2 or more subgroups`},
		{head + "workloads:\n  - bcast: {schemes: [{ud-multicast: {staging: 9000}}], sizes: [64B]}\n", `lab:4:48: 9000 receives: use 1 to 8192`},
		{head + "workloads:\n  - bcast: {schemes: [{ud-multicast: {subgroups: 0}}], sizes: [64B]}\n", `lab:4:50: 0 subgroups: use 1 to 256`},
		{head + "workloads:\n  - bcast: {schemes: [{ud-multicast: {chunk: 1KiB}}], sizes: [64B]}\n", `lab:4:46: scheme ud-multicast has no chunk: it has subgroups, workers or staging`},
		{head + "workloads:\n  - bcast: {schemes: [{uc-multicast: {chunk: 0B}}], sizes: [64B]}\n", `lab:4:46: chunk of 0B: use 1B to 1GiB`},
		{head + "workloads:\n  - bcast: {schemes: [{chain: {alpha: 1ms}}], sizes: [64B]}\n", `lab:4:39: scheme chain has no alpha: it is for uc-multicast or ud-multicast, and for broadcasts by unicast with transport: rc-chunks or ud`},
		{head + "workloads:\n  - bcast: {schemes: [uc-multicast], sizes: [64B], memory: hashed}\n", `lab:4:60: uc-multicast writes parts of what is lost twice, which hashed memory cannot take: use bytes or phantom, or leave scheme 0 out`},
		{head + "workloads:\n  - allgather: {schemes: [ring], sizes: [1GiB]}\n", `lab:4:42: 1GiB from each of 4 ranks is more than 2GiB`},
		{head + "workloads:\n  - allgather: {schemes: [ring], sizes: [1B], ranks: h1}\n", `lab:4:54: a group of 1: an allgather needs at least two ranks`},
		{head + "workloads:\n  - allgather: {schemes: [ring], sizes: [1B], root: h1}\n", `lab:4:47: unknown key "root": use label, schemes, ranks, sizes, iterations, warm-up or memory`},
		{head + "workloads:\n  - allgather: {schemes: [ring], sizes: [1B], memory: hashed}\n", `lab:4:55: workloads[0].allgather.memory cannot be "hashed": use auto, bytes or phantom`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [3GiB]}\n", "lab:4:41: 3GiB is more than the 2GiB a RoCE message can have"},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64]}\n", `lab:4:41: workloads[0].bcast.sizes[0]: "64" needs a number and a unit (TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B), for example 64KiB`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], ranks: [h1]}\n", "lab:4:54: a group of 1: a broadcast needs at least two ranks"},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], ranks: [h1, h11]}\n", `lab:4:59: there is no host "h11": there are h0 to h3`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], root: h3, ranks: [h1, h2]}\n", "lab:4:53: root h3 is not among the ranks"},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], root: x3}\n", `lab:4:53: there is no host "x3", did you mean "h3"?`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], iterations: 0}\n", `lab:4:59: workloads[0].bcast.iterations: "0" is not a number of iterations from 1 to 16777215, or auto`},
		{head + "workloads:\n  - bcast: {schemes: [chain, chain], sizes: [64B]}\n", `lab:4:30: two schemes are called "chain": give one of them a label of its own`},
		{head + "workloads:\n  - bcast: {schemes: [cepheus], sizes: [64B]}\n  - bcast: {schemes: [chain], sizes: [64B]}\n", `lab:5:12: two workloads are called "bcast": give one of them a label of its own`},
		{head + "workloads:\n  - bcast: {sizes: [64B]}\n", `lab:4:12: workloads[0].bcast needs "schemes": algorithms`},
		{head + "workloads:\n  - {}\n", "lab:4:5: a workload needs one kind: bcast, allgather, reduce-scatter, alltoall, fsdp, hpl, storage, program, many-to-many, flows or command"},
		{head + "faults:\n  - {loss: {rate: -0.1}}\n", "lab:4:19: loss.rate of -0.1 is not a probability: use 0 to 1, or 0% to 100%"},
		{head + "faults:\n  - {loss: {rate: 0.1, links: x*}}\n", `lab:4:31: loss: no link is called "x*" (a link is, for example, h0:0-leaf0:0)`},
		{head + "faults:\n  - {at: 1ms}\n", "lab:4:5: a fault is one of loss, corrupt, truncate, duplicate, reorder, delay, rate-cut, link-down, pause, pause-storm, crash, agent-crash, restart, wipe-mft, mft-full, nic-stall, slow-receiver, control-partition or controller-crash; this is 0 of them"},
		{head + "faults:\n  - {pause: {node: leaf0}}\n", "lab:4:20: leaf0 is a switch: pauses come from hosts"},
		{head + "expect: [\"1 <\"]\n", `lab:3:10: expect: "1 <" ends too early`},
		{head + "expect: [\"bcast.cepheus < 1\"]\n", `lab:3:10: expect: "bcast.cepheus < 1" has "bcast.cepheus", which is neither a number nor WORKLOAD.SCHEME.SIZE.jct.p50`},
		{head + "seed: *a\n", "lab:3:7: anchors and aliases are not supported: write the value out"},
		{head + "seed: 1\nseed: 2\n", `lab:4:1: not valid YAML: mapping key "seed" already defined at [3:1]`},
		{head + "---\nname: y\n", "lab:4:1: a second document: a lab file has one"},
		{"name: {a: [\n", "lab:1:11: not valid YAML: sequence end token ']' not found"},
		{"x: " + strings.Repeat("[", 60), "lab:1:1: more than 32 levels of nesting"},
	} {
		_, err := Parse("lab", []byte(c.text))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v, want a lab.Error", c.text, err)
			continue
		}
		if e.Error() != c.want { // the first that is found
			t.Errorf("%q\n got %s\nwant %s", c.text, err, c.want)
		}
		checkLines(t, err)
	}
}

// TestSchema: the schema made from the types accepts every example and its resolved form, and refuses
// every file that the parser refuses for its shape.
func TestSchema(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lab.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("lab.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(y []byte) error {
		j, err := yaml.YAMLToJSON(y)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(j)))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(v)
	}
	for _, f := range examples(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Parse(f, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, y := range [][]byte{b, l.Resolved()} {
			if err := valid(y); err != nil {
				t.Errorf("%s: %v\n%s", f, err, y)
			}
		}
	}
	for _, bad := range []string{
		"name: x\ntoplogy: {}\n",
		strings.Replace(minimal, "64B", "64 apples", 1),
		strings.Replace(minimal, "hosts: 4", "host: 4", 1),
		minimal + "links: {rate: fast}\n",
		minimal + "switches: {pfc: {priorities: 3}}\n",
	} {
		if valid([]byte(bad)) == nil {
			t.Errorf("the schema accepts %q", bad)
		}
		if _, err := Parse("x", []byte(bad)); err == nil {
			t.Errorf("the parser accepts %q", bad)
		}
	}
	if !json.Valid(text) {
		t.Error("the schema is not JSON")
	}
}

func TestExpect(t *testing.T) {
	look := func(name string) (float64, error) {
		switch name {
		case "b.x.1KiB.jct.p50":
			return 10, nil
		case "b.two-level.1KiB.jct.p50":
			return 4, nil
		}
		return 0, errors.New("no such result")
	}
	for text, want := range map[string]bool{ // independent of each other
		"1 < 2":                  true,
		"2 <= 1":                 false,
		"b.x.1KiB.jct.p50 == 10": true,
		"b.x.1KiB.jct.p50 / b.two-level.1KiB.jct.p50 == 2.5":      true,
		"b.x.1KiB.jct.p50 - b.two-level.1KiB.jct.p50 > 2 * 3 - 1": true,
		"(1 + 2) * 3 >= 9": true,
		"8 / 2 / 2 == 2":   true,
	} {
		e, err := ParseExpect(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, ok, err := e.Eval(look); err != nil || ok != want {
			t.Errorf("%q: %v, %v; want %v", text, ok, err, want)
		}
	}
	for _, bad := range []string{"", "1", "< 2", "1 < 2 3", "1 ! 2", "(1 < 2", "1 = 2", "a < 1", "1 < " + strings.Repeat("(", 50)} {
		if _, err := ParseExpect(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	e, err := ParseExpect("b.y.1KiB.jct.p50 < 1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Eval(look); err == nil {
		t.Error("an unknown quantity evaluates")
	}
}

// FuzzParse: no text makes the parser panic, and an accepted text resolves to a text that it reads as
// the same lab.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("name: x\r\rtopology: {star: ]\r\r"))
	for _, file := range examples(f) {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse("fuzz", b)
		if err != nil {
			checkLines(t, err)
			return
		}
		again, err := Parse("fuzz", l.Resolved())
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("resolved form: %v\n%s", err, l.Resolved())
		}
	})
}

// TestFileTooLarge: a lab file has a size that nobody writes by hand, and no more.
func TestFileTooLarge(t *testing.T) {
	text := []byte("name: x\ntopology: {star: {hosts: 4}}\n")
	text = append(text, bytes.Repeat([]byte("# \n"), fileBytesMax/3+1)...)
	file := filepath.Join(t.TempDir(), "large.mcl.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, parsed := Parse("lab", text)
	_, read := Read(file)
	for _, err := range []error{parsed, read} {
		if err == nil || !strings.Contains(err.Error(), "are more than a lab file may have") {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}

// checkLines verifies that each mistake is one line, and that they are not too many.
func checkLines(t *testing.T, err error) {
	t.Helper()
	var all *Mistakes
	want := 1
	if errors.As(err, &all) {
		want = len(all.all) + 1
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != want || want == 2 || want > mistakesMax+1 {
		t.Errorf("%d lines, want %d: %.2000v", lines, want, err)
	}
}

// TestBounded: text that is expensive to parse, and text that is no lab file at all, is refused in few
// lines, within few allocations for its size.
func TestBounded(t *testing.T) {
	var keys, flow, list strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&keys, "k%d: 1\n", i)
		fmt.Fprintf(&flow, "k%d: 1,", i)
		list.WriteString(" - a\n")
	}
	for name, text := range map[string]string{ // independent of each other
		"keys": keys.String(), "nested": "name: x\nlinks:\n " + strings.ReplaceAll(keys.String(), "\n", "\n "), "flow": "{" + flow.String() + "}",
		"list": "name: x\nexpect:\n" + list.String(), "hyphens": strings.Repeat("-", 600_000), "nested lists": strings.Repeat("- ", 200_000),
		"empty items": strings.Repeat("-\n", 200_000), "colons": strings.Repeat("a: ", 150_000), "commas": "a: [" + strings.Repeat(",", 600_000) + "]",
		"question marks": strings.Repeat("? ", 200_000), "tags": strings.Repeat("!", 600_000), "anchors": strings.Repeat("&a ", 150_000),
	} {
		t.Log(name)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("lab", []byte(text))
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || len(err.Error()) > 3000 || mib > 1024 {
			t.Errorf("%s: %d MiB, and %.200v", name, mib, err)
		} else {
			checkLines(t, err)
		}
	}
	text := "name: x\ntopology: {star: {hosts: 2}}\nworkloads:\n" + strings.Repeat("  - bcast:\n      schemes: [cepheus]\n      sizes: [1B]\n", 2000)
	if _, err := Parse("lab", []byte(text)); err == nil || !strings.Contains(err.Error(), "two workloads are called") {
		t.Errorf("many mappings of few keys: %v", err)
	}
}
