// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// job is one of the client's threads. It keeps up to Params.Depth IOs in progress.
type job struct {
	c      *client
	id     int
	s      *session
	buf    *rank.Buffer // one slot per IO in progress
	random prng.Stream

	first, last  uint64   // number of the first write, and number after the last write
	issued, done uint64   // number of the next write, and of the oldest write that has not ended
	ios          []*io    // IOs in progress, the oldest first: numbers done up to issued
	ended        []uint64 // by block: the last write that has ended

	inbox   [][]*rank.Request // by member: posted receives for notices, the next first
	notes   []*rank.Buffer    // by member: buffer of those receives
	taken   []int             // by member: number of notices received
	durable []uint64          // by member: number of the last durable write

	measured times
}

// io is a write in progress.
type io struct {
	number uint64
	block  int
	reqs   []*rank.Request // the WRITEs; nil once a completion has been handled
	acked  bool
	posted bool // it has been given to the NIC, or is about to be

	begun, sent, cqe vtime.Time
}

// times holds a job's measurements: durations by IO, and the begin and end of all IOs.
type times struct {
	submit, cqe, whole []vtime.Duration
	from, to           vtime.Time
}

// slot returns the slot of the log for an IO. IOs in progress have consecutive numbers, so that each
// has its own slot.
func (j *job) slot(number uint64) int { return int(number % uint64(j.c.p.Depth)) }

// block returns the block of the next IO.
func (j *job) block() int {
	n := j.c.p.blocks(j.c.bs)
	if j.c.p.Random {
		return j.random.IntN(n)
	}
	return int((j.issued - j.first) % uint64(n))
}

// open returns the numbers of the writes to a block that have begun and not ended.
func (j *job) open(block int) (numbers []uint64) {
	for _, o := range j.ios {
		if o.block == block {
			numbers = append(numbers, o.number)
		}
	}
	return numbers
}

// begin prepares the job for an epoch. The replicas must be ready.
func (j *job) begin() error {
	j.inbox, j.notes, j.taken, j.durable = nil, nil, nil, nil
	if j.c.p.Durability != Fsync {
		return nil
	}
	n := j.c.p.Depth + 1 // largest number of notices in flight: one per IO and one of a failure
	for _, conn := range j.s.conns {
		b, err := j.s.r.Alloc(n*noticeLen, rank.MemoryBytes)
		if err != nil {
			return err
		}
		var posted []*rank.Request
		for i := range n {
			q, err := conn.Recv(b, i*noticeLen, noticeLen)
			if err != nil {
				return err
			}
			posted = append(posted, q)
		}
		j.inbox, j.notes = append(j.inbox, posted), append(j.notes, b)
		j.taken, j.durable = append(j.taken, 0), append(j.durable, j.done-1)
	}
	return nil
}

// end releases the connections and the memory of the epoch.
func (j *job) end() error {
	for _, b := range j.notes {
		if err := b.Free(); err != nil {
			return err
		}
	}
	return j.s.close(j.c.e.Broken)
}

// work does the job's IOs until all have ended or the epoch is stalled.
func (j *job) work() error {
	if j.measured.from == 0 {
		j.measured.from = j.c.r.Now()
	}
	for _, o := range j.ios { // IOs that began in an earlier epoch
		o.acked = false
		if j.post(o); j.c.stalled {
			return nil
		}
	}
	for {
		j.reap()
		switch {
		case j.c.stalled:
			return nil
		case j.issued < j.last && len(j.ios) < j.c.p.Depth:
			j.submit()
		case len(j.ios) == 0:
			return nil
		default:
			j.s.r.Until("IOs to end", func() bool { return j.c.stalled || j.news() })
		}
	}
}

// submit begins the next IO.
func (j *job) submit() {
	o := &io{number: j.issued, block: j.block(), begun: j.c.r.Now()}
	slot := j.slot(o.number)
	j.c.fill(j.buf.Bytes()[slot*j.c.bs:(slot+1)*j.c.bs], j.id, o.number)
	j.issued++
	j.ios = append(j.ios, o)
	copies := 1
	if j.s.group == nil {
		copies = len(j.s.conns)
	}
	j.c.r.Sleep(j.c.p.Submit + vtime.Duration(copies-1)*j.c.p.Copy)
	j.post(o)
}

