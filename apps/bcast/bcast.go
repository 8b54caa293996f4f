// SPDX-License-Identifier: Apache-2.0

// Package bcast is the MPI-Bcast benchmark (APP-1, APP-5). It runs every scheme at every size for a
// number of iterations, and checks every byte at every receiver.
package bcast

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Name is the workload's name in lab files and reports.
const Name = "bcast"

// Scheme is an algorithm with its parameters.
type Scheme = apps.Scheme

// Params holds the benchmark's parameters.
type Params struct {
	Workload   string          `json:"workload"` // label in reports
	Schemes    []Scheme        `json:"schemes"`
	Sizes      []int           `json:"sizes"`      // bytes
	Root       int             `json:"root"`       // rank that sends
	Iterations int             `json:"iterations"` // 0 means auto
	WarmUp     int             `json:"warm_up"`    // unmeasured iterations before them (AG-32)
	Memory     rank.MemoryKind `json:"memory"`     // empty means auto
	Seed       uint64          `json:"seed"`
	External   []string        `json:"external,omitempty"` // hosts among the ranks on which no program runs
}

func (p *Params) iterations(size int) int { return apps.Repeats(p.Iterations, size) }

// memory returns the memory kind of buffers of a size in a scheme.
func (p *Params) memory(scheme, size, ranks int) rank.MemoryKind {
	switch {
	case p.Memory != "":
		return p.Memory
	case len(p.External) > 0 || p.Schemes[scheme].Options.Write:
		return rank.MemoryBytes
	case size*ranks <= apps.RealMax:
		return rank.MemoryBytes
	case isOwn(p.Schemes[scheme].Name) || !collective.TakesHashed(p.Schemes[scheme].Name):
		return rank.MemoryPhantom
	}
	return rank.MemoryHashed
}

// record holds a rank's measurements in one cell.
type record struct {
	apps.Cell
	Samples  []sample             `json:"samples"`
	Wrong    bool                 `json:"wrong,omitempty"` // a byte was wrong in the warm-up
	Recovery *collective.Recovery `json:"recovery,omitempty"`
	Safety   *collective.Safety   `json:"safety,omitempty"`
	Phases   *collective.Phases   `json:"phases,omitempty"` // of the measured iterations
	Given    bool                 `json:"given,omitempty"`  // the source has given up this rank
}

// sample is one iteration on one rank. Times are picoseconds of lab time.
type sample struct {
	Start    vtime.Time `json:"start"`
	Received vtime.Time `json:"received"`
	Done     vtime.Time `json:"done"`
	Sum      string     `json:"sum,omitempty"` // SHA-256, if external hosts take part
	OK       bool       `json:"ok"`
	Known    bool       `json:"known"`           // OK is the result of a check
	Apart    bool       `json:"apart,omitempty"` // the message was sent to this rank by unicast, apart from the others

	Lacks []collective.Lack `json:"lacks,omitempty"` // external hosts of which it is not known that they have the message, or its acknowledgement
}

// App is the benchmark. It implements apps.App and apps.Messenger.
type App struct {
	// Programs are the user's programs, some of which may be schemes.
	Programs []rank.Program
	// Delivered, if set, is called on each receiver before its bytes are checked. Tests use it to
	// damage the bytes and see that the check fails.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	program, err := a.Shared(raw)
	if err != nil {
		return err
	}
	return program(r)
}

// Shared implements apps.Sharing.
func (a App) Shared(raw []byte) (func(r *rank.Rank) error, error) {
	return apps.Share(Name, raw, a.run)
}

// run runs the benchmark. It changes nothing of the parameters.
func (a App) run(r *rank.Rank, p *Params) error {
	if p.Root < 0 || p.Root >= r.Size() {
		return fmt.Errorf("bcast: root %d is not one of %d ranks", p.Root, r.Size())
	}
	var lost error
	for si := range p.Schemes {
		err := a.runScheme(r, p, si)
		if errors.Is(err, collective.ErrLost) {
			lost, err = errors.Join(lost, fmt.Errorf("%s %s: %w", p.Workload, p.Schemes[si].Label, err)), nil
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.Workload, p.Schemes[si].Label, err)
		}
	}
	return lost
}

func (a App) runScheme(r *rank.Rank, p *Params, si int) error {
	s := p.Schemes[si]
	s.Options.Label = s.Label
	b, err := a.algorithm(r, s)
	if err != nil {
		return err
	}
	var lost []collective.Lost
	var unfinished error
	for zi := range p.Sizes {
		rec, err := a.runCell(r, p, b, apps.Cell{Scheme: si, Size: zi})
		if err != nil {
			return err
		}
		if rec.Safety != nil {
			lost = rec.Safety.Lost
		}
		if err := apps.Emit(r, rec); err != nil {
			return err
		}
		if lacks := rec.lacks(); len(lacks) > 0 {
			unfinished = p.unfinished(&rec, lacks)
			break
		}
	}
	r.Sync()
	if err := b.Close(); err != nil {
		return err
	}
	if unfinished != nil {
		return unfinished
	}
	return lostError(lost)
}

