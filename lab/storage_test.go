// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/core/vtime"
)

const storageLab = "name: a\ntopology: {star: {hosts: 4}}\nworkloads:\n  - storage: {%s}\n"

func TestStorageMistakes(t *testing.T) {
	const good = "schemes: [unicasts, 1-unicast], bs: [8KiB]"
	for _, c := range []struct{ keys, want string }{
		{good, ""},
		{good + ", durability: fsync, disk: 1MiB, crash: {host: h2, after: 1ms}, rw: randwrite, numjobs: 2, iodepth: 8, client: h3", ""},
		{strings.Replace(good, "unicasts", "unicast", 1), `x:4:25: no storage scheme "unicast", did you mean "unicasts"?`},
		{strings.Replace(good, "unicasts", "raid", 1), `x:4:25: no storage scheme "raid": use 1-unicast, unicasts, multicast-per-request`},
		{strings.Replace(good, "1-unicast", "unicasts", 1), "scheme unicasts appears twice"},
		{strings.Replace(good, "8KiB", "0B", 1), "a bs of 0B: a block has at least one byte"},
		{strings.Replace(good, "8KiB", "8KiB, 8KiB", 1), "bs 8KiB appears twice"},
		{good + ", size: 4KiB", "a bs of 8KiB does not fit a size of 4KiB"},
		{"schemes: [unicasts]", `workloads[0].storage needs "bs": sizes of a block`},
		{"schemes: [], bs: [1KiB]", "x:4:14: workloads[0].storage: at least one scheme and one bs are needed"},
		{good + ", iodepth: 0", "iodepth 0 and numjobs 1: both are at least 1"},
		{good + ", numjobs: 2000", "together at most 1024 IOs"},
		{good + ", number-ios: -1", "-1 IOs in each of 1 jobs"},
		{good + ", durability: disk", `workloads[0].storage.durability cannot be "disk": use memory or fsync`},
		{good + ", durability: fsnc", `workloads[0].storage.durability cannot be "fsnc", did you mean "fsync"? Use memory or fsync`},
		{good + ", on-failure: retry", `workloads[0].storage.on-failure cannot be "retry"`},
		{good + ", rw: read", `workloads[0].storage.rw cannot be "read"`},
		{good + ", client: h9", `there is no host "h9": there are h0 to h3`},
		{good + ", ranks: [h0, h1], client: h2", "h2 is not among the ranks"},
		{good + ", ranks: h1", "a group of 1: a client with its replicas needs at least two ranks"},
		{good + ", crash: {host: h0}", "h0 is the client: name a replica"},
		{good + ", crash: {after: 1us}", `workloads[0].storage.crash needs "host": replica`},
		{good + ", iodpth: 3", `unknown key "iodpth", did you mean "iodepth"?`},
		{good + ", size: 1TiB, number-ios: 5", "have more than 262144 blocks"},
	} {
		l, err := Parse("x", fmt.Appendf(nil, storageLab, c.keys))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		case err == nil:
			again, err := Parse("y", l.Resolved())
			if err != nil || !bytes.Equal(again.Resolved(), l.Resolved()) || !reflect.DeepEqual(again.Workloads, l.Workloads) {
				t.Errorf("resolved, it is another lab: %v\n%s", err, l.Resolved())
			}
		}
	}
}

// TestStorageProgram: the program gets the parameters of the file.
func TestStorageProgram(t *testing.T) {
	l, err := Parse("x", fmt.Appendf(nil, storageLab,
		"schemes: [unicasts], bs: [4KiB, 8KiB], client: h2, durability: fsync, commit: 5us, copy: 2us, crash: {host: h3, after: 1ms}, disk: 1MiB, size: 64KiB"))
	if err != nil {
		t.Fatal(err)
	}
	p := input[storage.Params](t, l, 0)
	if p.Client != 2 || p.Crash == nil || p.Crash.Rank != 3 || p.Crash.After != vtime.Millisecond || p.Commit != 5*vtime.Microsecond || p.Copy != 2*vtime.Microsecond ||
		p.Disk != 1<<20 || p.IOs != 8 || p.Depth != 1 || p.Jobs != 1 || !slices.Equal(p.Sizes, []int{4096, 8192}) {
		t.Errorf("%+v", p)
	}
}
