// SPDX-License-Identifier: Apache-2.0

// Package fsdp is the traffic of fully sharded data parallel training (APP-6). An Allgather of the
// next layer's parameters and a Reduce-scatter of the last layer's gradients run at the same time
// on the same ranks and share their links (AG-31).
package fsdp

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/reducescatter"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Name is the workload's name in lab files and reports.
const Name = "fsdp"

// Pair is an algorithm for the Allgather and one for the Reduce-scatter.
type Pair struct {
	Label         string `json:"label"` // name in reports
	Allgather     Scheme `json:"allgather"`
	ReduceScatter Scheme `json:"reduce_scatter"`

	// ReduceClass is the DSCP of the Reduce-scatter's packets; 0: that of the rank.
	ReduceClass uint8 `json:"reduce_class,omitempty"`
}

// Scheme is an algorithm with its parameters.
type Scheme struct {
	Name    string             `json:"name"`
	Options collective.Options `json:"options"`
}

// Params holds the benchmark's parameters.
type Params struct {
	Workload   string          `json:"workload"` // label in reports
	Pairs      []Pair          `json:"pairs"`
	Sizes      []int           `json:"sizes"`      // bytes per rank, for each of the two
	Iterations []int           `json:"iterations"` // by index of Sizes
	WarmUp     int             `json:"warm_up"`    // unmeasured iterations before them
	Memory     rank.MemoryKind `json:"memory"`     // empty means auto
	Float32    bool            `json:"float32"`    // the summands are floating point; otherwise they are integers
	Seed       uint64          `json:"seed"`
}

// realMax is the largest number of bytes over all ranks and both halves for which automatic memory
// is real.
const realMax = 512 << 20

// memory returns the memory kind of buffers of a size.
func (p *Params) memory(size, ranks int) rank.MemoryKind {
	switch {
	case p.Memory != "":
		return p.Memory
	case 2*size*ranks*ranks <= realMax:
		return rank.MemoryBytes
	}
	return rank.MemoryPhantom
}

// record holds a rank's measurements of one pair at one size.
type record struct {
	Pair     int                  `json:"scheme"` // index into Params.Pairs; apps.Iterations reads it
	Size     int                  `json:"size"`   // index into Params.Sizes
	Samples  []sample             `json:"samples"`
	Wrong    bool                 `json:"wrong,omitempty"` // a byte or a sum was wrong in some iteration
	Recovery *collective.Recovery `json:"recovery,omitempty"`
}

// sample is one iteration on one rank. Times are picoseconds of lab time.
type sample struct {
	Start    vtime.Time `json:"start"`
	Gathered vtime.Time `json:"gathered"` // the rank has all blocks
	Reduced  vtime.Time `json:"reduced"`  // the rank has its sums
	Received vtime.Time `json:"received"` // the rank has both
	Done     vtime.Time `json:"done"`     // the rank has all acknowledgements too
}

// App is the benchmark. It implements apps.App and apps.Messenger.
type App struct {
	// Delivered, if set, is called on each rank before its bytes and sums are checked. Tests use it
	// to damage them and see that the check fails.
	Delivered func(r *rank.Rank, gathered, reduced *rank.Buffer)
}

// both is one rank's part of a pair. Each half has its own connections.
type both struct {
	gatherRank, reduceRank *rank.Rank
	gather, reduce         collective.Algorithm
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	p, err := read(raw)
	if err != nil {
		return err
	}
	for i := range p.Pairs {
		if err := a.runPair(r, &p, i); err != nil {
			return fmt.Errorf("%s %s: %w", p.Workload, p.Pairs[i].Label, err)
		}
	}
	return nil
}

func read(raw []byte) (p Params, err error) {
	if err = json.Unmarshal(raw, &p); err == nil && len(p.Iterations) != len(p.Sizes) {
		err = fmt.Errorf("iterations of %d sizes for %d", len(p.Iterations), len(p.Sizes))
	}
	if err != nil {
		return p, fmt.Errorf("fsdp: read parameters: %w", err)
	}
	return p, nil
}

