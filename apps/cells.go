// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// RealMax is the largest number of bytes over all ranks for which automatic memory is real.
const RealMax = 512 << 20

// Read decodes the JSON parameters of the workload with the given name into p.
func Read(name string, raw []byte, p any) error {
	if err := json.Unmarshal(raw, p); err != nil {
		return fmt.Errorf("%s: read parameters: %w", name, err)
	}
	return nil
}

// Cell is a scheme at a size. The records of ranks embed it.
type Cell struct {
	Scheme int `json:"scheme"` // index into the parameters' Schemes
	Size   int `json:"size"`   // index into their Sizes
}

func (c Cell) place() Cell { return c }

// Seed returns the seed of an iteration. No two iterations of a run transfer the same contents.
func (c Cell) Seed(seed uint64, iteration int) uint64 {
	return prng.Mix(seed ^ uint64(c.Scheme)<<48 ^ uint64(c.Size)<<32 ^ uint64(iteration))
}

// Emit passes a rank's record to the runtime as JSON.
func Emit(r *rank.Rank, record any) error {
	out, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	rankrun.Of(r).Emit(out)
	return nil
}

// Rows returns a row for each cell that all ranks have recorded, scheme by scheme. row is called
// with the records of the cell in the order of ranks.
func Rows[R interface{ place() Cell }](name string, records [][][]byte, schemes, sizes int, row func(c Cell, ranks []R) Row) ([]Row, error) {
	all := make([][]R, schemes*sizes)
	for i, lines := range records {
		for _, out := range lines {
			var rec R
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("%s: read record of rank %d: %w", name, i, err)
			}
			c := rec.place()
			all[c.Scheme*sizes+c.Size] = append(all[c.Scheme*sizes+c.Size], rec)
		}
	}
	var rows []Row
	for k, ranks := range all {
		if len(ranks) > 0 && len(ranks) == len(records) {
			rows = append(rows, row(Cell{k / sizes, k % sizes}, ranks))
		}
	}
	return rows, nil
}
