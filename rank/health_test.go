// SPDX-License-Identifier: Apache-2.0

package rank_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// failing runs a job of three ranks of which rank 0 sends to rank 1 over a link that is down, and then waits,
// as the test says; part makes it send by a view. The others wait for rank 0, whose part never happens.
func failing(t *testing.T, part bool, waits func(r *rank.Rank, q *rank.Request) error) error {
	t.Helper()
	g, err := topo.Star(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: simlab.Plain(g)})
	if err != nil {
		t.Fatal(err)
	}
	n.NewTimeline(20*vtime.Microsecond).Add(0, simlab.LinkDown(1, vtime.Time(vtime.Microsecond)))
	p := simlab.Params()
	p.Timeout, p.RetryCnt = 1, 1
	return n.Run(sim.Job{Name: "fails", Hosts: []int{0, 1, 2}, Params: p, Program: simlab.FailedSend(part, waits)})
}

// TestFailureEndsBoard: every wait of a rank ends with the failure of a request, also one beside
// the fabric, one of a worker and one of a view; a view that survives waits on.
func TestFailureEndsBoard(t *testing.T) {
	const want = "rank 0, send to rank 1: transport retry counter exceeded"
	for name, waits := range map[string]func(r *rank.Rank, q *rank.Request) error{
		"get": func(r *rank.Rank, _ *rank.Request) error { r.Get("nothing"); return nil },
		"sync": func(r *rank.Rank, _ *rank.Request) error {
			if r.ID() == 0 {
				r.Sync()
			}
			r.Get("nothing")
			return nil
		},
		"until": func(r *rank.Rank, _ *rank.Request) error {
			r.Until("nothing", func() bool { return false })
			return nil
		},
		"look": func(r *rank.Rank, _ *rank.Request) error {
			r.Look(vtime.Never, "nothing", nil, func() bool { return false })
			return nil
		},
		"join": func(r *rank.Rank, _ *rank.Request) error {
			return r.Go("worker", func() error { r.Get("nothing"); return nil }).Join()
		},
		"part": func(r *rank.Rank, _ *rank.Request) error {
			sub, err := r.Sub("part", []int{0, 1, 2})
			if err != nil {
				return err
			}
			if r.ID() == 0 {
				sub.Sync()
			}
			r.Get("nothing")
			return nil
		},
	} {
		for _, part := range []bool{false, true} {
			if err := failing(t, part, waits); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s, by a view %v: %v, want %s", name, part, err, want)
			}
		}
	}
	survives := func(r *rank.Rank, q *rank.Request) error {
		r.Survive()
		if r.ID() == 0 {
			if err := r.Wait(q); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("the wait for the request itself returned %v", err)
			}
			r.Put("word", nil)
		}
		r.Get("word")
		return nil
	}
	if err := failing(t, false, survives); err != nil {
		t.Errorf("a program that survives: %v", err)
	}
	waitsOn := func(r *rank.Rank, _ *rank.Request) error {
		r.Survive()
		r.Get("nothing")
		return nil
	}
	if err := failing(t, false, waitsOn); !errors.Is(err, rankhost.ErrDeadlock) {
		t.Errorf("a program that survives, and waits for nothing: %v", err)
	}
}
