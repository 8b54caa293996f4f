// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// worker is the goroutine of a program that touches its memory: it does jobs in their order, and
// between them takes sends from the rings.
type worker struct {
	mu    sync.Mutex
	some  sync.Cond // of mu: there are jobs, the bell has rung, or it is over
	jobs  []func()
	rung  bool
	over  bool
	ended chan struct{}

	page []byte // its first word is set while the worker sleeps
	qps  []*qp  // the worker's own list
	b    [batch][sendLen]byte
	s    [batch]send
	part [sgesMax]part // that are being read
}

// batch is the number of sends that are handed to the NIC at a time.
const batch = 16

func newWorker(page []byte) *worker {
	w := &worker{page: page, ended: make(chan struct{})}
	w.some.L = &w.mu
	return w
}

// add appends a job. After the end it is not done.
func (w *worker) add(job func()) {
	w.mu.Lock()
	if !w.over {
		w.jobs = append(w.jobs, job)
		w.some.Signal()
	}
	w.mu.Unlock()
}

// wake makes the worker look at the rings.
func (w *worker) wake() {
	w.mu.Lock()
	w.rung = true
	w.some.Signal()
	w.mu.Unlock()
}

// ask has the worker do a job, and returns when it and all jobs added before are done, or the worker
// has ended. If the server is closed meanwhile it reports false: the worker may be at any of them.
func (c *client) ask(job func()) bool {
	if c.s.turns != nil {
		c.work.add(job)
		c.work.doJobs()
		return true
	}
	done := make(chan struct{})
	c.work.add(func() {
		job()
		close(done)
	})
	select {
	case <-done:
	case <-c.work.ended:
	case <-c.s.done:
		return false
	}
	return true
}

// stop ends the worker after the job that it is at.
func (w *worker) stop() {
	w.mu.Lock()
	w.over, w.jobs = true, nil
	w.some.Signal()
	w.mu.Unlock()
}

func (w *worker) asleep(v uint32) { atomic.StoreUint32((*uint32)(unsafe.Pointer(&w.page[0])), v) }

// run works until stop.
func (w *worker) run(c *client) {
	defer close(w.ended)
	for {
		w.mu.Lock()
		jobs, rung, over := w.jobs, w.rung, w.over
		w.jobs, w.rung = nil, false
		w.mu.Unlock()
		if over {
			return
		}
		for _, job := range jobs {
			job()
		}
		busy := w.takeSends(c)
		if rung {
			busy = true
			w.look(c)
		}
		if !busy && len(jobs) == 0 {
			c.relieve()
			w.sleep()
		}
	}
}

// doJobs runs the pending jobs, for a worker without a goroutine (Turns).
func (w *worker) doJobs() {
	for len(w.jobs) > 0 {
		jobs := w.jobs
		w.jobs = nil
		for _, job := range jobs {
			job()
		}
	}
}

// drain runs the pending jobs, and takes the entries of the rings, for a worker without a goroutine.
func (w *worker) drain(c *client) {
	w.rung = true // no bell rings
	for busy := true; busy; {
		w.doJobs()
		busy = w.takeSends(c)
		if w.rung {
			w.rung, busy = false, true
			w.look(c)
		}
	}
	c.relieve()
}

// look takes the entries of the receive rings, since a queue pair in ERR has to flush them, and fills
// completion rings in which the program has made room.
func (w *worker) look(c *client) {
	for _, q := range w.qps {
		q.looked = q.rq.head()
	}
	c.s.call(func(now vtime.Time) {
		if c.gone {
			return
		}
		for _, q := range sorted(c.qps) {
			q.takeReceives(now)
		}
		c.collect(now)
	})
}

// sleep waits for jobs or the bell. A program that posts before it can see that the worker sleeps
// is noticed here; one that posts later rings.
func (w *worker) sleep() {
	w.asleep(1)
	defer w.asleep(0)
	for _, q := range w.qps {
		if (q.open() || q.dead.Load()) && (q.sq.waiting(q.sent.Load()) > 0 || q.rq.head() != q.looked) {
			w.wake()
			break
		}
	}
	w.mu.Lock()
	for len(w.jobs) == 0 && !w.rung && !w.over {
		w.some.Wait()
	}
	w.mu.Unlock()
}

