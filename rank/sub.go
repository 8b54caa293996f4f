// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Sub returns the rank's view of a part of the job, like a communicator of MPI. In it ranks
// are numbered by their place in members, and connections, groups, published values and Sync
// belong to the part alone. Every algorithm that takes a Rank works on a view. Memory
// registered by the rank serves all its views. All members must call Sub with the same name
// and list; a name may be used once in a job.
func (r *Rank) Sub(name string, members []int) (*Rank, error) {
	me := slices.Index(members, r.c.ID)
	if me < 0 {
		return nil, fmt.Errorf("part %s: rank %d is not in it", name, r.c.ID)
	}
	c := r.c
	c.ID, c.Size, c.Peers = me, len(members), nil
	step := 1
	if len(members) > 1 {
		step = members[1] - members[0]
	}
	inStep := step > 0 // the job's tables serve members at equal distances, which saves memory in large jobs
	for i, m := range members {
		inStep = inStep && m == members[0]+i*step
		if m < 0 || m >= r.c.Size {
			return nil, fmt.Errorf("part %s: no rank %d of %d", name, m, r.c.Size)
		}
		if r.External(m) {
			return nil, fmt.Errorf("part %s: %s is external and runs no program", name, r.NameOf(m))
		}
	}
	stride := 1
	if inStep {
		first, end := members[0]*r.stride, members[len(members)-1]*r.stride+1
		c.Names, c.IPs, stride = r.c.Names[first:end], r.c.IPs[first:end], step*r.stride
	} else {
		c.Names, c.IPs = make([]string, len(members)), make([]uint32, len(members))
		for i, m := range members {
			c.Names[i], c.IPs[i] = r.NameOf(m), r.ip(m)
		}
	}
	c.Random = r.c.Random.Derive("part/" + name)
	c.Board = &subBoard{Board: r.c.Board, prefix: "part/" + name + "/", id: me, size: len(members)}
	s := newRank(c, r.job)
	s.pd, s.stride = r.pd, stride
	var err error
	c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = s.open(nic) })
	if err != nil {
		return nil, fmt.Errorf("part %s: %w", name, err)
	}
	return s, nil
}

// Until blocks until cond holds. cond reads state that the rank's other workers change, which must call
// Notify afterwards. why completes the sentence "waiting on ...".
func (r *Rank) Until(why string, cond func() bool) {
	for {
		r.poll() // on a wall clock, completions that came before this look do not wake the task
		if cond() {
			return
		}
		r.park(vtime.Never, why)
	}
}

// Look blocks until cond holds or the lab time until is reached, and reports whether cond holds. cond
// may read which requests of the rank are Done, the Arrivals of the given groups, and state that the
// rank's other workers change, which must call Notify afterwards. cond itself must not block.
func (r *Rank) Look(until vtime.Time, why string, groups []*Multicast, cond func() bool) bool {
	for {
		some := false
		// All checks happen in one Do, so that whatever happens after them wakes the task.
		r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
			some = r.take(nic)
			r.health.look(nic)
			for _, g := range groups {
				g.take(nic)
			}
		})
		if some {
			r.c.Host.Kick()
		}
		if cond() {
			return true
		}
		if r.Now() >= until {
			return false
		}
		r.park(until, why)
	}
}

// Notify wakes the rank's other workers, so that they check their conditions again.
func (r *Rank) Notify() { r.c.Host.Kick() }

// subBoard is the out-of-band channel of a part of a job: the channel of the job, with keys
// and barriers of its own.
type subBoard struct {
	rankhost.Board
	prefix   string
	id, size int
	round    int
}

// Put implements rankhost.Board.
func (b *subBoard) Put(key string, value []byte) { b.Board.Put(b.prefix+key, value) }

// Get implements rankhost.Board.
func (b *subBoard) Get(key, why string, over func() bool) ([]byte, bool) {
	return b.Board.Get(b.prefix+key, why, over)
}

// Take implements rankhost.Board.
func (b *subBoard) Take(key, why string, over func() bool) ([]byte, bool) {
	return b.Board.Take(b.prefix+key, why, over)
}

// Barrier implements rankhost.Board. The first member waits for all others and then releases them.
func (b *subBoard) Barrier(over func() bool) bool {
	b.round++
	const why = "the other ranks of a part to synchronise"
	all := fmt.Sprintf("sync/%d", b.round)
	if b.id != 0 {
		b.Put(fmt.Sprintf("%s/%d", all, b.id), nil)
		_, ok := b.Get(all, why, over)
		return ok
	}
	for i := 1; i < b.size; i++ {
		if _, ok := b.Take(fmt.Sprintf("%s/%d", all, i), why, over); !ok {
			return false
		}
	}
	b.Put(all, nil)
	return true
}
