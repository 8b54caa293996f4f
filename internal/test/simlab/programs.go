// SPDX-License-Identifier: Apache-2.0

package simlab

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Message is a transfer of a number of packets, each as long as the MTU, from a rank to its
// group.
type Message struct{ From, Packets int }

// Broadcasts returns the program of ranks that form a group and send it the messages, one
// after the other. It fails if a byte is wrong at any receiver.
func Broadcasts(mtu int, messages ...Message) func(r *rank.Rank) error {
	return func(r *rank.Rank) error {
		g, err := r.NewGroup("g", 0)
		if err != nil {
			return err
		}
		for i, m := range messages {
			if err := Broadcast(r, g, uint64(i+1), mtu, m); err != nil {
				return err
			}
		}
		return nil
	}
}

// Broadcast is a rank's part in one message, whose bytes depend on the seed alone.
func Broadcast(r *rank.Rank, g *rank.Group, seed uint64, mtu int, m Message) error {
	size := m.Packets * mtu
	buf, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	if err := g.SetSource(m.From); err != nil {
		return err
	}
	var q *rank.Request
	if r.ID() == m.From {
		buf.Fill(seed, size)
	} else if q, err = g.Recv(buf, 0, size); err != nil {
		return err
	}
	r.Sync()
	if r.ID() == m.From {
		if q, err = g.Send(buf, 0, size); err != nil {
			return err
		}
	}
	if err := r.Wait(q); err != nil {
		return err
	}
	if ok, _ := buf.Check(seed, size, rank.Digest{}); !ok {
		return fmt.Errorf("rank %d: wrong bytes in message %d", r.ID(), seed)
	}
	r.Sync()
	return nil
}

// Cross has rank 0 send size bytes to each other rank and receive as much from it, so that
// the pause frames of switches have to wait for other frames.
func Cross(r *rank.Rank, size int) error {
	buf, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	var conns []*rank.Conn
	var reqs []*rank.Request
	for p := range r.Size() {
		if p == r.ID() || p != 0 && r.ID() != 0 {
			continue
		}
		c, err := r.Connect(p)
		if err != nil {
			return err
		}
		q, err := c.Recv(buf, 0, size)
		if err != nil {
			return err
		}
		conns, reqs = append(conns, c), append(reqs, q)
	}
	r.Sync()
	for _, c := range conns {
		q, err := c.Send(buf, 0, size)
		if err != nil {
			return err
		}
		reqs = append(reqs, q)
	}
	return r.Wait(reqs...)
}

// FailedSend returns the program of three ranks of which rank 0 sends to rank 1 after 10 us,
// over a link that the test has cut by then. All ranks then wait as the test says; only rank 0
// has a request. If part is set, ranks 0 and 1 are connected by views of the job.
func FailedSend(part bool, waits func(r *rank.Rank, q *rank.Request) error) func(r *rank.Rank) error {
	return func(r *rank.Rank) error {
		b, err := r.Alloc(64, rank.MemoryBytes)
		if err != nil {
			return err
		}
		var q *rank.Request
		if r.ID() < 2 {
			view := r
			if part {
				if view, err = r.Sub("pair", []int{0, 1}); err != nil {
					return err
				}
			}
			c, err := view.Connect(1 - r.ID())
			if err != nil {
				return err
			}
			if r.Sleep(10 * vtime.Microsecond); r.ID() == 0 {
				if q, err = c.Send(b, 0, 64); err != nil {
					return err
				}
			}
		}
		return waits(r, q)
	}
}

// MRModes returns the modes in which a group takes WRITEs.
func MRModes() []rank.MRMode {
	return []rank.MRMode{rank.MRPerRequest, rank.MRRegistered, rank.MRShared}
}
