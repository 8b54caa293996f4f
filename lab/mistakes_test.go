// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestMistakes: all mistakes of a file are reported together, in the order of the file, each on a line
// of its own with its place, and then their number. Consequences of a mistake are not reported.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"reading and checking", `name: Bad Name
seeed: 3
topology: {star: {hosts: 4}}
switches: {queues: inptu, groups: many}
nics: {ack-every: 0, retries: 9}
workloads:
  - bcast: {schemes: [cepheus], sizes: [64 apples, 10kB], rot: h0}
  - bcast: {schemes: [cephous, chian], sizes: [1KiB], root: h9, label: second}
  - {}
faults:
  - {loss: {rate: 2}}
  - {crash: {nodes: h7}}
expect: ["1 <", "1 < 2"]
`, []string{
			`f:1:7: "Bad Name" cannot be the name of a lab: use a lower-case letter, then up to 39 lower-case letters, digits and hyphens`,
			`f:2:1: unknown key "seeed", did you mean "seed"?`,
			`f:4:20: switches.queues cannot be "inptu", did you mean "input"? Use output or input`,
			`f:4:35: switches.groups: "many" is not a whole number`,
			`f:5:19: nics.ack-every of 0 is not 1 or more`,
			`f:7:41: workloads[0].bcast.sizes[0]: "64 apples" needs a number and a unit (TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B), for example 64KiB`,
			`f:7:59: unknown key "rot", did you mean "root"?`,
			`f:8:23: no broadcast scheme "cephous", did you mean "cepheus"?`,
			`f:8:32: no broadcast scheme "chian", did you mean "chain"?`,
			`f:8:61: there is no host "h9": there are h0 to h3`,
			`f:9:5: a workload needs one kind: bcast, `,
			`f:11:19: loss.rate of 2 is not a probability: use 0 to 1, or 0% to 100%`,
			`f:12:21: crash: there is no node "h7": there are h0 to h3`,
			`f:13:10: expect: "1 <" ends too early`,
			`f: 14 mistakes`,
		}},
		{"nothing can be said of what needs hosts", "name: x\ntopology: {star: {hosts: 1}}\nnics: {mtu: 5}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [1KiB], root: h7}}]\n", []string{
			`f:2:11: topology: star of 1 hosts: a switch has 2 to 254 ports`, `f:3:13: nics.mtu cannot be "5"`, `f: 2 mistakes`,
		}},
	} {
		_, err := Parse("f", []byte(c.text))
		var all *Mistakes
		var first *Error
		if !errors.As(err, &all) || !errors.As(err, &first) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := strings.Split(err.Error(), "\n")
		for i := range max(len(got), len(c.want)) {
			switch {
			case i >= len(got):
				t.Errorf("%s: nothing says %s", c.name, c.want[i])
			case i >= len(c.want):
				t.Errorf("%s: too much: %s", c.name, got[i])
			case !strings.HasPrefix(got[i], c.want[i]):
				t.Errorf("%s:\n got %s\nwant %s", c.name, got[i], c.want[i])
			}
		}
	}
}

// TestManyMistakes: of a file with thousands of mistakes some are reported.
func TestManyMistakes(t *testing.T) {
	for name, item := range map[string]string{"read": "  - {nonsense: %d}\n", "checked": "  - {crash: {nodes: n%d}}\n"} { // independent of each other
		var b strings.Builder
		b.WriteString("name: x\ntopology: {star: {hosts: 4}}\nfaults:\n")
		for i := range 5000 {
			fmt.Fprintf(&b, item, i)
		}
		_, err := Parse("f", []byte(b.String()))
		if err == nil {
			t.Fatal("nothing is wrong")
		}
		lines := strings.Split(err.Error(), "\n")
		if want := "f: 20 mistakes, and there may be more"; len(lines) != mistakesMax+1 || lines[mistakesMax] != want || !strings.HasPrefix(lines[0], "f:4:6: ") && !strings.HasPrefix(lines[0], "f:4:21: ") {
			t.Errorf("%s: %d lines, the first %q, the last %q", name, len(lines), lines[0], lines[len(lines)-1])
		}
	}
}
