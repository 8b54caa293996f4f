// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Scheme is an algorithm with its parameters.
type Scheme struct {
	Label   string             `json:"label"` // name in reports
	Name    string             `json:"name"`
	Options collective.Options `json:"options"`
}

// Blocks holds the parameters of a benchmark of a collective over a buffer with one block per
// rank. The benchmark runs every scheme at every size for a number of iterations, and checks every
// received byte. An Exchange defines the collective and the contents of the blocks.
type Blocks struct {
	Workload   string          `json:"workload"` // label in reports
	Schemes    []Scheme        `json:"schemes"`
	Sizes      []int           `json:"sizes"`      // bytes per rank
	Iterations []int           `json:"iterations"` // by index of Sizes
	WarmUp     int             `json:"warm_up"`    // unmeasured iterations before them
	Memory     rank.MemoryKind `json:"memory"`     // empty means auto
	Seed       uint64          `json:"seed"`
}

// Exchange defines a collective over blocks and the contents of the blocks.
type Exchange interface {
	// Open returns the algorithm of a scheme.
	Open(r *rank.Rank, s Scheme) (collective.Algorithm, error)
	// Fill writes the rank's contents before the iteration with the given seed. The bytes of
	// phantom memory are nil.
	Fill(r *rank.Rank, buf *rank.Buffer, size int, seed uint64)
	// Check reports whether the buffer has the right contents after the iteration. It returns
	// true for phantom memory.
	Check(r *rank.Rank, buf *rank.Buffer, size int, seed uint64) bool
}

// blockRecord holds a rank's measurements in one cell.
type blockRecord struct {
	Cell
	Samples  []blockSample        `json:"samples"`
	Wrong    bool                 `json:"wrong,omitempty"` // a byte was wrong in some iteration
	Recovery *collective.Recovery `json:"recovery,omitempty"`
	Phases   *collective.Phases   `json:"phases,omitempty"` // of the measured iterations
}

// blockSample is one iteration on one rank. Times are picoseconds of lab time.
type blockSample struct {
	Start    vtime.Time `json:"start"`
	Received vtime.Time `json:"received"`
	Done     vtime.Time `json:"done"`
}

// check verifies the parameters of the workload with the given name.
func (p *Blocks) check(name string) error {
	if len(p.Iterations) != len(p.Sizes) {
		return fmt.Errorf("%s: read parameters: iterations of %d sizes for %d", name, len(p.Iterations), len(p.Sizes))
	}
	return nil
}

// memory returns the memory kind of buffers of a size.
func (p *Blocks) memory(size, ranks int) rank.MemoryKind {
	switch {
	case p.Memory != "":
		return p.Memory
	case size*ranks*ranks <= RealMax:
		return rank.MemoryBytes
	}
	return rank.MemoryPhantom
}

// Run is one rank's part of the benchmark of the workload with the given name.
func (p *Blocks) Run(name string, r *rank.Rank, x Exchange) error {
	if err := p.check(name); err != nil {
		return err
	}
	for si, s := range p.Schemes {
		if err := p.runScheme(r, x, si); err != nil {
			return fmt.Errorf("%s %s: %w", p.Workload, s.Label, err)
		}
	}
	return nil
}

func (p *Blocks) runScheme(r *rank.Rank, x Exchange, si int) error {
	g, err := x.Open(r, p.Schemes[si])
	if err != nil {
		return err
	}
	for zi := range p.Sizes {
		rec, err := p.runCell(r, x, g, Cell{si, zi})
		if err != nil {
			return err
		}
		if err := Emit(r, rec); err != nil {
			return err
		}
	}
	r.Sync()
	return g.Close()
}

func (p *Blocks) runCell(r *rank.Rank, x Exchange, g collective.Algorithm, c Cell) (blockRecord, error) {
	n, rec := p.Sizes[c.Size], blockRecord{Cell: c}
	buf, err := r.Alloc(n*r.Size(), p.memory(n, r.Size()))
	if err != nil {
		return rec, err
	}
	before, phases := collective.RecoveryOf(g), collective.PhasesOf(g)
	for i := range p.WarmUp + p.Iterations[c.Size] { // a number
		what := fmt.Sprintf("iteration %d of %d", i-p.WarmUp+1, p.Iterations[c.Size])
		if i < p.WarmUp {
			what = fmt.Sprintf("warm-up %d of %d", i+1, p.WarmUp)
		}
		if r.ID() == 0 {
			r.Report(fmt.Sprintf("%s %s, %d bytes per rank, %s", p.Workload, p.Schemes[c.Scheme].Label, n, what))
		}
		s, ok, err := exchange(r, x, g, buf, n, c.Seed(p.Seed, i))
		if err != nil {
			return rec, err
		}
		rec.Wrong = rec.Wrong || !ok
		if i < p.WarmUp {
			phases = collective.PhasesOf(g)
			continue
		}
		rec.Samples = append(rec.Samples, s)
	}
	if after := collective.PhasesOf(g); after != nil {
		took := after.Since(*phases)
		rec.Phases = &took
	}
	r.Sync() // until then a peer may still read from the buffer
	if after := collective.RecoveryOf(g); after != nil {
		did := after.Since(*before)
		rec.Recovery = &did
	}
	return rec, buf.Free()
}

