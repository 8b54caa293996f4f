// SPDX-License-Identifier: Apache-2.0

package rank_test

import (
	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

// A program in which rank 0 sends a word to all others by multicast. The binary is mcastlab
// with this program in it; a lab file names it with {program: {name: hello}}.
func Example() {
	command.Main(rank.Program{Name: "hello", Run: func(r *rank.Rank, _ []string) error {
		b, err := r.Alloc(5, rank.MemoryBytes)
		if err != nil {
			return err
		}
		group, err := r.NewGroup("all", 0) // returns when the switches have it
		if err != nil {
			return err
		}
		start := group.Recv
		if r.ID() == 0 {
			copy(b.Bytes(), "hello")
			r.Sync() // all others have posted their receive
			start = group.Send
		}
		q, err := start(b, 0, 5)
		if err != nil {
			return err
		}
		if r.ID() != 0 {
			r.Sync()
		}
		if err := r.Wait(q); err != nil {
			return err
		}
		r.Verify(string(b.Bytes()) == "hello", "the word is %q", b.Bytes())
		return group.Delete()
	}})
}
