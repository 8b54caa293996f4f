// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"github.com/mcastlab/mcastlab/rank/collective"
)

// TestExpectBasis: a line may say whether it was predicted or calibrated.
func TestExpectBasis(t *testing.T) {
	for text, want := range map[string]string{"PRED 2 < 3": Predicted, "CAL 2 < 3": Calibrated, "2 < 3": ""} {
		e, err := ParseExpect(text)
		if err != nil || e.Basis != want || e.Text != text {
			t.Errorf("%q: %+v, %v", text, e, err)
			continue
		}
		if got, ok, err := e.Eval(nil); got != 2 || !ok || err != nil {
			t.Errorf("%q: %v, %v, %v", text, got, ok, err)
		}
	}
	if _, err := ParseExpect("MAYBE 2 < 3"); err == nil {
		t.Error("an unknown basis was taken")
	}
}

// TestSchemeOptions: parameters reach the algorithm, those not given with their defaults.
func TestSchemeOptions(t *testing.T) {
	l, err := Parse("x", []byte(`name: x
topology: {star: {hosts: 6}}
workloads:
  - bcast:
      schemes: [chain, 1ring, {2ring: {slices: ranks}}, k-nomial, {scatter-allgather: {radix: 3}}, {name: rdmc, block: 4KiB}, unicast]
      sizes: [1B]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []collective.Options{{Slices: 6}, {Slices: 1}, {Slices: 6}, {Radix: 4}, {Radix: 3}, {Block: 4096}, {}}
	for i, s := range l.Workloads[0].Bcast.Schemes {
		if got := s.Options(6); got != want[i] {
			t.Errorf("%s: %+v, want %+v", s.Name, got, want[i])
		}
	}
}
