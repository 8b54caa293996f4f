// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
)

// replica is a rank that keeps a copy of the volumes.
type replica struct {
	*row
	store  Store        // with durability fsync
	volume [][]byte     // with durability memory, by job
	none   *rank.Buffer // for receives that carry no data
	now    *serving     // the present epoch, or nil between epochs
}

// serving is a replica's work in one epoch.
type serving struct {
	p        *replica
	e        *epoch
	sessions []*session
	queue    []arrival // received and not yet committed, of all jobs
	notices  []*sender // by job
	over     bool      // the epoch has ended
	dead     bool      // the replica has crashed
	workers  []*rank.Worker
}

// arrival is a WRITE that has been received.
type arrival struct {
	job, slot, block int
	number           uint64
}

func newReplica(w *row) *replica { return &replica{row: w} }

func (p *replica) run() (err error) {
	if p.none, err = p.r.Alloc(1, rank.MemoryBytes); err != nil {
		return err
	}
	for range p.p.Jobs {
		if p.p.Durability == Memory {
			p.volume = append(p.volume, make([]byte, p.p.logBytes(p.bs)))
		}
	}
	if p.p.Durability == Fsync {
		if err := p.openStore(); err != nil {
			return err
		}
		defer func() {
			if p.store == nil {
				return // it could not be opened again
			}
			if cerr := p.store.Close(); err == nil {
				err = cerr
			}
		}()
		if _, err := p.recover("begin"); err != nil {
			return err
		}
	}
	for number := 0; ; number++ {
		var e epoch
		if err := json.Unmarshal(p.r.Get(p.key("epoch/%d", number)), &e); err != nil {
			return fmt.Errorf("read epoch %d: %w", number, err)
		}
		switch {
		case e.End:
			if slices.Contains(e.Present, p.r.ID()) {
				return p.end()
			}
			return p.none.Free()
		case slices.Contains(e.Members, p.r.ID()):
			if err := p.serve(&e); err != nil {
				return err
			}
		}
	}
}

// end takes part in the recovery and the read-back after the IOs.
func (p *replica) end() error {
	if here, err := p.recover("end"); err != nil || !here {
		return errors.Join(err, p.none.Free())
	}
	if p.app.Delivered != nil {
		p.app.Delivered(p.r, p.volume)
	}
	if err := p.check(); err != nil {
		return err
	}
	return p.none.Free()
}

// serve takes WRITEs until the next epoch begins or the replica crashes.
func (p *replica) serve(e *epoch) error {
	s := &serving{p: p, e: e}
	for job := range p.p.Jobs {
		ss, err := p.open(e, job)
		if err != nil {
			return err
		}
		s.sessions = append(s.sessions, ss)
		if p.p.Durability == Memory {
			copy(ss.log.Bytes(), p.volume[job]) // the contents at the end of the epoch before
			p.volume[job] = ss.log.Bytes()
		}
	}
	if p.p.Durability == Fsync {
		if err := s.startWorkers(); err != nil {
			return err
		}
	}
	for _, ss := range s.sessions {
		ss.ready()
	}
	p.now = s
	s.armCrash()
	var next epoch
	w := p.r.Go("epoch", func() error {
		err := json.Unmarshal(p.r.Get(p.key("epoch/%d", e.Number+1)), &next)
		s.over = true
		p.r.Notify()
		return err
	})
	p.r.Until("the end of the epoch", func() bool { return s.over || s.dead })
	p.now = nil
	s.over = true // from here on armCrash does nothing
	for _, k := range s.workers {
		if err := k.Join(); err != nil {
			return err
		}
	}
	if s.dead {
		p.r.Put(p.leftKey(e.Number, p.r.ID()), []byte("crashed"))
		return p.comeBack()
	}
	p.r.Put(p.leftKey(e.Number, p.r.ID()), nil)
	if err := w.Join(); err != nil {
		return err
	}
	for _, n := range s.notices {
		if err := n.buf.Free(); err != nil {
			return err
		}
	}
	for _, ss := range s.sessions {
		if err := ss.close(next.Broken); err != nil {
			return err
		}
	}
	return nil
}

// startWorkers starts the workers that receive and commit.
func (s *serving) startWorkers() error {
	for job, ss := range s.sessions {
		n, err := newSender(ss)
		if err != nil {
			return err
		}
		s.notices = append(s.notices, n)
		var posted []*rank.Request
		for range s.p.p.Depth {
			q, err := ss.recv(s.p.none)
			if err != nil {
				return err
			}
			posted = append(posted, q)
		}
		s.workers = append(s.workers, s.p.r.Go(fmt.Sprintf("receive %d", job), func() error { return s.receive(job, posted) }))
	}
	s.workers = append(s.workers, s.p.r.Go("commit", s.commit))
	return nil
}

func (s *serving) stopped() bool { return s.over || s.dead }

