// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/traces"
)

// lineMax bounds a line of a run's files.
const lineMax = 16 << 20

// history is the course of a run over its time, in steps of equal length.
type history struct {
	stepUS  float64
	steps   int
	counts  map[string][]float64 // by kind of event
	arrived []float64            // data that arrived at hosts, in Gbit/s; nil: the run has no trace
	groups  []*group
}

// group is a multicast group, from the switches' events.
type group struct {
	name               string
	addedUS, deletedUS float64 // NaN: never
	in                 map[int]int
	paths              map[int]int64 // by switch
	deleted            int
}

// shown are the kinds of events that have a line in the picture of a run's time.
func shown() []string {
	return []string{"drop", "nak-sent", "timeout", "retransmit", "pause-received", "fallback", "return", "member-lost"}
}

// newHistory divides a run into at most 240 steps: of a millisecond if that fits, else of 1, 2 or 5 times a power of ten.
func newHistory(spanUS float64) *history {
	const most = 240
	h := &history{stepUS: 1000, counts: map[string][]float64{}}
	if spanUS > most*h.stepUS || spanUS < 10*h.stepUS {
		h.stepUS = math.Pow(10, math.Floor(math.Log10(max(spanUS, 1)/most)))
		for _, k := range []float64{1, 2, 5, 10} {
			if spanUS/(h.stepUS*k) <= most {
				h.stepUS *= k
				break
			}
		}
	}
	h.steps = max(1, int(math.Ceil(spanUS/h.stepUS)))
	return h
}

// at returns the step of an instant.
func (h *history) at(us float64) int {
	return int(max(0, min(us/h.stepUS, float64(h.steps-1))))
}

// event is a line of events.jsonl, as far as it is used here.
type event struct {
	TimeUS   float64 `json:"t_us"`
	Node     string  `json:"node"`
	Event    string  `json:"event"`
	Port     int     `json:"port"`
	Priority uint8   `json:"priorities"`
	Group    string  `json:"group"`
	Value    int64   `json:"value"`
}

// eventFiles returns a run's files of events, the oldest first.
func eventFiles(dir string) (all []string) {
	old, _ := filepath.Glob(filepath.Join(dirPattern(dir), "events-*.jsonl")) // of a pattern that is none it finds nothing
	number := func(name string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "events-"), ".jsonl"))
		return n
	}
	slices.SortFunc(old, func(a, b string) int { return number(a) - number(b) })
	return append(old, filepath.Join(dir, "events.jsonl"))
}

