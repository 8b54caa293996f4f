// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestShapes: in every tree each rank but the root has one parent, which has it among
// its children, and the root is above all.
func TestShapes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 200).Draw(t, "ranks")
		o := Options{Radix: rapid.IntRange(2, 9).Draw(t, "radix")}
		for i, f := range []shape{ring, ringM, twoRings, twoRingsM, binaryTree, binomial, knomial, inOrder, inOrderShifted} {
			children := 0
			for me := range size {
				parent, down := f(me, size, o)
				children += len(down)
				if me == 0 != (parent < 0) || parent >= size {
					t.Fatalf("shape %d: parent of %d is %d", i, me, parent)
				}
				for _, c := range down {
					if up, _ := f(c, size, o); up != me {
						t.Fatalf("shape %d: %d has child %d, whose parent is %d", i, me, c, up)
					}
				}
				steps := 0
				for up := me; up > 0; steps++ {
					if up, _ = f(up, size, o); steps > size {
						t.Fatalf("shape %d: %d is not below the root", i, me)
					}
				}
			}
			if children != size-1 {
				t.Fatalf("shape %d: %d edges for %d ranks", i, children, size)
			}
		}
	})
}

// TestShapesByHand: who sends to whom in HPL's documentation, for eight processes.
func TestShapesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		f    shape
		want [][]int
	}{
		"1ring":       {ring, [][]int{{1}, {2}, {3}, {4}, {5}, {6}, {7}, nil}},
		"1ringM":      {ringM, [][]int{{1, 2}, nil, {3}, {4}, {5}, {6}, {7}, nil}},
		"2ring":       {twoRings, [][]int{{1, 4}, {2}, {3}, nil, {5}, {6}, {7}, nil}},
		"2ringM":      {twoRingsM, [][]int{{1, 2, 5}, nil, {3}, {4}, nil, {6}, {7}, nil}},
		"binary-tree": {binaryTree, [][]int{{1, 2}, {3, 4}, {5, 6}, {7}, nil, nil, nil, nil}},
		"binomial":    {binomial, [][]int{{4, 2, 1}, nil, {3}, nil, {6, 5}, nil, {7}, nil}},
		"in order":    {inOrder, [][]int{{4}, nil, {1, 3}, nil, {2, 6}, nil, {5, 7}, nil}},
		"shifted":     {inOrderShifted, [][]int{{3}, {7, 2}, nil, {1, 5}, nil, {4, 6}, nil, nil}},
	} {
		for me, want := range c.want {
			if _, got := c.f(me, 8, Options{Radix: 4}); !slices.Equal(got, want) {
				t.Errorf("%s: %d sends to %v, want %v", name, me, got, want)
			}
		}
	}
}

// TestDoubleTree: no rank but the root passes on in both trees, and none to more than two.
func TestDoubleTree(t *testing.T) {
	for size := 2; size < 300; size++ {
		for me := 1; me < size; me++ {
			_, a := inOrder(me, size, Options{})
			_, b := inOrderShifted(me, size, Options{})
			if len(a) > 0 && len(b) > 0 || len(a)+len(b) > 2 {
				t.Fatalf("%d of %d passes on to %v and %v", me, size, a, b)
			}
		}
	}
}

// TestSendsInTurn: the longest path of the whole-message trees, in sends (F-9, F-10).
func TestSendsInTurn(t *testing.T) {
	for _, c := range []struct {
		f                 shape
		radix, size, want int
	}{
		{knomial, 2, 188, 8}, {knomial, 4, 188, 11}, {knomial, 8, 188, 16},
		{binaryTree, 0, 4, 2}, {binaryTree, 0, 16, 6}, {binaryTree, 0, 64, 10}, {binaryTree, 0, 188, 12}, {binaryTree, 0, 512, 16}, {binaryTree, 0, 1024, 18},
	} {
		at := make([]int, c.size)
		worst := 0
		var visit func(me int)
		visit = func(me int) {
			_, down := c.f(me, c.size, Options{Radix: c.radix})
			for i, ch := range down {
				at[ch] = at[me] + i + 1
				worst = max(worst, at[ch])
				visit(ch)
			}
		}
		visit(0)
		if worst != c.want {
			t.Errorf("radix %d, %d ranks: %d sends, want %d", c.radix, c.size, worst, c.want)
		}
	}
}

// TestPipeline: the binomial pipeline sends each rank each block once, from a sender that has it, in
// the published number of steps (BAS-3).
func TestPipeline(t *testing.T) {
	for _, size := range []int{2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 31, 64, 100, 512} {
		for _, k := range []int{1, 2, 3, 5, 16, 64} {
			checkPipeline(t, size, k)
		}
	}
}

