// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// TestTraceChangesNothing: a run with a trace is the run without one, to the bit.
func TestTraceChangesNothing(t *testing.T) {
	var digests []string
	for _, trace := range []string{"none", "messages"} {
		text := fmt.Sprintf("name: same\ntopology: {star: {hosts: 4}}\ntrace: %s\nworkloads:\n  - bcast: {schemes: [cepheus, chain], sizes: [30kB], iterations: 2}\n"+
			"faults: [{loss: {links: \"*-*\", rate: 0.01}}]\n", trace)
		l, err := lab.Parse("lab.mcl.yml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, r.Digest)
		f, err := OpenTrace(r.RunDir)
		if (err == nil) != (trace == lab.TraceMessages) {
			t.Errorf("trace: %s: %v", trace, err)
		}
		if err == nil && f.Close() != nil {
			t.Error("the trace cannot be closed")
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %v", digests)
	}
}
