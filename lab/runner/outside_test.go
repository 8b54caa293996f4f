// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
)

// TestAside: an interrupt ends a simulation whose program blocks outside package rank, and the
// error names the rank. One that does not block is not named.
func TestAside(t *testing.T) {
	l, err := lab.Parse("aside.mcl.yml", []byte("name: aside\ntopology: {star: {hosts: 3}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := newFaultRun(t, l, false).net
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	block, left, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		over <- aside(ctx, n, nil, func() error {
			defer close(ended)
			return n.Run(sim.Job{Name: "blocks", Hosts: []int{0, 1, 2}, Params: labspec.RankParams(l), Program: func(r *rank.Rank) error {
				if r.Sync(); r.ID() == 1 {
					close(left)
					<-block
				}
				return nil
			}})
		})
	}()
	<-left
	interrupt()
	select {
	case err := <-over:
		if outside := (OutsideError{}); !errors.As(err, &outside) || outside.Task != "rank 1 (h1)" || !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the interrupt does not end it")
	}
	close(block)
	<-ended
	want := errors.New("its own error")
	if err := aside(ctx, n, nil, func() error { return want }); !errors.Is(err, want) && (!errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "package rank")) {
		t.Errorf("a run that comes to its end: %v", err)
	}
}
