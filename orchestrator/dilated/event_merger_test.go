// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/traces"
)

// Times of the merge's test: a batch goes out every hundred units.
const (
	every   = 100
	batches = 50
)

// sending returns the events of a node of the test, each late by up to lateMost when it is put into
// a batch.
func sending(r *rand.Rand, lateMost int64) (out []*nodeapi.EventBatch) {
	type traced struct{ dialerOf, when int64 }
	var all []traced
	for range r.IntN(300) {
		at := r.Int64N(every * batches)
		all = append(all, traced{at, at + r.Int64N(lateMost)})
	}
	slices.SortFunc(all, func(a, b traced) int { return int(a.when - b.when) })
	for i := range int64(batches + 2) {
		b := &nodeapi.EventBatch{Until: (i + 1) * every}
		for len(all) > 0 && all[0].when < b.Until {
			b.Events = append(b.Events, &nodeapi.Event{Lab: all[0].dialerOf, Kind: uint32(machine.EventTimeout)})
			all = all[1:]
		}
		out = append(out, b, &nodeapi.EventBatch{Until: b.Until, Trace: [][]byte{{'x'}}}) // lines come with the same clock
	}
	return out
}

// TestMerge: batches of many nodes in any order, with events that their nodes were late with,
// come out in the order of lab time, all of them; those that are later than the time between
// two batches come out, too, and are counted.
func TestMerge(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		late := int64(every)
		if seed%3 == 0 {
			late = 3 * every
		}
		m := newEventMerger(2 + r.IntN(6))
		queues, events := make([][]*nodeapi.EventBatch, len(m.nodes)), 0
		for i := range queues {
			queues[i] = sending(r, late)
			for _, b := range queues[i] {
				events += len(b.Events)
			}
		}
		var got []int64
		write := func(_ string, e *nodeapi.Event) { got = append(got, e.Lab) }
		early := 0
		for left := len(queues); left > 0; {
			i := r.IntN(len(queues))
			if queues[i] == nil {
				continue
			}
			m.take(i, queues[i][0])
			m.flush(write)
			if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
				queues[i], left = nil, left-1
				if left == len(queues)-1 {
					early = len(got)
				}
				m.end(i)
			}
		}
		m.flush(write)
		if len(got) != events {
			t.Errorf("seed %d: %d events of %d came out", seed, len(got), events)
		}
		disorder, last := uint64(0), int64(0)
		for _, at := range got {
			if at < last {
				disorder++
			}
			last = max(last, at)
		}
		if disorder != m.late || late == every && disorder > 0 {
			t.Errorf("seed %d: %d events out of order, %d counted", seed, disorder, m.late)
		}
		if events > 500 && early == 0 {
			t.Errorf("seed %d: nothing came out while the nodes went on", seed)
		}
	}
}

// TestMissingEvents: events that nodes dropped since the run follows them are reported; those
// dropped before belong to another run.
func TestMissingEvents(t *testing.T) {
	var text, lines bytes.Buffer
	out, trace := traces.NewEvents(&text), traces.NewLines(&lines)
	w := &eventStreams{out: out, trace: trace, merge: newEventMerger(2), stop: func() {}}
	w.merge.nodes[0].name, w.merge.nodes[1].name = "h0", "leaf0"
	for i, cuts := range [][]uint64{{7, 7, 19}, {3, 3}} {
		for k, cut := range cuts {
			w.merge.take(i, &nodeapi.EventBatch{Until: int64(k) * every, Cut: cut, TraceCut: 2 * cut, Events: []*nodeapi.Event{{Lab: int64(k), Kind: uint32(machine.EventTimeout)}}})
		}
	}
	missing, late := w.end()
	if missing != 12 || late != 0 {
		t.Errorf("%d events are missing and %d late, want 12 and 0", missing, late)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(text.String()) {
		var e struct {
			Event string
			Data  struct {
				Node   string
				Events int
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event == "missing" {
			told = append(told, e.Data.Node)
			if e.Data.Events != 12 {
				t.Errorf("%s", line)
			}
		}
	}
	if len(told) != 1 || told[0] != "h0" {
		t.Errorf("events of %v are missing in\n%s", told, text.String())
	}
	trace.Flush()
	if !strings.Contains(lines.String(), `"h0"`) || !strings.Contains(lines.String(), "24") {
		t.Errorf("the trace does not say that 24 lines of h0 are missing:\n%s", lines.String())
	}
	if w.merge.last != vtime.Time(2) {
		t.Errorf("the last event was at %v", w.merge.last)
	}
}
