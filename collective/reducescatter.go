package collective

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mcastlab/mcastlab/rank"
)

func reduceScatters() []scheme {
	return []scheme{{"ring", nil, newReduceRing}}
}

// ReduceScatterNames returns the names of all Reduce-scatter algorithms.
func ReduceScatterNames() []string { return namesOf(reduceScatters()) }

// NewReduceScatter prepares a Reduce-scatter algorithm on a rank. All ranks of the job
// must call it. The buffer has as many blocks of n bytes as there are ranks, of 32-bit
// numbers, little-endian: integers whose sum wraps, or with Options.Float32 floating
// point. At the end each rank has in the block of its number the sum of what all had
// there; the other blocks are what they were or partial sums. There is no root. Summing
// takes no lab time.
func NewReduceScatter(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("reduce-scatter", reduceScatters(), name, r, o)
}

// reduceRing passes partial sums round the ring, each rank adding its own, N-1 steps
// (BAS-13). The block of rank i starts at rank i+1 and gathers the numbers of i+1, i+2, ..
// in this order, and of i last: the order of floating-point additions is fixed.
//
//	T = (N-1) S(n, L)
type reduceRing struct {
	r    *rank.Rank
	add  func(sum, more []byte)
	b    *rank.Buffer
	in   *rank.Buffer // what comes, by step
	n    int
	recv []*rank.Request
}

func newReduceRing(r *rank.Rank, o Options) (Algorithm, error) {
	if o.Float32 {
		return &reduceRing{r: r, add: addFloat32}, nil
	}
	return &reduceRing{r: r, add: addInt32}, nil
}

// addInt32 adds integers; the sum wraps.
func addInt32(sum, more []byte) {
	for i := 0; i+4 <= len(sum); i += 4 {
		v := binary.LittleEndian.Uint32(sum[i:]) + binary.LittleEndian.Uint32(more[i:])
		binary.LittleEndian.PutUint32(sum[i:], v)
	}
}

// addFloat32 adds floating-point numbers: more, then sum.
func addFloat32(sum, more []byte) {
	for i := 0; i+4 <= len(sum); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(more[i:])) + math.Float32frombits(binary.LittleEndian.Uint32(sum[i:]))
		binary.LittleEndian.PutUint32(sum[i:], math.Float32bits(v))
	}
}

// Begin implements Algorithm.
func (t *reduceRing) Begin(b *rank.Buffer, n, _ int) (err error) {
	if n%4 != 0 {
		return fmt.Errorf("reduce-scatter of %d bytes per rank: that is not whole 32-bit numbers", n)
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