// dirPattern escapes the special characters of patterns.
func dirPattern(dir string) string {
	if filepath.Separator == '\\' {
		return dir
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// lines calls f with each line of a file of events or a trace. Of one that is cut short the last line may be no JSON.
// One that has another end than it was written with is an error.
func lines(name string, f func(line []byte)) error {
	_, err := linesTo(name, f)
	return err
}

// linesTo is lines, and returns the end of the file: a run that is still running has written none.
func linesTo(name string, f func(line []byte)) (sum checksum.Lines, err error) {
	file, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	s := bufio.NewScanner(file)
	s.Buffer(nil, lineMax)
	for s.Scan() {
		line := s.Bytes()
		f(line)
		if lines, crc, is := endOf(line); is {
			_ = sum.End(lines, crc) // kept by sum
		} else {
			sum.Add(line)
		}
	}
	if err = cmp.Or(s.Err(), sum.Err()); err != nil && !errors.Is(err, checksum.ErrNone) {
		return sum, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return sum, nil
}

// endOf returns the number and checksum in the last line of a file.
func endOf(line []byte) (lines uint64, crc string, is bool) {
	if !bytes.HasPrefix(line, []byte(`{"event":"end"`)) && !bytes.HasPrefix(line, []byte(`{"k":"end"`)) {
		return 0, "", false
	}
	var e struct {
		Value uint64 `json:"value"` // of events
		Count uint64 `json:"c"`     // of a trace
		Sum   string `json:"crc32c"`
	}
	if json.Unmarshal(line, &e) != nil {
		return 0, "", false
	}
	return e.Value + e.Count, e.Sum, true
}

// readEvents reads pauses, groups and failures from a run's events.
func (f *fabric) readEvents(dir string, h *history) error {
	wanted := map[string]bool{"group-added": true, "group-deleted": true, "workload": true, "result": true}
	for _, kind := range shown() {
		wanted[kind] = true
	}
	open, spans, groups := map[[2]int]span{}, map[int][]span{}, map[string]*group{}
	var unended []string // files without an end
	for _, name := range eventFiles(dir) {
		sum, err := linesTo(name, func(line []byte) {
			_, rest, ok := bytes.Cut(line, []byte(`"event":"`))
			kind, _, closed := bytes.Cut(rest, []byte{'"'})
			if !ok || !closed || !wanted[string(kind)] {
				return
			}
			var e event
			if json.Unmarshal(line, &e) != nil || !wanted[e.Event] {
				return
			}
			if slices.Contains(shown(), e.Event) {
				if h.counts[e.Event] == nil {
					h.counts[e.Event] = make([]float64, h.steps)
				}
				h.counts[e.Event][h.at(e.TimeUS)]++
			}
			f.row(&e)
			id, ok := f.g.Find(e.Node)
			if !ok {
				return
			}
			switch e.Event {
			case "pause-received":
				f.pause(id, &e, open, spans)
			case "group-added", "group-deleted":
				h.group(id, &e, groups)
			}
		})
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if !sum.Ended() {
			unended = append(unended, filepath.Base(name))
		} else if sum.Err() != nil {
			unended = nil // an older version ended only the last file
		}
	}
	if f.over && len(unended) > 0 {
		return fmt.Errorf("read events: %s: it has no end, although the run has ended: it was cut short", unended[0])
	}
	for k, s := range open { // independent of each other
		spans[k[0]] = append(spans[k[0]], span{s.from, min(s.to, f.spanUS)})
	}
	f.paused(spans)
	return nil
}

// row follows the rows of the results. One that the run did not finish lasts as long as the run.
func (f *fabric) row(e *event) {
	switch k := len(f.rows) - 1; {
	case e.Event == "workload":
		f.rows = append(f.rows, span{e.TimeUS, f.spanUS})
	case e.Event == "result" && k >= 0:
		f.rows[k].to = e.TimeUS
	}
}

// pause follows the pauses of a port: each lasts its quanta, unless another takes its place.
func (f *fabric) pause(id int, e *event, open map[[2]int]span, spans map[int][]span) {
	if e.Port < 0 || e.Port >= len(f.g.Nodes[id].Links) || e.Value < 0 || e.Value > math.MaxUint16 {
		return
	}
	k := f.wayOf(id, e.Port)
	for prio := range 8 {
		if e.Priority>>prio&1 == 0 {
			continue
		}
		s, on := open[[2]int{k, prio}]
		if on && e.TimeUS >= s.to { // it had run out
			spans[k], on = append(spans[k], s), false
		}
		if !on {
			s.from = e.TimeUS
		}
		switch {
		case e.Value > 0:
			s.to = e.TimeUS + float64(e.Value)*f.quantum(&f.ways[k])
			open[[2]int{k, prio}] = s
		case on:
			spans[k] = append(spans[k], span{s.from, e.TimeUS})
			delete(open, [2]int{k, prio})
		default:
			delete(open, [2]int{k, prio})
		}
	}
}

// group enters a switch's event of a group. A McstID that is registered again after its deletion is another
// group.
func (h *history) group(id int, e *event, all map[string]*group) {
	g := all[e.Group]
	if e.Event == "group-deleted" {
		if g != nil {
			g.deleted, g.deletedUS = g.deleted+1, e.TimeUS
		}
		return
	}
	if g == nil || g.deleted > 0 {
		g = &group{name: e.Group, addedUS: e.TimeUS, deletedUS: math.NaN(), in: map[int]int{}, paths: map[int]int64{}}
		all[e.Group] = g
		h.groups = append(h.groups, g)
	}
	if _, known := g.in[id]; !known {
		g.in[id] = e.Port
	}
	g.paths[id] = e.Value
}

// readArrivals reads from the trace the data that arrived at hosts in each step, repeats included.
func (f *fabric) readArrivals(dir string, h *history) error {
	bits := make([]float64, h.steps)
	left := 1 << 26 // packets: more than any valid trace within its size limit has
	err := lines(filepath.Join(dir, "trace.jsonl"), func(line []byte) {
		if !bytes.Contains(line, []byte(`"k":"sent"`)) {
			return
		}
		var l traces.Line
		if json.Unmarshal(line, &l) != nil || l.Packet != traces.PacketData && l.Packet != traces.PacketResponse {
			return
		}
		id, ok := f.g.Find(l.Node)
		if !ok || l.Port < 0 || l.Port >= len(f.g.Nodes[id].Links) || f.g.Peer(id, l.Port).Node >= f.g.Hosts {
			return
		}
		each := float64(l.Takes) / 1e12 * float64(f.rate(f.way(id, l.Port)))
		for i := range max(1, l.Count) {
			if left--; left < 0 {
				return
			}
			bits[h.at(float64(l.At+int64(i)*l.Gap+l.Lands)/1e6)] += each
		}
	})
	if err != nil {
		return err
	}
	for i := range bits {
		bits[i] /= h.stepUS * 1e3 // bit per ns is Gbit/s
	}
	h.arrived = bits
	return nil
}
