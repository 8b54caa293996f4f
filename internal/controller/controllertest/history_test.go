// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestCheckerSees: wrong histories are found: a lease given twice, one that is lost, a fault
// that comes back.
func TestCheckerSees(t *testing.T) {
	op := func(i int64, q ask, a answer) porcupine.Operation {
		return porcupine.Operation{Input: q, Output: a, Call: 10 * i, Return: 10*i + 5}
	}
	lease, fault := ask{what: "lease"}, ask{what: "fault", fault: "f"}
	for name, h := range map[string][]porcupine.Operation{ // independent of each other
		"twice":      {op(0, lease, answer{lower: 1}), op(1, lease, answer{lower: 1})},
		"lost":       {op(0, lease, answer{lower: 1}), op(1, ask{what: "read"}, answer{})},
		"skipped":    {op(0, lease, answer{lower: 1}), op(1, lease, answer{lower: 3})},
		"comes back": {op(0, fault, answer{}), op(1, ask{what: "reset", fault: "f"}, answer{}), op(2, ask{what: "read"}, answer{faults: []string{"f"}})},
	} {
		if porcupine.CheckOperations(plain(), h) {
			t.Errorf("%s: the checker sees nothing wrong", name)
		}
	}
	late := op(0, lease, answer{unknown: true})
	late.Return = 1 << 62
	if !porcupine.CheckOperations(plain(), []porcupine.Operation{late, op(1, ask{what: "read"}, answer{}), op(2, lease, answer{lower: 1})}) {
		t.Error("a lease of unknown outcome must have taken effect")
	}
}
