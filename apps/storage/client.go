// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// client is the rank that writes to the replicas.
type client struct {
	*row
	jobs    []*job
	e       *epoch
	lost    []loss   // replicas that failed, in order
	held    []uint64 // by block over all jobs: number of the write that the stores had when the IOs began
	problem string   // the first mistake that the read-back found
	had     int      // writes that the stores had when the IOs began
	repairs int      // blocks that recoveries copied

	stalled  bool   // the IOs of the epoch have stopped
	who      int    // the member that stopped them, or -1 if it is unknown
	why      error  // the reason
	progress uint64 // number of notices received
}

// loss is a replica that failed.
type loss struct {
	rank  int
	why   error
	ended [][]uint64 // by job and block: the last write that had ended before the failure
}

func newClient(w *row) *client { return &client{row: w} }

// run does the IOs, makes the replicas equal, and has them read back.
func (c *client) run() error {
	next := make([]uint64, c.p.Jobs)
	c.held = make([]uint64, c.p.Jobs*c.p.blocks(c.bs))
	if c.p.Durability == Fsync {
		present, lists, err := c.plan("begin", c.replicas, nil)
		if err == nil && len(present) < len(c.replicas) {
			err = fmt.Errorf("replica %s: %w", c.r.NameOf(c.lost[0].rank), c.lost[0].why)
		}
		if err != nil {
			return err
		}
		for _, have := range lists {
			for block, n := range have {
				c.held[block] = max(c.held[block], n)
				next[c.jobOf(uint32(block))] = max(next[c.jobOf(uint32(block))], n)
			}
		}
	}
	for id := range c.p.Jobs {
		c.had += int(next[id])
		j, err := c.newJob(id, next[id]+1)
		if err != nil {
			return err
		}
		c.jobs = append(c.jobs, j)
	}
	members := c.replicas
	for {
		done, err := c.epoch(members)
		switch {
		case err != nil:
			return err
		case done && c.allThere():
			return c.finish(members, nil)
		case done && c.p.OnFailure == Degrade: // all IOs have ended, so no other epoch is needed
			members, _ = c.without(members)
			return c.finish(members, nil)
		}
		if members, err = c.without(members); err != nil {
			return c.finish(members, err)
		}
	}
}

// without returns the members that are left after a failure. It returns an error if the policy is to
// stop, or if no member is left.
func (c *client) without(members []int) ([]int, error) {
	lost := c.lost[len(c.lost)-1]
	left := slices.DeleteFunc(slices.Clone(members), func(r int) bool { return r == lost.rank })
	err := fmt.Errorf("replica %s failed after %d acknowledged writes: %w", c.r.NameOf(lost.rank), c.acked(), lost.why)
	if c.p.OnFailure == Stop || len(left) == 0 {
		return left, err
	}
	return left, nil
}

// allThere reports whether all members answer when the IOs have ended. The recovery that follows
// would wait for one that does not.
func (c *client) allThere() bool {
	never := false
	i, err := c.silent(&never)
	if err != nil {
		c.lost = append(c.lost, loss{c.e.Members[i], err, c.ended()})
	}
	return err == nil
}

// epoch does IOs with the given replicas until all IOs have ended or a replica fails.
func (c *client) epoch(members []int) (done bool, err error) {
	e := &epoch{Members: members}
	for _, j := range c.jobs {
		e.Next = append(e.Next, j.done)
	}
	if err := c.begin(e, members); err != nil {
		return false, err
	}
	c.stalled, c.who, c.why = false, -1, nil
	for _, j := range c.jobs {
		if j.s, err = c.open(c.e, j.id); err != nil {
			return false, err
		}
	}
	for _, j := range c.jobs {
		if err = j.s.await(); err == nil {
			err = j.begin()
		}
		if err != nil {
			return false, err
		}
	}
	over := new(bool)
	if c.p.Durability == Fsync {
		c.r.Go("probe", func() error { c.probe(over); return nil })
	}
	var all []*rank.Worker
	for _, j := range c.jobs[1:] {
		all = append(all, c.r.Go(fmt.Sprintf("job %d", j.id), j.work))
	}
	err = c.jobs[0].work()
	for _, w := range all {
		if werr := w.Join(); err == nil {
			err = werr
		}
	}
	*over = true
	if err != nil {
		return false, err
	}
	if c.stalled {
		return false, c.blame()
	}
	return true, nil
}

