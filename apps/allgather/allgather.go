// Package allgather is the MPI-Allgather benchmark: every scheme at every size, a number
// of iterations each, and every byte checked at every rank.
package allgather

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Name is the workload's name in lab files and reports.
const Name = "allgather"

// Scheme is an algorithm with its parameters.
type Scheme struct {
	Label   string             `json:"label"` // in reports
	Name    string             `json:"name"`
	Options collective.Options `json:"options"`
}

// Params are the benchmark's parameters.
type Params struct {
	Workload   string          `json:"workload"` // label in reports
	Schemes    []Scheme        `json:"schemes"`
	Sizes      []int           `json:"sizes"`      // bytes per rank
	Iterations []int           `json:"iterations"` // of each size
	WarmUp     int             `json:"warm_up"`    // iterations before them
	Memory     rank.MemoryKind `json:"memory"`     // "": auto
	Seed       uint64          `json:"seed"`
}

// realMax is up to how many bytes over all ranks automatic memory is real.
const realMax = 512 << 20

// memory returns what buffers of a size are made of.
func (p *Params) memory(size, ranks int) rank.MemoryKind {
	switch {
	case p.Memory != "":
		return p.Memory
	case size*ranks*ranks <= realMax:
		return rank.MemoryBytes
	}
	return rank.MemoryPhantom
}

// record is what a rank measured of one scheme at one size.
type record struct {
	Scheme   int                  `json:"scheme"` // index into Params.Schemes
	Size     int                  `json:"size"`   // index into Params.Sizes
	Samples  []sample             `json:"samples"`
	Wrong    bool                 `json:"wrong,omitempty"` // a byte of any iteration
	Recovery *collective.Recovery `json:"recovery,omitempty"`
}

// sample is one iteration on one rank. Times are picoseconds of lab time.
type sample struct {
	Start    vtime.Time `json:"start"`
	Received vtime.Time `json:"received"`
	Done     vtime.Time `json:"done"`
}

// App implements apps.App.
type App struct {
	// Delivered, if set, is called on each rank before its bytes are checked. It is a
	// hook for tests of the checking itself.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	p, err := read(raw)
	if err != nil {
		return err
	}
	for si, s := range p.Schemes {
		s.Options.Label = s.Label
		g, err := collective.NewAllgather(s.Name, r, s.Options)
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.Workload, s.Label, err)
		}
		for zi := range p.Sizes {
			rec, err := a.runSize(r, &p, g, si, zi)
			if err != nil {
				return fmt.Errorf("%s %s: %w", p.Workload, s.Label, err)
			}
			out, err := json.Marshal(rec)
			if err != nil {
				return fmt.Errorf("write record: %w", err)
			}
			r.Emit(out)
		}
		r.Sync()
		if err := g.Close(); err != nil {
			return fmt.Errorf("%s %s: %w", p.Workload, s.Label, err)
		}
	}
	return nil
}

func read(raw []byte) (p Params, err error) {
	if err = json.Unmarshal(raw, &p); err == nil && len(p.Iterations) != len(p.Sizes) {
		err = fmt.Errorf("iterations of %d sizes for %d", len(p.Iterations), len(p.Sizes))
	}
	if err != nil {
		return p, fmt.Errorf("allgather: read parameters: %w", err)
	}
	return p, nil
}

func (a App) runSize(r *rank.Rank, p *Params, g collective.Algorithm, si, zi int) (record, error) {
	n, rec := p.Sizes[zi], record{Scheme: si, Size: zi}
	buf, err := r.Alloc(n*r.Size(), p.memory(n, r.Size()))
	if err != nil {
		return rec, err
	}
	before := collective.RecoveryOf(g)
	for i := range p.WarmUp + p.Iterations[zi] { // a number
		what := fmt.Sprintf("iteration %d of %d", i-p.WarmUp+1, p.Iterations[zi])
		if i < p.WarmUp {
			what = fmt.Sprintf("warm-up %d of %d", i+1, p.WarmUp)
		}
		if r.ID() == 0 {
			r.Report(fmt.Sprintf("%s %s, %d bytes per rank, %s", p.Workload, p.Schemes[si].Label, n, what))
		}
		seed := prng.Mix(p.Seed ^ uint64(si)<<48 ^ uint64(zi)<<32 ^ uint64(i))
		s, ok, err := a.iterate(r, g, buf, n, seed)
		if err != nil {
			return rec, err
		}
		rec.Wrong = rec.Wrong || !ok
		if i >= p.WarmUp {
			rec.Samples = append(rec.Samples, s)
		}
	}
	r.Sync() // nobody may still send from the buffer
	if after := collective.RecoveryOf(g); after != nil {
		did := after.Since(*before)
		rec.Recovery = &did
	}
	return rec, buf.Free()
}

// Fill writes what a rank begins with into its block.
func Fill(block []byte, seed uint64, rank int) { prng.Fill(block, prng.Mix(seed+uint64(rank)), 0) }

// Right says whether there are the blocks of n bytes of so many ranks.
func Right(mem []byte, n int, seed uint64, ranks int) bool {
	want := make([]byte, n)
	for i := range ranks {
		Fill(want, seed, i)
		if !bytes.Equal(want, mem[i*n:(i+1)*n]) {
			return false
		}
	}
	return true
}

// iterate gathers once. All ranks start together.
func (a App) iterate(r *rank.Rank, g collective.Algorithm, buf *rank.Buffer, n int, seed uint64) (s sample, ok bool, err error) {
	me := r.ID()
	if mem := buf.Bytes(); mem != nil {
		clear(mem)
		Fill(mem[me*n:(me+1)*n], seed, me)
	}
	if err := g.Begin(buf, n, 0); err != nil {
		return s, false, err
	}
	r.Sync()
	s.Start = r.Now()
	t, err := g.Run()
	if err != nil {
		return s, false, err
	}
	s.Received, s.Done = t.Received, t.Done
	if a.Delivered != nil {
		a.Delivered(r, buf)
	}
	mem := buf.Bytes()
	return s, mem == nil || Right(mem, n, seed, r.Size()), nil
}

// Reduce implements apps.App.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	p, err := read(raw)
	if err != nil {
		return nil, err
	}
	all := make([][]record, len(p.Schemes)*len(p.Sizes))
	for i, lines := range records {
		for _, out := range lines {
			var rec record
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("allgather: read record of rank %d: %w", i, err)
			}
			cell := rec.Scheme*len(p.Sizes) + rec.Size
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

// row reports one scheme at one size. An iteration lasts until the last rank has all
// blocks; the source's time is until the last rank has all of its own acknowledged.
func (p *Params) row(si, zi int, ranks []record) apps.Row {
	var jct, source []float64
	ok := true
	for k, s := range ranks[0].Samples {
		received, done := s.Start, s.Start
		for _, rec := range ranks {
			received, done = max(received, rec.Samples[k].Received), max(done, rec.Samples[k].Done)
			ok = ok && !rec.Wrong
		}
		jct = append(jct, received.Sub(s.Start).Microseconds())
		source = append(source, done.Sub(s.Start).Microseconds())
	}
	memory := p.memory(p.Sizes[zi], len(ranks))
	row := apps.Row{
		Workload: p.Workload, Scheme: p.Schemes[si].Label, SizeBytes: p.Sizes[zi], Ranks: len(ranks),
		Iterations: len(jct), WarmUp: p.WarmUp, Payload: string(memory), JCT: apps.Summarize(jct), Source: apps.Summarize(source),
	}
	if memory == rank.MemoryBytes {
		row.Verified = &ok
	}
	for _, rec := range ranks {
		row.Recovered(rec.Recovery)
	}
	return row
}
