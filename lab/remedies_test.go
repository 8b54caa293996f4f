// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

// TestRemedies: a mistake names its remedy: the level at which a key belongs, the hosts there are, the indentation of the lines
// around, and a value that cannot be read hides no other mistake of its workload.
func TestRemedies(t *testing.T) {
	const head = "name: a\ntopology: {star: {hosts: 4}}\n"
	const work = "workloads: [{bcast: {schemes: [cepheus], sizes: [1MiB]}}]\n"
	for _, c := range []struct {
		text string
		want []string // lines, in order; none: the file is valid
	}{
		{head + "mtu: 9000\n" + work, []string{`3:1: unknown key "mtu": mtu is a key of nics`}},
		{head + "links: {mtu: 9000}\n" + work, []string{`3:9: unknown key "mtu": mtu is a key of nics`}},
		{head + "nics: {mtu: 9000}\n" + work, []string{`nics.mtu cannot be "9000": use 256, 512, 1024, 2048 or 4096; it is RoCE's path MTU, 4096 where Ethernet frames have 9000 bytes`}},
		{head + "faults: [{loss: {rate: 0.1, at: 1us}}]\n" + work, []string{`unknown key "at": at goes beside loss, not in it`}},
		{head + "faults: [{pause-storm: {node: h1, at: 1us, for: 1us}}]\n" + work, []string{
			`unknown key "at": at goes beside pause-storm, not in it`, `unknown key "for": for goes beside pause-storm, not in it`}},
		{head + "workloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], faults: []}}]\n", []string{
			`unknown key "faults": faults is a section of the lab file and starts its line, outside bcast`}},
		{head + "faults: [{pause: {node: h4}}]\n" + work, []string{`there is no node "h4": there are h0 to h3`}},
		{head + "workloads: [{bcast: {schemes: [cephues], sizes: [1M], root: h9}}]\n", []string{
			`no broadcast scheme "cephues", did you mean "cepheus"?`, `sizes[0]: "1M" needs a number and a unit`, `there is no host "h9": there are h0 to h3`}},
		{head + "workloads: [{bcast: {schemes: [cepheus], sizes: [1M, 1MiB]}}]\n", []string{`sizes[0]: "1M" needs`}},
		{head + "workloads: [{bcast: {schemes: [{chain: {slices: x}}], sizes: [1M]}}]\n", []string{`slices: "x"`, `sizes[0]: "1M" needs`}},
		{head + "faults: [{pause: {nodes: h1}}, {crash: {node: h2}}, {link-down: {link: h1-*}}]\n" + work, nil},
		{head + "faults: [{pause: {node: h1, nodes: h1}}]\n" + work, []string{`key "node" appears twice`}},
		{"\ufeff" + head + work, nil},
		{head + "workloads:\n  - bcast:\n      schemes: [cepheus]\n     sizes: [1MiB]\n", []string{`6:1: line 6 is indented by 5, its neighbours by 4 or 6`}},
		{head + "workloads:\n  - bcast:\n      schemes: [cepheus]\n       sizes: [1MiB]\n", []string{`6:1: line 6 is indented by 7, its neighbours by 6`}},
		{head + "links:\n  rate: 100Gbps\n delay: 1us\n" + work, []string{`5:1: line 5 is indented by 1, its neighbours by 0 or 2`}},
		{"name: x\r\rtopology: {star: ]\r\r", []string{`3:18: not valid YAML: `}}, // line ends of old Macs
		{head + work + "expect: [bcast.cepheus.1MiB.jct.p50 < 100us, bcast.cepheus.1MiB.jct.p50 < 0.1ms + 2 * 5ns]\n", nil},
		{head + work + "expect: [bcast.cepheus.1MiB.recovery.cutoffs < 100us]\n", []string{
			`has the time 100us, and bcast.cepheus.1MiB.recovery.cutoffs is not a time: leave the unit out`}},
		{head + work + "expect: [bcast.cepheus.1MiB.jct.p50 < 100xs]\n", []string{`has "100xs", which is neither a number`}},
	} {
		_, err := Parse("lab", []byte(c.text))
		var lines []string
		if err != nil {
			lines = strings.Split(err.Error(), "\n")
		}
		if n := len(lines); n > 1 {
			lines = lines[:n-1] // their number
		}
		if len(lines) != len(c.want) {
			t.Errorf("%d mistakes, not %d, in\n%s\n%v", len(lines), len(c.want), c.text, err)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%q lacks %q", lines[i], want)
			}
		}
	}
	e, err := ParseExpect("bcast.cepheus.1MiB.jct.p50 < 0.1ms + 2 * 500ns")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[float64]bool{100.9: true, 101.1: false} {
		if _, ok, err := e.Eval(func(string) (float64, error) { return at, nil }); ok != want || err != nil {
			t.Errorf("%v us: %v, %v", at, ok, err)
		}
	}
}
