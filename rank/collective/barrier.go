// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// barrier is the dissemination barrier: in round k a rank sends an empty message to the rank
// 2^k after it and waits for one from the rank 2^k before it. It works for any number of
// ranks, and for powers of two it takes as long as recursive doubling.
//
//	T = ceil(log2 N) S(0, L) after the last rank has come
type barrier struct {
	r    *rank.Rank
	ends func(d int) (to, from int) // the ranks to send to and to wait for in the round of distance d
	b    *rank.Buffer
	next []*rank.Request    // receives of the next barrier, by round
	sent [2][]*rank.Request // sends of this barrier and of the previous one
}

// NewBarrier prepares a barrier on a rank. All ranks of the job must call it. Begin is called
// once, with any buffer. The ranks may then call Run any number of times without other
// synchronisation, and each call returns when all ranks have made it.
func NewBarrier(r *rank.Rank) Algorithm {
	return &barrier{r: r, ends: func(d int) (to, from int) { return absolute(r, r.ID(), d), absolute(r, r.ID(), r.Size()-d) }}
}

// NewPairBarrier is NewBarrier with half as many connections if the number of ranks is a power of two: in round k a rank
// exchanges messages with the one whose number differs in bit k.
func NewPairBarrier(r *rank.Rank) Algorithm {
	if n := r.Size(); n&(n-1) != 0 {
		return NewBarrier(r)
	}
	return &barrier{r: r, ends: func(d int) (to, from int) { return r.ID() ^ d, r.ID() ^ d }}
}

// Begin implements Algorithm.
func (m *barrier) Begin(b *rank.Buffer, _, _ int) error {
	m.b = b
	var peers []int
	for d := 1; d < m.r.Size(); d *= 2 {
		to, from := m.ends(d)
		peers = append(peers, to, from)
	}
	if err := connectAny(m.r, peers); err != nil {
		return err
	}
	return m.post()
}

// post posts the receives of the next barrier.
func (m *barrier) post() error {
	m.next = nil
	for d := 1; d < m.r.Size(); d *= 2 {
		_, from := m.ends(d)
		q, err := recvFrom(m.r, from, m.b, 0, 0)
		if err != nil {
			return err
		}
		m.next = append(m.next, q)
	}
	return nil
}

// Run implements Algorithm. It posts the receives of the next barrier before any rank can have
// left this one.
func (m *barrier) Run() (at Times, err error) {
	now := m.next
	if err := m.post(); err != nil {
		return at, err
	}
	// These messages are two barriers old and have long arrived, so this hardly waits.
	if err := m.r.Wait(m.sent[1]...); err != nil {
		return at, err
	}
	m.sent[0], m.sent[1] = m.sent[1][:0], m.sent[0]
	d := 1
	for _, came := range now {
		to, _ := m.ends(d)
		q, err := sendTo(m.r, to, m.b, 0, 0)
		if err != nil {
			return at, err
		}
		m.sent[0] = append(m.sent[0], q)
		if err := m.r.Wait(came); err != nil {
			return at, err
		}
		d *= 2
	}
	at.Received = m.r.Now()
	at.Done = at.Received
	return at, nil
}

// Close implements Algorithm: it waits until the messages of the last barriers are
// acknowledged.
func (m *barrier) Close() error { return m.r.Wait(append(m.sent[1], m.sent[0]...)...) }
