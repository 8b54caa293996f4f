// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/lab"
)

// TestWideLabs: random labs that give every other key of links, switches and NICs keep all promises: a third of three hundred seeds each day.
func TestWideLabs(t *testing.T) {
	from, n := sweeps.Range(t, 300)
	if testing.Short() {
		from, n = 0, 10
	}
	res, err := Labs(context.Background(), Options{From: wideFrom + from, Seeds: n})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range res.Findings {
		t.Errorf("seed %d: %s: %s\nreplay: mcastlab fuzz --labs 1 --from %d\n%s", f.Seed, f.Class, f.Text, f.Seed, f.Lab.Compact())
	}
	t.Logf("seeds from %d on: %d labs, %d with faults, %d ended with an error, %d long, %d packet-hops", wideFrom+from, res.Labs, res.Faulty, res.Ended, res.Long, res.Hops)
	if res.Ended > res.Labs*3/4 {
		t.Errorf("%d of %d labs ended with an error: such labs show little", res.Ended, res.Labs)
	}
}

// TestWideKeys: every key of links, switches and NICs is drawn for labs with switches, and for two hosts back to back: none is left out on purpose. What a
// lab refuses of it goes.
func TestWideKeys(t *testing.T) {
	all := map[string]bool{}
	keysOf("", reflect.TypeFor[lab.Lab](), all)
	want := map[bool]map[string]bool{false: {}, true: {}} // by whether there are switches
	for path := range all {                               // a set
		if strings.HasPrefix(path, ".links.") || strings.HasPrefix(path, ".switches.") || strings.HasPrefix(path, ".nics.") {
			want[true][path], want[false][path] = true, true
		}
	}
	if len(want[true]) < 60 {
		t.Fatalf("%d keys: the test does not find them", len(want[true]))
	}
	labs := map[bool]int{}
	root := prng.New(2)
	for seed := uint64(wideFrom); seed < wideFrom+4000 && len(want[true])+len(want[false]) > 0; seed++ {
		d := &labDraw{r: root.Derive(strconv.FormatUint(seed, 10))}
		s, err := d.lab(seed)
		if err != nil {
			continue
		}
		has := d.g.Switches() > 0
		labs[has]++
		s.strike("", want[has])
	}
	t.Logf("%d labs with switches, %d without", labs[true], labs[false])
	for has, left := range want { // independent of each other
		for path := range left { // so are these
			t.Errorf("no lab with switches %v has %s", has, path)
		}
	}
}

// TestWideCredits: two hosts back to back take all packets of each other, with credits too, which no host returns there.
func TestWideCredits(t *testing.T) {
	for _, workload := range []string{
		"bcast: {schemes: [unicast, chain], sizes: [64B, 1MiB], iterations: 2}",
		"allgather: {schemes: [ring], sizes: [64KiB], iterations: 1}",
		"alltoall: {schemes: [linear], sizes: [64KiB], iterations: 1}",
		"reduce-scatter: {schemes: [ring], sizes: [64KiB], numbers: float32, iterations: 1}",
	} {
		l, err := lab.Parse("credits", []byte("name: credits\ntopology: {custom: {preset: back-to-back}}\nswitches: {queues: input, flow-control: credits}\nworkloads: [{"+workload+"}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := TryLab(t.Context(), l, t.TempDir())
		if err != nil || out.Violation != nil || out.Ended != "" || out.Hops == 0 {
			t.Errorf("%s: %+v %v, %q after %d packet-hops", workload, out.Violation, err, out.Ended, out.Hops)
		}
	}
}
