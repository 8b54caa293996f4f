// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
)

// TestVerdict: a call is put off only when nothing could come of it.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		what string
		due  Due
		held Census
		want Verdict
	}{
		{"nothing is left", Due{}, Census{}, PutOff},
		{"it must be made", Due{Keep: faults.KeepAlways, Always: 1}, Census{}, Make},
		{"a program runs", Due{}, Census{Awake: true, Waiting: 1}, Make},
		{"all have ended, and a frame is left", Due{}, Census{Live: 1, Flying: 1}, Make},
		{"all have ended, and only a pause is left", Due{}, Census{Live: 1, Flying: 1, Pauses: 1, FlyingPauses: 1}, PutOff},
		{"all have ended but for a registration", Due{}, Census{Registering: true, Timed: true}, Make},
		{"all have ended but for a work request", Due{}, Census{Open: true, Timed: true}, Make},
		{"a program waits and nothing is to come", Due{}, Census{Waiting: 1, Open: true, Live: 1}, PutOff},
		{"a program waits and a fault ends", Due{Ends: 1}, Census{Waiting: 1, Open: true, Live: 1}, Make},
		{"a program waits and a fault must begin", Due{Always: 1}, Census{Waiting: 1, Open: true, Live: 1}, Make},
		{"a program waits for a timer", Due{}, Census{Waiting: 1, Open: true, Timed: true}, Make},
		{"a program waits for a frame that nobody acknowledges", Due{}, Census{Waiting: 1, Live: 1, Timed: true}, Make},
		{"a program waits and only pauses come", Due{Ends: 1}, Census{Waiting: 1, Live: 1, Flying: 1, Pauses: 1, FlyingPauses: 1, Timed: true}, PutOff},
	} {
		var d Decider
		got := Make
		if !d.Busy(c.due, &c.held) {
			got = d.Decide(c.due, &c.held)
		}
		if got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.what, got, c.want)
		}
	}
	var d Decider
	if moved := (&Census{Waiting: 1, Moves: 3}); !d.Busy(Due{}, moved) || d.Busy(Due{}, moved) {
		t.Error("a movement counts not once")
	}
}

// TestHalt: a run is halted when a thousand faults have begun without any movement, later than a
// pause can last; and not while anything could still move.
func TestHalt(t *testing.T) {
	const every = vtime.Microsecond
	stuck := Census{Waiting: 1, Open: true, Live: 3, Pauses: 1, Timed: true, PauseMax: 50 * every, PauseLate: 20 * every}
	for _, c := range []struct {
		what   string
		change func(i int, due *Due, held *Census)
		at     int // number of the call with which the run is halted; 0: none
	}{
		{"stands", func(int, *Due, *Census) {}, lullBegins + 1},
		{"is full of frames", func(i int, _ *Due, held *Census) { held.Hops = uint64(i) * lullHops / 100 }, 101},
		{"waits for a pause", func(i int, _ *Due, held *Census) { held.PauseMax = 3000 * every }, 3022},
		{"waits for a late pause", func(i int, _ *Due, held *Census) { held.PauseLate = 3000 * every }, 3052},
		{"waits for a fault's end", func(_ int, due *Due, _ *Census) { due.LastEnd = vtime.Time(2000 * every) }, 2071},
		{"moves", func(i int, _ *Due, held *Census) { held.Moves = uint64(i / 1000) }, 0},
		{"loses frames", func(i int, _ *Due, held *Census) { held.Live = 3 + i/1000 }, 0},
		{"has a frame under way", func(_ int, _ *Due, held *Census) { held.Flying = 1 }, 0},
		{"has a pause under way", func(_ int, _ *Due, held *Census) { held.Flying, held.FlyingPauses = 1, 1 }, lullBegins + 1},
		{"may send", func(_ int, _ *Due, held *Census) { held.Movable = true }, 0},
		{"registers", func(_ int, _ *Due, held *Census) { held.Registering = true }, 0},
		{"has a NIC that is stalled now and then", func(_ int, due *Due, held *Census) { held.Stalled = due.At - 1 }, 0},
		{"has a NIC that is stalled for good", func(_ int, _ *Due, held *Census) { held.Stalled = 1 }, lullBegins + 1},
		{"sees faults end", func(_ int, due *Due, _ *Census) { due.Keep, due.Ends = faults.KeepWhile, 1 }, 0},
	} {
		var d Decider
		got := 0
		for i := 1; i <= 5000 && got == 0; i++ {
			due, held := Due{At: vtime.Time(i) * vtime.Time(every)}, stuck
			c.change(i, &due, &held)
			if !d.Busy(due, &held) && d.Decide(due, &held) == Halt {
				got = i
			}
		}
		if got != c.at {
			t.Errorf("a lab that %s is halted with call %d, want %d", c.what, got, c.at)
		}
	}
}

// TestCensusAdd: the census of a lab is the sum of those of its parts.
func TestCensusAdd(t *testing.T) {
	a := Census{Awake: true, Waiting: 1, Open: true, Live: 5, Flying: -2, Pauses: 1, FlyingPauses: 1, Moves: 7, Hops: 9, Stalled: 3, PauseMax: 4, PauseLate: 6}
	b := Census{Waiting: 2, Registering: true, Timed: true, Movable: true, Live: -1, Flying: 4, Pauses: 1, FlyingPauses: -1, Moves: 1, Hops: 2, Stalled: 2, PauseMax: 8, PauseLate: 1}
	want := Census{Awake: true, Waiting: 3, Registering: true, Open: true, Timed: true, Movable: true, Live: 4, Flying: 2, Pauses: 2, Moves: 8, Hops: 11, Stalled: 3, PauseMax: 8, PauseLate: 6}
	if a.Add(&b); a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
}
