package search

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank"
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
		r := runLab(context.Background(), l, t.TempDir(), 1, 1)
		if got := errors.Is(r.err, rank.ErrDeadlock); got != c.deadlock {
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
	for at := range 20 {
		l, err := lab.Parse("beside", []byte(fmt.Sprintf("name: beside\ntopology: {star: {hosts: 2}}\nworkloads: [{bcast: {schemes: [chain], sizes: [4KiB], iterations: 1}}]\n"+
			"faults: [{rate-cut: {rate: 1Mbps}}, {pause: {node: [h1]}}, {at: %dns, restart: {nodes: [h0]}}]\n", at*400)))
		if err != nil {
			t.Fatal(err)
		}
		if r := runLab(context.Background(), l, t.TempDir(), 1, 1); r.judge(l) != nil {
			t.Errorf("at %d ns: %v", at*400, r.judge(l))
		}
	}
}
