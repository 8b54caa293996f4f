// SPDX-License-Identifier: Apache-2.0

// Package program runs a user's programs (rank.Program) as workloads.
package program

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Name is the workload's name in lab files.
const Name = "program"

// Params holds the workload's parameters.
type Params struct {
	Workload string   `json:"workload"` // label in reports
	Program  string   `json:"program"`
	Args     []string `json:"args"`
}

// App runs the programs that a binary provides. It implements apps.App and apps.Teller.
type App struct{ Programs []rank.Program }

// Names returns the names of the programs that can be a workload, in their order. The list is
// never nil.
func Names(programs []rank.Program) []string {
	return namesOf(programs, func(p rank.Program) bool { return p.Run != nil })
}

// Broadcasts returns the names of the programs that can be a scheme of a broadcast, in their
// order. The list is never nil.
func Broadcasts(programs []rank.Program) []string {
	return namesOf(programs, func(p rank.Program) bool { return p.Broadcast != nil })
}

func namesOf(programs []rank.Program, which func(rank.Program) bool) []string {
	names := []string{}
	for _, p := range programs {
		if which(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	p, err := read(raw)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Programs, func(x rank.Program) bool { return x.Name == p.Program && x.Run != nil })
	if i < 0 {
		return fmt.Errorf("the binary on %s has no program %q: the lab was brought up by another one, destroy it and run again", r.Name(), p.Program)
	}
	if r.ID() == 0 {
		r.Report(p.Workload)
	}
	r.Sync()
	from := r.Now()
	if err := a.Programs[i].Run(r, slices.Clone(p.Args)); err != nil {
		return fmt.Errorf("program %s on %s: %w", p.Program, r.Name(), err)
	}
	rankrun.Of(r).Record(rankhost.Record{Kind: rankhost.RecordRun, From: from, To: r.Now()})
	return nil
}

func read(raw []byte) (p Params, err error) {
	if err = json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("program: read parameters: %w", err)
	}
	return p, nil
}

// parse reads the records of all ranks.
func parse(records [][][]byte) ([][]rankhost.Record, error) {
	all := make([][]rankhost.Record, len(records))
	for i, lines := range records {
		for _, out := range lines {
			var x rankhost.Record
			if err := json.Unmarshal(out, &x); err != nil {
				return nil, fmt.Errorf("program: read record of rank %d: %w (emit records by Printf, Verify and Measured only)", i, err)
			}
			all[i] = append(all[i], x)
		}
	}
	return all, nil
}

// Lines implements apps.Teller.
func (a App) Lines(records [][][]byte) (string, error) {
	all, err := parse(records)
	if err != nil {
		return "", err
	}
	var lines []rankhost.Record
	for _, of := range all {
		for _, x := range of {
			if x.Kind == rankhost.RecordLine {
				lines = append(lines, x)
			}
		}
	}
	slices.SortStableFunc(lines, func(x, y rankhost.Record) int { return cmp.Compare(x.To, y.To) })
	var b strings.Builder
	for _, x := range lines {
		b.WriteString(x.Text + "\n")
	}
	return b.String(), nil
}

// cell collects the records of one row.
type cell struct {
	name  string
	size  int
	whole bool                // the row is of the program as a whole
	spans [][]rankhost.Record // by rank
}

// Reduce implements apps.App. It returns a row for the program as a whole, with the program's name,
// and one for each name and size that its ranks measured.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	p, err := read(raw)
	if err != nil {
		return nil, err
	}
	all, err := parse(records)
	if err != nil {
		return nil, err
	}
	cells := []*cell{{name: p.Program, whole: true, spans: make([][]rankhost.Record, len(all))}}
	find := func(name string, size int) *cell {
		for _, c := range cells[1:] {
			if c.name == name && c.size == size {
				return c
			}
		}
		cells = append(cells, &cell{name: name, size: size, spans: make([][]rankhost.Record, len(all))})
		return cells[len(cells)-1]
	}
	var verified *bool
	var wrong []string
	for i, of := range all {
		for _, x := range of {
			switch x.Kind {
			case rankhost.RecordRun:
				cells[0].spans[i] = append(cells[0].spans[i], x)
			case rankhost.RecordSample:
				c := find(x.Text, x.Size)
				c.spans[i] = append(c.spans[i], x)
			case rankhost.RecordCheck:
				ok := x.OK && (verified == nil || *verified)
				verified = &ok
				if !x.OK {
					wrong = append(wrong, x.Text)
				}
			}
		}
	}
	var rows []apps.Row
	for _, c := range cells {
		if row, ok := c.row(); ok {
			row.Workload = p.Workload
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 { // the program as a whole, unless the run was interrupted
		rows[0].Verified = verified
		if len(wrong) > 0 {
			first := Wrong(wrong[:min(len(wrong), wrongMax)])
			rows[0].Details = &first
		}
	}
	return rows, nil
}

// wrongMax is the largest number of failed checks in a report.
const wrongMax = 10

// row reports a cell. Ranks without a record are left out. ok is false if there is no rank left, or
// if the cell is the program as a whole and the run was interrupted before all ranks had ended.
func (c *cell) row() (row apps.Row, ok bool) {
	parts := slices.DeleteFunc(slices.Clone(c.spans), func(s []rankhost.Record) bool { return len(s) == 0 })
	if len(parts) == 0 || c.whole && len(parts) < len(c.spans) {
		return row, false
	}
	count := len(parts[0])
	for _, s := range parts {
		count = min(count, len(s))
	}
	var times []float64
	for k := range count {
		from, to := parts[0][k].From, parts[0][k].To
		for _, s := range parts {
			from, to = min(from, s[k].From), max(to, s[k].To)
		}
		times = append(times, to.Sub(from).Microseconds())
	}
	row = apps.Row{Scheme: c.name, SizeBytes: c.size, Payload: apps.PayloadOwn, Ranks: len(parts), Iterations: count, JCT: apps.Summarize(times)}
	row.Source = row.JCT
	return row, true
}