// post writes an IO's block to the replicas.
func (j *job) post(o *io) {
	o.posted = true // memory registered first waits for the replicas, too
	reqs, err := j.s.write(j.buf, j.slot(o.number), o.block)
	o.reqs = reqs
	if o.sent == 0 { // the first time; an IO is posted again after a failure
		o.sent = j.c.r.Now()
	}
	if err != nil {
		j.c.fail(j.member(len(reqs)-1), err)
	}
}

// member returns the member to which a request of an IO goes, or -1 for all.
func (j *job) member(request int) int {
	if j.s.group != nil {
		return -1
	}
	return request
}

// news reports whether a receive or a WRITE has completed that reap would handle.
func (j *job) news() bool {
	for _, posted := range j.inbox {
		if posted[0].Done() {
			return true
		}
	}
	for _, o := range j.ios {
		if o.acked {
			continue
		}
		for _, q := range o.reqs {
			if q != nil && q.Done() {
				return true
			}
		}
		break // later IOs are not handled before this one
	}
	return false
}

// reap handles completed receives and WRITEs and ends the IOs that are complete.
func (j *job) reap() {
	j.s.r.Until("", func() bool { return true }) // polls the completion queues
	for m := range j.inbox {
		for !j.c.stalled && j.inbox[m][0].Done() {
			j.notice(m)
		}
	}
	for _, o := range j.ios {
		if !o.acked && !j.acknowledged(o) || j.c.stalled {
			break
		}
	}
	for !j.c.stalled && len(j.ios) > 0 && j.ios[0].acked && j.isDurable(j.ios[0]) {
		j.complete(j.ios[0])
	}
}

// acknowledged handles the completions of an IO's WRITEs and reports whether all are there.
func (j *job) acknowledged(o *io) bool {
	open := false
	for k, q := range o.reqs {
		switch {
		case q == nil:
		case !q.Done():
			open = true
		default:
			o.reqs[k] = nil
			if err := j.s.r.Wait(q); err != nil {
				j.c.fail(j.member(k), err)
				return false
			}
		}
	}
	if !open {
		o.acked, o.cqe = true, j.c.r.Now()
	}
	return !open
}

// notice handles a notice of a member.
func (j *job) notice(m int) {
	q := j.inbox[m][0]
	if err := j.s.r.Wait(q); err != nil {
		j.c.fail(m, err)
		return
	}
	slot := j.taken[m] % (j.c.p.Depth + 1)
	j.taken[m]++
	n := noticeOf(j.notes[m].Bytes()[slot*noticeLen:])
	if n.failure != "" {
		j.c.fail(m, errNoStore(n.failure))
		return
	}
	j.durable[m] = max(j.durable[m], n.through)
	j.c.progress++
	next, err := j.s.conns[m].Recv(j.notes[m], slot*noticeLen, noticeLen)
	if err != nil {
		j.c.fail(m, err)
		return
	}
	j.inbox[m] = append(j.inbox[m][1:], next)
}

// errNoStore is a replica's own reason why it cannot commit any more.
type errNoStore string

// Error implements error.
func (e errNoStore) Error() string { return "it cannot commit: " + string(e) }

// isDurable reports whether the IO is as durable on all members as Params.Durability asks for.
func (j *job) isDurable(o *io) bool {
	for _, n := range j.durable {
		if n < o.number {
			return false
		}
	}
	return true
}

// complete ends the oldest IO.
func (j *job) complete(o *io) {
	j.c.r.Sleep(j.c.p.Complete)
	now := j.c.r.Now()
	t := &j.measured
	t.submit, t.cqe = append(t.submit, o.sent.Sub(o.begun)), append(t.cqe, o.cqe.Sub(o.begun))
	t.whole, t.to = append(t.whole, now.Sub(o.begun)), now
	j.ended[o.block] = o.number
	j.ios = j.ios[1:]
	j.done++
}
