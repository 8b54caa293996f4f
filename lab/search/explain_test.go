// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// TestExplained: a deadlock is explained by a NIC that is stalled for ever, or by a lost frame
// where timers are off, and by no other fault.
func TestExplained(t *testing.T) {
	read := func(fault, nics string) *lab.Lab {
		l, err := lab.Parse("dead", []byte("name: dead\ntopology: {star: {hosts: 3}}\nnics: "+nics+
			"\nworkloads: [{bcast: {schemes: [chain], sizes: [64KiB], iterations: 1}}]\nfaults: [{"+fault+"}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, c := range []struct {
		fault, nics string
		deadlock    bool
	}{
		{"nic-stall: {nodes: [h0]}", "{}", true},
		{"nic-stall: {nodes: ['h*']}", "{}", true},
		{"loss: {rate: 1}", "{timeout: infinite}", true},
		{"loss: {rate: 1}", "{}", false},
		{"for: 3ms, nic-stall: {nodes: ['h*']}", "{}", false},
		{"crash: {nodes: [leaf0]}", "{}", false},
	} {
		l := read(c.fault, c.nics)
		r := runLab(context.Background(), l, t.TempDir(), 1, 1, true)
		if got := errors.Is(r.err, rankhost.ErrDeadlock); got != c.deadlock {
			t.Errorf("%s: ended with %v", c.fault, r.err)
		}
		if v := r.judge(l); v != nil {
			t.Errorf("%s: %v", c.fault, v)
		}
		for _, other := range []string{"at: 1s, loss: {rate: 1}", "for: 1ms, nic-stall: {nodes: ['h*']}"} {
			if v := r.judge(read(other, "{}")); (v != nil) != c.deadlock {
				t.Errorf("%s instead of %s, ended with %v: %v", other, c.fault, r.err, v)
			}
		}
	}
}

// TestStillInForce: a pause that is in force when all is over, and ends later than keys can
// say, is no residue of the run.
func TestStillInForce(t *testing.T) {
	for _, rate := range []string{"1Mbps", "1Gbps"} {
		l, err := lab.Parse("pause", []byte("name: pause\nseed: 2000254\n"+
			"topology: {three-layer: {radix: 4, pods: 1, leaves: 1, hosts: 2, aggs: 1, cores: 2, core-groups: 1}}\n"+
			"workloads: [{hpl: {n: [17], nb: [1], grids: [\"1x2\"], bcast: [longM], pfact: [right], rfact: [crout]}}]\n"+
			"faults: [{rate-cut: {rate: "+rate+"}}, {pause: {node: [h1]}}, {restart: {nodes: [h0]}}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if r := runLab(context.Background(), l, t.TempDir(), 1, 1, true); r.judge(l) != nil {
			t.Errorf("%s: %v", rate, r.judge(l))
		}
	}
}

// TestFewWrites: no drawn lab has more WRITEs than a run may take.
func TestFewWrites(t *testing.T) {
	for _, seed := range []uint64{2000466, 2000651, 2000770} { // drew 43,000 blocks and more
		l, _, err := drawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		if err := settleWrites(l); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
