// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/traces/explain"
)

// Film is a recording of a lab's network over time, for playback on a page. Directions of links, nodes and faults are named
// by their index in its lists.
type Film struct {
	Lab      string        `json:"lab"`
	Status   runner.Status `json:"status"` // of a run
	Layout   Layout        `json:"layout"`
	Nodes    []string      `json:"nodes"`
	Ways     []FilmWay     `json:"ways"` // way 2i of link i is from its A to its B
	Faults   []FilmFault   `json:"faults,omitempty"`
	Trees    []FilmTree    `json:"trees,omitempty"`
	Messages []FilmMessage `json:"messages,omitempty"`
	Rows     []string      `json:"rows,omitempty"`  // of the results, as text
	Notes    []string      `json:"notes,omitempty"` // missing parts, each with the reason
	Frames   []Frame       `json:"frames"`
	Queues   bool          `json:"queues,omitempty"` // of a run: frames have its queues
}

// FilmWay is a direction of a link.
type FilmWay struct {
	Name string  `json:"name"` // h0:0>leaf0:0
	From int     `json:"from"` // node
	To   int     `json:"to"`
	Gbps float64 `json:"gbps"`
	Peak int     `json:"peak,omitempty"` // bytes that one queue before it held, over the whole run
	Load float64 `json:"load,omitempty"` // share of the whole run for which it was busy, if its load in each frame is not known
}

// FilmFault is a fault. Spans are in us of lab time; a running lab has none, and each frame lists those that are
// on.
type FilmFault struct {
	ID    string       `json:"id"`
	Kind  string       `json:"kind"`
	Text  string       `json:"text"`
	Spans [][2]float64 `json:"spans,omitempty"`
}

// FilmTree is a group and the directions along which it was registered.
type FilmTree struct {
	Group string  `json:"group"`
	Ways  []int   `json:"ways"`
	From  float64 `json:"from"`         // us
	To    float64 `json:"to,omitempty"` // us; 0: it was not deleted
}

// FilmMessage is a message of a workload and when its receivers had all of it.
type FilmMessage struct {
	Name  string          `json:"name"`
	Start float64         `json:"start"` // us
	Each  []FilmReception `json:"each"`
	Parts [][2]string     `json:"parts,omitempty"` // of its critical path, and their us
}

// FilmReception is the time at which a host had a message, in us.
type FilmReception struct {
	Host string  `json:"host"`
	At   float64 `json:"at"`
}

// Frame is a step of a film: the values other than 0, as pairs of an index and a value.
type Frame struct {
	From   float64                   `json:"from"` // us
	To     float64                   `json:"to"`
	Load   [][2]float64              `json:"load,omitempty"`   // by direction, share of the step for which it was busy
	Queue  [][2]float64              `json:"queue,omitempty"`  // by direction, bytes before it
	Pause  [][2]float64              `json:"pause,omitempty"`  // by direction, share of the step for which it was paused
	Events map[int]map[string]int    `json:"events,omitempty"` // by node and kind, in the step
	State  map[int]map[string]uint64 `json:"state,omitempty"`  // counters of the nodes whose counters have changed
	Gone   []int                     `json:"gone,omitempty"`   // nodes that do not answer
	On     []int                     `json:"on,omitempty"`     // faults, of a running lab
	Trees  []FilmTree                `json:"trees,omitempty"`  // of a running lab
}

// Bounds of a film.
const (
	framesMax   = 600
	stretchMax  = 100 // in which something happens
	filmMessage = 400 // messages with their receivers
)

// NewFilm returns a film of a topology, without frames.
func NewFilm(name string, g *topo.Graph) *Film {
	f := &Film{Lab: name, Layout: Place(g), Frames: []Frame{}}
	for i := range g.Nodes {
		f.Nodes = append(f.Nodes, g.Nodes[i].Name)
	}
	for i := range g.Links {
		for _, w := range [][2]topo.End{{g.Links[i].A, g.Links[i].B}, {g.Links[i].B, g.Links[i].A}} {
			f.Ways = append(f.Ways, FilmWay{
				Name: g.PortName(w[0]) + ">" + g.PortName(w[1]), From: w[0].Node, To: w[1].Node, Gbps: float64(g.Links[i].Rate) / 1e9,
			})
		}
	}
	return f
}

// WayOf returns the index of the direction that leaves a node by a port, which there must be.
func WayOf(g *topo.Graph, node, port int) int { return (&fabric{g: g}).wayOf(node, port) }

// Filmable returns an error if a run's folder cannot be read as a film, as far as its lab and counters
// show.
func Filmable(dir string) error {
	_, _, _, err := readLab(dir)
	return err
}

