package collective

import "testing"

// TestCriticalLinks: the dependencies of small trees, counted by hand, with links
// between ranks a and b numbering 2 each.
func TestCriticalLinks(t *testing.T) {
	two := func(int, int) int { return 2 }
	far := func(a, b int) int { return 10*a + b }
	for _, c := range []struct {
		name  string
		ranks int
		large bool
		hops  func(a, b int) int
		want  int
	}{
		{"unicast", 5, false, far, 4},
		{"cepheus", 5, true, far, 4},
		{"chain", 4, true, two, 6},
		{"chain", 4, true, far, 1 + 12 + 23},
		{"binomial", 2, true, two, 2},
		{"binomial", 8, false, two, 6},        // three rounds
		{"binomial", 8, true, two, 4 + 4 + 2}, // to the third child of the root after two round trips
		{"binomial", 3, true, two, 4 + 2},     // rank 2, acknowledged, then rank 1
		{"binomial", 16, true, two, 4*3 + 2},  // likewise one round on
		{"binomial", 1, true, two, 0},         // nobody
	} {
		if got := CriticalLinks(c.name, c.ranks, c.large, c.hops); got != c.want {
			t.Errorf("%s of %d, large %v: %d links, want %d", c.name, c.ranks, c.large, got, c.want)
		}
	}
}
