// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// HistogramOf returns the message of a histogram.
func HistogramOf(h *hdrhistogram.Histogram) *Histogram {
	m := &Histogram{}
	for i, n := range h.Export().Counts {
		if n != 0 {
			m.Index = append(m.Index, uint32(i))
			m.Count = append(m.Count, uint64(n))
		}
	}
	return m
}

// AddTo adds the counts to a histogram that was made with the same range.
func (m *Histogram) AddTo(h *hdrhistogram.Histogram) error {
	s := h.Export()
	if len(m.GetIndex()) != len(m.GetCount()) {
		return fmt.Errorf("histogram with %d places and %d counts", len(m.GetIndex()), len(m.GetCount()))
	}
	for i, at := range m.GetIndex() {
		if int(at) >= len(s.Counts) {
			return fmt.Errorf("histogram with a count at place %d, there are %d", at, len(s.Counts))
		}
		s.Counts[at] += int64(m.Count[i])
	}
	*h = *hdrhistogram.Import(s)
	return nil
}