func readLab(dir string) (m runner.Meta, rep runner.Report, fab *fabric, err error) {
	if err := runner.ReadJSON(filepath.Join(dir, "meta.json"), &m); err != nil {
		return m, rep, nil, err
	}
	if m.Schema != runner.MetaSchema {
		return m, rep, nil, fmt.Errorf("%s/meta.json has schema %q, and this program reads %q", dir, m.Schema, runner.MetaSchema)
	}
	if err := runner.ReadJSON(filepath.Join(dir, "summary.json"), &rep); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, rep, nil, err
	}
	if fab, err = readFabric(dir, &m, rep.Acts, nil); err != nil {
		return m, rep, nil, fmt.Errorf("read the network of run %s: %w", dir, err)
	}
	return m, rep, fab, nil
}

// ReadFilm reads a run's folder as a film. A run that is still running is read as far as its files are
// written.
func ReadFilm(dir string) (*Film, error) {
	m, rep, fab, err := readLab(dir)
	if err != nil {
		return nil, err
	}
	film := NewFilm(m.Lab, fab.g)
	film.Status = runner.StatusOf(dir, &m)
	r := filming{film: film, fabric: fab, dir: dir}
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("read run %s: %w", dir, err)
	}
	for i := range rep.Outliers {
		film.Rows = append(film.Rows, rep.Outliers[i].String())
	}
	for i := range rep.Results {
		row := &rep.Results[i]
		median := ""
		if row.Iterations > 1 {
			median = "median "
		}
		film.Rows = append(film.Rows, fmt.Sprintf("%s, %s, %s: %s%s us", row.Workload, row.Scheme, sizeOf(row), median, number(row.JCT.P50)))
	}
	return film, nil
}

// filming makes a film of a run's files.
type filming struct {
	film   *Film
	fabric *fabric
	dir    string
	traced bool
}

func (r *filming) read() error {
	trace := filepath.Join(r.dir, runner.TraceFile)
	switch st, err := os.Stat(trace); {
	case errors.Is(err, fs.ErrNotExist):
		r.film.Notes = append(r.film.Notes, "Load over time and messages are known of runs with trace: messages; shown is each link's load over the whole run.")
	case err != nil:
		return err
	case st.Size() > traceMax:
		r.film.Notes = append(r.film.Notes, fmt.Sprintf("The trace has %d MiB and is not shown.", st.Size()>>20))
	default:
		r.traced = true
	}
	at, err := r.instants(trace)
	if err != nil {
		return err
	}
	fab := r.fabric
	if len(at) > 0 {
		fab.spanUS = max(fab.spanUS, at[len(at)-1])
	}
	r.film.Frames = cut(at, fab.spanUS)
	h := newHistory(fab.spanUS)
	if err := fab.readEvents(r.dir, h); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.pauses()
	for i := range fab.faults {
		f := FilmFault{ID: fab.faults[i].ID, Kind: string(fab.faults[i].Kind), Text: fab.faults[i].Text}
		for _, s := range fab.bands(i, bandsMax) {
			f.Spans = append(f.Spans, [2]float64{s.from, s.to})
		}
		r.film.Faults = append(r.film.Faults, f)
	}
	for _, g := range h.groups {
		edges, _ := fab.tree(g)
		t := FilmTree{Group: g.name, Ways: edges, From: g.addedUS}
		if !math.IsNaN(g.deletedUS) {
			t.To = g.deletedUS
		}
		r.film.Trees = append(r.film.Trees, t)
	}
	if err := r.events(); err != nil {
		return err
	}
	if r.traced {
		if err := r.load(trace); err != nil {
			return err
		}
		if err := r.queues(trace); err != nil {
			return err
		}
		if err := r.messages(trace); err != nil {
			return err
		}
	}
	if !r.film.Queues {
		r.film.Notes = append(r.film.Notes, "Queues over time are known of runs with trace: messages; shown is the most that one queue before each link held in the run.")
	}
	return r.counters()
}

