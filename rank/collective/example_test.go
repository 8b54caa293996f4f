// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"

	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// A program in which rank 0 sends 1 MiB down a chain of all ranks, in eight slices. The report of
// the run has a row with the time that this takes.
func Example() {
	command.Main(rank.Program{Name: "pass-on", Run: func(r *rank.Rank, _ []string) error {
		const size = 1 << 20
		b, err := r.Alloc(size, rank.MemoryPhantom) // it has a length and no content
		if err != nil {
			return err
		}
		chain, err := collective.NewBcast("chain", r, collective.Options{Slices: 8})
		if err != nil {
			return err
		}
		if err := chain.Begin(b, size, 0); err != nil {
			return err
		}
		r.Sync() // all ranks have posted their receives
		start := r.Now()
		if _, err := chain.Run(); err != nil {
			return err
		}
		r.Measured("chain", size, start)
		return chain.Close()
	}})
}

// The parameters of an algorithm are those fields of Options that it reads.
func ExampleParameters() {
	for _, p := range collective.Parameters("ud-multicast") {
		fmt.Println(p.Name, p.Default)
	}
	// Output:
	// subgroups 1
	// workers 1
	// staging 1024
}
