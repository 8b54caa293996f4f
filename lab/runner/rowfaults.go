// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// meeting follows how the rows of a run meet the faults of its lab.
type meeting struct {
	lab   *lab.Lab
	all   []faults.Spec
	start vtime.Time          // of the run
	row   vtime.Time          // when the workload, or the row of it, began that runs
	past  map[string]FaultRow // counts of faults that rows have left behind
	then  map[string]FaultRow // counts of the faults of the run at the end of the row before
	now   map[string]FaultRow // counts in the row that has ended last; nil: not known

	pauses *pauses // of ports, so far
}

// Meet has the record list for each row the faults of the lab that it met. The times of those of the run
// count from start.
func (r *Record) Meet(l *lab.Lab, g *topo.Graph, start vtime.Time) (err error) {
	m := &meeting{lab: l, start: start, past: map[string]FaultRow{}, then: map[string]FaultRow{}, pauses: newPauses(g)}
	r.Events.Observe(m.pauses.observe)
	m.all, err = labspec.Timeline(l, g)
	r.met = m
	return err
}

// RowBegins notes that a workload begins, or a row of one that is divided.
func (r *Record) RowBegins(now vtime.Time) {
	if r.met != nil {
		r.met.row, r.met.now = now, nil
	}
}

// RowEnds takes the counters of the timeline when a workload or row ends. gone marks that the faults of the
// row are lifted now.
func (r *Record) RowEnds(counted []FaultRow, gone bool) {
	m := r.met
	if m == nil {
		return
	}
	m.now = map[string]FaultRow{}
	for i := range m.all {
		id := m.all[i].ID
		k := slices.IndexFunc(counted, func(f FaultRow) bool { return f.ID == id })
		if k < 0 {
			continue
		}
		f := counted[k]
		if labspec.InRun(m.lab, i) {
			was := m.then[id]
			m.then[id] = f
			f.Seen, f.Hit = f.Seen-was.Seen, f.Hit-was.Hit
		} else if gone {
			sum := f
			sum.Seen, sum.Hit = sum.Seen+m.past[id].Seen, sum.Hit+m.past[id].Hit
			m.past[id] = sum
		}
		m.now[id] = f
	}
}

// Faults makes the report's list of faults from the counters of the timeline at the run's end: those of
// the lab file in its order, then those added by hand.
func (r *Record) Faults(counted []FaultRow) (all []FaultRow) {
	m := r.met
	if m == nil {
		return counted
	}
	for i := range m.all {
		id := m.all[i].ID
		f, known := m.past[id]
		for _, c := range counted {
			if c.ID == id {
				known = true
				c.Seen, c.Hit = c.Seen+f.Seen, c.Hit+f.Hit
				f = c
			}
		}
		if known {
			all = append(all, f)
		}
	}
	for _, c := range counted {
		if !slices.ContainsFunc(all, func(f FaultRow) bool { return f.ID == c.ID }) {
			all = append(all, c)
		}
	}
	return all
}

// enter adds the lab's faults that they met to the rows of one workload.
func (m *meeting) enter(w *Workload, rows []apps.Row, records [][][]byte, now vtime.Time) error {
	if m == nil || len(m.all) == 0 {
		return nil
	}
	ends, err := rowEnds(w, records)
	if err != nil {
		return err
	}
	before := m.row // when the row before ended
	for i := range rows {
		row := &rows[i]
		from, to := before, row.Ended
		if end, told := ends[rowKey{row.Scheme, row.SizeBytes}]; told {
			to = end
		}
		switch {
		case to == 0: // it is not known which part of the workload's time is the row's
			from, to = m.row, now
		case row.Began > 0: // rows overlap
			from = row.Began
		default:
			before = to
		}
		for k := range m.all {
			s := &m.all[k]
			f := apps.RowFault{ID: s.ID, Kind: string(s.Kind), In: "row", Numbered: s.Frames.Numbers != nil}
			origin := m.row
			if labspec.InRun(m.lab, k) {
				f.In, origin = lab.FaultInRun, m.start
			}
			f.Came = s.Came(m.lab.Seed, origin, from, to)
			if c, known := m.now[s.ID]; known && len(rows) == 1 {
				if !f.Came { // its effects came after the row, while the lab became idle
					c.Seen, c.Hit = 0, 0
				}
				f.Seen, f.Hit = &c.Seen, &c.Hit
			}
			row.Faults = append(row.Faults, f)
		}
	}
	return nil
}

// rowKey identifies a row of a workload.
type rowKey struct {
	scheme string
	size   int
}

// rowEnds returns when the last iteration of each row ended, as far as the workload reports iterations.
func rowEnds(w *Workload, records [][][]byte) (map[rowKey]vtime.Time, error) {
	m, tells := w.App.(apps.Messenger)
	if !tells {
		return nil, nil
	}
	all, err := m.Messages(w.Params, records)
	if err != nil {
		return nil, err
	}
	ends := map[rowKey]vtime.Time{}
	for _, x := range all {
		k := rowKey{x.Scheme, x.Bytes}
		ends[k] = max(ends[k], x.Ended)
	}
	return ends, nil
}

// faultCell returns the faults that hit a row: for each fault the number of frames or nodes, as
// docs/faults.md counts them.
func faultCell(row *apps.Row) string {
	var words []string
	for _, f := range row.Faults {
		switch {
		case !f.Came && f.In == lab.FaultInRun:
			words = append(words, f.Kind+" not in force")
		case !f.Came:
			words = append(words, f.Kind+" not reached")
		case f.Hit == nil:
			words = append(words, f.Kind)
		default:
			words = append(words, fmt.Sprintf("%s %d", f.Kind, *f.Hit))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// unlike returns the differences between the faults that rows met; it is empty if there are none.
func unlike(rows []apps.Row) string {
	alike, through := true, ""
	for _, f := range rows[0].Faults {
		if f.Came && f.Numbered && f.Hit == nil && f.In == lab.FaultInRun {
			alike, through = false, through+", and "+f.Kind+" counts its frames through all rows"
		}
	}
	var words []string
	for i := range rows {
		ids, kinds := met(&rows[i])
		first, _ := met(&rows[0])
		alike = alike && slices.Equal(ids, first)
		how := fmt.Sprintf("%d faults (%s)", len(ids), strings.Join(kinds, ", "))
		switch len(ids) {
		case 0:
			how = "none"
		case 1:
			how = "1 fault (" + kinds[0] + ")"
		}
		if i == 0 {
			how = "was hit by " + how
		} else {
			how = "by " + how
		}
		words = append(words, rows[i].Scheme+" "+how)
	}
	if alike {
		return ""
	}
	return strings.Join(words, ", ") + through
}

// met returns the ids and the kinds of the faults that came in a row.
func met(r *apps.Row) (ids, kinds []string) {
	for _, f := range r.Faults {
		if f.Came {
			ids, kinds = append(ids, f.ID), append(kinds, f.Kind)
		}
	}
	return ids, kinds
}

// byHand reports whether faults were added or removed by hand, which rows do not list.
func (r *Report) byHand() bool {
	return len(r.Acts) > 0 || slices.ContainsFunc(r.Faults, func(f FaultRow) bool { return !strings.HasPrefix(f.ID, faults.LabPrefix) })
}
