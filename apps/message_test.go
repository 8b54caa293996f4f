// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"fmt"
	"testing"
)

// TestIterations: the records of ranks of an iteration are merged; external ranks have nothing to say.
func TestIterations(t *testing.T) {
	line := func(start, received, done int) []byte {
		return fmt.Appendf(nil, `{"scheme":0,"size":1,"samples":[{"start":1,"received":2,"done":2},{"start":%d,"received":%d,"done":%d,"ok":true}]}`, start, received, done)
	}
	all, err := Iterations("b", []string{"s"}, []int{8, 9}, 1, [][][]byte{{line(10, 20, 21)}, {line(10, 10, 30)}, nil})
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	want := "{b s 9 2 1 10ps [20ps -1ps -1ps] 30ps 30ps}"
	if got := fmt.Sprint(all[1]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []string{`{`, `{"scheme":1}`, `{"size":2}`} {
		if _, err := Iterations("b", []string{"s"}, []int{8, 9}, 0, [][][]byte{{[]byte(bad)}}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
