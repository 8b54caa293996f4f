// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mcastlab/mcastlab/rank"
)

func reduceScatters() []scheme {
	return []scheme{
		{"in-network", nil, newInNetwork},
		{"ring", nil, newReduceRing},
	}
}

// ReduceScatterNames returns the names of all Reduce-scatter algorithms in alphabetical
// order.
func ReduceScatterNames() []string { return namesOf(reduceScatters()) }

// ReduceScatterParameters returns the parameters of a Reduce-scatter algorithm.
func ReduceScatterParameters(name string) []Parameter { return parametersOf(reduceScatters(), name) }

// ReduceScatterLinks is CriticalLinks for a Reduce-scatter of n bytes per rank. In the network
// a chunk waits for the answer to the chunk one window earlier, which has travelled up to the
// root of the tree, a leaf switch, and down.
func ReduceScatterLinks(name string, ranks, n, mtu int, hops func(a, b int) int) int {
	c := critical{ranks: ranks, hops: hops}
	far := c.farthest()
	if name == "ring" {
		return (ranks - 1) * far
	}
	chunks := (n + mtu - 1) / mtu * ranks
	return (chunks + rank.ReduceWindow - 1) / rank.ReduceWindow * (2*far - 2)
}

// NewReduceScatter prepares a Reduce-scatter algorithm on a rank. All ranks of the job must
// call it. The buffer has one block of n bytes per rank, made of 32-bit little-endian numbers:
// integers whose sum wraps, or with Options.Float32 floating point. At the end the block of a
// rank's own number holds the sum of that block over all ranks; its other blocks hold their
// old contents or partial sums. There is no root. Summing takes no lab time.
func NewReduceScatter(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("reduce-scatter", reduceScatters(), name, r, &o)
}

// reduceRing passes partial sums round the ring, where each rank adds its own numbers, in N-1
// steps (BAS-13). The block of rank i starts at rank i+1, and the numbers of ranks i+1, i+2
// and so on are added in this order, those of i last. So the order of floating-point additions
// is fixed.
//
//	T = (N-1) S(n, L)
type reduceRing struct {
	r    *rank.Rank
	add  func(sum, more []byte)
	b    *rank.Buffer
	in   *rank.Buffer // received partial sums, by step
	n    int
	recv []*rank.Request
}

func newReduceRing(r *rank.Rank, o *Options) (Algorithm, error) {
	if o.Float32 {
		return &reduceRing{r: r, add: addFloat32}, nil
	}
	return &reduceRing{r: r, add: addInt32}, nil
}

func wholeNumbers(n int) error {
	if n%4 != 0 {
		return fmt.Errorf("reduce-scatter of %d bytes per rank: that is not whole 32-bit numbers", n)
	}
	return nil
}

// addInt32 adds integers; the sum wraps.
func addInt32(sum, more []byte) {
	for i := 0; i+4 <= len(sum); i += 4 {
		v := binary.LittleEndian.Uint32(sum[i:]) + binary.LittleEndian.Uint32(more[i:])
		binary.LittleEndian.PutUint32(sum[i:], v)
	}
}

// addFloat32 adds floating-point numbers, as more + sum in this order.
func addFloat32(sum, more []byte) {
	for i := 0; i+4 <= len(sum); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(more[i:])) + math.Float32frombits(binary.LittleEndian.Uint32(sum[i:]))
		binary.LittleEndian.PutUint32(sum[i:], math.Float32bits(v))
	}
}

// Begin implements Algorithm.
func (t *reduceRing) Begin(b *rank.Buffer, n, _ int) (err error) {
	if err := wholeNumbers(n); err != nil {
		return err
	}
	size := t.r.Size()
	if err := t.Close(); err != nil {
		return err
	}
	if t.in, err = t.r.Alloc(n*(size-1), b.Kind()); err != nil {
		return err
	}
	t.b, t.n, t.recv = b, n, t.recv[:0]
	prev := absolute(t.r, t.r.ID(), size-1)
	if err := connectAny(t.r, []int{prev, absolute(t.r, t.r.ID(), 1)}); err != nil {
		return err
	}
	for step := range size - 1 {
		q, err := recvFrom(t.r, prev, t.in, step*n, n)
		if err != nil {
			return err
		}
		t.recv = append(t.recv, q)
	}
	return nil
}

// Run implements Algorithm.
func (t *reduceRing) Run() (at Times, err error) {
	me, size := t.r.ID(), t.r.Size()
	var sent []*rank.Request
	for step, came := range t.recv {
		q, err := sendTo(t.r, (me+1)%size, t.b, (me-1-step+size)%size*t.n, t.n)
		if err != nil {
			return at, err
		}
		sent = append(sent, q)
		if err := t.r.Wait(came); err != nil {
			return at, err
		}
		if mem := t.b.Bytes(); mem != nil {
			off := (me - 2 - step + 2*size) % size * t.n
			t.add(mem[off:off+t.n], t.in.Bytes()[step*t.n:(step+1)*t.n])
		}
	}
	at.Received = t.r.Now()
	err = t.r.Wait(sent...)
	at.Done = t.r.Now()
	return at, err
}

// Close implements Algorithm.
func (t *reduceRing) Close() error {
	if t.in == nil {
		return nil
	}
	in := t.in
	t.in = nil
	return in.Free()
}

// inNetwork has the switches do the additions (BAS-14): every rank sends the blocks of all others up
// the group's tree once, and receives one block of sums. The leaf switch of rank 0 is the root of the
// tree. A switch adds the blocks from its ports in the order of the ports, and a rank adds its own
// numbers last, so the topology fixes the order of floating-point additions.
//
//	T = (N-1) wire(n)/B + ceil(n/MTU) wire(0)/B + (L-1)(t_pkt + switch latency) + L d
//
// where L is the number of links from a rank to the root and down to another rank. The network
// has a window of 128 chunks of one packet each. If the window ends before the first answer
// arrives, it bounds the rate.
type inNetwork struct {
	r     *rank.Rank
	label string
	float bool
	t     *rank.Reduction
	b     *rank.Buffer
	n     int
}

func newInNetwork(r *rank.Rank, o *Options) (Algorithm, error) {
	return &inNetwork{r: r, label: o.Label, float: o.Float32}, nil
}

// Begin implements Algorithm. The first call registers the group for memory of the kind of its
// buffer; the buffers of all later calls must have the same kind.
func (t *inNetwork) Begin(b *rank.Buffer, n, _ int) (err error) {
	if err := wholeNumbers(n); err != nil {
		return err
	}
	t.b, t.n = b, n
	if t.t == nil {
		t.t, err = t.r.NewReduction("reduce-scatter/"+t.label, 0, b.Kind())
	}
	return err
}

// Run implements Algorithm.
func (t *inNetwork) Run() (at Times, err error) {
	err = t.t.Scatter(t.b, t.n, t.float)
	at.Received = t.r.Now()
	at.Done = at.Received
	return at, err
}

// Close implements Algorithm.
func (t *inNetwork) Close() error {
	if t.t == nil {
		return nil
	}
	return t.t.Delete()
}
