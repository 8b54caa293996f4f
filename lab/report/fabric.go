// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// fabric is the network of a run, from its folder.
type fabric struct {
	g       *topo.Graph
	spanUS  float64        // lab time of the run
	over    bool           // it has ended, so that its files are whole
	ways    []way          // of link i: 2i from A to B, 2i+1 from B to A
	drops   []uint64       // by node, without losses on links
	faults  []fault        // of the lab file, and those added by hand
	resets  []reset        // by hand, in their order
	rows    []span         // of the results, from the events
	counted bool           // there is a counters.json
	pauses  map[int][]span // by direction, when its transmitter was paused
}

// fault is one of a run.
type fault struct {
	faults.Spec
	byRow bool    // comes again in each row
	since float64 // us of lab time at which it was added
}

// reset is the removal of all faults whose id begins so.
type reset struct {
	at     float64 // us of lab time
	prefix string
}

// way is one direction of a link and its traffic.
type way struct {
	from, to      topo.End
	frames, bytes uint64
	busyUS        float64 // for which its transmitter was busy
	peak          int     // bytes that one queue before it held
	lost          uint64  // by faults of the link
	pausedUS      float64 // for which its transmitter was paused
}

// readFabric reads a run's lab and, if they are not given, its counters.
func readFabric(dir string, m *runner.Meta, acts []faults.Act, nodes []counters.Node) (*fabric, error) {
	text, err := runner.ReadLab(dir)
	if err != nil {
		return nil, err
	}
	l, err := lab.Parse(runner.LabFile, text)
	if err != nil {
		return nil, err
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, err
	}
	f := &fabric{g: g, spanUS: m.LabUS, over: m.Status != runner.StatusRunning, drops: make([]uint64, len(g.Nodes)), ways: make([]way, 2*len(g.Links))}
	specs, err := labspec.Timeline(l, g)
	if err != nil {
		return nil, err
	}
	for i, s := range specs {
		f.faults = append(f.faults, fault{Spec: s, byRow: !labspec.InRun(l, i)})
	}
	if err := f.byHand(acts, l); err != nil {
		return nil, err
	}
	for i := range g.Links {
		k := &g.Links[i]
		f.ways[2*i], f.ways[2*i+1] = way{from: k.A, to: k.B}, way{from: k.B, to: k.A}
	}
	if f.counted = nodes != nil; !f.counted {
		if nodes, f.counted, err = readCounters(dir); err != nil {
			return nil, err
		}
	}
	for i := range nodes {
		f.count(&nodes[i])
	}
	return f, nil
}

// readCounters returns ok false if a run has none.
func readCounters(dir string) (nodes []counters.Node, ok bool, err error) {
	var c counters.File
	if err := runner.ReadJSON(filepath.Join(dir, "counters.json"), &c); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	if c.Schema != counters.Schema {
		return nil, false, fmt.Errorf("counters.json has schema %q, and this program reads %q", c.Schema, counters.Schema)
	}
	return c.Nodes, true, nil
}

// count enters the counters of a node. Those of a node or port that the lab has not are left out.
func (f *fabric) count(n *counters.Node) {
	id, ok := f.g.Find(n.Node)
	if !ok {
		return
	}
	for _, v := range n.Drops { // a sum
		f.drops[id] += v
	}
	for i := range n.Ports {
		p := &n.Ports[i]
		if p.Port < 0 || p.Port >= len(f.g.Nodes[id].Links) {
			continue
		}
		w := f.way(id, p.Port)
		w.frames, w.bytes, w.peak = p.Sent, p.SentBytes, p.QueuePeak
		w.busyUS = float64(p.SentBytes+p.Sent*wire.LinkOverhead) * 8 / float64(f.rate(w)) * 1e6
		in := f.g.Peer(id, p.Port)
		f.way(in.Node, in.Port).lost += p.LostToFault
		f.drops[id] += p.KernelDrops
	}
}

// wayOf returns the number of the direction that leaves a node by a port.
func (f *fabric) wayOf(node, port int) int {
	link := f.g.Nodes[node].Links[port]
	if a := f.g.Links[link].A; a.Node == node && a.Port == port {
		return 2 * link
	}
	return 2*link + 1
}

func (f *fabric) way(node, port int) *way { return &f.ways[f.wayOf(node, port)] }

// rate returns the rate of the link in bit/s.
func (f *fabric) rate(w *way) int64 { return f.g.Links[f.g.Nodes[w.from.Node].Links[w.from.Port]].Rate }

// wayName is h0:0>leaf0:0.
func (f *fabric) wayName(w *way) string { return f.g.PortName(w.from) + ">" + f.g.PortName(w.to) }

// paused enters pauses: spans for which a port stood still, by direction.
func (f *fabric) paused(spans map[int][]span) {
	f.pauses = map[int][]span{}
	for k, all := range spans { // independent of each other
		f.pauses[k] = union(all)
		for _, s := range f.pauses[k] {
			f.ways[k].pausedUS += s.to - s.from
		}
	}
}

// span is a stretch of lab time in us.
type span struct{ from, to float64 }

// union joins spans that overlap.
func union(all []span) (out []span) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		if k := len(out) - 1; k >= 0 && s.from <= out[k].to {
			out[k].to = max(out[k].to, s.to)
		} else if s.to > s.from {
			out = append(out, s)
		}
	}
	return out
}

// quantum returns the time in us for which a quantum of pause stops a port.
func (f *fabric) quantum(w *way) float64 { return 512 / float64(f.rate(w)) * 1e6 }

// byHand enters the manual faults.
func (f *fabric) byHand(acts []faults.Act, l *lab.Lab) error {
	for i := range acts {
		a := &acts[i]
		at := us(vtime.Duration(a.At))
		if a.Reset != nil {
			f.resets = append(f.resets, reset{at, *a.Reset})
			continue
		}
		s, err := faults.Decode(a.Fault, f.g, l.Replicas())
		if err != nil {
			return fmt.Errorf("fault %s, added by hand: %w", a.ID, err)
		}
		s.ID, s.Text = a.ID, a.Text
		f.faults = append(f.faults, fault{Spec: s, since: at})
	}
	return nil
}

// bands returns the times at which fault i was to be on, at most that many spans: in the run, or in each of
// its rows. A fault that is reset ends there.
func (f *fabric) bands(i, most int) (all []span) {
	x := &f.faults[i]
	within := []span{{x.since, f.spanUS}}
	if x.byRow {
		within = f.rows
	}
	for _, w := range within {
		for _, r := range f.resets {
			if r.at >= w.from && r.at < w.to && strings.HasPrefix(x.ID, r.prefix) {
				w.to = r.at
			}
		}
		all = append(all, bandsIn(w, &x.Spec, most-len(all))...)
	}
	return all
}

func us(d vtime.Duration) float64 { return float64(d) / float64(vtime.Microsecond) }

// bandsIn returns when a fault was to be on in a stretch from whose start its times count.
func bandsIn(within span, s *faults.Spec, most int) (all []span) {
	from := within.from + us(vtime.Duration(s.From))
	for ; from < within.to && len(all) < most; from += us(s.Every) {
		to := within.to
		switch {
		case !s.Kind.Lasts():
			to = from
		case s.For > 0:
			to = min(to, from+us(s.For))
		}
		if all = append(all, span{from, to}); s.Every <= 0 {
			break
		}
	}
	return all
}
