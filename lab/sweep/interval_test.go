// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"math"
	"testing"
)

// TestQuantile: the quantiles are those of printed tables of Student's t (95 %, two sides).
func TestQuantile(t *testing.T) {
	for degrees, want := range map[float64]float64{
		1: 12.7062047362, 2: 4.3026527297, 3: 3.1824463053, 4: 2.7764451052, 5: 2.5705818366, 9: 2.2621571628, 10: 2.2281388520,
		29: 2.0452296421, 30: 2.0422724563, 100: 1.9839715185, 999: 1.9623414611,
	} {
		if got := quantile(0.95, degrees); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g degrees: %.12f, want %.10f", degrees, got, want)
		}
	}
	if got := quantile(0.99, 4); math.Abs(got-4.6040948714) > 1e-9 {
		t.Errorf("99 %%: %.12f", got)
	}
}

// TestSpread: by hand, 1 to 5 have the mean 3, the deviation sqrt(2.5) and the interval 2.776445 x sqrt(2.5 / 5) = 1.963243.
func TestSpread(t *testing.T) {
	s := spreadOf([]float64{5, 1, 4, 2, 3})
	if s.Mean != 3 || s.Min != 1 || s.Max != 5 || math.Abs(s.Deviation-1.5811388300842) > 1e-12 || math.Abs(s.Half-1.9632431614) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if s := spreadOf([]float64{7}); s.Mean != 7 || !math.IsNaN(s.Half) || !math.IsNaN(s.Deviation) {
		t.Errorf("one value has %+v", s)
	}
	if s := spreadOf([]float64{0.1, 0.1, 0.1}); s.Mean != 0.1 || s.Half != 0 {
		t.Errorf("equal values have %+v", s)
	}
}
