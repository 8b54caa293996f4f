// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab/report"
)

// Limits of watching a running lab.
const (
	pollEvery = 250 * time.Millisecond
	pollWait  = 5 * time.Second // for all nodes together
	openEvery = time.Second     // between two tries while the lab is not up
)

// Up is a running lab. A node that does not answer Look has the kind "gone". Faults returns all faults and the
// indexes of those that are on at the moment.
type Up struct {
	Name   string
	Graph  *topo.Graph
	Look   func(ctx context.Context) []counters.Node
	Faults func(ctx context.Context) (all []report.FilmFault, on []bool)
	Close  func() error
}

// Lab returns a source that shows a running lab. It reopens the lab when no node answers any more: perhaps it has
// been destroyed, or deployed again.
func Lab(open func() (*Up, error)) Source {
	return func(ctx context.Context, send Send) error {
		for {
			up, err := open()
			if err != nil {
				err = send("note", err.Error())
			} else {
				err = up.follow(ctx, send)
			}
			if err != nil {
				return err
			}
			if err := rest(ctx, openEvery); err != nil {
				return err
			}
		}
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// follow shows the lab until no node answers.
func (u *Up) follow(ctx context.Context, send Send) error {
	defer u.Close() //nolint:errcheck // nothing is written
	r := newReel(u.Name, u.Graph)
	r.film.Faults, _ = u.faults(ctx)
	if err := send("film", r.film); err != nil {
		return err
	}
	for {
		look, cancel := context.WithTimeout(ctx, pollWait)
		states := u.Look(look)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		all, on := u.faults(ctx)
		if r.name(all) {
			if err := send("faults", r.film.Faults); err != nil {
				return err
			}
		}
		f, changed := r.next(states, r.indices(all, on))
		var err error
		if changed {
			err = send("frame", &f)
		} else {
			err = send("alive", f.To)
		}
		if err != nil {
			return err
		}
		if len(f.Gone) == len(u.Graph.Nodes) {
			return nil
		}
		if err := rest(ctx, pollEvery); err != nil {
			return err
		}
	}
}

func (u *Up) faults(ctx context.Context) ([]report.FilmFault, []bool) {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	return u.Faults(ctx)
}

// reel makes frames from the nodes' reports, one after the other.
type reel struct {
	g     *topo.Graph
	film  *report.Film
	last  []counters.Node // by node, as it answered last
	said  []map[string]uint64
	trees []report.FilmTree
	shown report.Frame
}

func newReel(name string, g *topo.Graph) *reel {
	r := &reel{g: g, film: report.NewFilm(name, g), last: make([]counters.Node, len(g.Nodes)), said: make([]map[string]uint64, len(g.Nodes))}
	r.film.Notes = []string{"Looked at four times a second: what is shorter shows in counters only. Messages are in the folder of a run: mcastlab watch RUN."}
	return r
}

// name adds faults that are new, and reports whether there were some.
func (r *reel) name(all []report.FilmFault) (added bool) {
	for i := range all {
		if r.fault(all[i].ID) < 0 {
			r.film.Faults, added = append(r.film.Faults, all[i]), true
		}
	}
	return added
}

func (r *reel) fault(id string) int {
	return slices.IndexFunc(r.film.Faults, func(f report.FilmFault) bool { return f.ID == id })
}

// indices returns which of the film's faults are on.
func (r *reel) indices(all []report.FilmFault, on []bool) (which []int) {
	for i := range all {
		if on[i] {
			which = append(which, r.fault(all[i].ID))
		}
	}
	return which
}

// next returns the nodes' reports as a frame, and whether it differs from the frame before.
func (r *reel) next(states []counters.Node, on []int) (f report.Frame, changed bool) {
	f = report.Frame{To: math.Inf(-1), On: on}
	for i := range states {
		if states[i].Kind != "gone" {
			f.To = max(f.To, states[i].LabUS)
		}
	}
	if math.IsInf(f.To, -1) { // no report has the time
		f.To = r.shown.To
	}
	f.From = min(r.shown.To, f.To) // virtual time begins again with each run
	var trees []report.FilmTree
	for i := range states {
		s := &states[i]
		id, ok := r.g.Find(s.Node)
		if !ok {
			continue
		}
		if s.Kind == "gone" {
			f.Gone = append(f.Gone, id)
			continue
		}
		r.ports(id, s, &f)
		trees = r.grow(trees, id, s)
		if said := report.Counted(s); !maps.Equal(said, r.said[id]) {
			if f.State == nil {
				f.State = map[int]map[string]uint64{}
			}
			f.State[id], r.said[id] = said, said
		}
		r.last[id] = *s
	}
	if !reflect.DeepEqual(trees, r.trees) {
		f.Trees, r.trees, changed = trees, trees, true
		if trees == nil {
			f.Trees = []report.FilmTree{}
		}
	}
	was := &r.shown
	changed = changed || f.State != nil || len(f.Load)+len(was.Load) > 0 || !slices.Equal(f.Queue, was.Queue) || !slices.Equal(f.Pause, was.Pause) ||
		!slices.Equal(f.Gone, was.Gone) || !slices.Equal(f.On, was.On)
	r.shown = f
	return f, changed
}

// ports enters the bytes that a node's ports have sent since its last answer, and those that they hold. Counts that
// went back are of a node that has restarted.
func (r *reel) ports(id int, s *counters.Node, f *report.Frame) {
	was := &r.last[id]
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Port < 0 || p.Port >= len(r.g.Nodes[id].Links) {
			continue
		}
		w := report.WayOf(r.g, id, p.Port)
		if us := s.LabUS - was.LabUS; us > 0 && i < len(was.Ports) && was.Ports[i].Port == p.Port && p.Sent > was.Ports[i].Sent && p.SentBytes >= was.Ports[i].SentBytes {
			bits := float64(p.SentBytes-was.Ports[i].SentBytes+(p.Sent-was.Ports[i].Sent)*wire.LinkOverhead) * 8
			f.Load = append(f.Load, [2]float64{float64(w), min(1, bits/(us*1e3)/r.film.Ways[w].Gbps)})
		}
		if s.Held == nil {
			continue
		}
		if q := s.Held.Queues; p.Port < len(q) && q[p.Port] > 0 {
			f.Queue = append(f.Queue, [2]float64{float64(w), float64(q[p.Port])})
		}
		if q := s.Held.Paused; p.Port < len(q) && q[p.Port] > 0 {
			f.Pause = append(f.Pause, [2]float64{float64(w), 1})
		}
	}
}

// grow adds the paths that a switch has of each group.
func (r *reel) grow(trees []report.FilmTree, id int, s *counters.Node) []report.FilmTree {
	for i := range s.Groups {
		g := &s.Groups[i]
		k := slices.IndexFunc(trees, func(t report.FilmTree) bool { return t.Group == g.McstID })
		if k < 0 {
			k, trees = len(trees), append(trees, report.FilmTree{Group: g.McstID, From: s.LabUS})
			if old := slices.IndexFunc(r.trees, func(t report.FilmTree) bool { return t.Group == g.McstID }); old >= 0 {
				trees[k].From = r.trees[old].From
			}
		}
		for _, p := range g.Paths {
			if p.Port >= 0 && p.Port < len(r.g.Nodes[id].Links) {
				trees[k].Ways = append(trees[k].Ways, report.WayOf(r.g, id, p.Port))
			}
		}
	}
	return trees
}
