// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import "github.com/HdrHistogram/hdrhistogram-go"

// lagMaxNs is the largest lag that is recorded exactly: a minute.
const lagMaxNs = 60e9

// Lag records the delays of inputs and departures, in nanoseconds of wall time, to two digits.
type Lag struct {
	Sent  *hdrhistogram.Histogram // frames handed to the kernel
	Acted *hdrhistogram.Histogram // acts of ranks, against their lab time
}

// NewLag returns an empty record.
func NewLag() Lag {
	return Lag{hdrhistogram.New(1, lagMaxNs, 2), hdrhistogram.New(1, lagMaxNs, 2)}
}

// record adds a value; a negative lag counts as in time.
func record(h *hdrhistogram.Histogram, ns int64) {
	// A value above lagMaxNs is recorded as lagMaxNs.
	_ = h.RecordValue(min(max(ns, 1), lagMaxNs))
}

// Add adds another record.
func (g Lag) Add(o Lag) {
	g.Sent.Merge(o.Sent)
	g.Acted.Merge(o.Acted)
}

// P99 returns the larger 99th percentile of the two, in nanoseconds.
func (g Lag) P99() int64 {
	return max(g.Sent.ValueAtQuantile(99), g.Acted.ValueAtQuantile(99))
}

// Max returns the largest value of both, in nanoseconds.
func (g Lag) Max() int64 { return max(g.Sent.Max(), g.Acted.Max()) }
