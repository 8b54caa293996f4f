package collective

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/rank"
)

// binomial is the binomial tree of MPI (BAS-1): in round k the holders double. A rank
// receives from the rank with its lowest set bit cleared and passes the whole message
// on to its children, the largest subtree first.
//
//	T = max over paths root..leaf of sum (S(M, L) of each edge
//	    + a round trip and S of each earlier sibling)
//
// A message above one MTU goes to the next child when the previous send is complete:
// with all at once, fair sharing between queue pairs would make the tree a star. One
// that fits a packet goes to all children at once.
type binomial struct {
	r        *rank.Rank
	b        *rank.Buffer
	n        int
	root     int
	parent   int // absolute; -1 at the root
	children []int
	recv     *rank.Request
}

func newBinomial(r *rank.Rank, _ Options) (Bcast, error) { return &binomial{r: r}, nil }

// Begin implements Bcast.
func (t *binomial) Begin(b *rank.Buffer, n, root int) (err error) {
	t.b, t.n, t.root = b, n, root
	t.parent, t.children = -1, t.children[:0]
	me := relative(t.r, root)
	span := 1 << bits.Len(uint(t.r.Size()-1)) // the root's subtree
	if me != 0 {
		span = me & -me
		t.parent = absolute(t.r, root, me-span)
	}
	for s := span / 2; s > 0; s /= 2 {
		if me+s < t.r.Size() {
			t.children = append(t.children, absolute(t.r, root, me+s))
		}
	}
	// Parents connect first: no cycle of ranks waits for each other.
	if t.parent >= 0 {
		if t.recv, err = recvFrom(t.r, t.parent, b, 0, n); err != nil {
			return err
		}
	}
	return connectAll(t.r, t.children)
}

// Run implements Bcast.
func (t *binomial) Run() (at Times, err error) {
	if t.parent >= 0 {
		if err := t.r.Wait(t.recv); err != nil {
			return at, err
		}
	}
	at.Received = t.r.Now()
	var reqs []*rank.Request
	for _, c := range t.children {
		q, err := sendTo(t.r, c, t.b, 0, t.n)
		if err != nil {
			return at, err
		}
		reqs = append(reqs, q)
		if t.n > t.r.Params().MTU {
			if err := t.r.Wait(q); err != nil {
				return at, err
			}
		}
	}
	err = t.r.Wait(reqs...)
	at.Done = t.r.Now()
	return at, err
}

// Close implements Bcast.
func (t *binomial) Close() error { return nil }