// begin announces an epoch to the replicas: its members, or that the IOs have ended. It waits until
// the replicas in left have left the epoch before, and closes the connections of that epoch.
func (c *client) begin(e *epoch, left []int) error {
	before := c.e
	if before != nil {
		e.Number = before.Number + 1
		e.Broken = len(left) < len(before.Members)
	}
	c.e = e
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write epoch: %w", err)
	}
	c.r.Put(c.key("epoch/%d", e.Number), text)
	if before == nil {
		return nil
	}
	for _, m := range left {
		c.r.Get(c.leftKey(before.Number, m))
	}
	for _, j := range c.jobs {
		if err := j.end(); err != nil {
			return err
		}
	}
	return nil
}

// fail stops the IOs because of a member, or of an unknown one if member is -1.
func (c *client) fail(member int, why error) {
	if !c.stalled {
		if rank.Flushed(why) { // a consequence: the request that broke the connection has its own status
			why = errGone
		}
		c.stalled, c.who, c.why = true, member, why
		c.r.Notify()
	}
}

var errGone = errors.New("it does not answer")

// probeEvery is the time without a notice after which the client probes the replicas.
const probeEvery = 2 * vtime.Millisecond

// probe sends an empty WRITE to the replicas when a block is under way and no
// notice has arrived for a while. Without it the
// client would wait for ever for a replica that crashes between its acknowledgement and its notice.
func (c *client) probe(over *bool) {
	for seen := c.progress; ; seen = c.progress {
		c.r.Sleep(probeEvery)
		if *over || c.stalled {
			return
		}
		if c.progress == seen && c.waits() {
			if i, err := c.silent(over); err != nil {
				c.fail(i, err)
				return
			}
		}
	}
}

// waits reports whether the NIC has a block of which not every notice has arrived. Otherwise the client
// is busy by itself, and silence is no sign of failed replicas.
func (c *client) waits() bool {
	return slices.ContainsFunc(c.jobs, func(j *job) bool {
		return slices.ContainsFunc(j.ios, func(o *io) bool { return o.posted })
	})
}

// silent returns the first member that does not acknowledge an empty WRITE, and the error of that
// WRITE. It returns no error if all do, or once over is set.
func (c *client) silent(over *bool) (member int, err error) {
	j := c.jobs[0]
	for i, conn := range j.s.conns {
		q, err := conn.Write(j.buf, 0, 0, j.s.targets[i].addr, j.s.targets[i].rkey)
		if err != nil {
			return i, err
		}
		j.s.r.Until("a sign of life of "+j.s.nameOf(i), func() bool { return q.Done() || *over })
		if *over {
			return -1, nil
		}
		if err := j.s.r.Wait(q); err != nil {
			return i, err
		}
	}
	return -1, nil
}

// blame adds the member that stopped the IOs to the lost replicas. It is an error if all members
// answer.
func (c *client) blame() error {
	if c.who < 0 {
		never := false
		i, err := c.silent(&never)
		if err == nil {
			return fmt.Errorf("%w, and all replicas answer", c.why)
		}
		c.who = i
	}
	c.lost = append(c.lost, loss{c.e.Members[c.who], c.why, c.ended()})
	return nil
}

// newJob returns a job whose first write has the given number.
func (c *client) newJob(id int, first uint64) (*job, error) {
	buf, err := c.r.Alloc(c.p.Depth*c.bs, rank.MemoryBytes)
	if err != nil {
		return nil, err
	}
	random := c.r.Random(fmt.Sprintf("blocks/%s/%d", c.name, id))
	return &job{
		c: c, id: id, buf: buf, random: random, first: first, issued: first, done: first, last: first + uint64(c.p.IOs),
		ended: make([]uint64, c.p.blocks(c.bs)),
	}, nil
}

