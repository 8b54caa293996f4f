// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
)

// deal assigns the shares of parts to workers. State that parts of one worker share is touched by its
// goroutine alone.
type deal struct {
	worker []int       // by part
	shares [][]int     // by worker: its parts, in ascending order
	pools  []wire.Pool // by worker

	every, next uint64   // the loads are checked every so many events of all parts, next at this number
	before      []uint64 // by part: its events at the last look
}

// dealEvery is the number of events between two checks of the workers' loads. A part that moves to another
// worker has to be fetched into the cache of another core.
const dealEvery = 1 << 17

// newDeal gives neighbouring parts to one worker.
func newDeal(parts, workers int) deal {
	workers = max(1, min(workers, parts))
	d := deal{
		worker: make([]int, parts), shares: make([][]int, workers), pools: make([]wire.Pool, workers), every: dealEvery, next: dealEvery, before: make([]uint64, parts),
	}
	for w := range workers {
		for i := w * parts / workers; i < (w+1)*parts/workers; i++ {
			d.worker[i], d.shares[w] = w, append(d.shares[w], i)
		}
	}
	return d
}

// look returns which worker should do which parts, by the events that they have had since the last look, or nil if
// the workers had about as much to do each as they could have.
func (d *deal) look(parts []*Net) (worker []int) {
	loads, order := make([]uint64, len(parts)), make([]int, len(parts))
	had := make([]uint64, len(d.shares))
	for i, n := range parts {
		loads[i], order[i] = n.stats.Events-d.before[i], i
		had[d.worker[i]] += loads[i]
		d.before[i] = n.stats.Events
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	worker = make([]int, len(parts))
	has := make([]uint64, len(d.shares))
	for _, i := range order { // the largest first, each to who has least; to the worker that has it now if that makes no difference
		least := d.worker[i]
		for w := range has {
			if has[w] < has[least] {
				least = w
			}
		}
		worker[i] = least
		has[least] += loads[i]
	}
	if most := slices.Max(has); most+most/8 >= slices.Max(had) {
		return nil
	}
	return worker
}

// redeal gives parts to other workers if some of these had less to do than others. It is called between two
// rounds. A block belongs to one worker, however many frames have it, so nothing moves while there is one.
func (p *Parts) redeal() {
	d := &p.deal
	d.next = p.events + d.every
	for w := range d.pools {
		if d.pools[w].LiveBlocks != 0 {
			return
		}
	}
	worker := d.look(p.parts)
	if worker == nil {
		return
	}
	p.exchange() // under the present deal
	for w := range d.shares {
		d.shares[w] = d.shares[w][:0]
	}
	for i, w := range worker {
		d.shares[w] = append(d.shares[w], i)
		if from := d.worker[i]; from != w {
			d.worker[i] = w
			held := p.parts[i].held()
			d.pools[from].Live -= held
			d.pools[w].Live += held
			p.parts[i].setPool(&d.pools[w])
		}
	}
	d.level()
}

// level gives all pools as many frames to hand out. Those that a part has used wait in its old worker's pool otherwise, and the
// new one makes others.
func (d *deal) level() {
	sum := 0
	for w := range d.pools {
		sum += d.pools[w].Free()
	}
	share := sum / len(d.pools)
	for from := range d.pools {
		for to := range d.pools {
			if more, less := d.pools[from].Free()-share, share-d.pools[to].Free(); more > 0 && less > 0 {
				d.pools[from].Give(&d.pools[to], min(more, less))
			}
		}
	}
}

// held returns the number of frames in queues, on links, and held back by faults.
func (n *Net) held() int {
	held := n.lates
	for i := range n.links.Len() {
		held += n.links.At(i).InFlight()
	}
	for i := range n.inbound {
		held += n.inbound[i].Len()
	}
	for i := range n.nodes {
		if sw := n.nodes[i].sw; sw != nil {
			held += sw.Queued()
		} else {
			held += n.nodes[i].nic.Queued()
		}
	}
	return held
}

// setPool makes all nodes take frames from another pool, and put them back there.
func (n *Net) setPool(pool *wire.Pool) {
	n.pool = pool
	for i := range n.nodes {
		nd := &n.nodes[i]
		if nd.sw != nil {
			nd.sw.SetPool(pool)
		} else {
			nd.nic.SetPool(pool)
			nd.host.agent.SetPool(pool)
		}
	}
}
