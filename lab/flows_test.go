// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/rank"
)

// TestFlows: the settings that flows take, and the job that results.
func TestFlows(t *testing.T) {
	l, err := Parse("x", []byte("name: x\ntopology: {star: {hosts: 4}}\nworkloads:\n"+
		"  - flows: {flows: [{name: a, from: h2, to: [h1, h3..h3], begin: 1ms, end: 2ms}, {name: b, from: h1, to: h0, end: 500us}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse("x", l.Resolved()); err != nil || string(again.Resolved()) != string(l.Resolved()) {
		t.Errorf("the resolved lab reads otherwise: %v\n%s", err, l.Resolved())
	}
	p := input[flows.Params](t, l, 0)
	a, b := p.Flows[0], p.Flows[1]
	if a.From != 0 || len(a.To) != 2 || a.To[0] != 1 || a.To[1] != 2 || b.From != 1 || b.To[0] != 3 || p.Memory != rank.MemoryBytes || p.Message != 65536 {
		t.Errorf("%+v", p)
	}
}

// TestFlowsRefused: one clear line for each mistake.
func TestFlowsRefused(t *testing.T) {
	for _, c := range []struct{ flow, more, want string }{
		{"name: a, from: h0, to: h1, begin: 2ms, end: 2ms", "", "ends at 2ms and begins at 2ms"},
		{"name: a, from: h0, to: h1", "", `needs "end"`},
		{"name: a, from: h0, to: h0..h2, end: 2ms", "", "from h0 to itself"},
		{"name: a, from: h0, to: h9, end: 2ms", "", `there is no host "h9"`},
		{"name: a, from: leaf0, to: h1, end: 2ms", "", `there is no host "leaf0"`},
		{"name: a, from: h0, to: [], end: 2ms", "", "to is empty"},
		{"name: a.b, from: h0, to: h1, end: 2ms", "", "cannot be a label"},
		{"name: a, from: h0, to: h1, end: 2ms}, {name: a, from: h0, to: h1, end: 2ms", "", `two flows are called "a"`},
		{"name: a, from: h0, to: h1, end: 2ms", ", interval: 1ns", "more than 10000 intervals"},
		{"name: a, from: h0, to: h1, end: 2ms", ", message: 0B", "is not 1B to 2GiB"},
		{"name: a, from: h0, to: h1, end: 2ms", ", outstanding: 0", "are not 1 to 4096"},
		{"name: a, from: h0, to: h1, end: 2ms", ", interval: 0", "is not above 0"},
		{"name: a, from: h0, to: h3, end: 2ms", "}}]\nhosts: [{name: h3, kind: external}]\nlabels: [{name: l, nodes: [h0]", "h3 is external"},
	} {
		text := "name: x\ntopology: {star: {hosts: 4}}\nworkloads: [{flows: {flows: [{" + c.flow + "}]" + c.more + "}}]\n"
		if strings.Contains(c.more, "\n") {
			text = strings.TrimSuffix(text, "}}]\n") + "}]\n"
		}
		if _, err := Parse("x", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", text, err, c.want)
		}
	}
	const good = "name: x\ntopology: {star: {hosts: 4}}\nworkloads: [{flows: {flows: [{name: a, from: h0, to: h1, end: 2ms}]}}]\nexpect: [\"flows.%s >= 0\"]\n"
	for part, want := range map[string]string{ // each is its own case
		"a.64KiB.rate.2": "", "a.64KiB.regain.a": "", "b.64KiB.jct.avg": `no scheme "b"`, "a.1KiB.jct.avg": "no size 1KiB", "a.64KiB.rate.3": "no rate.3", "a.64KiB.beside.c": "no beside.c",
	} {
		_, err := Reader{Expect: true}.Parse("x", []byte(strings.Replace(good, "%s", part, 1)))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", part, err, want)
		}
	}
}
