// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"
)

// TestPath: steps that take turns at one port are one line from the sixth on, whose parts are their sums; a path of 40 lines is whole,
// and a longer one is its places, the ten longest at most.
func TestPath(t *testing.T) {
	m := &Message{Worst: "h3", Start: 1_000_000}
	var path []Step
	now := m.Start
	add := func(ns int64, part, at string) {
		path = append(path, Step{From: now, To: now + ns*1000, Part: part, At: at})
		now += ns * 1000
	}
	for i := range 4 {
		add(5000, "serialisation", "leaf0:1")
		if i < 3 {
			add(7, "queueing", "leaf0:1")
		}
	}
	add(1000, "propagation", "leaf1:2")
	add(10, "queueing", "leaf1:2")
	add(20, "serialisation", "leaf1:2")
	text := func() string {
		var b strings.Builder
		if err := writePath(&b, m, path); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const short = `
Critical path, to h3:
From(us)  To(us)  Where    What
0.000     20.021  leaf0:1  serialisation 20.000, queueing 0.021 (7 steps)
20.021    21.021  leaf1:2  propagation
21.021    21.031  leaf1:2  queueing
21.031    21.051  leaf1:2  serialisation
`
	if got := text(); got != short {
		t.Errorf("%s\nis not\n%s", got, short)
	}
	for i := range pathLines - 4 {
		add(int64(100-i), "serialisation", []string{"a:0", "b:0"}[i%2])
	}
	if n := strings.Count(text(), "\n"); n != pathLines+3 {
		t.Errorf("a path of %d lines is %d", pathLines, n-3)
	}
	add(50_000, "host", "h3")
	m.JCT = now - m.Start
	const long = `
Critical path, to h3: 47 steps, which --format json has; its places:
Where    Time(us)  Share  What
h3       50.000    67.5%  host 50.000
leaf0:1  20.021    27.0%  serialisation 20.000, queueing 0.021
a:0      1.494     2.0%   serialisation 1.494
b:0      1.476     2.0%   serialisation 1.476
leaf1:2  1.030     1.4%   propagation 1.000, serialisation 0.020, queueing 0.010
`
	if got := text(); got != long {
		t.Errorf("%s\nis not\n%s", got, long)
	}
	for i := range placesShown {
		add(1, "queueing", fmt.Sprintf("c:%d", i))
	}
	if got := text(); strings.Count(got, "\n") != placesShown+3 || !strings.Contains(got, "; the 10 longest of its 15 places:\n") {
		t.Errorf("of 15 places\n%s", got)
	}
}
