// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "fmt"

// SRQ is a receive queue that several queue pairs take from (ibv_srq).
type SRQ struct {
	nic         *NIC
	pd          *PD
	queue       recvQueue
	limit       int // an event is raised once when fewer buffers are left; 0: never
	users       int
	incarnation uint32
	gone        bool
}

// CreateSRQ returns a shared receive queue for maxWR buffers, 1 to MaxQPWR, of up to
// maxSGE pieces each (0: 1).
func (n *NIC) CreateSRQ(pd *PD, maxWR, maxSGE int) (*SRQ, error) {
	switch {
	case !pd.belongsTo(n):
		return nil, fmt.Errorf("create shared receive queue: protection domain of another device: %w", ErrInvalid)
	case maxWR < 1 || maxWR > MaxQPWR || maxSGE < 0 || maxSGE > MaxSGE:
		return nil, fmt.Errorf("create shared receive queue: %d buffers of %d pieces: %w", maxWR, maxSGE, ErrInvalid)
	}
	pd.users++
	n.made.SRQs++
	return &SRQ{nic: n, pd: pd, queue: recvQueue{max: uint16(maxWR), pieces: uint8(max(1, maxSGE))}, incarnation: n.incarnation}, nil
}

// belongsTo reports whether the queue is one of the device.
func (s *SRQ) belongsTo(n *NIC) bool { return s.nic == n && s.incarnation == n.incarnation && !s.gone }

// DestroySRQ destroys the queue. While a queue pair uses it, the error is ErrBusy.
func (n *NIC) DestroySRQ(s *SRQ) error {
	switch {
	case !s.belongsTo(n):
		return fmt.Errorf("destroy shared receive queue: %w", ErrInvalid)
	case s.users > 0:
		return fmt.Errorf("destroy shared receive queue: %d queue pairs use it: %w", s.users, ErrBusy)
	}
	for s.queue.wqes.Len() > 0 {
		w := s.queue.wqes.Pop()
		n.release(w.extras)
	}
	s.queue.max, s.gone = 0, true
	s.pd.users--
	n.made.SRQs--
	n.events.RemoveIf(func(e AsyncEvent) bool { return e.SRQ == s })
	return nil
}

// PostSRQRecv adds a buffer. If the queue is full, the error is ErrNoMem.
func (n *NIC) PostSRQRecv(s *SRQ, wr RecvWR) error {
	if err := checkRecv(&wr, s.queue.pieces); err != nil {
		return fmt.Errorf("post to shared receive queue: %w", err)
	}
	if s.queue.wqes.Len() >= int(s.queue.max) {
		return fmt.Errorf("post to shared receive queue: %d buffers are posted: %w", s.queue.wqes.Len(), ErrNoMem)
	}
	n.enqueue(&s.queue, &wr)
	return nil
}

// ModifySRQ arms the limit: EventSRQLimit is raised once when fewer than limit buffers
// are left; 0 disarms.
func (n *NIC) ModifySRQ(s *SRQ, limit int) error {
	if limit < 0 || limit > int(s.queue.max) {
		return fmt.Errorf("modify shared receive queue: limit %d is not in 0..%d: %w", limit, s.queue.max, ErrInvalid)
	}
	s.limit = limit
	return nil
}

// QuerySRQ returns the buffers posted and the limit, 0 once it was reached.
func (n *NIC) QuerySRQ(s *SRQ) (posted, limit int) { return s.queue.wqes.Len(), s.limit }

// taken is called when a queue pair has taken a buffer. It raises EventSRQLimit, and disarms the
// limit, if fewer buffers than the limit are left.
func (s *SRQ) taken() {
	if s.queue.wqes.Len() < s.limit {
		s.limit = 0
		s.nic.events.Push(AsyncEvent{Type: EventSRQLimit, SRQ: s})
		s.nic.completions++
	}
}
