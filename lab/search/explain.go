// SPDX-License-Identifier: Apache-2.0

package search

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// tally counts the frames in a run's record.
type tally struct {
	Hops uint64 `json:"packet_hops"`
	Lost uint64 `json:"frames_lost_to_faults"`
}

// readTally returns the tally of the only run in a folder.
func readTally(base string) (t tally, err error) {
	files, err := filepath.Glob(filepath.Join(base, "*", "meta.json"))
	if err != nil || len(files) != 1 {
		return t, fmt.Errorf("%d records of a run in %s (%w)", len(files), base, err)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	return t, err
}

// explained reports whether the lab itself explains a deadlock. A NIC whose timers run gives up some
// time, and the run ends with it. Only three causes prevent that: a stall that never ends; a pause that
// never ends, since no timer runs for unsent packets; and lost frames where the timeout is infinite, or
// where no receiver acknowledges them, as in a many-to-many.
func (r *labRun) explained(l *lab.Lab) bool {
	for _, row := range r.report.Faults {
		i, err := strconv.Atoi(strings.TrimPrefix(row.ID, faults.LabPrefix))
		if err != nil || i >= len(l.Faults) {
			continue
		}
		if row.Seen > 0 && holds(l, &l.Faults[i]) {
			return true
		}
	}
	silent := slices.ContainsFunc(l.Workloads, func(w lab.Workload) bool { return w.ManyToMany != nil })
	return (silent || l.NICs.Timeout == 0) && (r.lost > 0 || r.dropped() > 0)
}

// holds reports whether a fault that has occurred blocks its links or nodes for good. A storm leaves
// its last pause behind, which may last until the next one.
func holds(l *lab.Lab, f *lab.Fault) bool {
	switch f.Kind() {
	case faults.KindStall, faults.KindPause:
		return f.For == nil
	case faults.KindPauseStorm:
		return f.For == nil || f.Every != nil && vtime.Duration(*f.Every-*f.For) <= longestPause(l)
	}
	return false
}

// longestPause returns how long a pause may last on the slowest link.
func longestPause(l *lab.Lab) vtime.Duration {
	g, err := labspec.Graph(l)
	if err != nil {
		return 0 // which cannot be: the lab has been run
	}
	slowest := int64(math.MaxInt64)
	for i := range g.Links {
		slowest = min(slowest, g.Links[i].Rate)
	}
	for i := range l.Faults {
		if f := &l.Faults[i]; f.RateCut != nil {
			slowest = min(slowest, int64(f.RateCut.Rate))
		}
	}
	return faults.FullPause(slowest)
}

// dropped returns the number of frames that NICs and switches have dropped.
func (r *labRun) dropped() (n uint64) {
	for _, kind := range r.report.Counters { // a sum
		for _, k := range kind.Drops { // a sum
			n += k
		}
	}
	return n
}
