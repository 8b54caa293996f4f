// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/sim"
)

// TestParted: the first frame in time that differs is named, whichever link it crosses and however it
// differs.
func TestParted(t *testing.T) {
	g, err := topo.Star(2, topo.LinkParams{})
	if err != nil {
		t.Fatal(err)
	}
	us := func(n int) sim.Entry { return sim.Entry{At: 1_000_000, Digest: uint64(n)} }
	later := sim.Entry{At: 5_000_000, Digest: 9}
	for _, c := range []struct {
		run, simulation [][]sim.Entry
		want            string
	}{
		{[][]sim.Entry{nil, {us(1)}, nil, {later}}, [][]sim.Entry{nil, {us(1)}, nil, {later}}, ""},
		{[][]sim.Entry{nil, nil, nil, nil}, [][]sim.Entry{nil, nil, nil, nil}, ""},
		{
			[][]sim.Entry{nil, {us(1)}, nil, nil}, [][]sim.Entry{nil, {us(1), later}, nil, nil},
			"from h1:0 to leaf0:1, frame 1 does not arrive, and in the simulation it does at 5us",
		},
		{
			[][]sim.Entry{{later}, {us(1)}, nil, nil}, [][]sim.Entry{nil, {us(2)}, nil, nil},
			"from h1:0 to leaf0:1, frame 0, which arrives at 1us, has other bytes than in the simulation",
		},
		{[][]sim.Entry{{later}, nil, nil, nil}, [][]sim.Entry{nil, nil, nil, nil}, "from h0:0 to leaf0:0, frame 0 arrives at 5us, and there is none in the simulation"},
		{[][]sim.Entry{nil, nil, nil, {later}}, [][]sim.Entry{nil, nil, nil, {us(9)}}, "from leaf0:1 to h1:0, frame 0 arrives at 5us, and in the simulation at 1us"},
	} {
		if got := Parted(g, &Ledger{c.run, true}, &Ledger{c.simulation, true}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	long, short := &Ledger{Links: [][]sim.Entry{{us(1), later}, nil, nil, nil}}, &Ledger{Links: [][]sim.Entry{{us(1)}, nil, nil, nil}}
	for _, cut := range []bool{true, false} {
		short.Whole, long.Whole = !cut, true
		for _, pair := range [][2]*Ledger{{long, short}, {short, long}} {
			if got := Parted(g, pair[0], pair[1]); (got == "") != cut {
				t.Errorf("one lacks its end: %v: %q", cut, got)
			}
		}
	}
}