func (a App) runPair(r *rank.Rank, p *Params, pi int) error {
	b, err := prepare(r, p, pi)
	if err != nil {
		return err
	}
	for zi := range p.Sizes {
		rec, err := a.runSize(r, p, b, pi, zi)
		if err != nil {
			return err
		}
		out, err := json.Marshal(rec)
		if err != nil {
			return fmt.Errorf("write record: %w", err)
		}
		rankrun.Of(r).Emit(out)
	}
	return b.close(r)
}

// prepare returns the two algorithms of a pair. A rank has the same number in both.
func prepare(r *rank.Rank, p *Params, pi int) (b both, err error) {
	pair := &p.Pairs[pi]
	all := make([]int, r.Size())
	for i := range all {
		all[i] = i
	}
	if b.gatherRank, err = r.Sub(fmt.Sprintf("%d/allgather", pi), all); err != nil {
		return b, err
	}
	if b.reduceRank, err = r.Sub(fmt.Sprintf("%d/reduce-scatter", pi), all); err != nil {
		return b, err
	}
	if c := pair.ReduceClass; c != 0 {
		x := rankrun.Of(b.reduceRank)
		x.SetTrafficClass(c<<2 | x.Params().TrafficClass&3) // the ECN bits stay
	}
	o := pair.Allgather.Options
	o.Label = pair.Label
	if b.gather, err = collective.NewAllgather(pair.Allgather.Name, b.gatherRank, o); err != nil {
		return b, err
	}
	o = pair.ReduceScatter.Options
	o.Label, o.Float32 = pair.Label, p.Float32
	b.reduce, err = collective.NewReduceScatter(pair.ReduceScatter.Name, b.reduceRank, o)
	return b, err
}

func (b *both) close(r *rank.Rank) error {
	r.Sync()
	for _, x := range []collective.Algorithm{b.gather, b.reduce} {
		if err := x.Close(); err != nil {
			return err
		}
	}
	r.Sync() // until then a peer may still use a connection
	b.gatherRank.Close()
	b.reduceRank.Close()
	return nil
}

func (a App) runSize(r *rank.Rank, p *Params, b both, pi, zi int) (rec record, err error) {
	rec = record{Pair: pi, Size: zi}
	n := p.Sizes[zi]
	var bufs [2]*rank.Buffer // gathered, reduced
	for i := range bufs {
		if bufs[i], err = r.Alloc(n*r.Size(), p.memory(n, r.Size())); err != nil {
			return rec, err
		}
	}
	before := collective.RecoveryOf(b.gather)
	for i := range p.WarmUp + p.Iterations[zi] { // a number
		what := fmt.Sprintf("iteration %d of %d", i-p.WarmUp+1, p.Iterations[zi])
		if i < p.WarmUp {
			what = fmt.Sprintf("warm-up %d of %d", i+1, p.WarmUp)
		}
		if r.ID() == 0 {
			r.Report(fmt.Sprintf("%s %s, %d bytes per rank, %s", p.Workload, p.Pairs[pi].Label, n, what))
		}
		s, ok, err := a.iterate(r, p, b, bufs, n, prng.Mix(p.Seed^uint64(pi)<<48^uint64(zi)<<32^uint64(i)))
		if err != nil {
			return rec, err
		}
		rec.Wrong = rec.Wrong || !ok
		if i >= p.WarmUp {
			rec.Samples = append(rec.Samples, s)
		}
	}
	r.Sync() // until then a peer may still read from a buffer
	if after := collective.RecoveryOf(b.gather); after != nil {
		did := after.Since(*before)
		rec.Recovery = &did
	}
	for _, buf := range bufs {
		if err := buf.Free(); err != nil {
			return rec, err
		}
	}
	return rec, nil
}

