// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// batch is the number of chunks that are posted with one doorbell (AG-4). batchesMax is the number of
// batches that a subgroup may have outstanding, enough that the link never waits for the worker.
const (
	batch      = 64
	batchesMax = 2
)

// sender is the loop of the send worker.
func (c *cast) sender() error {
	for {
		c.r.Until("a turn to multicast", func() bool { return c.closing || c.turn && c.clear && !c.sent })
		if c.closing {
			return nil
		}
		if err := c.send(); err != nil {
			return c.fail(err)
		}
	}
}

// tempo paces a rank that multicasts: it spaces chunks so that the ranks of all chains
// together use a given part of a link. Chains start one chunk after the other, so that their
// chunks reach a receiver in turn.
type tempo struct {
	perByte float64    // picoseconds per byte; 0: as fast as the link
	due     vtime.Time // when the next chunk may leave
}

func (c *cast) tempo() (t tempo) {
	if c.o.Pace == 0 {
		return t
	}
	chains, own := 1, 0
	if c.gather {
		chains, own = c.parallel(), c.chainOf(c.r.ID())
	}
	line := 8 / float64(c.r.LinkRate()) * 100 / float64(c.o.Pace) * float64(vtime.Second)
	t.perByte = line * float64(chains)
	t.due = c.r.Now().Add(vtime.Picoseconds(line * float64(own*(c.layout.chunk+around))))
	return t
}

// wait waits until chunks may leave.
func (t *tempo) wait(r *rank.Rank, chunks []rank.Piece) {
	if t.perByte == 0 {
		return
	}
	r.Sleep(t.due.Sub(r.Now()))
	bytes := 0
	for _, p := range chunks {
		bytes += p.Len + around*((p.Len+r.MTU()-1)/r.MTU())
	}
	t.due = t.due.Add(vtime.Picoseconds(t.perByte * float64(bytes)))
}

// send multicasts this rank's block and then activates the next rank. A request of datagrams
// completes when the last one starts on the wire, so the activation follows right behind it.
func (c *cast) send() error {
	groups := c.chains[0]
	if len(c.chains) > 1 {
		groups = c.chains[c.chainOf(c.r.ID())]
	}
	pace := c.tempo()
	left, under := make([]span, len(groups)), make([][]*rank.Request, len(groups))
	for i := range groups {
		left[i] = c.layout.share(c.block(), i, len(groups))
	}
	for {
		var waits []*rank.Request
		for i, m := range groups { // one batch of each in turn, as the NIC takes turns too
			for len(under[i]) > 0 && under[i][0].Done() {
				if err := c.r.Wait(under[i][0]); err != nil {
					return err
				}
				under[i] = under[i][1:]
			}
			for left[i].lo < left[i].hi && len(under[i]) < batchesMax {
				chunks := c.pieces(&left[i])
				pace.wait(c.r, chunks)
				q, err := m.Send(c.b, chunks)
				if err != nil {
					return err
				}
				under[i] = append(under[i], q)
			}
			if len(under[i]) > 0 {
				waits = append(waits, under[i][0])
			}
		}
		if len(waits) == 0 {
			break
		}
		c.r.Look(vtime.Never, "the link to take chunks", nil, func() bool { return anyDone(waits) })
	}
	if _, last := c.chain(); c.gather && c.r.ID() < last {
		if err := c.ring.activate(); err != nil {
			return err
		}
	}
	c.sent, c.movedAt = true, c.r.Now()
	c.r.Notify()
	return nil
}

func anyDone(all []*rank.Request) bool {
	for _, q := range all {
		if q.Done() {
			return true
		}
	}
	return false
}

// pieces takes the next batch off a run of chunks, or only one chunk if a pace is set.
func (c *cast) pieces(s *span) (all []rank.Piece) {
	most := batch
	if c.o.Pace > 0 {
		most = 1
	}
	for ; s.lo < s.hi && len(all) < most; s.lo++ {
		off, n := c.layout.at(s.lo)
		all = append(all, rank.Piece{Off: off, Len: n, Imm: c.round<<24 | uint32(s.lo)})
	}
	return all
}
