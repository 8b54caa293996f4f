// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// binomial is the binomial tree of MPI (BAS-1): in round k the holders double. A rank
// receives from the rank with its lowest set bit cleared and passes the whole message
// on to its children, the largest subtree first. It is the k-nomial tree of radix 2.
//
//	T = max over paths root..leaf of sum (S(M, L) of each edge
//	    + a round trip and S of each earlier sibling)
//
// or about ceil(log2 N) S(M, L).
func binomial(me, size int, _ Options) (parent int, children []int) {
	parent, children, _ = nomial(me, size, 2)
	return parent, children
}

// knomial is the k-nomial tree (BAS-8): in round k the holders become radix times as
// many. The closed form is the binomial tree's; the worst path has up to
// (radix-1) ceil(log_radix N) sends, one after the other.
func knomial(me, size int, o Options) (parent int, children []int) {
	parent, children, _ = nomial(me, size, o.Radix)
	return parent, children
}

func newKnomial(r *rank.Rank, o *Options) (Algorithm, error) { return newRelay(knomial)(r, o) }

// nomial returns a rank's place in the k-nomial tree of a radix: its parent is the rank
// with the lowest digit that is not zero cleared. The rank and those below it are the
// span ranks from it on.
func nomial(me, size, radix int) (parent int, children []int, span int) {
	stride := 1
	for stride < size && me/stride%radix == 0 {
		stride *= radix
	}
	parent = -1
	if me > 0 {
		parent = me - me/stride%radix*stride
	}
	span = min(stride, size-me)
	for s := stride / radix; s > 0; s /= radix {
		for c := me + s; c < me+s*radix && c < size; c += s {
			children = append(children, c)
		}
	}
	return parent, children, span
}
