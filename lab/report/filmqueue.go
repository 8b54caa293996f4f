// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/traces"
)

// waiting is the number of bytes that wait before a direction of a link from an instant on.
type waiting struct {
	us    float64
	bytes float64
}

// queues enters the most that waited before each direction in each frame, as the trace has it. A trace of an older
// program has none: then the film does not claim to have queues.
func (r *filming) queues(trace string) error {
	g, all := r.fabric.g, map[int][]waiting{}
	err := lines(trace, func(line []byte) {
		var l traces.Line
		if !bytes.Contains(line, []byte(`"k":"queue"`)) || json.Unmarshal(line, &l) != nil {
			return
		}
		if id, ok := g.Find(l.Node); ok && l.Port >= 0 && l.Port < len(g.Nodes[id].Links) {
			w := r.fabric.wayOf(id, l.Port)
			all[w] = append(all[w], waiting{float64(l.At) / 1e6, float64(l.Bytes)})
		}
	})
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	peak := 0
	for k := range r.fabric.ways {
		peak = max(peak, r.fabric.ways[k].peak)
	}
	r.film.Queues = len(all) > 0 || peak < traces.QueueStep
	most := make([]map[int]float64, len(r.film.Frames))
	for k := range most {
		most[k] = map[int]float64{}
	}
	for w, list := range all { // independent of each other
		slices.SortStableFunc(list, func(a, b waiting) int { return cmp.Compare(a.us, b.us) })
		for i, x := range list {
			to := r.fabric.spanUS
			if i+1 < len(list) {
				to = list[i+1].us
			}
			for k := r.frame(x.us); x.bytes > 0 && k < len(r.film.Frames) && (k == r.frame(x.us) || r.film.Frames[k].From < to); k++ {
				most[k][w] = max(most[k][w], x.bytes)
			}
		}
	}
	for k := range most {
		for w := range r.film.Ways {
			if n := most[k][w]; n > 0 {
				r.film.Frames[k].Queue = append(r.film.Frames[k].Queue, [2]float64{float64(w), n})
			}
		}
	}
	return nil
}
