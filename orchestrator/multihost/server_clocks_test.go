// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestApart: what is known of a server's clock is from the quickest answer, until one contradicts it.
func TestApart(t *testing.T) {
	known := clockOffset{}
	for _, x := range []struct{ heard, want clockOffset }{
		{clockOffset{ahead: 1000, trip: 400}, clockOffset{ahead: 1000, trip: 400}},
		{clockOffset{ahead: 1100, trip: 200}, clockOffset{ahead: 1100, trip: 200}},
		{clockOffset{ahead: 1000, trip: 400}, clockOffset{ahead: 1100, trip: 200}},
		{clockOffset{ahead: 1401, trip: 400}, clockOffset{ahead: 1401, trip: 400, moved: 301}},
		{clockOffset{ahead: 1000, trip: 300}, clockOffset{ahead: 1000, trip: 300, moved: 401}},
		{clockOffset{ahead: 1001, trip: 500}, clockOffset{ahead: 1000, trip: 300}},
	} {
		if known = known.better(x.heard); known != x.want {
			t.Errorf("after %+v it knows %+v, want %+v", x.heard, known, x.want)
		}
	}
}

// TestClockOfShare: a clock that is asked over a connection is known to within the time that the answer took.
func TestClockOfShare(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		if _, err := shareapi.Accept(far); err == nil {
			_ = (&worker{}).clock(far)
		}
	}()
	if err := shareapi.Begin(near, &shareapi.Open{Stream: shareapi.Stream_STREAM_CLOCK}); err != nil {
		t.Fatal(err)
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	if a, err := askClock(near, mono); err != nil || a.ahead > a.trip || -a.ahead > a.trip {
		t.Errorf("a clock that is this one: %+v, %v", a, err)
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	near, far = net.Pipe()
	go func() {
		var b [8]byte
		for {
			if _, err := io.ReadFull(far, b[:1]); err != nil {
				return
			}
			_, _ = far.Write(binary.BigEndian.AppendUint64(nil, uint64(mono.Now()-7e12)))
		}
	}()
	if a, err := askClock(near, mono); err != nil || a.ahead+7e12 > a.trip || -a.ahead-7e12 > a.trip {
		t.Errorf("a clock that is two hours behind: %+v, %v", a, err)
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
}

// TestAhead: the clock of a node is that of its server.
func TestAhead(t *testing.T) {
	g, err := topo.Star(3, topo.LinkParams{})
	if err != nil {
		t.Fatal(err)
	}
	d := &orchestrator.Deployed{Graph: g}
	d.Access = &serverNodes{
		d: d, placement: &engine.Placement{Servers: []engine.Server{{Cores: 1}, {Cores: 3}}, At: []int{0, 1, 1, 0}},
		clocks: serverClocks{all: []clockOffset{{ahead: 10, trip: 4}, {ahead: -500, trip: 6, moved: 3}}},
	}
	for node, want := range map[string]int64{"h0": 10, "h1": -500, "h2": -500} {
		if got := d.Access.Ahead(node); got != want {
			t.Errorf("the clock of %s is %d ns ahead, want %d", node, got, want)
		}
	}
	if got := d.Access.ClockUncertainty(); got != 4+6+3 {
		t.Errorf("servers are %d ns apart", got)
	}
	if got := d.Access.CPUTimeMost([]float64{1, 1}, []float64{3, 4}); got != 2*4 { // the first took 2 s of one core, the second 1 s of each
		t.Errorf("the busiest server stands for %v s", got)
	}
}
