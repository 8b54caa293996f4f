// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/traces/explain"
)

// TestSlowest: the slowest messages stand first, before them those that never ended; the list they are from stays as it is.
func TestSlowest(t *testing.T) {
	l := &explain.List{}
	for i, jct := range []int64{5, 9, -1, 7, 9, 1} {
		l.Messages = append(l.Messages, &explain.Message{ID: i + 1, JCT: jct})
	}
	for n, want := range map[int]string{-1: "[]", 0: "[]", 1: "[3]", 3: "[3 2 5]", 6: "[3 2 5 4 1 6]", 7: "[3 2 5 4 1 6]"} {
		var got []int
		for _, m := range l.Slowest(n).Messages {
			got = append(got, m.ID)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("slowest %d: %v, want %s", n, got, want)
		}
	}
	if l.Messages[0].ID != 1 || len(l.Messages) != 6 {
		t.Error("the list has changed")
	}
}
