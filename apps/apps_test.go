// SPDX-License-Identifier: Apache-2.0

package apps

import "testing"

func TestSummarize(t *testing.T) {
	s := Summarize([]float64{4, 1, 3, 2})
	if s.Avg != 2.5 || s.Min != 1 || s.Max != 4 || s.P50 != 2.5 || s.P99 != nil {
		t.Errorf("%+v", s)
	}
	if s := Summarize([]float64{7}); s.P50 != 7 || s.Min != 7 {
		t.Errorf("%+v", s)
	}
	var many []float64
	for i := range 200 {
		many = append(many, float64(200-i))
	}
	if s := Summarize(many); s.P99 == nil || *s.P99 != 198 || s.P50 != 100.5 {
		t.Errorf("%+v, p99 %v", s, s.P99)
	}
}
