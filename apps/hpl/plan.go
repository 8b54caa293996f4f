package hpl

import (
	"math/bits"
	"slices"
)

// move says that a row of the block moves to a row below it.
type move struct{ to, from int }

// plan is the combined effect of the row exchanges of a panel (HPL_plindx). Each row of the block
// row U comes from some row of the matrix. For each row of U from outside the block, a row of the
// block moves to its place. Processes are numbered from the one that has the block. A large job has
// many of them: one for each process.
type plan struct {
	me    int
	procs int
	src   []int   // by row of U: the matrix row that it comes from
	order []int32 // rows of U in the order in which they are gathered, by process
	first []int32 // by process: index of its first row in order; one more entry at the end
	down  []move  // the rows that processes receive from the block, by process
	downs []int32 // by process: index of its first in down; one more entry at the end
	tree  []int32 // by place in the tree by which rows leave the block: the process
	place []int32 // by process: its place in the tree
	out   []int32 // by place: index of its first row among all that leave; one more entry at the end
}

// makePlan returns a plan for rows of U and processes, in which nothing moves.
func makePlan(rows, procs int) *plan {
	all := make([]int32, rows+5*procs+3)
	part := func(n int) (p []int32) {
		p, all = all[:n:n], all[n:]
		return p
	}
	return &plan{
		procs: procs, src: make([]int, rows), order: part(rows)[:0], first: part(procs + 1)[:0], downs: part(procs + 1)[:0],
		tree: part(procs), place: part(procs), out: part(procs + 1)[:0],
	}
}

// newPlan computes the plan of a panel's pivots.
func (s *solver) newPlan(p *panel) *plan {
	block := p.k % s.P
	rel := func(row int) int { return (ownerOf(row, s.NB, s.P) - block + s.P) % s.P }
	pl := makePlan(p.jb, s.P)
	pl.me = (s.myRow - block + s.P) % s.P
	at := map[int]int{} // by place in the matrix: the row that is there after the exchanges so far
	get := func(row int) int {
		if v, ok := at[row]; ok {
			return v
		}
		return row
	}
	var below []int
	for i, to := range p.piv {
		here := p.j0 + i
		if _, seen := at[to]; !seen && to >= p.j0+p.jb {
			below = append(below, to)
		}
		at[here], at[to] = get(to), get(here)
	}
	slices.Sort(below)
	for i := range pl.src {
		pl.src[i] = get(p.j0 + i)
	}
	pl.down = make([]move, 0, len(below))
	for x := range s.P {
		pl.first, pl.downs = append(pl.first, int32(len(pl.order))), append(pl.downs, int32(len(pl.down)))
		for i, row := range pl.src {
			if rel(row) == x {
				pl.order = append(pl.order, int32(i))
			}
		}
		for _, row := range below {
			if rel(row) == x {
				pl.down = append(pl.down, move{row, get(row)})
			}
		}
	}
	pl.first, pl.downs = append(pl.first, int32(len(pl.order))), append(pl.downs, int32(len(pl.down)))
	pl.plant()
	return pl
}

// plant arranges the processes in a binomial tree. Those that receive the most rows are next to
// the root, so that most rows take one hop (HPL_logsort).
func (p *plan) plant() {
	procs, places := make([]int, p.procs), make([]int, p.procs)
	for x := range procs {
		procs[x], places[x] = x, x
	}
	slices.SortStableFunc(procs[1:], func(a, b int) int { return len(p.moves(b)) - len(p.moves(a)) })
	slices.SortStableFunc(places, func(a, b int) int { return bits.OnesCount(uint(a)) - bits.OnesCount(uint(b)) })
	for i, x := range procs {
		p.tree[places[i]], p.place[x] = int32(x), int32(places[i])
	}
	n := 0
	for at, x := range p.tree {
		p.out = append(p.out, int32(n))
		if at > 0 {
			n += len(p.moves(int(x)))
		}
	}
	p.out = append(p.out, int32(n))
}

// moves returns the rows that a process receives from the block.
func (p *plan) moves(x int) []move { return p.down[p.downs[x]:p.downs[x+1]] }

// start returns the index of a process's first row among the rows of U.
func (p *plan) start(x int) int { return int(p.first[x]) }

// before returns how many rows leave the block for places before one.
func (p *plan) before(place int) int { return int(p.out[place]) }

// leaving returns the range of the rows for a process among those that leave the block.
func (p *plan) leaving(x int) (from, to int) {
	return p.before(int(p.place[x])), p.before(int(p.place[x]) + 1)
}

// rows returns the number of rows of U that a process has.
func (p *plan) rows(x int) int { return p.start(x+1) - p.start(x) }

// target returns the first row of a process's equal share of U.
func (p *plan) target(x int) int { return len(p.src) * x / p.procs }
