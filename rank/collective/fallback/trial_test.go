// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestTestOf: the senders of a test together fill its windows at normal throughput, with messages
// like the last one, unless these are larger than a test's may be or so small that there would be
// too many.
func TestTestOf(t *testing.T) {
	s := site{meter: newTestMeter()}
	for _, bytes := range []int{0, 1000, 100_000, 1 << 20, 1 << 30} {
		for senders := 1; senders <= sendersMax; senders++ {
			n, count := s.testOf(bytes, senders)
			if n > bytes || n > s.testBytes() || n < bytes && n != s.testBytes() {
				t.Errorf("%d bytes: messages of %d", bytes, n)
			}
			took := vtime.Duration(senders*count) * s.meter.normal(n)
			if took < testWindows*s.meter.window && count < testsMax {
				t.Errorf("%d bytes: %d times %d messages of %d take %v", bytes, senders, count, n, took)
			}
			if shorter := vtime.Duration(count-1) * s.meter.normal(n); shorter > (testWindows+3)/vtime.Duration(senders)*s.meter.window {
				t.Errorf("%d bytes: %d messages of %d of each of %d senders", bytes, count, n, senders)
			}
		}
	}
}