// exchange runs the collective once. All ranks start at the same instant.
func exchange(r *rank.Rank, x Exchange, g collective.Algorithm, buf *rank.Buffer, n int, seed uint64) (s blockSample, ok bool, err error) {
	x.Fill(r, buf, n, seed)
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
	return s, x.Check(r, buf, n, seed), nil
}

// Reduce makes the report from the records of all ranks, which are given in rank order. name is
// the workload's name in errors.
func (p *Blocks) Reduce(name string, records [][][]byte) ([]Row, error) {
	if err := p.check(name); err != nil {
		return nil, err
	}
	return Rows(name, records, len(p.Schemes), len(p.Sizes), p.row)
}

// row reports one cell. The JCT of an iteration ends when the last rank has received all its data. The
// source's time ends when the last rank has all acknowledgements of its packets.
func (p *Blocks) row(c Cell, ranks []blockRecord) Row {
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
	memory := p.memory(p.Sizes[c.Size], len(ranks))
	row := Row{
		Workload: p.Workload, Scheme: p.Schemes[c.Scheme].Label, SizeBytes: p.Sizes[c.Size], Ranks: len(ranks),
		Iterations: len(jct), WarmUp: p.WarmUp, Payload: string(memory), JCT: Summarize(jct), Source: Summarize(source),
	}
	if memory == rank.MemoryBytes {
		row.Verified = &ok
	}
	var phases []*collective.Phases
	for _, rec := range ranks {
		row.Recovered(rec.Recovery)
		phases = append(phases, rec.Phases)
	}
	row.Phased(phases, len(jct))
	return row
}

// Messages returns the iterations that the records describe, for traces.
func (p *Blocks) Messages(records [][][]byte) ([]Message, error) {
	var labels []string
	for _, s := range p.Schemes {
		labels = append(labels, s.Label)
	}
	return Iterations(p.Workload, labels, p.Sizes, -1, records)
}

// BlockSettings holds the lab-file settings that all collectives over blocks share. They are
// copied from the settings of each, whose keys differ in defaults and descriptions.
type BlockSettings struct {
	Label, Memory string
	Schemes       []setting.Scheme
	Ranks         setting.Hosts
	Sizes         []setting.Size
	Iterations    setting.Iterations
	WarmUp        int
}

// Prepare returns the parameters of a run, which are also its input, for a Kind's Prepare.
func (b *BlockSettings) Prepare(s *Setup) (p Blocks, run Prepared) {
	hosts := b.Ranks.Resolve(s.Graph)
	p, steps := b.parameters(len(hosts), s.Seed)
	return p, Prepared{Input: p, Hosts: hosts, Steps: steps}
}

// Links returns of, called with the row's scheme, the number of ranks and the number of links
// between two of them, for a Kind's Links. It is 0 if no scheme is the row's.
func (b *BlockSettings) Links(g *topo.Graph, row *Row, of func(s *setting.Scheme, ranks int, hops func(a, b int) int) int) int {
	i := setting.SchemeIndex(b.Schemes, row.Scheme)
	if i < 0 {
		return 0
	}
	hosts := b.Ranks.Resolve(g)
	return of(&b.Schemes[i], len(hosts), func(a, b int) int { return g.Hops(hosts[a], hosts[b]) })
}

// RowsOf returns a row for each scheme and size, for a Kind's Rows.
func RowsOf(schemes []setting.Scheme, sizes []setting.Size) (rows []Row) {
	for _, s := range schemes {
		for _, size := range sizes {
			rows = append(rows, Row{Scheme: s.Label, SizeBytes: int(size)})
		}
	}
	return rows
}

// OnlyRow leaves the scheme and the size of a row, for a Kind's Only, and reports whether the
// row's scheme is there. The slices that were there before are not changed.
func OnlyRow(schemes *[]setting.Scheme, sizes *[]setting.Size, row *Row) bool {
	i := setting.SchemeIndex(*schemes, row.Scheme)
	if i < 0 {
		return false
	}
	*schemes, *sizes = (*schemes)[i:i+1], []setting.Size{setting.Size(row.SizeBytes)}
	return true
}

// parameters returns the parameters for the given number of ranks, and the number of iterations of all
// schemes and sizes, warm-up included.
func (b *BlockSettings) parameters(ranks int, seed uint64) (p Blocks, steps int) {
	p = Blocks{Workload: b.Label, Memory: Memory(b.Memory), WarmUp: b.WarmUp, Seed: seed}
	for _, s := range b.Schemes {
		p.Schemes = append(p.Schemes, Scheme{Label: s.Label, Name: s.Name, Options: s.Options(ranks)})
	}
	for _, size := range b.Sizes {
		count := Repeats(int(b.Iterations), int(size))
		p.Sizes, p.Iterations = append(p.Sizes, int(size)), append(p.Iterations, count)
		steps += len(p.Schemes) * (p.WarmUp + count)
	}
	return p, steps
}

// Repeats returns the number of iterations of a size in bytes: asked if that is above 0, else 10
// up to 64 KiB, 3 up to 1 MiB, and 1 above.
func Repeats(asked, size int) int {
	switch {
	case asked > 0:
		return asked
	case size <= 64<<10:
		return 10
	case size <= 1<<20:
		return 3
	}
	return 1
}

// Memory returns the memory kind that a word of a lab file names. The kind is empty for auto.
func Memory(word string) rank.MemoryKind {
	if word == "auto" {
		return ""
	}
	return rank.MemoryKind(word)
}