// finish ends the IOs. It makes the replicas that are present equal, has them read back, and records
// the measurements. failed is the error with which the IOs ended.
func (c *client) finish(members []int, failed error) error {
	present := slices.Clone(members)
	if k := c.p.Crash; k != nil && slices.Contains(c.replicas, k.Rank) && !slices.Contains(present, k.Rank) {
		present = append(present, k.Rank)
		slices.Sort(present)
	}
	if err := c.begin(&epoch{End: true, Present: present}, members); err != nil {
		return err
	}
	present, lists, err := c.plan("end", present, members)
	if err != nil {
		return err
	}
	members = slices.DeleteFunc(slices.Clone(members), func(r int) bool { return !slices.Contains(present, r) })
	if len(present) == 0 {
		c.found("no replica is left to be read back")
	}
	for i, have := range lists {
		ended := c.ended()
		for _, l := range c.lost {
			if l.rank == present[i] {
				ended = l.ended
			}
		}
		c.holds(have, present[i], ended)
	}
	if err := c.readBack(present); err != nil {
		return err
	}
	for _, j := range c.jobs {
		if err := j.buf.Free(); err != nil {
			return err
		}
	}
	if err := c.emit(members, failed); err != nil {
		return err
	}
	return failed
}

func (c *client) crashed(rank int) bool { return c.p.Crash != nil && c.p.Crash.Rank == rank }

// blockNumber returns the number of a job's block among those of all jobs.
func (c *client) blockNumber(j *job, block int) uint32 { return uint32(j.id*c.p.blocks(c.bs) + block) }

// ended returns the last write that has ended, by job and block.
func (c *client) ended() (all [][]uint64) {
	for _, j := range c.jobs {
		all = append(all, slices.Clone(j.ended))
	}
	return all
}

// holds checks that a replica has, for each block, the last write that ended or a later one.
func (c *client) holds(have []uint64, rank int, ended [][]uint64) {
	for _, j := range c.jobs {
		for block, number := range ended[j.id] {
			at := c.blockNumber(j, block)
			want := max(number, c.held[at])
			if got := have[at]; got < want || got >= j.issued && got > c.held[at] {
				c.found("%s has write %d of block %d, acknowledged is %d", c.r.NameOf(rank), got, at, want)
			}
		}
	}
}

// found records a mistake that the read-back found, unless there is an earlier one.
func (c *client) found(format string, args ...any) {
	if c.problem == "" {
		c.problem = fmt.Sprintf(format, args...)
	}
}

// plan is the client's part of a recovery. It returns the replicas that can be compared and, with
// durability fsync, the numbers of the writes that each of them had, by block.
func (c *client) plan(round string, asked, members []int) (present []int, lists [][]uint64, err error) {
	d := plan{Present: []int{}, Transfers: []transfer{}}
	if c.p.Durability == Fsync {
		for _, r := range asked {
			said := c.r.Get(c.key("have/%s/%d", round, r))
			if len(said)%recordHead != 0 {
				c.lost = append(c.lost, loss{r, errors.New(string(said)), c.ended()})
				continue
			}
			have, err := haveOf(said, len(c.held))
			if err != nil {
				return nil, nil, fmt.Errorf("replica %s: %w", c.r.NameOf(r), err)
			}
			d.Present, lists = append(d.Present, r), append(lists, have)
		}
		d.Transfers = append(d.Transfers, merge(d.Present, lists)...)
	} else {
		d.Present = c.remembering(asked, members)
		d.Transfers = append(d.Transfers, c.copies(d.Present, members)...)
	}
	for _, t := range d.Transfers {
		c.repairs += len(t.Blocks)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, nil, fmt.Errorf("write plan: %w", err)
	}
	c.r.Put(c.key("plan/%s", round), text)
	return d.Present, lists, nil
}

// remembering returns the replicas whose memory can hold the written data. It leaves out a replica that
// a crash has emptied if no other can restore it. The client need not have noticed the crash.
func (c *client) remembering(asked, members []int) []int {
	if k := c.p.Crash; k == nil || !slices.Contains(asked, k.Rank) || len(c.steady(members)) > 0 || c.acked() == 0 {
		return asked
	} else if len(c.r.Get(c.leftKey(0, k.Rank))) == 0 {
		return asked // the IOs ended before it could crash
	}
	return slices.DeleteFunc(slices.Clone(asked), c.crashed)
}