// receive takes the immediate data of one job's WRITEs, which arrive in the order of their numbers.
func (s *serving) receive(job int, posted []*rank.Request) error {
	ss := s.sessions[job]
	for number := s.e.Next[job]; ; number++ {
		head := posted[0]
		ss.r.Until("a WRITE of the client", func() bool { return head.Done() || s.stopped() })
		if s.stopped() {
			return nil
		}
		if err := ss.r.Wait(head); err != nil {
			return nil // the client has closed the connection and reports the reason
		}
		slot, block := slotOf(head.Imm())
		if slot >= s.p.p.Depth || block >= s.p.p.blocks(s.p.bs) {
			return fmt.Errorf("write %d names slot %d and block %d, which do not exist", number, slot, block)
		}
		if s.stopped() {
			return nil
		}
		q, err := ss.recv(s.p.none)
		if s.stopped() {
			return nil // the queue pair may have been destroyed meanwhile
		}
		if err != nil {
			return err
		}
		posted = append(posted[1:], q)
		s.queue = append(s.queue, arrival{job, slot, block, number})
		s.p.r.Notify()
	}
}

// commit makes group commits: all writes that have arrived during one commit go into the store with
// the next.
func (s *serving) commit() error {
	p := s.p
	for {
		p.r.Until("writes to commit", func() bool { return len(s.queue) > 0 || s.stopped() })
		if s.stopped() {
			return nil
		}
		batch := s.queue
		s.queue = nil
		var records []Record
		through := make([]uint64, len(s.sessions))
		for _, a := range batch {
			records = append(records, Record{
				Block: uint32(a.job*p.p.blocks(p.bs) + a.block), Number: a.number, Data: s.sessions[a.job].log.Bytes()[a.slot*p.bs : (a.slot+1)*p.bs],
			})
			through[a.job] = a.number
		}
		err := p.durably(records, func() bool { return s.dead })
		if s.dead {
			return nil
		}
		for job, n := range through {
			if n == 0 || s.over {
				continue
			}
			said := notice{through: n}
			if err != nil {
				said = notice{failure: err.Error()}
			}
			if serr := s.notices[job].send(said, s.stopped); serr != nil {
				return serr
			}
		}
		if err != nil {
			return nil // the client has the error and decides what to do
		}
	}
}

// durably puts records into the store and returns when they are durable. If gone returns true before
// the sync, they are not made durable.
func (p *replica) durably(records []Record, gone func() bool) error {
	if err := p.store.Put(records); err != nil {
		return err
	}
	if !p.app.Clocked {
		p.r.Sleep(p.p.Commit)
	}
	if gone() {
		return nil
	}
	return p.store.Sync()
}

// sender sends a job's notices, up to noticesMax at a time.
type sender struct {
	s       *session
	buf     *rank.Buffer
	pending []*rank.Request // by slot
	next    int
}

// noticesMax is the largest number of a job's notices in flight from one replica. The client has
// posted a receive for each.
const noticesMax = 16

func newSender(s *session) (*sender, error) {
	b, err := s.r.Alloc(noticeLen*noticesMax, rank.MemoryBytes)
	return &sender{s: s, buf: b, pending: make([]*rank.Request, noticesMax)}, err
}

// send sends a notice. It gives up when stopped returns true.
func (n *sender) send(said notice, stopped func() bool) error {
	slot := n.next % noticesMax
	n.next++
	if old := n.pending[slot]; old != nil {
		n.s.r.Until("notices to arrive", func() bool { return old.Done() || stopped() })
		if !old.Done() {
			return nil
		}
	}
	if stopped() {
		return nil
	}
	said.put(n.buf.Bytes()[slot*noticeLen:])
	q, err := n.s.conns[0].Send(n.buf, slot*noticeLen, noticeLen)
	n.pending[slot] = q
	if stopped() {
		return nil // the connection was closed while the send was posted
	}
	return err
}

// armCrash makes the replica crash at the time that the parameters give, in the first epoch only.
func (s *serving) armCrash() {
	c := s.p.p.Crash
	if c == nil || c.Rank != s.p.r.ID() || s.e.Number > 0 {
		return
	}
	s.p.r.Go("crash", func() error {
		s.p.r.Sleep(c.After)
		if s.p.now != s || s.over {
			return nil
		}
		s.dead = true
		for _, ss := range s.sessions {
			ss.abandon()
		}
		if s.p.store != nil {
			s.p.store.Crash()
		}
		s.p.r.Notify()
		return nil
	})
}

// comeBack restarts the replica after a crash, with empty memory and with the durable records of its
// store.
func (p *replica) comeBack() error {
	for _, v := range p.volume {
		clear(v)
	}
	if p.store != nil {
		return p.openStore()
	}
	return nil
}

// openStore opens the replica's store. A store that cannot be opened ends the run under either
// policy. OnFailure is for a replica that fails during the IOs, and not for one that never took part
// or whose acknowledged writes cannot be read any more.
func (p *replica) openStore() (err error) {
	if p.store, err = p.app.Open(p.r.Name(), p.name, p.p.Disk); err != nil {
		p.store = nil
		return fmt.Errorf("replica %s: %w (on-failure does not cover it; destroying a deployed lab removes its stores)", p.r.Name(), err)
	}
	return nil
}
