// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

func alltoalls() []scheme {
	return []scheme{
		{"linear", nil, newAlltoall(allAtOnce)},
		{"pairwise", nil, newAlltoall(oneByOne)},
	}
}

// AlltoallNames returns the names of all Alltoall algorithms in alphabetical order.
func AlltoallNames() []string { return namesOf(alltoalls()) }

// AlltoallParameters returns the parameters of an Alltoall algorithm.
func AlltoallParameters(name string) []Parameter { return parametersOf(alltoalls(), name) }

// NewAlltoall prepares an Alltoall algorithm on a rank. All ranks of the job must call it. The buffer
// has one block of n bytes per rank. At the start block i holds the data for rank i, and at the end the
// data from rank i (MPI_Alltoall in place). There is no root.
func NewAlltoall(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("alltoall", alltoalls(), name, r, &o)
}

// AlltoallLinks is CriticalLinks for an Alltoall.
func AlltoallLinks(name string, ranks int, hops func(a, b int) int) int {
	c := critical{ranks: ranks, hops: hops}
	if name == "pairwise" {
		return (ranks - 1) * c.farthest()
	}
	return c.farthest()
}

// alltoall exchanges blocks in rounds. In each round a rank sends blocks to others; its next round
// begins when it has received as many. Received blocks stay in a buffer apart until all of the rank's
// own have been sent.
type alltoall struct {
	r      *rank.Rank
	rounds [][]int // per round, the distances to the ranks that a rank sends to
	b      *rank.Buffer
	in     *rank.Buffer // received blocks, by rank
	n      int
	recv   [][]*rank.Request // by round
}

func newAlltoall(rounds func(size int) [][]int) func(r *rank.Rank, _ *Options) (Algorithm, error) {
	return func(r *rank.Rank, _ *Options) (Algorithm, error) {
		return &alltoall{r: r, rounds: rounds(r.Size())}, nil
	}
}

// allAtOnce sends all blocks at once, those to the next ranks first. Around one switch, over
// L links, with n bytes from each rank to each other one:
//
//	T = (N-1) wire(n)/B + S(n, L) - wire(n)/B
func allAtOnce(size int) [][]int {
	var all []int
	for d := 1; d < size; d++ {
		all = append(all, d)
	}
	return [][]int{all}
}

// oneByOne is the pairwise exchange: in step k a rank sends to the k-th after itself, while
// it receives from the k-th before itself. No port has more than one message at a time:
//
//	T = sum over k = 1 .. N-1 of S(n, L)
func oneByOne(size int) (rounds [][]int) {
	for d := 1; d < size; d++ {
		rounds = append(rounds, []int{d})
	}
	return rounds
}

// Begin implements Algorithm.
func (t *alltoall) Begin(b *rank.Buffer, n, _ int) (err error) {
	me, size := t.r.ID(), t.r.Size()
	if err := t.Close(); err != nil {
		return err
	}
	if t.in, err = t.r.Alloc(n*size, b.Kind()); err != nil {
		return err
	}
	var peers []int
	for i := range size {
		if i != me {
			peers = append(peers, i)
		}
	}
	if err := connectAny(t.r, peers); err != nil {
		return err
	}
	t.b, t.n, t.recv = b, n, make([][]*rank.Request, len(t.rounds))
	for i, round := range t.rounds {
		for _, d := range round {
			from := absolute(t.r, me, size-d)
			q, err := recvFrom(t.r, from, t.in, from*n, n)
			if err != nil {
				return err
			}
			t.recv[i] = append(t.recv[i], q)
		}
	}
	return nil
}

// Run implements Algorithm.
func (t *alltoall) Run() (at Times, err error) {
	var sent []*rank.Request
	for i, round := range t.rounds {
		for _, d := range round {
			to := absolute(t.r, t.r.ID(), d)
			q, err := sendTo(t.r, to, t.b, to*t.n, t.n)
			if err != nil {
				return at, err
			}
			sent = append(sent, q)
		}
		if err := t.r.Wait(t.recv[i]...); err != nil {
			return at, err
		}
	}
	at.Received = t.r.Now()
	err = t.r.Wait(sent...)
	at.Done = t.r.Now()
	if err == nil {
		t.take()
	}
	return at, err
}

// take moves the received blocks into the places of those sent. That takes no lab time.
func (t *alltoall) take() {
	mem, me := t.b.Bytes(), t.r.ID()
	if mem == nil {
		return
	}
	in := t.in.Bytes()
	copy(mem[:me*t.n], in[:me*t.n])
	copy(mem[(me+1)*t.n:], in[(me+1)*t.n:])
}

// Close implements Algorithm.
func (t *alltoall) Close() error {
	if t.in == nil {
		return nil
	}
	in := t.in
	t.in = nil
	return in.Free()
}