// checkPipeline plays the plans of all ranks step by step.
func checkPipeline(t *testing.T, size, k int) {
	t.Helper()
	dims := 0
	for 2<<dims <= size {
		dims++
	}
	p := pipeline{size, k, dims}
	plans := make([][]rdmcStep, size)
	has := make([][]bool, size)
	for me := range size {
		plans[me] = p.plan(me)
		has[me] = make([]bool, k)
	}
	for b := range k {
		has[0][b] = true
	}
	moved, steps := 0, 0
	for step := range plans[0] {
		before := make([][]bool, size)
		for me := range size {
			before[me] = slices.Clone(has[me])
		}
		for me := range size {
			s := plans[me][step]
			if s.to >= 0 {
				if far := plans[s.to][step]; !before[me][s.block] || far.from != me || far.comes != s.block {
					t.Fatalf("%d ranks, %d blocks, step %d: %d does %+v, the receiver %+v", size, k, step, me, s, far)
				}
			}
			if s.from < 0 {
				continue
			}
			if far := plans[s.from][step]; far.to != me || far.block != s.comes || has[me][s.comes] {
				t.Fatalf("%d ranks, %d blocks, step %d: %d does %+v, the sender %+v", size, k, step, me, s, far)
			}
			has[me][s.comes] = true
			moved, steps = moved+1, step+1
		}
	}
	want := dims + k - 1
	if size != 1<<dims {
		want++
	}
	if steps != want || moved != (size-1)*k {
		t.Errorf("%d ranks, %d blocks: %d steps and %d transfers, want %d and %d", size, k, steps, moved, want, (size-1)*k)
	}
}

// TestExchanges: in every pattern each rank gets every block it lacks once, from a rank
// that has it, and both sides of a connection agree on the order.
func TestExchanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 70).Draw(t, "ranks")
		radix := rapid.IntRange(2, 6).Draw(t, "radix")
		tree := func(i int) int {
			_, _, span := nomial(i, size, radix)
			return span
		}
		for name, plan := range map[string]func(me int) []round{
			"ring":                 func(me int) []round { return ringRounds(me, size, alone) },
			"ring after tree":      func(me int) []round { return ringRounds(me, size, tree) },
			"linear":               func(me int) []round { return linearRounds(me, size) },
			"dissemination":        func(me int) []round { return disseminationRounds(me, size, radix, alone) },
			"dissemination, after": func(me int) []round { return disseminationRounds(me, size, radix, tree) },
		} {
			has := alone
			if name == "ring after tree" || name == "dissemination, after" {
				has = tree
			}
			checkExchange(t, name, size, has, plan)
		}
		// Doubling of a power of two; others have rounds at places of their own.
		pow := 1 << rapid.IntRange(0, 6).Draw(t, "log")
		checkExchange(t, "doubling", pow, alone, func(me int) []round { return doublingRounds(me, pow) })
	})
}

func checkExchange(t *rapid.T, name string, size int, has func(int) int, plan func(me int) []round) {
	held := make([][]bool, size)
	plans := make([][]round, size)
	for me := range size {
		held[me] = make([]bool, size)
		for i := range has(me) {
			held[me][me+i] = true
		}
		plans[me] = plan(me)
	}
	for n := range plans[0] {
		before := make([][]bool, size)
		for me := range size {
			before[me] = slices.Clone(held[me])
		}
		for me := range size {
			for _, x := range plans[me][n].recv {
				out := slices.DeleteFunc(slices.Clone(plans[x.peer][n].send), func(y transfer) bool { return y.peer != me })
				in := slices.DeleteFunc(slices.Clone(plans[me][n].recv), func(y transfer) bool { return y.peer != x.peer })
				if !slices.EqualFunc(out, in, func(a, b transfer) bool { return a.lo == b.lo && a.hi == b.hi }) {
					t.Fatalf("%s of %d, round %d: %d sends %v to %d, which expects %v", name, size, n, x.peer, out, me, in)
				}
				for b := x.lo; b < x.hi; b++ {
					if !before[x.peer][b] || held[me][b] {
						t.Fatalf("%s of %d, round %d: block %d from %d to %d", name, size, n, b, x.peer, me)
					}
					held[me][b] = true
				}
			}
		}
	}
	for me := range size {
		if slices.Contains(held[me], false) {
			t.Fatalf("%s of %d: %d lacks blocks: %v", name, size, me, held[me])
		}
	}
}
