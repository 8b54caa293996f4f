package hpl

import (
	"math/bits"
	"slices"
)

// move says that a row of the block moves to a row below it.
type move struct{ to, from int }

// plan is the combined effect of the row exchanges of a panel (HPL_plindx). Each row of the block
// row U comes from some row of the matrix. For each row of U from outside the block, a row of the
// block moves to its place. Processes are numbered from the one that has the block.
type plan struct {
	me    int
	procs int
	src   []int    // by row of U: the matrix row that it comes from
	order []int    // rows of U in the order in which they are gathered, by process
	first []int    // by process: index of its first row in order; one more entry at the end
	down  [][]move // by process: the rows that it receives from the block
	tree  []int    // by place in the tree by which rows leave the block: the process
	place []int    // by process: its place in the tree
	out   []int    // by place: index of its first row among all that leave; one more entry at the end
}

// newPlan computes the plan of a panel's pivots.
func (s *solver) newPlan(p *panel) *plan {
	block := p.k % s.P
	rel := func(row int) int { return (ownerOf(row, s.NB, s.P) - block + s.P) % s.P }
	pl := &plan{me: (s.myRow - block + s.P) % s.P, procs: s.P, src: make([]int, p.jb), down: make([][]move, s.P)}
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
	for x := range s.P {
		pl.first = append(pl.first, len(pl.order))
		for i, row := range pl.src {
			if rel(row) == x {
				pl.order = append(pl.order, i)
			}
		}
	}
	pl.first = append(pl.first, len(pl.order))
	for _, row := range below {
		x := rel(row)
		pl.down[x] = append(pl.down[x], move{row, get(row)})
	}
	pl.plant()
	return pl
}

// plant arranges the processes in a binomial tree. Those that receive the most rows are next to
// the root, so that most rows take one hop (HPL_logsort).
func (p *plan) plant() {
	p.tree, p.place = make([]int, p.procs), make([]int, p.procs)
	procs, places := make([]int, p.procs), make([]int, p.procs)
	for x := range procs {
		procs[x], places[x] = x, x
	}
	slices.SortStableFunc(procs[1:], func(a, b int) int { return len(p.down[b]) - len(p.down[a]) })
	slices.SortStableFunc(places, func(a, b int) int { return bits.OnesCount(uint(a)) - bits.OnesCount(uint(b)) })
	for i, x := range procs {
		p.tree[places[i]], p.place[x] = x, places[i]
	}
	n := 0
	for at, x := range p.tree {
		p.out = append(p.out, n)
		if at > 0 {
			n += len(p.down[x])
		}
	}
	p.out = append(p.out, n)
}

// leaving returns the range of the rows for a process among those that leave the block.
func (p *plan) leaving(x int) (from, to int) { return p.out[p.place[x]], p.out[p.place[x]+1] }

// rows returns the number of rows of U that a process has.
func (p *plan) rows(x int) int { return p.first[x+1] - p.first[x] }

// target returns the first row of a process's equal share of U.
func (p *plan) target(x int) int { return len(p.src) * x / p.procs }
