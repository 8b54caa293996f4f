// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// swept is a lab with a sweep at its end.
const swept = `name: x
topology: {star: {hosts: 8}}
workloads:
  - bcast: {schemes: [cepheus, {chain: {slices: 2}}], sizes: [1KiB, 64KiB], ranks: h0..h3}
  - allgather: {schemes: [ring], sizes: [1KiB]}
faults:
  - {loss: {rate: 0%}}
sweep:
`

// TestPoints: the points are all combinations, the last key first, and each is the lab that a file with those values is.
func TestPoints(t *testing.T) {
	_, points, err := Reader{}.ParsePoints("f", []byte(swept+`
  over:
    - {key: "faults[0].loss.rate", name: loss, values: [0%, 1%]}
    - {key: "workloads[0].bcast.ranks", values: [h0..h3, all, [h0, h2]]}
    - {key: "workloads[0].bcast.schemes[1]", name: second, values: [{chain: {slices: 8}}, "binomial"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range points {
		got = append(got, points[i].String())
	}
	want := []string{
		`loss=0%, workloads[0].bcast.ranks=h0..h3, second={chain: {slices: 8}}`, `loss=0%, workloads[0].bcast.ranks=h0..h3, second="binomial"`,
		`loss=0%, workloads[0].bcast.ranks=all, second={chain: {slices: 8}}`, `loss=0%, workloads[0].bcast.ranks=all, second="binomial"`,
		`loss=0%, workloads[0].bcast.ranks=[h0, h2], second={chain: {slices: 8}}`, `loss=0%, workloads[0].bcast.ranks=[h0, h2], second="binomial"`,
	}
	for _, w := range want {
		want = append(want, strings.Replace(w, "=0%", "=1%", 1))
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("points are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	by, _, _ := strings.Cut(swept, "sweep:")
	by = strings.NewReplacer("rate: 0%", "rate: 1%", "{chain: {slices: 2}}", "binomial", "h0..h3", "[h0, h2]").Replace(by)
	same, err := Parse("f", []byte(by))
	if last := points[len(points)-1].Lab; err != nil || !reflect.DeepEqual(last, same) {
		t.Errorf("the last point is\n%s\nwant\n%s\n%v", last.Compact(), by, err)
	}
}

// TestSweepWritten: a lab with a sweep is written as it was read.
func TestSweepWritten(t *testing.T) {
	l, err := Parse("f", []byte(swept+`
  over: [{key: "faults[0].loss.rate", name: loss, values: ["0%", 1%]}, {key: switches.pfc, values: [true, {quanta: 256}]}]
  repeats: 3
  measure: jct.p50
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{l.Resolved(), l.Compact()} {
		again, err := Parse("f", text)
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

// TestPointKeys: a key that the file leaves out has its defaults, and one in a mapping that is left out, too.
func TestPointKeys(t *testing.T) {
	for key, c := range map[string]struct {
		values string
		get    func(l *Lab) any
		want   []any
	}{
		"seed":                                 {"[3, 4]", func(l *Lab) any { return l.Seed }, []any{uint64(3), uint64(4)}},
		"topology.star.hosts":                  {"[4, 16]", func(l *Lab) any { return l.Topology.Star.Hosts }, []any{4, 16}},
		"topology":                             {"[{star: {hosts: 4}}, {fat-tree: {k: 4}}]", func(l *Lab) any { return l.Topology.FatTree != nil }, []any{false, true}},
		"links.delay":                          {"[0, 1us]", func(l *Lab) any { return l.Links.Delay.String() }, []any{"0s", "1us"}},
		"links.tiers.host-leaf.rate":           {"[25Gbps]", func(l *Lab) any { return l.Links.Tiers.HostLeaf.Rate.String() }, []any{"25Gbps"}},
		"nics.host-cost.post":                  {"[1us]", func(l *Lab) any { return l.NICs.HostCost.Post.String() }, []any{"1us"}},
		"switches.pfc":                         {"[true, {quanta: 256}]", func(l *Lab) any { return l.Switches.PFC.Quanta }, []any{65535, 256}},
		"switches.pfc.xoff":                    {"[100kB]", func(l *Lab) any { return l.Switches.PFC.XOFF.String() }, []any{"100kB"}},
		"workloads[0].bcast.sizes":             {"[[1KiB], [2KiB, 4KiB]]", func(l *Lab) any { return len(l.Workloads[0].Bcast.Sizes) }, []any{1, 2}},
		"workloads[0].bcast.sizes[1]":          {"[0B]", func(l *Lab) any { return l.Workloads[0].Bcast.Sizes[1].String() }, []any{"0B"}},
		"workloads[0].bcast.schemes[1].slices": {"[3]", func(l *Lab) any { return fmt.Sprint(l.Workloads[0].Bcast.Schemes[1].Slices) }, []any{"3"}},
	} {
		_, points, err := Reader{}.ParsePoints("f", []byte(swept+fmt.Sprintf("  over: [{key: %q, values: %s}]\n", key, c.values)))
		if err != nil || len(points) != len(c.want) {
			t.Errorf("%s: %d points, %v", key, len(points), err)
			continue
		}
		for i := range points {
			if got := c.get(points[i].Lab); !reflect.DeepEqual(got, c.want[i]) {
				t.Errorf("%v: got %v, want %v", &points[i], got, c.want[i])
			}
		}
	}
}

// TestSweepErrors: invalid sweeps, and their error messages. Values and lists are on line 9.
func TestSweepErrors(t *testing.T) {
	loss := func(values string) string { return `over: [{key: "faults[0].loss.rate", values: ` + values + `}]` }
	for text, want := range map[string]string{
		"{}":                                 "sweep varies nothing: give it keys with values (over), or repeats of 2 or more",
		"over: []":                           "sweep varies nothing",
		"repeats: 0":                         "sweep.repeats of 0 is not 1 to 1000",
		"{repeats: 2, limit: 0}":             "sweep.limit of 0 is not 1 to 100000",
		"repeats: 1001":                      "sweep.repeats of 1001 is not",
		"{repeats: 11, limit: 10}":           "sweep has more than 10 runs: take values or repeats out, or raise sweep.limit",
		"{repeats: 2, measure: jct.p51}":     `sweep.measure: nothing measures "jct.p51": workload bcast has no jct.p51: use `,
		"{repeats: 2, measure: time}":        `sweep.measure: nothing measures "time": workload bcast has no quantity "time"`,
		"{repeats: 2, measure: bytes.links}": "",
		loss("[]"):                           "sweep.over[0].values is empty: give faults[0].loss.rate at least one value",
		loss("1%"):                           "sweep.over[0].values must be a list: [..]",
		loss("[1%, ]"):                       "",
		loss("[null]"):                       "sweep.over[0].values[0] has no value",
		loss("[1%, 0.01]"):                   "sweep.over[0].values[1]: faults[0].loss.rate has this value twice",
		loss("[0%, 200%]"):                   `sweep, at faults[0].loss.rate=200%: loss.rate of 2 is not a probability`,
		loss("[0%, [1%]]"):                   "sweep, at faults[0].loss.rate=[1%]: faults[0].loss.rate must be a single value",
		"over: [{key: nics.mtu, values: [1024, 1000]}]":                                        `sweep, at nics.mtu=1000: nics.mtu cannot be "1000"`,
		"over: [{key: topology.star.hosts, values: [8, 1]}]":                                   "sweep, at topology.star.hosts=1: topology: star of 1 hosts",
		"over: [{key: nics.mtv, values: [1]}]":                                                 `sweep.over[0].key: nics.mtv: nics has no key "mtv", did you mean "mtu"?`,
		"over: [{key: nic, values: [1]}]":                                                      `sweep.over[0].key: nic: a lab file has no key "nic"`,
		"over: [{key: \"\", values: [1]}]":                                                     `sweep.over[0].key: : a lab file has no key ""`,
		"over: [{key: nics.mtu.x, values: [1]}]":                                               "sweep.over[0].key: nics.mtu.x: nics.mtu has no keys of its own",
		"over: [{key: workloads.bcast.sizes, values: [[1KiB]]}]":                               "sweep.over[0].key: workloads.bcast.sizes: workloads is a list: write workloads[0] for the first",
		"over: [{key: \"workloads[2].bcast.root\", values: [h0]}]":                             "sweep.over[0].key: workloads[2].bcast.root: workloads has 2 items, counted from 0",
		"over: [{key: \"workloads[-1].bcast.root\", values: [h0]}]":                            "sweep.over[0].key: workloads[-1].bcast.root: workloads has 2 items",
		"over: [{key: \"workloads[x].bcast.root\", values: [h0]}]":                             "sweep.over[0].key: workloads[x].bcast.root: [x] is no place in a list: write [0]",
		"over: [{key: \"workloads[0.bcast.root\", values: [h0]}]":                              "sweep.over[0].key: workloads[0.bcast.root: [0 is no place in a list",
		"over: [{key: \"nics[0].mtu\", values: [256]}]":                                        "sweep.over[0].key: nics[0].mtu: nics is not a list",
		"over: [{key: name, values: [y]}]":                                                     "sweep.over[0].key: a sweep cannot vary name, on which no result of a simulation depends",
		"over: [{key: sweep.repeats, values: [2]}]":                                            "sweep.over[0].key: a sweep cannot vary sweep",
		"over: [{key: seed, values: [1]}, {key: seed, values: [2]}]":                           "sweep.over[1].key: seed and seed are the same key, or one is in the other: give all values in one place",
		"over: [{key: nics, values: [{mtu: 256}]}, {key: nics.mtu, values: [256]}]":            "sweep.over[1].key: nics and nics.mtu are the same key",
		"over: [{key: seed, name: k, values: [1]}, {key: nics.mtu, name: k, values: [256]}]":   `sweep.over[1].name: two keys are called "k"`,
		"over: [{key: seed, name: mean, values: [1]}]":                                         "sweep.over[0].name: mean is a column of the results: use another name",
		"over: [{key: seed, name: \"a,b\", values: [1]}]":                                      `sweep.over[0].name: "a,b" cannot be a name`,
		"over: [{key: seed}]":                                                                  `sweep.over[0] needs "values"`,
		"over: [{values: [1]}]":                                                                `sweep.over[0] needs "key"`,
		"over: [{key: seed, values: [1], times: 3}]":                                           `unknown key "times"`,
		"over: [{key: seed, values: [1, 2, 3, -1]}]":                                           `sweep, at seed=-1: seed: "-1" is not a whole number from 0 on`,
		"over: [{key: \"workloads[0].bcast.schemes[1].label\", values: [cepheus]}]":            "sweep, at workloads[0].bcast.schemes[1].label=cepheus: ",
		"over: [{key: workloads, values: [[]]}, {key: \"faults[0].loss.rate\", values: [1%]}]": "",
		"over: [{key: faults, values: [[]]}, {key: nics.mtu, values: [256]}]":                  "",
	} {
		_, _, err := Reader{}.ParsePoints("f", []byte(swept+"  "+strings.Trim(text, "{}")+"\n"))
		if strings.HasPrefix(text, "{") {
			_, _, err = Reader{}.ParsePoints("f", []byte(strings.TrimSuffix(swept, "\n")+" "+text+"\n"))
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), ": "+want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
	// A mistake stands where its value does, once for all points that have it.
	_, err := Parse("f", []byte(swept+"  over:\n  - {key: seed, values: [1, 2, 3]}\n  - {key: nics.retries, values: [7, 8]}\n"))
	if want := "f:11:37: sweep, at seed=1, nics.retries=8: nics.retries of 8 is not 0 to 7"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	// Lines of expect are checked at each point.
	_, _, err = Reader{Expect: true}.ParsePoints("f", []byte(swept+"  over: [{key: \"workloads[0].bcast.sizes\", values: [[1KiB], [2KiB]]}]\nexpect: [bcast.cepheus.1KiB.jct.avg > 0]\n"))
	if want := "sweep, at workloads[0].bcast.sizes=[2KiB]: expect: bcast.cepheus.1KiB.jct.avg: workload bcast has no size 1KiB: use 2KiB"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