func (q *qp) open() bool { return !q.bad.Load() && !q.stalled.Load() && !q.waits.Load() }

// takeSends posts the entries in the send rings, at most a batch of each, and reports whether there was
// any.
func (w *worker) takeSends(c *client) (busy bool) {
	for _, q := range w.qps {
		if q.dead.Load() {
			q.flush()
		} else if q.open() && q.sq.waiting(q.sent.Load()) > 0 {
			busy = w.send(c, q) || busy
		}
	}
	return busy
}

// takePosted posts the entries in the send rings, as far as the NIC has room: a NIC of hardware has taken posted requests long before
// a call by which the program destroys the objects that they use.
func (w *worker) takePosted(c *client) {
	for n := 0; n < virtrnic.MaxQPWR && w.takeSends(c); n += batch { // no more than a ring has, for a program that keeps posting
	}
}

// send takes one batch: it copies the entries, updates the images of the memory that they read, and
// posts them.
func (w *worker) send(c *client, q *qp) (busy bool) {
	n, resets, out, ready := 0, 0, 0, false
	c.s.call(func(vtime.Time) {
		resets, ready, out = q.resets, q.qp.State() >= virtrnic.StateRTS, c.outstanding()
		q.stalled.Store(!ready) // until it is modified
		for ready && n < batch && uint64(n) < q.sq.waiting(q.sent.Load()) {
			s := &w.s[n]
			copy(w.b[n][:], q.sq.entry(q.sent.Load()+uint64(n)))
			n++
			if s.decode(&w.b[n-1]) != nil {
				s.wr = virtrnic.SendWR{Opcode: 255} // which the NIC refuses
				break
			}
			c.find(q, s)
		}
	})
	all := n
	for n = 0; n < all && c.refresh(&w.s[n], n == 0); n++ { // those before are not the NIC's yet, so nothing is reclaimed for later ones
	}
	c.s.call(func(now vtime.Time) {
		for i := 0; i < n && q.resets == resets && q.open(); i++ {
			q.post(now, &w.s[i])
		}
		if all > 0 && n == 0 {
			busy = !c.starve(q, out)
		}
	})
	return busy || n > 0
}

// post hands a send to the NIC. It is called with the loop's lock.
func (q *qp) post(now vtime.Time, s *send) {
	s.wr.UD.AH = q.client.ahs[s.ah]
	err := q.client.s.requester.PostSend(now, q.qp, s.wr)
	switch {
	case errors.Is(err, virtrnic.ErrNoMem):
		q.stalled.Store(true)
		return
	case err != nil:
		q.fail(now)
		return
	}
	q.sent.Add(1)
	q.sq.giveBack(q.sent.Load() - uint64(q.qp.Outstanding()))
}

// find notes the regions that a request reads: none if the NIC will not read. It is called with the loop's lock.
func (c *client) find(q *qp, s *send) {
	s.wr.UD.AH = c.ahs[s.ah]
	reads := c.s.nic.Loads(q.qp, &s.wr)
	for i, e := range s.wr.SGL {
		s.regions[i] = nil
		if reads && c.s.owners[e.LKey] == c {
			s.regions[i] = c.s.regions[e.LKey]
		}
	}
}

// refresh updates the image of the memory that a request reads, and reports whether there was memory for it; with first it may be taken
// from images that the NIC does not need. A piece that the program does not own gets a key that does not exist, for which the NIC has its
// own answer: a local protection error, in the request's turn.
func (c *client) refresh(s *send, first bool) bool {
	parts, of := c.work.part[:0], [sgesMax]int{}
	for i, e := range s.wr.SGL {
		r := s.regions[i]
		if r == nil || e.Length == 0 {
			continue
		}
		if off, ok := r.span(e.Addr, uint64(e.Length)); ok {
			of[len(parts)] = i
			parts = append(parts, part{r, off, uint64(e.Length)})
		}
	}
	return (first || c.tryReserve(parts)) && c.load(parts, func(i int) { s.wr.SGL[of[i]].LKey = 0 }) == nil
}

// listen waits for the program's bell until the connection ends.
func (w *worker) listen(bell *os.File) {
	var b [512]byte
	for {
		if _, err := bell.Read(b[:]); err != nil {
			return
		}
		w.wake()
	}
}
