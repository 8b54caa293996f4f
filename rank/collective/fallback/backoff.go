// SPDX-License-Identifier: Apache-2.0

package fallback

import "github.com/mcastlab/mcastlab/core/vtime"

// backoff is the retry backoff of registrations. It keeps ranks from leaving the group and
// returning to it again and again: each try that fails doubles the time to the next one, and
// so does leaving a group soon after the return to it.
type backoff struct {
	// Hold is the delay of the try after the next failure. Invariant: it is between holdWindows and
	// holdWindowsMax windows.
	Hold vtime.Duration `json:"hold"`

	// At is the time before which no group is tried.
	At vtime.Time `json:"at"`

	// Returned is the time of the last return to a group; 0: never.
	Returned vtime.Time `json:"returned"`

	// Left is the source that left the last group; -1: none. It sends in tests, because a path
	// that is slow from there need not be slow from other ranks.
	Left int `json:"who"`
}

// The hold, in windows: at first, and at most. A group that was left within steadyHolds
// holds of the return to it was left soon.
const (
	holdWindows    = 10
	holdWindowsMax = 1000
	steadyHolds    = 4
)

// failed notes that a try has failed.
func (b *backoff) failed(now vtime.Time, window vtime.Duration) {
	b.At = now.Add(b.Hold)
	b.Hold = min(2*b.Hold, holdWindowsMax*window)
}

// left notes that the group was left. With atOnce the first try may begin immediately, unless
// the group was left soon after the return to it.
func (b *backoff) left(now vtime.Time, window vtime.Duration, atOnce bool) {
	if b.Returned > 0 && now.Sub(b.Returned) < steadyHolds*b.Hold {
		b.Hold, atOnce = min(2*b.Hold, holdWindowsMax*window), false
	} else {
		b.Hold = holdWindows * window
	}
	b.At = now
	if !atOnce {
		b.At = now.Add(b.Hold)
	}
}
