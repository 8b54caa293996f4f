// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// TestCauses: each mistake that is visible from outside has its own message, and a healthy device
// has none.
func TestCauses(t *testing.T) {
	const to = "10.254.255.1"
	good := func() deviceView {
		return deviceView{
			name: "h3", address: "10.0.0.4", iface: "rc1", carrier: true,
			step: rankhost.Step{Host: "h3", QPN: 17, Address: to, SendPSN: 100, ReceivePSN: 100},
			seen: counters.Device{
				Heard: true, Frames: 3, Asked: []counters.DeviceAsked{{Address: to, Times: 1}}, Given: 20, GivenPSN: 119, Acks: 3, AckPSN: 119,
				Last: &counters.DeviceFrame{OpCode: "ACKNOWLEDGE ACK", PSN: 119, To: to, QPN: 1},
			},
		}
	}
	silent := func(v *deviceView) { v.seen.Frames, v.seen.Last, v.seen.Acks = 0, nil, 0 }
	nak := func(v *deviceView, reason string, psn uint32, acks uint64) {
		v.seen.NAK, v.seen.Acks, v.seen.AckPSN = &counters.DeviceNAK{Reason: reason, PSN: psn, Times: 1}, acks, 0
	}
	seen := map[string]string{}
	for name, c := range map[string]struct { // independent of each other
		change func(*deviceView)
		want   string
	}{
		"nothing":   {func(*deviceView) {}, ""},
		"carrier":   {func(v *deviceView) { v.carrier = false }, "no carrier"},
		"address":   {func(v *deviceView) { silent(v); v.seen.Other = "10.0.0.9" }, "it sends from the address 10.0.0.9"},
		"absent":    {func(v *deviceView) { silent(v); v.seen.Heard = false }, "no host answers for 10.0.0.4"},
		"group":     {func(v *deviceView) { silent(v); v.seen.Asked[0].Address = "10.254.0.9" }, "it looks for 10.254.0.9"},
		"sends to":  {func(v *deviceView) { v.seen.Last.To = "10.254.0.9" }, "it sends to 10.254.0.9"},
		"QP there":  {func(v *deviceView) { v.step.ToQPN = 5 }, "it sends to QP 1 at " + to},
		"QP here":   {silent, "20 packets went to its QP 17 and none was answered"},
		"PSN":       {func(v *deviceView) { nak(v, "NAK(sequence)", 7, 0) }, "it asks for PSN 7, and the lab starts at PSN 100"},
		"later PSN": {func(v *deviceView) { v.seen.Acks, v.seen.Strange = 0, 4 }, "it acknowledges packets that it was not sent"},
		"receive":   {func(v *deviceView) { nak(v, "RNR", 100, 0) }, "it has no receive posted for PSN 100"},
		"refused":   {func(v *deviceView) { nak(v, "NAK(remote access)", 100, 0) }, "it refuses PSN 100 with NAK(remote access)"},
		"stopped":   {func(v *deviceView) { v.seen.AckPSN = 104 }, "it has acknowledged PSN 104, and was sent up to PSN 119"},
		"quiet":     {func(v *deviceView) { v.source = true }, "it has sent nothing"},
		"own PSN": {func(v *deviceView) {
			v.source, v.seen.Requests = true, &counters.DeviceRequests{Packets: 4, FirstPSN: 9}
		}, "its first packet has PSN 9, and the lab expects 100"},
		"source": {func(v *deviceView) {
			v.source, v.seen.Requests = true, &counters.DeviceRequests{Packets: 4, FirstPSN: 100}
		}, ""},
	} {
		v := good()
		c.change(&v)
		got := v.cause()
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if other := seen[got]; got != "" && other != "" {
			t.Errorf("%s and %s are told with the same words: %s", name, other, got)
		}
		seen[got] = name
		if s := v.String(); !strings.HasPrefix(s, "external host h3: ") || !strings.Contains(s, "(seen: ") || strings.Contains(s, "\n") {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// TestSlowestPath: of a group in two layers it is the path of the slowest leaf's slowest member.
func TestSlowestPath(t *testing.T) {
	below := orchestrator.TreeNode{Switch: "leaf1", Slowest: "h3", Paths: []orchestrator.TreePath{{Port: "leaf1:0", To: "h2", AckPSN: 9}, {Port: "leaf1:1", To: "h3", AckPSN: 4}, {Port: "leaf1:2", To: "h4", AckPSN: 4}}}
	spine := orchestrator.TreeNode{Switch: "spine0", Slowest: "leaf1", Paths: []orchestrator.TreePath{{Port: "spine0:0", To: "leaf0", Source: true}, {Port: "spine0:1", To: "leaf1", AckPSN: 4, Below: &below}}}
	trees := []orchestrator.GroupTree{{McstID: "10.254.0.7"}, {McstID: "10.254.255.1", Roots: []orchestrator.TreeNode{spine}}}
	for address, want := range map[string]string{ // independent of each other
		"10.254.255.1": "leaf1:1 to h3, acknowledged PSN 4", "fd6d:6361:7374::afe:ff01": "leaf1:1 to h3, acknowledged PSN 4",
		"10.254.0.7": "", "10.254.0.8": "", "": "",
	} {
		if got := slowestPath(trees, address, "h2"); got != want {
			t.Errorf("group %q: %q, want %q", address, got, want)
		}
	}
	if got := slowestPath(trees, "10.254.255.1", "h4"); got != "leaf1:2 to h4, acknowledged PSN 4" {
		t.Errorf("of two that are slowest it is %q", got)
	}
}

// TestJudgeDevices: of runs with external hosts the verdict counts timers, repeats of either
// side and overruns, but for what the fabric's own losses, or faults, make necessary.
func TestJudgeDevices(t *testing.T) {
	row := []apps.Row{{External: []string{"h3"}}}
	node := func(counts, drops map[string]uint64) []counters.Node {
		return []counters.Node{{Counts: counts, Drops: drops}}
	}
	type counted = map[string]uint64
	for _, c := range []struct {
		counts, drops counted
		lossFree      bool
		want          string
	}{
		{nil, nil, true, ""},
		{counted{"timeouts": 2}, nil, true, "2 retransmission timers fired although nothing was lost"},
		{counted{"retransmitted": 2226}, nil, true, "2226 packets were sent again although the lab lost nothing"},
		{counted{"repeated_by_device": 3}, nil, true, "external hosts sent 3 packets again although the lab lost nothing"},
		{nil, counted{"overrun": 2289}, true, "2289 packets of external hosts found external.window full"},
		{nil, counted{"overrun": 2289}, false, "2289 packets of external hosts found external.window full"},
		{counted{"timeouts": 2, "retransmitted": 5, "repeated_by_device": 3}, nil, false, ""},
		{counted{"retransmitted": 5, "repeated_by_device": 3}, counted{"buffer-full": 8}, true, ""},
	} {
		f := &fidelity{}
		v := f.judge(row, node(c.counts, c.drops), node(nil, nil), c.lossFree)
		if verdict := map[bool]string{true: "ok", false: "violated"}[c.want == ""]; v.Verdict != verdict || !strings.HasPrefix(v.Reason, c.want) {
			t.Errorf("%v, %v, without loss %v: %+v, want %q", c.counts, c.drops, c.lossFree, v, c.want)
		}
	}
}

// TestHolds: a group is not free while a switch has it, nor while its frames may be under way.
func TestHolds(t *testing.T) {
	states := []counters.Node{{Node: "leaf0", Groups: []counters.Group{{McstID: "10.254.255.1"}}}, {Node: "leaf1", Resting: []string{"10.254.255.2"}}}
	for id, want := range map[string]string{"10.254.255.1": "leaf0", "10.254.255.2": "leaf1", "10.254.255.3": ""} { // independent of each other
		if got := holds(states, id); got != want {
			t.Errorf("group %s is at %q, want %q", id, got, want)
		}
	}
}
