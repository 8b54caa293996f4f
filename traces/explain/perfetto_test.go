// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"testing"
)

// traceEvent is an event of the Trace Event Format, whose rules for the phases used here are: M has a
// name that is one of a list and args; X has ts and dur, and those of a thread are nested or apart; i
// has ts and a scope; s and f have ts and an id, one of each, f with bp e, and lie within an X of their
// thread.
type traceEvent struct {
	Name, Cat, Ph, BP, S string
	TS, Dur              *float64
	PID, TID, ID         *int
	Args                 map[string]any
}

type track struct{ pid, tid int }

// end is one end of an arrow.
type end struct {
	track
	at float64
}

// TestPerfetto holds the export against the format's document.
func TestPerfetto(t *testing.T) {
	tr, _ := simulate(t, eventful(t))
	var b bytes.Buffer
	if err := tr.WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents     []traceEvent
		DisplayTimeUnit string
		OtherData       map[string]string
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if file.DisplayTimeUnit != "ns" && file.DisplayTimeUnit != "ms" {
		t.Errorf("displayTimeUnit %q", file.DisplayTimeUnit)
	}
	processes, threads := map[int]string{}, map[track]bool{}
	slicesOf := map[track][]traceEvent{}
	starts, ends := map[int]end{}, map[int]end{}
	for i, e := range file.TraceEvents {
		if e.PID == nil || e.TID == nil || e.Name == "" {
			t.Fatalf("event %d lacks pid, tid or name: %+v", i, e)
		}
		at := track{*e.PID, *e.TID}
		if e.Ph != "M" && (e.TS == nil || *e.TS < 0) {
			t.Fatalf("event %d has no time: %+v", i, e)
		}
		switch e.Ph {
		case "M":
			name, _ := e.Args["name"].(string)
			switch e.Name {
			case "process_name":
				processes[at.pid] = name
			case "thread_name":
				threads[at] = name != ""
			case "process_sort_index":
			default:
				t.Errorf("event %d: metadata %q", i, e.Name)
			}
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				t.Errorf("event %d has no duration: %+v", i, e)
			}
			slicesOf[at] = append(slicesOf[at], e)
		case "i":
			if e.S != "t" {
				t.Errorf("event %d: scope %q", i, e.S)
			}
		case "s", "f":
			m := starts
			if e.Ph == "f" {
				m = ends
				if e.BP != "e" {
					t.Errorf("event %d: bp %q", i, e.BP)
				}
			}
			if _, twice := m[*e.ID]; twice {
				t.Errorf("event %d: arrow %d twice", i, *e.ID)
			}
			m[*e.ID] = end{at, *e.TS}
		default:
			t.Errorf("event %d: phase %q", i, e.Ph)
		}
		if processes[at.pid] == "" || e.Ph != "M" && !threads[at] {
			t.Errorf("event %d is on a track without a name: %+v", i, e)
		}
	}
	checkTracks(t, slicesOf)
	if len(starts) == 0 || len(starts) != len(ends) {
		t.Errorf("%d arrows begin, %d end", len(starts), len(ends))
	}
	for id, s := range starts {
		f, ok := ends[id]
		if !ok || f.at < s.at || !within(slicesOf[s.track], s.at) || !within(slicesOf[f.track], f.at) {
			t.Errorf("arrow %d from %+v to %+v", id, s, f)
		}
	}
	for _, want := range []string{"h0", "leaf0", "spine0", "h3"} {
		if !slices.Contains([]string{processes[1], processes[2], processes[3], processes[4], processes[5], processes[6], processes[7]}, want) {
			t.Errorf("no process %s in %v", want, processes)
		}
	}
	cats := map[string]int{}
	for _, all := range slicesOf {
		for _, e := range all {
			cats[e.Cat]++
		}
	}
	for _, want := range []string{"message", "request", "data", "ack", "nak", "pause"} {
		if cats[want] == 0 {
			t.Errorf("no slice of %s: %v", want, cats)
		}
	}
}

// within reports whether an instant is in a slice.
func within(all []traceEvent, at float64) bool {
	return slices.ContainsFunc(all, func(e traceEvent) bool { return *e.TS <= at && at <= *e.TS+*e.Dur })
}

// checkTracks: slices of a thread do not overlap.
func checkTracks(t *testing.T, slicesOf map[track][]traceEvent) {
	t.Helper()
	const rounding = 1e-6 // a picosecond
	for at, all := range slicesOf {
		slices.SortFunc(all, func(a, b traceEvent) int { return cmp.Compare(*a.TS, *b.TS) })
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; *b.TS < *a.TS+*a.Dur-rounding {
				t.Errorf("%v: %s at %g to %g overlaps %s at %g", at, a.Name, *a.TS, *a.TS+*a.Dur, b.Name, *b.TS)
			}
		}
	}
}
