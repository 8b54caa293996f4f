package search

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
)

// tally is what a run's record says of its frames.
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

// explained reports whether the lab leaves a run no way out of a deadlock. A NIC whose timers
// run gives up some time, and with it the run. Only two things keep them from that: a stall
// that came and never ends, and a timeout that is infinite where frames were lost.
//
// A many-to-many with faults is left out: nobody acknowledges its messages, and the simulator
// takes a lab for idle whose work requests have all ended, while such messages are still under
// way, if a fault begins just then (docs/faults.md, known limits).
func (r *labRun) explained(l *lab.Lab) bool {
	for _, row := range r.report.Faults {
		i, err := strconv.Atoi(strings.TrimPrefix(row.ID, faults.LabPrefix))
		if err != nil || i >= len(l.Faults) {
			continue
		}
		if f := &l.Faults[i]; f.Kind() == faults.KindStall && f.For == nil && row.Seen > 0 {
			return true
		}
	}
	if len(l.Faults) > 0 && slices.ContainsFunc(l.Workloads, func(w lab.Workload) bool { return w.ManyToMany != nil }) {
		return true
	}
	return l.NICs.Timeout == 0 && (r.lost > 0 || r.dropped() > 0)
}

// dropped returns how many frames NICs and switches have dropped.
func (r *labRun) dropped() (n uint64) {
	for _, kind := range r.report.Counters { // a sum
		for _, k := range kind.Drops { // a sum
			n += k
		}
	}
	return n
}
