// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"encoding/json"
	"testing"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/traces"
)

// batches takes the batches that a node sends.
type batches struct {
	grpc.ServerStream
	all []*nodeapi.EventBatch
}

// Send implements nodeapi.Node_WatchServer.
func (b *batches) Send(m *nodeapi.EventBatch) error {
	b.all = append(b.all, m)
	return nil
}

// Context implements grpc.ServerStream.
func (b *batches) Context() context.Context { return context.Background() }

// TestTraceLines: a node's records are sent in batches that gRPC takes; those beyond the limit are
// counted. Without a trace none are sent.
func TestTraceLines(t *testing.T) {
	const requests = linesBatch + 10
	now := func() vtime.Time { return 7 }
	stopped := make(chan struct{})
	close(stopped)
	for _, traced := range []bool{false, true} {
		var e events
		var told machine.Tracer = &e
		var pool wire.Pool
		if traced {
			r := e.record("h0")
			told = r
			env := wire.NewEnvelope(wire.Flow{Src: 10<<24 | 1, Dst: 10<<24 | 2, TTL: 9, DstPort: wire.PortRoCEv2})
			f := pool.Get()
			f.Start(&env, wire.BTH{OpCode: wire.OpSendOnly, PSN: 5})
			f.SetPhantom(64)
			f.Seal(0, true)
			r.Sent(0, 100, 10, 200, f)
			r.Lost(300, 0, f)
			pool.Put(f)
			for range requests {
				r.TraceRequest(1, machine.Request{Kind: machine.RequestPosted, Op: "SEND", QP: 17})
			}
		}
		told.Trace(2, machine.Event{Kind: machine.EventTimeout, QP: 17, PSN: 3})
		var out batches
		if err := e.stream(&out, now, stopped); err != nil {
			t.Fatal(err)
		}
		kinds, count := map[string]int{}, 0
		for _, b := range out.all {
			if len(b.Trace) > linesBatch || b.Until != 7 {
				t.Errorf("%d lines in a batch until %d", len(b.Trace), b.Until)
			}
			count += len(b.Events)
			for _, line := range b.Trace {
				var l traces.Line
				if err := json.Unmarshal(line, &l); err != nil || l.Node != "h0" {
					t.Fatalf("%s: %v", line, err)
				}
				kinds[l.Kind]++
			}
		}
		want := map[string]int{}
		if traced {
			want = map[string]int{traces.LineSent: 1, traces.LineLost: 1, traces.LinePosted: requests, traces.LineEvent: 1}
		}
		if count != 1 || len(kinds) != len(want) {
			t.Errorf("traced %v: %d events, lines %v", traced, count, kinds)
		}
		for k, n := range want {
			if kinds[k] != n {
				t.Errorf("%d lines of kind %s, want %d", kinds[k], k, n)
			}
		}
	}
	var e events
	e.record("h0")
	for range eventsHeld + 3 {
		e.line(&traces.Line{Kind: traces.LineSent})
	}
	if e.short != 3 || len(e.lines) != eventsHeld {
		t.Errorf("%d lines are held, %d counted", len(e.lines), e.short)
	}
}

// TestEventsCut: events that wait to be sent have a bound; events beyond it are counted, and every
// batch has the count from then on.
func TestEventsCut(t *testing.T) {
	stopped := make(chan struct{})
	close(stopped)
	var e events
	for range eventsHeld + 3 {
		e.Trace(2, machine.Event{Kind: machine.EventTimeout})
	}
	var out batches
	if err := e.stream(&out, func() vtime.Time { return 7 }, stopped); err != nil {
		t.Fatal(err)
	}
	if len(out.all) == 0 || len(out.all[0].Events) != eventsHeld {
		t.Fatalf("%d batches, which do not begin with all events", len(out.all))
	}
	for _, b := range out.all {
		if b.Cut != 3 {
			t.Errorf("a batch says that %d events are missing, want 3", b.Cut)
		}
	}
}
