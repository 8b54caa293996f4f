// SPDX-License-Identifier: Apache-2.0

// Ring-sum is a rank program to copy: a sum goes from rank to rank, each adds its number, and the last
// one sends the others the total by multicast (docs/programs.md).
package main

import (
	"encoding/binary"

	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

func main() { command.Main(rank.Program{Name: "ring-sum", Run: ringSum}) }

// ringSum is one rank's part. All ranks run it at the same time.
func ringSum(r *rank.Rank, _ []string) error {
	me, last := r.ID(), r.Size()-1
	buf, err := r.Alloc(8, rank.MemoryBytes)
	if err != nil {
		return err
	}
	group, err := r.NewGroup("total", last) // of all ranks; returns when the switches have it
	if err != nil {
		return err
	}
	start := r.Now()
	if me > 0 {
		if err := move(r, me-1, (*rank.Conn).Recv, buf); err != nil {
			return err
		}
	}
	sum := binary.BigEndian.Uint64(buf.Bytes()) + uint64(me)
	binary.BigEndian.PutUint64(buf.Bytes(), sum)
	if me < last {
		if err := move(r, me+1, (*rank.Conn).Send, buf); err != nil {
			return err
		}
	}
	tell := group.Recv
	if me == last {
		r.Sync() // all others have posted their receive
		tell = group.Send
	}
	q, err := tell(buf, 0, 8)
	if err != nil {
		return err
	}
	if me < last {
		r.Sync()
	}
	if err := r.Wait(q); err != nil {
		return err
	}
	sum = binary.BigEndian.Uint64(buf.Bytes())
	r.Measured("sum", 8, start)
	r.Verify(sum == uint64(last*(last+1)/2), "the sum of 0 to %d is not %d", last, sum)
	r.Printf("the sum of 0 to %d is %d", last, sum)
	return group.Delete()
}

// move sends the buffer to a peer, or receives it from there, and waits until it has.
func move(r *rank.Rank, peer int, verb func(c *rank.Conn, b *rank.Buffer, off, n int) (*rank.Request, error), b *rank.Buffer) error {
	c, err := r.Connect(peer) // waits until the peer connects, too
	if err != nil {
		return err
	}
	q, err := verb(c, b, 0, 8)
	if err != nil {
		return err
	}
	return r.Wait(q)
}
