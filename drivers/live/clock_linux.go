// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// NewMonotonic relates Go's clock, which is cheap to read, to CLOCK_MONOTONIC, which is the
// same in every process of a host.
func NewMonotonic() (*Monotonic, error) {
	m := &Monotonic{}
	best := time.Duration(1<<63 - 1)
	for range 8 { // keep the pair read closest together
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return nil, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
		}
		if d := time.Since(before); d < best {
			best = d
			m.base, m.mono = before.Add(d/2), ts.Nano()
		}
	}
	return m, nil
}
