// Package reducescatter is the MPI-Reduce-scatter benchmark: every scheme at every size, a
// number of iterations each, and every number checked at every rank.
package reducescatter

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Name is the workload's name in lab files and reports.
const Name = "reduce-scatter"

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
	Float32    bool            `json:"float32"`    // floating point, else integers
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
	Scheme  int      `json:"scheme"` // index into Params.Schemes
	Size    int      `json:"size"`   // index into Params.Sizes
	Samples []sample `json:"samples"`
	Wrong   bool     `json:"wrong,omitempty"` // a number of any iteration
}

// sample is one iteration on one rank. Times are picoseconds of lab time.
type sample struct {
	Start    vtime.Time `json:"start"`
	Received vtime.Time `json:"received"`
	Done     vtime.Time `json:"done"`
}

// App implements apps.App.
type App struct{}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	p, err := read(raw)
	if err != nil {
		return err
	}
	for si, s := range p.Schemes {
		s.Options.Label, s.Options.Float32 = p.Workload+"/"+s.Label, p.Float32
		g, err := collective.NewReduceScatter(s.Name, r, s.Options)
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
		return p, fmt.Errorf("reduce-scatter: read parameters: %w", err)
	}
	return p, nil
}

func (a App) runSize(r *rank.Rank, p *Params, g collective.Algorithm, si, zi int) (record, error) {
	n, rec := p.Sizes[zi], record{Scheme: si, Size: zi}
	buf, err := r.Alloc(n*r.Size(), p.memory(n, r.Size()))
	if err != nil {
		return rec, err
	}
	for i := range p.WarmUp + p.Iterations[zi] { // a number
		what := fmt.Sprintf("iteration %d of %d", i-p.WarmUp+1, p.Iterations[zi])
		if i < p.WarmUp {
			what = fmt.Sprintf("warm-up %d of %d", i+1, p.WarmUp)
		}
		if r.ID() == 0 {
			r.Report(fmt.Sprintf("%s %s, %d bytes per rank, %s", p.Workload, p.Schemes[si].Label, n, what))
		}
		seed := prng.Mix(p.Seed ^ uint64(si)<<48 ^ uint64(zi)<<32 ^ uint64(i))
		s, ok, err := p.iterate(r, g, buf, n, seed)
		if err != nil {
			return rec, err
		}
		rec.Wrong = rec.Wrong || !ok
		if i >= p.WarmUp {
			rec.Samples = append(rec.Samples, s)
		}
	}
	r.Sync() // nobody may still send from the buffer
	return rec, buf.Free()
}

// Numbers are what ranks add up, drawn from a seed.
type Numbers struct {
	Seed    uint64
	Float32 bool // floating point, else integers
}

// of is what a rank has at an index of the buffer. As floating point it is a whole number
// so small that sums are exact: the order of additions does not show.
func (x Numbers) of(rank, index int) uint32 {
	v := uint32(prng.Mix(x.Seed + uint64(rank)<<32 + uint64(index)))
	if x.Float32 {
		return math.Float32bits(float32(v % 1024))
	}
	return v
}

// sum is what all ranks have at an index.
func (x Numbers) sum(ranks, index int) uint32 {
	var whole uint32
	var float float32
	for i := range ranks {
		v := x.of(i, index)
		whole += v
		float += math.Float32frombits(v)
	}
	if x.Float32 {
		return math.Float32bits(float)
	}
	return whole
}

// Fill writes a rank's numbers into a buffer.
func (x Numbers) Fill(mem []byte, rank int) {
	for at := 0; at+4 <= len(mem); at += 4 {
		binary.LittleEndian.PutUint32(mem[at:], x.of(rank, at/4))
	}
}

// Right says whether the block of n bytes of a rank has the sums of so many ranks' numbers.
func (x Numbers) Right(mem []byte, n, rank, ranks int) bool {
	for at := rank * n; at < (rank+1)*n; at += 4 {
		if binary.LittleEndian.Uint32(mem[at:]) != x.sum(ranks, at/4) {
			return false
		}
	}
	return true
}

// iterate adds up once. All ranks start together.
func (p *Params) iterate(r *rank.Rank, g collective.Algorithm, buf *rank.Buffer, n int, seed uint64) (s sample, ok bool, err error) {
	mem, numbers := buf.Bytes(), Numbers{seed, p.Float32}
	numbers.Fill(mem, r.ID())
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
	return s, mem == nil || numbers.Right(mem, n, r.ID(), r.Size()), nil
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
				return nil, fmt.Errorf("reduce-scatter: read record of rank %d: %w", i, err)
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

// row reports one scheme at one size. An iteration lasts until the last rank has its
// sums; the source's time is until the last rank has all that it sent acknowledged.
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
	return row
}
