// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/core/topo"
)

const ntreeLab = `name: x
topology: {m-port-n-tree: {m: 8, n: 3}}
`

// TestManyToMany: the settings that many-to-many takes, and the job that results.
func TestManyToMany(t *testing.T) {
	l, err := Parse("x", []byte(ntreeLab+`switches: {forwarding: cut-through, queues: input, replication: sync, flow-control: credits}
workloads:
  - many-to-many: {schemes: [cyclic, opensm, {cyclic-class: {label: class}}], sources: 40%, group: 13, sizes: [32B, 128KiB]}
  - many-to-many: {label: apart, schemes: [opensm], groups: per-source, sizes: [32B]}
`))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("x", l.Resolved())
	if err != nil || string(again.Resolved()) != string(l.Resolved()) {
		t.Errorf("the resolved lab reads otherwise: %v\n%s", err, l.Resolved())
	}
	g, err := l.graph()
	if err != nil {
		t.Fatal(err)
	}
	p := input[manycast.Params](t, l, 0)
	if p.Sources != 51 || p.Members != 13 || p.Iterations != 30 || p.M != 8 || p.N != 3 || p.Schemes[2].Label != "class" {
		t.Errorf("%+v", p)
	}
	if apart := input[manycast.Params](t, l, 1); p.PerSource || !apart.PerSource {
		t.Errorf("a group for each source: %v by default, %v with groups: per-source", p.PerSource, apart.PerSource)
	}
	f := l.fabric(g)
	if err := l.CheckLive(); err == nil || !strings.Contains(err.Error(), "credits runs on the event clock alone") {
		t.Errorf("credits in a running lab: %v", err)
	}
	l.Switches.FlowControl = "pfc"
	if f.Switch.Input == nil || !f.Switch.Input.Together || !f.Switch.Input.Credits || !f.Switch.CutThrough {
		t.Errorf("%+v", f.Switch)
	}
	if c := f.NICConfig(8); c.Alias != topo.LIDAddress(129) || c.Aliases != 16 {
		t.Errorf("h8 has %d aliases from %#x on, want 16 from LID 129", c.Aliases, c.Alias)
	}
	for pct, want := range map[Share]int{-10: 13, -40: 51, -70: 90, -100: 128, 1: 1, -1: 1} { // each is its own case
		if got := pct.Of(128); got != want {
			t.Errorf("%v of 128 hosts is %d, want %d (CYC-20)", pct, got, want)
		}
	}
	var e *Error
	if err := l.CheckLive(); err != nil {
		t.Errorf("in virtual time: %v", err)
	}
	l.Runtime.Clock = ClockDilated
	if err := l.CheckLive(); !errors.As(err, &e) || !strings.Contains(err.Error(), "virtual time only") {
		t.Errorf("on a wall clock: %v", err)
	}
	l.Workloads = nil
	if err := l.CheckLive(); err != nil {
		t.Errorf("without many-to-many: %v", err)
	}
}

// TestManyToManyRefused: one clear line for each mistake.
func TestManyToManyRefused(t *testing.T) {
	const work = "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B]}}]\n"
	for _, c := range []struct{ text, want string }{
		{"name: x\ntopology: {star: {hosts: 4}}\n" + work, "m-port n-tree, and this is none"},
		{"name: x\ntopology: {m-port-n-tree: {m: 6, n: 2}}\n" + work, "power of two"},
		{"name: x\ntopology: {m-port-n-tree: {m: 7, n: 2}}\n", "m must be even"},
		{"name: x\ntopology: {m-port-n-tree: {m: 8}}\n", `needs "n"`},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclc], sizes: [32B]}}]\n", `did you mean "cyclic"`},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [{cyclic: {slices: 4}}], sizes: [32B]}}]\n", "slices"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic, cyclic], sizes: [32B]}}]\n", "two schemes are called"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [3GiB]}}]\n", "2GiB"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], group: 200}}]\n", "the lab has 128"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], group: 0%}}]\n", "share from 1%"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], sources: 140%}}]\n", "share from 1%"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], sorces: 1}}]\n", `did you mean "sources"`},
		{ntreeLab + "switches: {pfc: false}\n" + work, "pfc: {priorities: [3]}"},
		{ntreeLab + "nics: {traffic-class: 46}\n" + work, "pfc: {priorities: [5]}"},
		{ntreeLab + work + "faults: [{loss: {links: \"*\", rate: 0.1}}]\n", "leave the fault loss out"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], groups: each}}]\n", "shared or per-source"},
		{ntreeLab + "nics: {icrc: flag}\n" + work, "memory: phantom"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], group: all, replace: 1}}]\n", "the lab has 0 hosts that are no members"},
		{ntreeLab + "workloads: [{many-to-many: {schemes: [cyclic], sizes: [32B], group: 2, replace: 3}}]\n", "3 of a group of 2: 3 members leave"},
		{ntreeLab + "switches: {queues: inptu}\n", "queues"},
		{ntreeLab + "switches: {replication: sync}\n", "only with queues: input"},
		{ntreeLab + "switches: {queues: input, ecn: true}\n", "switches.ecn"},
		{ntreeLab + "switches: {queues: input, watchdog: true}\n", "switches.watchdog"},
		{ntreeLab + "switches: {queues: input, scheduling: [1, 1, 1, 1, 1, 1, 1, 1]}\n", "switches.scheduling"},
		{"name: x\ntopology: {star: {hosts: 4}}\nswitches: {queues: input, accelerator: look-aside}\n", "switches.accelerator"},
	} {
		_, err := Parse("x", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngives %v, want %q", c.text, err, c.want)
		}
	}
}
