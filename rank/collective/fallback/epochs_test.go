// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"errors"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestWanted: a group is wanted of all, or of all but stragglers that are still slow, unless it is the
// one in use, this rank is not to be in it, or no other rank is.
func TestWanted(t *testing.T) {
	fast := func(i int) bool { return i == 3 }
	for _, c := range []struct {
		what    string
		alive   []int
		apart   []int
		current []int
		partial bool
		want    []int
	}{
		{"none is in use", []int{0, 1, 2, 3}, nil, nil, false, []int{0, 1, 2, 3}},
		{"all are in the one in use", []int{0, 1, 2, 3}, nil, []int{0, 1, 2, 3}, false, nil},
		{"one was lost", []int{0, 1, 3}, nil, []int{0, 1, 2, 3}, false, []int{0, 1, 3}},
		{"a slow one is apart", []int{0, 1, 2, 3}, []int{2}, nil, true, []int{0, 1, 3}},
		{"a fast one is apart", []int{0, 1, 2, 3}, []int{2, 3}, []int{0, 1}, true, []int{0, 1, 3}},
		{"the slow one is not in the one in use", []int{0, 1, 2, 3}, []int{2}, []int{0, 1, 3}, true, nil},
		{"this rank is apart", []int{0, 1, 2}, []int{1}, nil, true, nil},
		{"all others are apart", []int{1, 2}, []int{2}, nil, true, nil},
		{"nobody else is alive", []int{1}, nil, nil, false, nil},
	} {
		m := newMembership(1, 4)
		m.alive, m.apart = c.alive, c.apart
		e := epochs{}
		if c.current != nil {
			e.current = &epoch{members: c.current}
		}
		if got := e.wanted(&m, c.partial, fast); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are wanted, want %v", c.what, got, c.want)
		}
		if !slices.Equal(m.alive, c.alive) {
			t.Errorf("%s: it has changed who is alive: %v", c.what, m.alive)
		}
	}
}

// TestDue: one group is tried at a time, and none before the backoff has passed.
func TestDue(t *testing.T) {
	e := epochs{backoff: backoff{At: 10}}
	if e.due(9) || !e.due(10) {
		t.Error("a group is tried before its time, or not then")
	}
	e.candidate = &epoch{}
	if e.due(10) {
		t.Error("a group is tried while there is another")
	}
}

// TestPromote: only the candidate of that number comes into use.
func TestPromote(t *testing.T) {
	c := &epoch{number: 3}
	e := epochs{candidate: c}
	if e.promote(2) || e.current != nil || e.candidate != c {
		t.Errorf("another epoch came into use: %+v", e)
	}
	if !e.promote(3) || e.current != c || e.candidate != nil {
		t.Errorf("the candidate did not come into use: %+v", e)
	}
	if e.promote(3) || e.current != c {
		t.Errorf("it came into use twice: %+v", e)
	}
}

// TestReady: a candidate can be tested once it is registered, and is refused when that has
// failed or takes too long.
func TestReady(t *testing.T) {
	const window = vtime.Millisecond
	begun := vtime.Time(vtime.Second)
	last := begun.Add(stuckWindows * window)
	no := errors.New("no room")
	for _, c := range []struct {
		epoch epoch
		now   vtime.Time
		want  readiness
		why   string
	}{
		{epoch{since: begun}, last, registering, ""},
		{epoch{since: begun}, last + 1, refused, "its registration does not end"},
		{epoch{since: begun, ended: true}, last + 1, registered, ""},
		{epoch{since: begun, ended: true, err: no}, begun, refused, "no room"},
	} {
		if how, why := c.epoch.ready(c.now, window); how != c.want || why != c.why {
			t.Errorf("%+v at %v: %v, %q, want %v, %q", c.epoch, c.now, how, why, c.want, c.why)
		}
	}
}

// TestSenders: in a test send the member that left the last group, this rank and the latest
// sources, each once, and no more than there are windows.
func TestSenders(t *testing.T) {
	m := newMembership(1, 9)
	for _, i := range []int{2, 3, 4, 5, 6, 3} {
		m.sends(i)
	}
	all := &epoch{members: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}}
	for _, c := range []struct {
		group *epoch
		left  int
		want  []int
	}{
		{all, 8, []int{8, 1, 3, 6}},
		{all, 1, []int{1, 3, 6, 5}},
		{all, -1, []int{1, 3, 6, 5}},
		{&epoch{members: []int{1, 2, 7}}, 8, []int{1, 2}},
	} {
		if got := c.group.senders(&m, c.left); !slices.Equal(got, c.want) {
			t.Errorf("of %v, left by %d, %v send, want %v", c.group.members, c.left, got, c.want)
		}
	}
}

// TestBackoff: each try that fails doubles the time to the next, up to a bound, and so does a
// group that is left soon after the return to it. One that lasts begins again.
func TestBackoff(t *testing.T) {
	const window = vtime.Millisecond
	b := backoff{Hold: holdWindows * window}
	now := vtime.Time(vtime.Second)
	for want := holdWindows * window; want < holdWindowsMax*window; want *= 2 {
		b.failed(now, window)
		if b.At.Sub(now) != want {
			t.Errorf("the next try is after %v, want %v", b.At.Sub(now), want)
		}
	}
	for range 3 {
		b.failed(now, window)
	}
	if b.At.Sub(now) != holdWindowsMax*window {
		t.Errorf("the longest wait is %v", b.At.Sub(now))
	}
	b.Returned = now
	now = now.Add(steadyHolds*b.Hold + 1)
	if b.left(now, window, true); b.At != now || b.Hold != holdWindows*window {
		t.Errorf("after a steady time: %+v at %v", b, now)
	}
	b.Returned = now
	if b.left(now.Add(window), window, true); b.At.Sub(now.Add(window)) != 2*holdWindows*window {
		t.Errorf("after a short time: %+v at %v", b, now)
	}
	b.Returned = 0
	if b.left(now, window, false); b.At.Sub(now) != holdWindows*window {
		t.Errorf("not at once: %+v at %v", b, now)
	}
}
