// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// srq is a shared receive queue of a program. Its ring is emptied before a frame for one of its queue pairs reaches
// the NIC, so the NIC has all buffers that were posted before, and the limit counts them.
type srq struct {
	client *client
	id     uint32
	srq    *virtrnic.SRQ
	rq     receives
	bad    bool // an entry was nonsense; with the loop's lock
}

// srqErr is IBV_EVENT_SRQ_ERR.
const srqErr = 14

// takeReceives posts the entries in the ring. It is called with the loop's lock.
func (s *srq) takeReceives(now vtime.Time) {
	if s.bad || s.rq.take(now, s.client.s.nic, nil, s.srq) == nil {
		return
	}
	s.bad = true
	for _, q := range s.client.qps { // independent of each other
		if q.srq == s {
			q.fail(now)
		}
	}
	s.client.tell(event{srqErr, s.id})
}

// giveBack lets the program post in place of the buffers that queue pairs have taken. It is called with the loop's lock.
func (s *srq) giveBack() {
	posted, _ := s.client.s.nic.QuerySRQ(s.srq)
	s.rq.giveBack(s.rq.taken - uint64(posted))
}

func (c *client) createSRQ(m *createSRQ) (r reply, fds []int, err error) {
	if m.WR < 1 || m.WR > virtrnic.MaxQPWR || m.SGE > sgesMax {
		return r, nil, fmt.Errorf("create shared receive queue: %d buffers of %d pieces: %w", m.WR, m.SGE, unix.EINVAL)
	}
	n := ringEntries(m.WR)
	mem, fd, err := c.share(ringBytes(n, recvLen))
	if err != nil {
		return r, nil, err
	}
	q := &srq{client: c, rq: receives{ring: ring{mem, n, recvLen}}}
	err = unix.EIO // the loop has ended
	c.s.call(func(vtime.Time) {
		if err = c.s.room(ofSRQ); err != nil {
			return
		}
		if q.srq, err = c.s.nic.CreateSRQ(c.pds[m.PD], int(n), int(m.SGE)); err != nil {
			return
		}
		q.id = c.nextID()
		c.srqs[q.id] = q
	})
	if err != nil {
		c.unshare(mem)
		return r, nil, errors.Join(err, unix.Close(fd))
	}
	return reply{ID: q.id, Recv: uint32(n)}, []int{fd}, nil
}

// modifySRQ arms the limit. The buffers in the ring count. It is called with the loop's lock.
func (c *client) modifySRQ(now vtime.Time, m *modifySRQ) error {
	q := c.srqs[m.ID]
	if q == nil {
		return fmt.Errorf("modify shared receive queue %d: it does not exist: %w", m.ID, unix.EINVAL)
	}
	q.takeReceives(now)
	return c.s.nic.ModifySRQ(q.srq, int(m.Limit))
}

// querySRQ returns the limit. It is called with the loop's lock.
func (c *client) querySRQ(id uint32) (limit uint32, err error) {
	q := c.srqs[id]
	if q == nil {
		return 0, fmt.Errorf("query shared receive queue %d: it does not exist: %w", id, unix.EINVAL)
	}
	_, n := c.s.nic.QuerySRQ(q.srq)
	return uint32(n), nil
}

// destroySRQ is destroy for a shared receive queue.
func (c *client) destroySRQ(id uint32) (after func(), err error) {
	q := c.srqs[id]
	if q == nil {
		return nil, fmt.Errorf("destroy shared receive queue %d: it does not exist: %w", id, unix.EINVAL)
	}
	if err := c.s.nic.DestroySRQ(q.srq); err != nil {
		return nil, err
	}
	delete(c.srqs, id)
	return func() { c.unshare(q.rq.mem) }, nil
}
