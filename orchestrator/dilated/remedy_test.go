// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import "testing"

// TestEnough: the dilation that the verdict names is the least, with two digits, at which the lag is small enough.
func TestEnough(t *testing.T) {
	for _, c := range []struct{ dilation, share, want float64 }{
		{100, 2.28, 4600}, {100, 0.0501, 110}, {1, 1.44, 29}, {1, 0.06, 2}, {20, 0.0525, 21}, {99, 0.0505, 100}, {1000, 0.055, 1100},
	} {
		got := enough(c.dilation, c.share)
		if got != c.want || c.dilation*c.share/got > lagShare+1e-12 {
			t.Errorf("%v at %.2f %%: %v, want %v", c.dilation, 100*c.share, got, c.want)
		}
	}
}
