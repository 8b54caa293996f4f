// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/rank"
)

func allgathers() []scheme {
	return []scheme{
		{"cepheus", []Parameter{{"parallel", 1}}, newGroupGather},
		{"linear", nil, newLinear},
		{"multicast", casts(Parameter{"parallel", 1}), newMulticast},
		{"recursive-doubling", nil, newDoubling},
		{"ring", nil, newRingGather},
		{"uc-multicast", casts(Parameter{"parallel", 1}, Parameter{"chunk", chunkDefault}), newUCGather},
	}
}

// AllgatherNames returns the names of all Allgather algorithms in alphabetical order.
func AllgatherNames() []string { return namesOf(allgathers()) }

// AllgatherParameters returns the parameters of an Allgather algorithm.
func AllgatherParameters(name string) []Parameter { return parametersOf(allgathers(), name) }

// NewAllgather prepares an Allgather algorithm on a rank. All ranks of the job must call it.
// The buffer has one block of n bytes per rank; a rank starts with the block of its own number
// and ends with all of them. There is no root.
func NewAllgather(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("allgather", allgathers(), name, r, &o)
}

// gather is an Allgather over connections. With n bytes per rank all take
//
//	(N-1) wire(n)/B
//
// and start-ups (F-11).
type gather struct {
	r    *rank.Rank
	plan func(me, size int) []round
	x    exchange
}

// newRingGather passes the blocks round the ring, N-1 steps (BAS-11).
//
//	T = (N-1) S(n, L)
func newRingGather(r *rank.Rank, _ *Options) (Algorithm, error) {
	return &gather{r: r, plan: func(me, size int) []round { return ringRounds(me, size, alone) }}, nil
}

// newLinear sends the block to all other ranks, all at once (BAS-10).
//
//	T = (N-1) wire(n)/B + S(n, L) - wire(n)/B
func newLinear(r *rank.Rank, _ *Options) (Algorithm, error) {
	return &gather{r: r, plan: linearRounds}, nil
}

// newDoubling exchanges all that the ranks have with one twice as far in each round
// (BAS-12).
//
//	T = sum over k < log2 N of S(2^k n, L)
//
// Of a number of ranks that is not a power of two, those above hand their block to one
// below first and get all others from it last: one small and one large step more.
func newDoubling(r *rank.Rank, _ *Options) (Algorithm, error) {
	return &gather{r: r, plan: doublingRounds}, nil
}

func linearRounds(me, size int) []round {
	var n round
	for i := 1; i < size; i++ {
		to, from := (me+i)%size, (me-i+size)%size
		n.send = append(n.send, transfer{to, me, me + 1})
		n.recv = append(n.recv, transfer{from, from, from + 1})
	}
	return []round{n}
}

func doublingRounds(me, size int) (rounds []round) {
	pow := 1 << (bits.Len(uint(size)) - 1)
	if me >= pow {
		low := me - pow
		return []round{
			{send: []transfer{{low, me, me + 1}}},
			{recv: []transfer{{low, 0, me}, {low, me + 1, size}}},
		}
	}
	high := me + pow
	if high < size {
		rounds = append(rounds, round{recv: []transfer{{high, high, high + 1}}})
	}
	for d := 1; d < pow; d *= 2 {
		peer := me ^ d
		rounds = append(rounds, round{
			send: doubled(peer, me&^(d-1), d, pow, size),
			recv: doubled(peer, peer&^(d-1), d, pow, size),
		})
	}
	if high < size {
		rounds = append(rounds, round{send: []transfer{{high, 0, high}, {high, high + 1, size}}})
	}
	return rounds
}

// doubled returns the transfers of the d blocks from lo on, and of the blocks that were handed
// down to their ranks.
func doubled(peer, lo, d, pow, size int) []transfer {
	all := []transfer{{peer, lo, lo + d}}
	if lo+pow < size {
		all = append(all, transfer{peer, lo + pow, min(lo+pow+d, size)})
	}
	return all
}

// Begin implements Algorithm.
func (g *gather) Begin(b *rank.Buffer, n, _ int) error {
	me, size := g.r.ID(), g.r.Size()
	g.x = exchange{r: g.r, bound: func(i int) int { return i * n }, rounds: g.plan(me, size)}
	for i := range size {
		g.x.places = append(g.x.places, i)
	}
	if err := connectAny(g.r, g.x.peers()); err != nil {
		return err
	}
	return g.x.post(b)
}

// Run implements Algorithm.
func (g *gather) Run() (at Times, err error) {
	sent, err := g.x.run()
	if err != nil {
		return at, err
	}
	at.Received = g.r.Now()
	err = g.r.Wait(sent...)
	at.Done = g.r.Now()
	return at, err
}

// Close implements Algorithm.
func (g *gather) Close() error { return nil }

// AllgatherLinks is CriticalLinks for an Allgather.
func AllgatherLinks(name string, o Options, ranks int, hops func(a, b int) int) (links int) {
	c := critical{ranks: ranks, hops: hops}
	far := c.farthest()
	switch name {
	case "ring":
		return (ranks - 1) * far
	case "recursive-doubling":
		rounds := bits.Len(uint(ranks)) - 1
		if ranks != 1<<rounds {
			rounds += 2
		}
		return rounds * far
	case "multicast", "uc-multicast": // the barrier, a block and the activation of the next one, the handshake
		return (bits.Len(uint(ranks-1)) + 2*((ranks+o.chains(ranks)-1)/o.chains(ranks))) * far
	case "cepheus": // a block, its acknowledgement and the activation of the next one
		return (3*((ranks+o.chains(ranks)-1)/o.chains(ranks)) - 2) * far
	}
	return far
}

// chains returns the number of ranks that multicast at the same time.
func (o *Options) chains(ranks int) int { return max(1, min(o.Parallel, ranks)) }
