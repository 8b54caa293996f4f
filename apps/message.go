// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// Message is one iteration of a workload on all ranks, for traces.
type Message struct {
	Workload, Scheme string
	Bytes            int
	Iteration        int // counted from 1
	Source           int // sending rank, or -1 if all ranks send
	Start            vtime.Time
	Received         []vtime.Time // by rank; -1 for the source and for a rank without a record
	Done             vtime.Time   // when the source, or the last of all ranks, had all acknowledgements
	Ended            vtime.Time   // when the last rank had finished the iteration
}

// Messenger is an App whose iterations appear in traces.
type Messenger interface {
	// Messages returns the iterations that the records describe.
	Messages(params []byte, records [][][]byte) ([]Message, error)
}

// Iterations returns the iterations that the records of all ranks describe. A record has the
// indices scheme and size, and samples with the instants start, received and done. External ranks
// have no records.
func Iterations(workload string, schemes []string, sizes []int, source int, records [][][]byte) (all []Message, err error) {
	type key struct{ scheme, size, iteration int }
	at := map[key]int{}
	for r, lines := range records {
		for _, line := range lines {
			var rec struct {
				Scheme, Size int
				Samples      []struct{ Start, Received, Done vtime.Time }
			}
			if err := json.Unmarshal(line, &rec); err != nil {
				return nil, fmt.Errorf("%s: read record of rank %d: %w", workload, r, err)
			}
			if rec.Scheme < 0 || rec.Scheme >= len(schemes) || rec.Size < 0 || rec.Size >= len(sizes) {
				return nil, fmt.Errorf("%s: rank %d has a record of scheme %d, size %d", workload, r, rec.Scheme, rec.Size)
			}
			for i, s := range rec.Samples {
				k := key{rec.Scheme, rec.Size, i}
				n, ok := at[k]
				if !ok {
					n = len(all)
					at[k] = n
					m := Message{Workload: workload, Scheme: schemes[k.scheme], Bytes: sizes[k.size], Iteration: i + 1, Source: source, Start: s.Start}
					for range records {
						m.Received = append(m.Received, -1)
					}
					all = append(all, m)
				}
				m := &all[n]
				if r == source {
					m.Start = s.Start
				} else {
					m.Received[r] = s.Received
				}
				if r == source || source < 0 {
					m.Done = max(m.Done, s.Done)
				}
				m.Ended = max(m.Ended, s.Done, s.Received)
			}
		}
	}
	return all, nil
}
