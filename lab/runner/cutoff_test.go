// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"
)

// TestCutoffOrder (AG-12): where a datagram is lost the rank fetches it sooner if the timer starts
// before the barrier, as in the paper, than after it. The order we use by default is the latter.
// Without an allowance for the barrier ranks fetch chunks that are on their way, and every byte is
// right.
func TestCutoffOrder(t *testing.T) {
	const text = "topology: {star: {hosts: 8}}\nnics: {timeout: 67us}\nworkloads: [{bcast: {schemes: [{ud-multicast: {%}}], sizes: [256KiB], iterations: 3}}]\n" +
		"faults: [{loss: {links: leaf0-h3, rate: 2%%}}]\n"
	run := func(keys string) (us float64, digest string) {
		r, err := runText(t, strings.NewReplacer("%%", "%", "%", keys).Replace(text))
		if err != nil {
			t.Fatal(err)
		}
		x := &r.Results[0]
		if x.Verified == nil || !*x.Verified {
			t.Errorf("%s: not verified", keys)
		}
		return x.JCT.Max, r.Digest
	}
	usual, digest := run("alpha: 500us")
	after, same := run("alpha: 500us, cutoff: after-barrier")
	before, _ := run("alpha: 500us, cutoff: before-barrier")
	if digest != same || usual != after {
		t.Errorf("after-barrier is not the default: %v us with %s, and %v with %s", usual, digest, after, same)
	}
	if before >= after {
		t.Errorf("started before the barrier the timer ends after %v us, and after it %v", before, after)
	}
	run("alpha: 1ns, cutoff: before-barrier")
}
