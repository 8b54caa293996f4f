// SPDX-License-Identifier: Apache-2.0

package apps

import "testing"

// TestRepeats: a given number is used, and auto has fewer iterations for longer messages.
func TestRepeats(t *testing.T) {
	for _, c := range []struct{ asked, size, want int }{
		{0, 64, 10}, {0, 64 << 10, 10}, {0, 64<<10 + 1, 3}, {0, 1 << 20, 3}, {0, 1<<20 + 1, 1}, {7, 1 << 30, 7}, {1, 1, 1},
	} {
		if got := Repeats(c.asked, c.size); got != c.want {
			t.Errorf("%d asked for at %d bytes: %d iterations, want %d", c.asked, c.size, got, c.want)
		}
	}
}