// instants returns when something happened, in us and in order.
func (r *filming) instants(trace string) (all []float64, err error) {
	add := func(us float64) {
		if len(all) < 1<<22 {
			all = append(all, us)
		}
	}
	for _, name := range eventFiles(r.dir) {
		err := lines(name, func(line []byte) {
			var e event
			if bytes.HasPrefix(line, []byte(`{"t_us":`)) && json.Unmarshal(line, &e) == nil {
				add(e.TimeUS)
			}
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // rotated meanwhile, or not there yet
			return nil, fmt.Errorf("read events: %w", err)
		}
	}
	if r.traced {
		err := lines(trace, func(line []byte) {
			var l traces.Line
			if sent := bytes.Contains(line, []byte(`"k":"sent"`)); (sent || bytes.Contains(line, []byte(`"k":"queue"`))) && json.Unmarshal(line, &l) == nil {
				add(float64(l.At) / 1e6)
				if !sent {
					return
				}
				add(float64(l.At+int64(max(1, l.Count)-1)*l.Gap+l.Takes) / 1e6)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read the trace: %w", err)
		}
	}
	slices.Sort(all)
	return all, nil
}

// cut divides a span of lab time into at most framesMax frames. A stretch in which nothing happens for a hundredth of
// the span, or for 10 ms, is one frame (or for longer, if there are many such stretches); the others share the
// remaining frames by their length.
func cut(at []float64, spanUS float64) []Frame {
	if spanUS <= 0 {
		return []Frame{{From: 0, To: 0}}
	}
	idle := max(min(spanUS/100, 10_000), 1)
	busy, total := stretches(at, spanUS, idle), 0.0
	for ; len(busy) > stretchMax; busy = stretches(at, spanUS, idle) {
		idle *= 2
	}
	for _, s := range busy {
		total += s.to - s.from
	}
	var frames []Frame
	now := 0.0
	put := func(to float64) {
		if to > now || len(frames) == 0 && to >= spanUS {
			frames, now = append(frames, Frame{From: now, To: to}), to
		}
	}
	for _, s := range busy {
		put(s.from)
		n := 1
		if total > 0 {
			n = max(1, int((s.to-s.from)/total*(framesMax-2*stretchMax-2)))
		}
		for k := 1; k <= n; k++ {
			put(s.from + (s.to-s.from)*float64(k)/float64(n))
		}
	}
	put(spanUS)
	return frames
}

// stretches returns when something happened within a span, without gaps of less than idle.
func stretches(at []float64, spanUS, idle float64) (busy []span) {
	for _, t := range at {
		if t < 0 || t > spanUS {
			continue
		}
		if k := len(busy) - 1; k >= 0 && t-busy[k].to < idle {
			busy[k].to = t
		} else {
			busy = append(busy, span{t, t})
		}
	}
	return busy
}

// frame returns the index of the frame of an instant.
func (r *filming) frame(us float64) int {
	k, _ := slices.BinarySearchFunc(r.film.Frames, us, func(f Frame, us float64) int {
		if f.To <= us {
			return -1
		}
		return 1
	})
	return min(k, len(r.film.Frames)-1)
}

// spread adds the length of a span to the frames it lies in.
func (r *filming) spread(s span, add func(frame int, us float64)) {
	for k := r.frame(s.from); k < len(r.film.Frames); k++ {
		f := &r.film.Frames[k]
		if f.From >= s.to {
			return
		}
		add(k, max(0, min(s.to, f.To)-max(s.from, f.From)))
	}
}

// share enters sums of us by frame and direction, as shares of the frames.
func (r *filming) share(sums []map[int]float64, put func(f *Frame, pairs [][2]float64)) {
	for k := range sums {
		f := &r.film.Frames[k]
		var pairs [][2]float64
		for w := range r.film.Ways {
			if us := sums[k][w]; us > 0 {
				pairs = append(pairs, [2]float64{float64(w), round(min(1, us/(f.To-f.From)))})
			}
		}
		put(f, pairs)
	}
}

func round(v float64) float64 { return math.Ceil(v*1e4) / 1e4 }

func (r *filming) sums() []map[int]float64 {
	sums := make([]map[int]float64, len(r.film.Frames))
	for k := range sums {
		sums[k] = map[int]float64{}
	}
	return sums
}

func (r *filming) pauses() {
	sums := r.sums()
	for w, all := range r.fabric.pauses { // independent of each other
		for _, s := range all {
			r.spread(s, func(k int, us float64) { sums[k][w] += us })
		}
	}
	r.share(sums, func(f *Frame, pairs [][2]float64) { f.Pause = pairs })
}

// load enters for how long each direction was busy in each frame.
func (r *filming) load(trace string) error {
	sums, g := r.sums(), r.fabric.g
	left := 1 << 26 // packets, as for arrivals at hosts
	err := lines(trace, func(line []byte) {
		var l traces.Line
		if !bytes.Contains(line, []byte(`"k":"sent"`)) || json.Unmarshal(line, &l) != nil {
			return
		}
		id, ok := g.Find(l.Node)
		if !ok || l.Port < 0 || l.Port >= len(g.Nodes[id].Links) {
			return
		}
		w := r.fabric.wayOf(id, l.Port)
		for i := range max(1, l.Count) {
			if left--; left < 0 {
				return
			}
			from := float64(l.At+int64(i)*l.Gap) / 1e6
			r.spread(span{from, from + float64(l.Takes)/1e6}, func(k int, us float64) { sums[k][w] += us })
		}
	})
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	r.share(sums, func(f *Frame, pairs [][2]float64) { f.Load = pairs })
	return nil
}

// events counts the events of each node in each frame.
func (r *filming) events() error {
	for _, name := range eventFiles(r.dir) {
		err := lines(name, func(line []byte) {
			var e event
			if json.Unmarshal(line, &e) != nil {
				return
			}
			id, ok := r.fabric.g.Find(e.Node)
			if !ok {
				return
			}
			f := &r.film.Frames[r.frame(e.TimeUS)]
			if f.Events == nil {
				f.Events = map[int]map[string]int{}
			}
			if f.Events[id] == nil {
				f.Events[id] = map[string]int{}
			}
			f.Events[id][e.Event]++
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read events: %w", err)
		}
	}
	return nil
}

// messages enters the workloads' messages, and where their time went.
func (r *filming) messages(trace string) error {
	f, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	t, err := explain.Read(f)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	for _, m := range t.Messages {
		if m.Workload == "" {
			continue
		}
		if len(r.film.Messages) == filmMessage {
			r.film.Notes = append(r.film.Notes, fmt.Sprintf("The first %d messages are listed; mcastlab trace has all.", filmMessage))
			break
		}
		one := FilmMessage{Name: fmt.Sprintf("%d: %s, %s, %v from %s", m.ID, m.Workload, m.Scheme, lab.Size(m.Bytes), m.Source), Start: float64(m.Start) / 1e6}
		for _, x := range m.Receivers {
			one.Each = append(one.Each, FilmReception{x.Host, float64(x.At) / 1e6})
		}
		if e, ok := t.Explain(m); ok {
			one.Parts = path(e.Path)
		}
		r.film.Messages = append(r.film.Messages, one)
	}
	return nil
}

// path sums a critical path by part and place, in the order of their first steps, as texts.
func path(steps []explain.Step) (all [][2]string) {
	const most = 40
	sums, order := map[string]int64{}, []string(nil)
	for _, s := range steps {
		name := s.Part + " at " + s.At
		if _, known := sums[name]; !known {
			order = append(order, name)
		}
		sums[name] += s.To - s.From
	}
	for _, name := range order[:min(len(order), most)] {
		all = append(all, [2]string{name, number(float64(sums[name]) / 1e6)})
	}
	return all
}

// counters enters the nodes' counters of the whole run, in the last frame.
func (r *filming) counters() error {
	fab, film := r.fabric, r.film
	for k := range fab.ways {
		film.Ways[k].Peak = fab.ways[k].peak
		if w := &fab.ways[k]; !r.traced && w.busyUS > 0 && fab.spanUS > 0 {
			film.Ways[k].Load = round(min(1, w.busyUS/fab.spanUS))
		}
	}
	if !fab.counted {
		return nil
	}
	var c counters.File
	if err := runner.ReadJSON(filepath.Join(r.dir, "counters.json"), &c); err != nil {
		return err
	}
	last := &film.Frames[len(film.Frames)-1]
	last.State = map[int]map[string]uint64{}
	for i := range c.Nodes {
		if id, ok := fab.g.Find(c.Nodes[i].Node); ok {
			last.State[id] = Counted(&c.Nodes[i])
		}
	}
	return nil
}

// Counted returns the counters of a node that are not 0, by name.
func Counted(n *counters.Node) map[string]uint64 {
	all := map[string]uint64{}
	put := func(name string, v uint64) {
		if v > 0 {
			all[name] = v
		}
	}
	for name, v := range n.Counts { // by name
		put(name, v)
	}
	for name, v := range n.Drops { // by name
		put("drops: "+name, v)
	}
	for i := range n.Ports {
		p := &n.Ports[i]
		port := "port " + strconv.Itoa(p.Port) + ": "
		put(port+"sent", p.Sent)
		put(port+"sent_bytes", p.SentBytes)
		put(port+"received", p.Received)
		put(port+"received_bytes", p.ReceivedBytes)
		put(port+"lost_to_fault", p.LostToFault)
		put(port+"kernel_drops", p.KernelDrops)
		put(port+"queue_peak_bytes", uint64(max(0, p.QueuePeak)))
	}
	return all
}
