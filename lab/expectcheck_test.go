// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

// TestExpectAgainstLab: a line of expect about a quantity that no run of the lab measures is refused,
// if that check is asked for, with its place and the measured quantities.
func TestExpectAgainstLab(t *testing.T) {
	const head = "name: x\ntopology: {star: {hosts: 4}}\nworkloads:\n" +
		"  - bcast: {schemes: [cepheus, {chain: {slices: 4}}, {name: chain, label: long}], sizes: [1KiB, 1MiB]}\n" +
		"  - hpl: {n: [64], grids: [2x2], bcast: [1ring]}\n" +
		"  - storage: {schemes: [unicasts], bs: [4KiB]}\n" +
		"  - allgather: {label: one, schemes: [ring], sizes: [4KiB]}\n" +
		"  - program: {name: mine}\n"
	read := func(r Reader, line string) error {
		_, err := r.Parse("f", []byte(head+"expect:\n  - \""+line+"\"\n"))
		return err
	}
	for line, want := range map[string]string{ // independent of each other
		"bcast.cepheus.1KiB.jct.p50 < bcast.chain.1MiB.source.max / 2": "",
		"bcast.long.1024B.jct.p99 > 0":                                 "",
		"one.ring.4KiB.bytes.links > 0":                                "",
		"storage.unicasts.4KiB.io.iops > 0":                            "",
		"mine.anything.3B.jct.avg < 1":                                 "",
		"1 < 2":                                                        "",
		"bcat.cepheus.1KiB.jct.p50 < 1":                                `expect: bcat.cepheus.1KiB.jct.p50: there is no workload "bcat", did you mean "bcast"?`,
		"1 > bcast.cephous.1KiB.jct.p50":                               `expect: bcast.cephous.1KiB.jct.p50: workload bcast has no scheme "cephous", did you mean "cepheus"?`,
		"bcast.cepheus.2KiB.jct.p50 < bcast.chain.1KiB.jct.p50":        `expect: bcast.cepheus.2KiB.jct.p50: workload bcast has no size 2KiB: use 1KiB or 1MiB`,
		"bcast.cepheus.1KB2.jct.p50 < 1":                               `workload bcast has no size "1KB2"`,
		"bcast.chain.1KiB.jct.p50 < bcast.cepheus.1MiB.jtc.p50":        `workload bcast has no quantity "jtc": use bytes, fallback, jct, phase, recovery or source`,
		"bcast.cepheus.1KiB.jct.p55 < 1":                               `workload bcast has no jct.p55: use avg, min, max, p50 or p99`,
		"bcast.cepheus.1KiB.bytes.links < 1":                           `workload bcast has bytes only if it has one scheme and one size`,
		"one.ring.4KiB.sum.swap < 1":                                   `workload one has no quantity "sum": use bytes, fallback, jct, phase, recovery or source`,
		"storage.unicasts.4KiB.io.lost == 0 * one.ring.4KiB.jct.p50":   `workload storage has no io.lost: use iops, replicas or copied`,
	} {
		err := read(Reader{Expect: true}, line)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", line, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), "f:10:5: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%s:\n got %v\nwant %s", line, err, want)
		}
		if err := read(Reader{}, line); err != nil {
			t.Errorf("%s: refused unasked: %v", line, err)
		}
	}
}