// lostError returns the error with which the source's rank ends if it had to give up other ranks,
// or nil. All other ranks have received everything.
func lostError(lost []collective.Lost) error {
	var words []string
	for _, l := range lost {
		words = append(words, fmt.Sprintf("rank %d (%s) was given up: %s", l.Rank, l.Host, l.Why))
	}
	if len(words) == 0 {
		return nil
	}
	return lostRanks(strings.Join(words, "; "))
}

// lostRanks is an error that names the ranks which were given up. errors.Is finds
// collective.ErrLost in it.
type lostRanks string

// Error implements error.
func (l lostRanks) Error() string { return string(l) }

// Is reports whether target is collective.ErrLost.
func (l lostRanks) Is(target error) bool { return target == collective.ErrLost }

func (a App) runCell(r *rank.Rank, p *Params, b collective.Algorithm, c apps.Cell) (record, error) {
	size, rec := p.Sizes[c.Size], record{Cell: c}
	buf, err := r.Alloc(size, p.memory(c.Scheme, size, r.Size()))
	if err != nil {
		return rec, err
	}
	count, before, phases := p.iterations(size), collective.RecoveryOf(b), collective.PhasesOf(b)
	for i := range p.WarmUp + count { // a number
		what := fmt.Sprintf("iteration %d of %d", i-p.WarmUp+1, count)
		number := i - p.WarmUp
		if i < p.WarmUp {
			what, number = fmt.Sprintf("warm-up %d of %d", i+1, p.WarmUp), count+i
		}
		if r.ID() == p.speaker(r) {
			r.Report(fmt.Sprintf("%s %s, %d bytes, %s", p.Workload, p.Schemes[c.Scheme].Label, size, what))
		}
		s, err := a.iterate(r, p, b, buf, c.Seed(p.Seed, number))
		if err == nil && len(p.External) > 0 {
			last := c.Size == len(p.Sizes)-1 && number == count-1
			s.Lacks, err = collective.Finish(b, r, p.Root, fmt.Sprintf("%016x", c.Seed(p.Seed, number)), last)
		}
		if errors.Is(err, collective.ErrLost) {
			rec.Given = true // the other ranks continue, and expect this one at their barriers
			continue
		}
		if err != nil {
			return rec, err
		}
		if i < p.WarmUp {
			rec.Wrong = rec.Wrong || s.Known && !s.OK
			phases = collective.PhasesOf(b)
			if len(s.Lacks) == 0 {
				continue
			}
		}
		if rec.Samples = append(rec.Samples, s); len(s.Lacks) > 0 {
			break // a device that lacks a message takes no further one
		}
	}
	if after := collective.PhasesOf(b); after != nil {
		took := after.Since(*phases)
		rec.Phases = &took
	}
	r.Sync() // until then a peer may still read from the buffer
	if after := collective.RecoveryOf(b); after != nil {
		did := after.Since(*before)
		rec.Recovery = &did
	}
	rec.Safety = collective.SafetyOf(b)
	return rec, buf.Free()
}

// speaker returns the rank that reports progress: the root, or the first rank on which a program
// runs if the root is external.
func (p *Params) speaker(r *rank.Rank) int {
	if r.External(p.Root) {
		return r.First()
	}
	return p.Root
}

// iterate broadcasts one message. All ranks start at the same instant. A receiver's time ends when
// it has the message, and the root's when it has all acknowledgements.
func (a App) iterate(r *rank.Rank, p *Params, b collective.Algorithm, buf *rank.Buffer, seed uint64) (s sample, err error) {
	n := buf.Len()
	if r.ID() == p.Root {
		buf.Fill(seed, n)
	} else {
		buf.Expect(seed, n)
	}
	if err := b.Begin(buf, n, p.Root); err != nil {
		return s, err
	}
	r.Sync()
	if r.External(p.Root) && r.ID() == r.First() {
		tellRoot(r, p, b, n, seed)
	}
	s.Start = r.Now()
	t, err := b.Run()
	if err != nil {
		return s, err
	}
	s.Received, s.Done, s.Apart = t.Received, t.Done, collective.ServedApart(b)
	if len(p.External) > 0 {
		s.Sum = fmt.Sprintf("%x", sha256.Sum256(buf.Bytes()[:n]))
	}
	if r.External(p.Root) {
		s.OK, s.Known = true, true
		return s, nil
	}
	if r.ID() == p.Root {
		expected(r, p, buf, seed)
		s.OK, s.Known = true, buf.Kind() != rank.MemoryPhantom
		return s, nil
	}
	if a.Delivered != nil {
		a.Delivered(r, buf)
	}
	s.OK, s.Known = buf.Check(seed, n, expected(r, p, buf, seed))
	return s, nil
}

// tellRoot asks the operator of an external root to send a message.
func tellRoot(r *rank.Rank, p *Params, b collective.Algorithm, n int, seed uint64) {
	s := rankhost.Step{Host: r.NameOf(p.Root), What: rankhost.StepSend, Bytes: n, Text: fmt.Sprintf("%s: send %d bytes now", r.NameOf(p.Root), n)}
	if collective.Writes(b) {
		s.What, s.Text = rankhost.StepWrite, fmt.Sprintf("%s: write %d bytes with immediate data to VA 0, with any key, now", s.Host, n)
	}
	rankrun.Of(r).Tell(fmt.Sprintf("go/%016x", seed), s)
}

