package collective

import (
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// batch is how many chunks are posted with one doorbell (AG-4), batchesMax how many
// batches a subgroup has under way: enough that the link never waits for the worker.
const (
	batch      = 64
	batchesMax = 2
)

// sender is the send worker.
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

// send multicasts this rank's block and hands the turn on. A request for datagrams ends
// when the last of them starts on the wire, so the next rank of the chain hears of its
// turn right behind it.
func (c *cast) send() error {
	groups := c.chains[0]
	if len(c.chains) > 1 {
		groups = c.chains[c.chainOf(c.r.ID())]
	}
	left, under := make([]span, len(groups)), make([][]*rank.Request, len(groups))
	for i := range groups {
		left[i] = c.layout.share(c.block(), i, len(groups))
	}
	for {
		var waits []*rank.Request
		for i, m := range groups { // a batch of each in turn: the NIC takes turns as well
			for len(under[i]) > 0 && under[i][0].Done() {
				if err := c.r.Wait(under[i][0]); err != nil {
					return err
				}
				under[i] = under[i][1:]
			}
			for left[i].lo < left[i].hi && len(under[i]) < batchesMax {
				q, err := m.Send(c.b, c.pieces(&left[i]))
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
	c.sent = true
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

// pieces takes the next batch off a run of chunks.
func (c *cast) pieces(s *span) (all []rank.Piece) {
	for ; s.lo < s.hi && len(all) < batch; s.lo++ {
		off, n := c.layout.at(s.lo)
		all = append(all, rank.Piece{Off: off, Len: n, Imm: c.round<<24 | uint32(s.lo)})
	}
	return all
}
