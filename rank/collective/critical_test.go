// SPDX-License-Identifier: Apache-2.0

package collective

import "testing"

// TestCriticalLinks: the dependencies of small trees, counted by hand, with links
// between ranks a and b numbering 2 each. A packet has 1000 bytes.
func TestCriticalLinks(t *testing.T) {
	two := func(int, int) int { return 2 }
	far := func(a, b int) int { return 10*a + b }
	const small, large = 1000, 100000
	for _, c := range []struct {
		name  string
		o     Options
		ranks int
		n     int
		hops  func(a, b int) int
		want  int
	}{
		{"unicast", Options{}, 5, small, far, 4},
		{"cepheus", Options{}, 5, large, far, 4},
		{"gleam", Options{}, 5, large, far, 4},
		{"chain", Options{}, 4, large, two, 6},
		{"chain", Options{}, 4, large, far, 1 + 12 + 23},
		{"binomial", Options{}, 2, large, two, 2},
		{"binomial", Options{}, 8, small, two, 6},         // three rounds
		{"binomial", Options{}, 8, large, two, 4 + 4 + 2}, // to the third child of the root after two round trips
		{"binomial", Options{}, 3, large, two, 4 + 2},     // rank 2, acknowledged, then rank 1
		{"binomial", Options{}, 16, large, two, 4*3 + 2},  // likewise one round on
		{"binomial", Options{}, 1, large, two, 0},         // no rank
		{"k-nomial", Options{Radix: 4}, 4, large, two, 4 + 4 + 2},
		{"k-nomial", Options{Radix: 4}, 16, small, two, 4},
		{"1ring", Options{}, 8, large, two, 14},
		{"1ringM", Options{}, 8, large, two, 4 + 12}, // 1 acknowledges, then 2 to 7
		{"2ring", Options{}, 8, large, two, 4 + 8},
		{"2ringM", Options{}, 8, large, two, 8 + 6}, // 1 and 2 acknowledge, then 5 to 7
		{"binary-tree", Options{}, 7, large, two, 6 + 6},
		{"pipelined-binary-tree", Options{}, 7, large, two, 4},
		{"double-binary-tree", Options{}, 8, large, two, 6},
		{"rdmc", Options{Block: 25000}, 8, large, two, 5*4 + 2},
		{"rdmc", Options{Block: 25000}, 7, large, two, 5*4 + 2},
		{"scatter-allgather", Options{Radix: 2}, 8, small, two, 6 + 6},
		{"scatter-allgather", Options{Radix: 2}, 8, large, two, 10 + 6},
		{"long", Options{}, 8, large, two, 10 + 14},
		{"longM", Options{}, 5, small, two, 4 + 4 + 6},
	} {
		if got := CriticalLinks(c.name, c.o, c.ranks, c.n, 1000, c.hops); got != c.want {
			t.Errorf("%s %+v of %d, %d bytes: %d links, want %d", c.name, c.o, c.ranks, c.n, got, c.want)
		}
	}
	for _, name := range Names() {
		if CriticalLinks(name, Options{}, 6, large, 1000, two) < 2 {
			t.Errorf("%s depends on no link", name)
		}
	}
}

// TestAllgatherLinks: the dependencies of Allgathers, with two links between any ranks.
func TestAllgatherLinks(t *testing.T) {
	two := func(int, int) int { return 2 }
	for _, c := range []struct {
		name            string
		parallel, ranks int
		want            int
	}{
		{"linear", 0, 8, 2}, {"ring", 0, 8, 14}, {"recursive-doubling", 0, 8, 6}, {"recursive-doubling", 0, 6, 8},
		{"cepheus", 1, 8, 7*6 + 2}, {"cepheus", 4, 8, 6 + 2}, {"cepheus", 8, 8, 2}, {"cepheus", 3, 8, 2*6 + 2},
		// Barrier, blocks and the activation of the next one, handshake.
		{"multicast", 1, 8, 6 + 7*4 + 2 + 2}, {"multicast", 4, 8, 6 + 4 + 2 + 2}, {"uc-multicast", 8, 8, 6 + 2 + 2},
	} {
		if got := AllgatherLinks(c.name, Options{Parallel: c.parallel}, c.ranks, two); got != c.want {
			t.Errorf("%s of %d, %d at a time: %d links, want %d", c.name, c.ranks, c.parallel, got, c.want)
		}
	}
	for _, name := range AllgatherNames() {
		if AllgatherLinks(name, Options{}, 5, two) < 2 {
			t.Errorf("%s depends on no link", name)
		}
	}
}
