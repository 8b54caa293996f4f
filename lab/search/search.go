// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
)

// Options are the choices of a search.
type Options struct {
	From, Seeds uint64
	// Seen is called with every seed that has been tried; it may be nil.
	Seen func(seed uint64)
	// Hook is for tests of the search itself.
	Hook Hook
}

// Result is the result of a search.
type Result struct {
	From     uint64    `json:"from"`
	Seeds    uint64    `json:"seeds"`   // that were tried
	Overlap  uint64    `json:"overlap"` // of those, with two or more kinds at a time
	Failed   uint64    `json:"failed"`  // of those, in which a workload ended with an error, as it may
	Hops     uint64    `json:"packet_hops"`
	Findings []Finding `json:"findings"`
}

// Finding is a seed that broke a promise.
type Finding struct {
	Seed   uint64   `json:"seed"`
	Class  string   `json:"class"`
	Text   string   `json:"text"`
	Drawn  bool     `json:"drawn,omitempty"` // the lab was drawn, too: TryLab shows it again
	Faults int      `json:"faults"`          // drawn, and
	Left   int      `json:"left"`            // left after shrinking
	Lab    *lab.Lab `json:"-"`               // as small as it was made
	File   string   `json:"file,omitempty"`
}

// findingsMax ends a search: a promise broken that often needs no more examples.
const findingsMax = 5

// Run searches the seeds of a lab. The result holds the findings even if it ends with an error.
func Run(ctx context.Context, l *lab.Lab, o Options) (*Result, error) {
	res := &Result{From: o.From, Findings: []Finding{}}
	small, err := Small(l)
	if err != nil {
		return res, err
	}
	plain, err := Try(ctx, small, nil)
	if err != nil {
		return res, err
	}
	if plain.Violation != nil || plain.Failed {
		return res, fmt.Errorf("the lab fails without any fault: %w", asError(plain.Violation))
	}
	for seed := o.From; seed < o.From+o.Seeds && len(res.Findings) < findingsMax; seed++ {
		if err := ctx.Err(); err != nil { // a small run does not notice
			return res, err
		}
		faulty, overlap, err := Draw(small, seed, vtime.Duration(plain.End))
		if err != nil {
			return res, err
		}
		out, err := Try(ctx, faulty, o.Hook)
		if err != nil {
			return res, err
		}
		res.Seeds, res.Hops = res.Seeds+1, res.Hops+out.Hops
		if overlap {
			res.Overlap++
		}
		if out.Failed {
			res.Failed++
		}
		if v := out.Violation; v != nil {
			least, err := Shrink(ctx, faulty, v, o.Hook)
			if err != nil {
				return res, err
			}
			res.Findings = append(res.Findings, Finding{
				Seed: seed, Class: v.Class, Text: v.Text, Faults: len(faulty.Faults), Left: len(least.Faults), Lab: least,
			})
		}
		if o.Seen != nil {
			o.Seen(seed)
		}
	}
	return res, nil
}

func asError(v *Violation) error {
	if v == nil {
		return fmt.Errorf("a workload ended with an error")
	}
	return v
}
