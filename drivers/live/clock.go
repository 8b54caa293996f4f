// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package live drives one machine in real time: frames come from and go to real
// interfaces, and lab time is wall time divided by the dilation. The loop owns the
// machine; other goroutines reach it by Call.
//
// Every input has a lab time of its own, which is not the time at which the process got round to it: a
// frame arrives when its sender handed it to the kernel plus the link's delay, a timer fires when it
// was due (but see heldNs), and a rank that wakes up acts at the instant of the event that woke it.
// Delays of a busy host are therefore visible in one place only, the departures: the time by which a
// frame was handed to the kernel too late. That lag is recorded for each frame, and the fidelity of a
// run is judged by it.
package live

import (
	"math"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// Rate is the rate of lab time from an instant on (GEN-9).
type Rate struct {
	Mono     int64      // nanoseconds of CLOCK_MONOTONIC
	Lab      vtime.Time // lab time at that instant
	Dilation float64    // wall time per lab time, at least 1
}

// lab returns the lab time at a monotonic instant.
func (r Rate) lab(mono int64) vtime.Time {
	return r.Lab + vtime.Time(float64(mono-r.Mono)*1000/r.Dilation)
}

// mono returns the monotonic instant of a lab time.
func (r Rate) mono(lab vtime.Time) int64 {
	ns := float64(lab-r.Lab) / 1000 * r.Dilation
	if ns > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return r.Mono + int64(ns)
}

// Clock converts CLOCK_MONOTONIC to lab time and back. All nodes of a lab are given the same
// rates, and a change of rate may be announced ahead. A Clock does no locking of its own: the
// owner's lock must protect it.
type Clock struct {
	now, next Rate
	changing  bool
}

// Set makes the clock run at rate r from r.Mono on.
func (c *Clock) Set(r Rate) {
	if c.now.Dilation == 0 {
		c.now = r
		return
	}
	c.next, c.changing = r, true
}

// Lab returns the lab time at a monotonic instant.
func (c *Clock) Lab(mono int64) vtime.Time {
	if c.changing && mono >= c.next.Mono {
		c.now, c.changing = c.next, false
	}
	return c.now.lab(mono)
}

// Mono returns the monotonic instant of lab time t.
func (c *Clock) Mono(t vtime.Time) int64 {
	if c.changing && t >= c.next.Lab {
		return c.next.mono(t)
	}
	return c.now.mono(t)
}

// Dilation returns the current dilation.
func (c *Clock) Dilation() float64 { return c.now.Dilation }

// Monotonic reads CLOCK_MONOTONIC in nanoseconds, and measures the offset to the wall clock,
// with which the kernel stamps frames.
type Monotonic struct {
	base time.Time // a reading of Go's clock
	mono int64     // CLOCK_MONOTONIC at base

	offset   int64 // wall clock minus CLOCK_MONOTONIC
	measured int64 // when the offset was measured
}

// offsetEvery is the interval at which the offset is measured again, because the wall clock is steered.
const offsetEvery = int64(time.Second)

// Now returns CLOCK_MONOTONIC in nanoseconds.
func (m *Monotonic) Now() int64 { return m.mono + int64(time.Since(m.base)) }

// Wall returns the offset to subtract from a wall-clock time stamp to get CLOCK_MONOTONIC.
// Only one goroutine may call it.
func (m *Monotonic) Wall() int64 {
	if now := m.Now(); m.measured == 0 || now-m.measured > offsetEvery {
		m.measure()
	}
	return m.offset
}

// measure reads both clocks a few times and uses the pair read closest together, since the
// process may have been preempted between two reads.
func (m *Monotonic) measure() {
	best := int64(math.MaxInt64)
	for range 8 {
		before := m.Now()
		wall := time.Now().UnixNano()
		after := m.Now()
		if after-before < best {
			best, m.offset = after-before, wall-(before+after)/2
		}
	}
	m.measured = m.Now()
}
