// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"math/bits"
	"slices"
)

// move is the move of a row of the block to a row below it.
type move struct{ to, from int32 }

// plan is the combined effect of the row exchanges of a panel (HPL_plindx). Each row of the block
// row U comes from some row of the matrix. For each row of U from outside the block, a row of the
// block moves to its place. Processes are numbered from the one that has the block. A large job has
// many of them, one for each process: numbers of rows of U and of processes have 16 bits, and those of rows of the matrix 32 (Test.Check).
type plan struct {
	me    int
	procs int
	src   []int32  // by row of U: the matrix row that it comes from
	order []uint16 // rows of U in the order in which they are gathered, by process
	first []uint16 // by process: index of its first row in order; one more entry at the end
	down  []move   // the rows that processes receive from the block, by process
	downs []uint16 // by process: index of its first in down; one more entry at the end
	tree  []uint16 // by place in the tree by which rows leave the block: the process
	place []uint16 // by process: its place in the tree
	out   []uint16 // by place: index of its first row among all that leave; one more entry at the end
}

// makePlan returns a plan for rows of U and processes, in which nothing moves.
func makePlan(rows, procs int) *plan {
	all := make([]uint16, rows+5*procs+3)
	part := func(n int) (p []uint16) {
		p, all = all[:n:n], all[n:]
		return p
	}
	return &plan{
		procs: procs, src: make([]int32, rows), order: part(rows), first: part(procs + 1), downs: part(procs + 1),
		tree: part(procs), place: part(procs), out: part(procs + 1)[:0],
	}
}

// newPlan computes the plan of a panel's pivots.
func (s *solver) newPlan(p *panel) *plan {
	block := p.k % s.P
	rel := func(row int) int { return (ownerOf(row, s.NB, s.P) - block + s.P) % s.P }
	pl := makePlan(p.jb, s.P)
	pl.me = (s.myRow - block + s.P) % s.P
	// The rows below the block that pivots name, and the rows at their places and in the block after the
	// exchanges.
	below := make([]int32, 0, p.jb)
	for _, to := range p.piv {
		if int(to) >= p.j0+p.jb {
			below = append(below, to)
		}
	}
	slices.Sort(below)
	below = slices.Compact(below)
	outside := slices.Clone(below)
	for i := range pl.src {
		pl.src[i] = int32(p.j0 + i)
	}
	for i, to := range p.piv {
		at := &pl.src[i]
		if int(to) < p.j0+p.jb {
			to -= int32(p.j0)
			*at, pl.src[to] = pl.src[to], *at
			continue
		}
		k, _ := slices.BinarySearch(below, to)
		*at, outside[k] = outside[k], *at
	}
	byKey(len(pl.src), func(i int) int { return rel(int(pl.src[i])) }, pl.first, pl.order)
	downs := make([]uint16, len(below))
	byKey(len(below), func(i int) int { return rel(int(below[i])) }, pl.downs, downs)
	pl.down = make([]move, len(below))
	for i, at := range downs {
		pl.down[i] = move{below[at], outside[at]}
	}
	pl.plant()
	return pl
}

// byKey puts the numbers up to n into order by their keys, those of one key in ascending order, and into first the
// index of the first of each key, with one more entry at the end. Keys count from 0. There are as many plans as
// processes, so it takes no more than a few steps for each number and key.
func byKey(n int, key func(i int) int, first, order []uint16) {
	clear(first)
	for i := range n {
		first[key(i)+1]++
	}
	for k := 1; k < len(first); k++ {
		first[k] += first[k-1]
	}
	for i := range n {
		at := &first[key(i)]
		order[*at] = uint16(i)
		*at++
	}
	copy(first[1:], first[:len(first)-1])
	first[0] = 0
}

// plant arranges the processes in a binomial tree. Those that receive the most rows are next to
// the root, so that most rows take one hop (HPL_logsort).
func (p *plan) plant() {
	most := 0
	for x := range p.procs {
		most = max(most, len(p.moves(x)))
	}
	keys := make([]uint16, max(most+1, bits.Len(uint(p.procs)))+1)
	order := make([]uint16, 2*p.procs)
	procs, places := order[:p.procs], order[p.procs:]
	byKey(p.procs-1, func(i int) int { return most - len(p.moves(i+1)) }, keys[:most+2], procs[1:])
	byKey(p.procs, func(i int) int { return bits.OnesCount(uint(i)) }, keys, places)
	for i, at := range places {
		x := procs[i]
		if i > 0 {
			x++ // the block's process is not among those that byKey has ordered
		}
		p.tree[at], p.place[x] = x, at
	}
	n := 0
	for at, x := range p.tree {
		p.out = append(p.out, uint16(n))
		if at > 0 {
			n += len(p.moves(int(x)))
		}
	}
	p.out = append(p.out, uint16(n))
}

// moves returns the rows that a process receives from the block.
func (p *plan) moves(x int) []move { return p.down[p.downs[x]:p.downs[x+1]] }

// start returns the index of a process's first row among the rows of U.
func (p *plan) start(x int) int { return int(p.first[x]) }

// before returns the number of rows that leave the block for places before one.
func (p *plan) before(place int) int { return int(p.out[place]) }

// leaving returns the range of the rows for a process among those that leave the block.
func (p *plan) leaving(x int) (from, to int) {
	return p.before(int(p.place[x])), p.before(int(p.place[x]) + 1)
}

// rows returns the number of rows of U that a process has.
func (p *plan) rows(x int) int { return p.start(x+1) - p.start(x) }

// target returns the first row of a process's equal share of U.
func (p *plan) target(x int) int { return len(p.src) * x / p.procs }