// steady returns the members that never fail.
func (c *client) steady(members []int) []int {
	return slices.DeleteFunc(slices.Clone(members), c.crashed)
}

// acked returns the number of writes of all jobs that have ended.
func (c *client) acked() (n uint64) {
	for _, j := range c.jobs {
		n += j.done - j.first
	}
	return n
}

// merge plans the transfers that give every replica the latest write of each block.
func merge(present []int, lists [][]uint64) (plan []transfer) {
	if len(present) == 0 {
		return nil
	}
	best := make([]int, len(lists[0])) // by block: the first replica that has the latest write
	for i, have := range lists {
		for block, number := range have {
			if number > lists[best[block]][block] {
				best[block] = i
			}
		}
	}
	for from, source := range present {
		for to, target := range present {
			t := transfer{From: source, To: target}
			for block, i := range best {
				if i == from && lists[to][block] < lists[from][block] {
					t.Blocks = append(t.Blocks, uint32(block))
				}
			}
			if len(t.Blocks) > 0 {
				plan = append(plan, t)
			}
		}
	}
	return plan
}

// copies plans the transfers for volumes in memory. The first replica that never failed sends all
// written blocks to one that crashed, and the blocks with unfinished writes to the others.
func (c *client) copies(present, members []int) (plan []transfer) {
	steady := c.steady(members)
	if len(steady) == 0 {
		return nil
	}
	var written, open []uint32
	for _, j := range c.jobs {
		for block, number := range j.ended {
			at := c.blockNumber(j, block)
			also := len(j.open(block)) > 0
			if number > 0 || also {
				written = append(written, at)
			}
			if also {
				open = append(open, at)
			}
		}
	}
	for _, r := range present {
		t := transfer{From: steady[0], To: r, Blocks: open}
		if c.crashed(r) {
			t.Blocks = written
		}
		if r != steady[0] && len(t.Blocks) > 0 {
			plan = append(plan, t)
		}
	}
	return plan
}

// readBack has the replicas read their volumes, and compares the results.
func (c *client) readBack(present []int) error {
	if c.p.Durability == Memory {
		e := expected{Also: map[uint32][]uint64{}}
		for _, j := range c.jobs {
			e.Last = append(e.Last, j.ended...)
			for block := range j.ended {
				if open := j.open(block); len(open) > 0 {
					e.Also[c.blockNumber(j, block)] = open
				}
			}
		}
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("write what is expected: %w", err)
		}
		c.r.Put(c.key("expected"), text)
	}
	first := ""
	for i, r := range present {
		if c.p.Durability == Fsync {
			have, err := haveOf(c.r.Get(c.key("have/check/%d", r)), len(c.held))
			if err != nil {
				return fmt.Errorf("replica %s: %w", c.r.NameOf(r), err)
			}
			c.holds(have, r, c.ended())
		}
		var k checked
		if err := json.Unmarshal(c.r.Get(c.key("checked/%d", r)), &k); err != nil {
			return fmt.Errorf("read what %s found: %w", c.r.NameOf(r), err)
		}
		if k.Bad != "" {
			c.found("%s", k.Bad)
		}
		if i == 0 {
			first = k.Sum
		} else if k.Sum != first {
			c.found("%s and %s are not equal", c.r.NameOf(present[0]), c.r.NameOf(r))
		}
	}
	return nil
}

// lostNames returns the names of the replicas that failed.
func (c *client) lostNames() (names []string) {
	for _, l := range c.lost {
		names = append(names, c.r.NameOf(l.rank))
	}
	return names
}

// lostWhy returns the reasons for which replicas failed, as text.
func (c *client) lostWhy() string {
	var all []string
	for _, l := range c.lost {
		all = append(all, fmt.Sprintf("%s: %v", c.r.NameOf(l.rank), l.why))
	}
	return strings.Join(all, "; ")
}
