// SPDX-License-Identifier: Apache-2.0

// Command outside is mcastlab with a program that waits for what nobody sends, panics, or blocks
// outside package rank: as its first argument says, on rank 2, and only in the processes of
// nodes if the second is "live".
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

func main() { command.Main(rank.Program{Name: "outside", Run: run}) }

func run(r *rank.Rank, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("two arguments are needed, not %d", len(args))
	}
	if args[1] == "live" && os.Args[1] != "node" {
		return nil
	}
	if args[0] == "waits" {
		return waits(r)
	}
	r.Sync()
	if r.ID() != 2 {
		return nil
	}
	fmt.Fprintln(os.Stderr, "rank 2 leaves")
	switch args[0] {
	case "channel":
		<-make(chan struct{})
	case "panic":
		var counts map[string]int
		counts["rank 2"]++
	case "sleep":
		time.Sleep(time.Hour)
	case "loop":
		for spins := 0; spins >= 0; spins++ {
			spins &= 1
		}
	}
	return fmt.Errorf("no way to block is called %q", args[0])
}

// waits has each rank receive from the one before it, and nobody send.
func waits(r *rank.Rank) error {
	b, err := r.Alloc(64, rank.MemoryBytes)
	if err != nil {
		return err
	}
	peers := []int{(r.ID() + r.Size() - 1) % r.Size(), (r.ID() + 1) % r.Size()}
	if r.ID()%2 == 0 {
		peers[0], peers[1] = peers[1], peers[0]
	}
	for _, p := range peers {
		if _, err := r.Connect(p); err != nil {
			return err
		}
	}
	c, err := r.Connect((r.ID() + r.Size() - 1) % r.Size())
	if err != nil {
		return err
	}
	q, err := c.Recv(b, 0, 64)
	if err != nil {
		return err
	}
	return r.Wait(q)
}
