// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"math"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// newTestMeter measures a line of 10 Gb/s over windows of a millisecond.
func newTestMeter() *meter {
	return &meter{window: vtime.Millisecond, rtt: 10 * vtime.Microsecond, rate: 10e9, mtu: 1024}
}

// TestMeter: throughput counts the time in which a message was under way, over windows, relative to the
// normal time: that of the line rate, and later that of earlier messages of the size.
func TestMeter(t *testing.T) {
	m := newTestMeter()
	line := m.normal(100_000)
	if us := line.Microseconds(); us < 90 || us > 100 { // 80 us and headers, and a round trip
		t.Fatalf("at line rate: %v", line)
	}
	now := vtime.Time(0)
	message := func(n int, took vtime.Duration) (ratio float64, full bool) {
		now = now.Add(vtime.Second) // no rank waits for a message
		m.begin(now, n)
		now = now.Add(took)
		return m.end(now)
	}
	windows := 0
	for range 40 {
		if ratio, full := message(100_000, line*5/4); full {
			windows++
			if ratio < 0.8 || ratio > 1.01 {
				t.Errorf("ratio %v", ratio)
			}
		}
	}
	if windows != 40*int(line*5/4)/int(vtime.Millisecond) && windows < 4 {
		t.Errorf("%d windows", windows)
	}
	if got := m.normal(100_000); math.Abs(float64(got)/float64(line*5/4)-1) > 0.01 {
		t.Errorf("normal is %v, messages took %v", got, line*5/4)
	}
	if m.normal(1<<20) != m.atLineRate(1<<20) {
		t.Error("a size of which nothing is known is not normal at line rate")
	}
	slow := m.normal(100_000)
	for range 40 { // times below the threshold do not become normal
		message(100_000, 3*slow)
	}
	if m.normal(100_000) != slow {
		t.Errorf("normal is %v after slow messages, %v before", m.normal(100_000), slow)
	}
	for range 400 { // nor a message that is a little slower each time
		message(100_000, m.normal(100_000)*19/10)
	}
	if got := m.normal(100_000); got > 2*line+line/100 {
		t.Errorf("normal has become %v", got)
	}
}

// TestMeterUnderWay: a message that stalls is noticed when the window is full, and its arrived part
// counts.
func TestMeterUnderWay(t *testing.T) {
	for _, share := range []float64{0, 0.3, 0.6, 1} {
		m := newTestMeter()
		n := 1_000_000
		m.begin(0, n)
		if _, full := m.look(vtime.Time(vtime.Millisecond/2), share/2); full {
			t.Error("full too soon")
		}
		if due := m.due(); due < vtime.Time(vtime.Millisecond) || due > vtime.Time(vtime.Millisecond+vtime.Nanosecond) {
			t.Errorf("due at %v", due)
		}
		ratio, full := m.look(m.due(), share)
		if want := share * m.normal(n).Seconds() / vtime.Millisecond.Seconds(); !full || math.Abs(ratio-want) > 0.001 {
			t.Errorf("share %v: ratio %v, %v, want %v", share, ratio, full, want)
		}
		if _, full := m.look(m.mark.Add(vtime.Microsecond), share); full {
			t.Error("a window is over at once")
		}
	}
}

// TestMeterOfNothing: messages that take next to no time, as those of nothing may, do not make it
// normal that a message takes none.
func TestMeterOfNothing(t *testing.T) {
	m := newTestMeter()
	for range 1000 {
		m.begin(5, 0)
		m.end(6)
		if m.normal(0) < m.onWire(0) {
			t.Fatalf("normal is %v, and its packet takes %v", m.normal(0), m.onWire(0))
		}
	}
}