// iterate runs the Allgather and the Reduce-scatter once. All ranks start both at the same
// instant, the Reduce-scatter in its own worker.
func (a App) iterate(r *rank.Rank, p *Params, b both, bufs [2]*rank.Buffer, n int, seed uint64) (s sample, ok bool, err error) {
	me := r.ID()
	numbers := reducescatter.Numbers{Seed: seed, Float32: p.Float32}
	gathered, reduced := bufs[0].Bytes(), bufs[1].Bytes()
	if gathered != nil {
		clear(gathered)
		allgather.Fill(gathered[me*n:(me+1)*n], seed, me)
		numbers.Fill(reduced, me)
	}
	if err := b.gather.Begin(bufs[0], n, 0); err != nil {
		return s, false, err
	}
	if err := b.reduce.Begin(bufs[1], n, 0); err != nil {
		return s, false, err
	}
	r.Sync()
	s.Start = r.Now()
	var sums collective.Times
	beside := r.Go("reduce-scatter", func() (err error) {
		sums, err = b.reduce.Run()
		return err
	})
	blocks, err := b.gather.Run()
	if werr := beside.Join(); err == nil {
		err = werr
	}
	if err != nil {
		return s, false, err
	}
	s.Gathered, s.Reduced, s.Received, s.Done = blocks.Received, sums.Received, max(blocks.Received, sums.Received), max(blocks.Done, sums.Done)
	if a.Delivered != nil {
		a.Delivered(r, bufs[0], bufs[1])
	}
	return s, gathered == nil || allgather.Right(gathered, n, seed, r.Size()) && numbers.Right(reduced, n, me, r.Size()), nil
}

// Messages implements apps.Messenger. A rank has an iteration when it has all blocks and its sums.
func (a App) Messages(raw []byte, records [][][]byte) ([]apps.Message, error) {
	p, err := read(raw)
	if err != nil {
		return nil, err
	}
	var labels []string
	for i := range p.Pairs {
		labels = append(labels, p.Pairs[i].Label)
	}
	return apps.Iterations(p.Workload, labels, p.Sizes, -1, records)
}

// Reduce implements apps.App.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	p, err := read(raw)
	if err != nil {
		return nil, err
	}
	all := make([][]record, len(p.Pairs)*len(p.Sizes))
	for i, lines := range records {
		for _, out := range lines {
			var rec record
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("fsdp: read record of rank %d: %w", i, err)
			}
			cell := rec.Pair*len(p.Sizes) + rec.Size
			all[cell] = append(all[cell], rec)
		}
	}
	var rows []apps.Row
	for cell, ranks := range all {
		if len(ranks) > 0 && len(ranks) == len(records) {
			rows = append(rows, p.row(cell/len(p.Sizes), cell%len(p.Sizes), ranks))
		}
	}
	return rows, nil
}

// row reports one pair at one size. The JCT of an iteration ends when the last rank has all blocks
// and its sums. The source's time ends when the last rank has all its acknowledgements.
func (p *Params) row(pi, zi int, ranks []record) apps.Row {
	var jct, source, gather, reduce []float64
	ok, ended := true, vtime.Time(0)
	for k, s := range ranks[0].Samples {
		gathered, reduced, done := s.Start, s.Start, s.Start
		for _, rec := range ranks {
			x := rec.Samples[k]
			gathered, reduced, done = max(gathered, x.Gathered), max(reduced, x.Reduced), max(done, x.Done)
			ok = ok && !rec.Wrong
		}
		ended = max(ended, gathered, reduced, done)
		jct = append(jct, max(gathered, reduced).Sub(s.Start).Microseconds())
		source = append(source, done.Sub(s.Start).Microseconds())
		gather = append(gather, gathered.Sub(s.Start).Microseconds())
		reduce = append(reduce, reduced.Sub(s.Start).Microseconds())
	}
	memory := p.memory(p.Sizes[zi], len(ranks))
	pair := &p.Pairs[pi]
	row := apps.Row{
		Workload: p.Workload, Scheme: pair.Label, SizeBytes: p.Sizes[zi], Ranks: len(ranks),
		Iterations: len(jct), WarmUp: p.WarmUp, Payload: string(memory), JCT: apps.Summarize(jct), Source: apps.Summarize(source),
		Details: &Overlap{
			Allgather: pair.Allgather.Name, ReduceScatter: pair.ReduceScatter.Name,
			Gathered: apps.Summarize(gather), Reduced: apps.Summarize(reduce),
		},
		Ended: ended,
	}
	if memory == rank.MemoryBytes {
		row.Verified = &ok
	}
	for _, rec := range ranks {
		row.Recovered(rec.Recovery)
	}
	return row
}