// expected returns the digest that the message must have. The root computes it once and publishes
// it. Only hashed memory needs it.
func expected(r *rank.Rank, p *Params, buf *rank.Buffer, seed uint64) rank.Digest {
	if buf.Kind() != rank.MemoryHashed {
		return rank.Digest{}
	}
	key := fmt.Sprintf("digest/%016x", seed)
	if r.ID() == p.Root {
		d := rank.HashMessage(seed, buf.Len())
		r.Put(key, d.Bytes())
		return d
	}
	return rank.DigestOf(r.Get(key))
}

// Messages implements apps.Messenger.
func (a App) Messages(raw []byte, records [][][]byte) ([]apps.Message, error) {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("bcast: read parameters: %w", err)
	}
	var labels []string
	for _, s := range p.Schemes {
		labels = append(labels, s.Label)
	}
	return apps.Iterations(p.Workload, labels, p.Sizes, p.Root, records)
}

// Reduce implements apps.App. A rank without any record is an external host, because no program
// runs there.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	all := map[apps.Cell]map[int]record{}
	for i, rank := range records {
		for _, out := range rank {
			var rec record
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("bcast: read record of rank %d: %w", i, err)
			}
			if all[rec.Cell] == nil {
				all[rec.Cell] = map[int]record{}
			}
			all[rec.Cell][i] = rec
		}
	}
	var rows []apps.Row
	for si := range p.Schemes {
		for zi := range p.Sizes {
			ranks := all[apps.Cell{Scheme: si, Size: zi}]
			lost := leaveOut(ranks, p.Root)
			if len(ranks) > 0 && len(ranks)+len(lost) == len(records)-len(p.External) {
				row := reduceRow(&p, si, zi, ranks, len(records))
				row.Lost = lost
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// leaveOut removes the records of the ranks that the source has given up, and returns the names of
// their hosts.
func leaveOut(ranks map[int]record, root int) (hosts []string) {
	rec, there := ranks[root]
	if !there || rec.Safety == nil {
		return nil
	}
	for _, l := range rec.Safety.Lost {
		delete(ranks, l.Rank)
		hosts = append(hosts, l.Host)
	}
	return hosts
}

// others returns the JCT of the receivers that multicast served, or nil if unicast served none.
func others(p *Params, ranks map[int]record, n int) *apps.Summary {
	var jct []float64
	some := false
	root := ranks[p.Root]
	for k := range root.Samples {
		last := root.Samples[k].Start
		for i := range n {
			rec, there := ranks[i]
			switch {
			case !there:
			case rec.Samples[k].Apart:
				some = true
			default:
				last = max(last, rec.Samples[k].Received)
			}
		}
		jct = append(jct, last.Sub(root.Samples[k].Start).Microseconds())
	}
	if !some {
		return nil
	}
	s := apps.Summarize(jct)
	return &s
}

// reduceRow reports one cell. The JCT of an iteration ends when the last receiver has the message.
// The source's time is reported separately. If the source is external, the bytes are right if all
// receivers have the same.
func reduceRow(p *Params, si, zi int, ranks map[int]record, n int) apps.Row {
	var jct, source []float64
	ok, known := true, true
	first := 0
	for ranks[first].Samples == nil {
		first++
	}
	root, inside := ranks[p.Root]
	if !inside {
		root = ranks[first]
	}
	for k := range root.Samples {
		last := root.Samples[k].Start
		if len(ranks) == 1 {
			last = root.Samples[k].Done // the receivers are external, so the last acknowledgement ends the JCT
		}
		for i := range n {
			if rec, there := ranks[i]; there {
				s := rec.Samples[k]
				ok = ok && !rec.Wrong
				last = max(last, s.Received)
				ok, known = ok && s.OK && s.Sum == root.Samples[k].Sum, known && s.Known
			}
		}
		jct = append(jct, last.Sub(root.Samples[k].Start).Microseconds())
		source = append(source, root.Samples[k].Done.Sub(root.Samples[k].Start).Microseconds())
	}
	row := apps.Row{
		Workload: p.Workload, Scheme: p.Schemes[si].Label, SizeBytes: p.Sizes[zi], Ranks: n,
		Iterations: len(jct), WarmUp: p.WarmUp, Payload: string(p.memory(si, p.Sizes[zi], n)), External: p.External, Sum: root.Samples[len(root.Samples)-1].Sum,
		JCT: apps.Summarize(jct), Source: apps.Summarize(source),
	}
	row.Unconfirmed = root.lacks()
	ok = ok && len(row.Unconfirmed) == 0
	if known || len(row.Unconfirmed) > 0 {
		row.Verified = &ok
	}
	var phases []*collective.Phases
	for i := range n {
		phases = append(phases, ranks[i].Phases)
		row.Recovered(ranks[i].Recovery)
		row.Safeguarded(ranks[i].Safety)
	}
	row.Phased(phases, len(jct))
	if row.Safety != nil {
		row.Others = others(p, ranks, n)
	}
	return row
}
