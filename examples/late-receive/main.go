// SPDX-License-Identifier: Apache-2.0

// Late-receive is a rank program whose receiver posts its receive after the message has come, or never: the sender gets RNR NAKs
// and waits for the receiver's RNR timer (docs/errors.md).
package main

import (
	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

func main() { command.Main(rank.Program{Name: "late-receive", Run: lateReceive}) }

const (
	size = 64 << 10   // bytes of the message
	late = 50_000_000 // picoseconds from the start of rank 1 to its receive
)

// lateReceive sends one message from rank 0 to rank 1. With an argument, rank 1 does not come to its receive.
func lateReceive(r *rank.Rank, args []string) error {
	buf, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	peer, err := r.Connect(1 - r.ID())
	if err != nil {
		return err
	}
	start, post := r.Now(), peer.Send
	if r.ID() == 1 {
		post = peer.Recv
		if len(args) > 0 {
			r.Until("another call", func() bool { return false })
		}
		r.Sleep(late)
	}
	q, err := post(buf, 0, size)
	if err != nil {
		return err
	}
	if err := r.Wait(q); err != nil {
		return err
	}
	r.Measured("message", size, start)
	return nil
}
