package collective

import "github.com/mcastlab/mcastlab/rank"

// barrier is the dissemination barrier: in round k a rank sends an empty message to the
// one 2^k after it and waits for that of the one 2^k before it. For numbers of ranks that
// are powers of two it takes as long as recursive doubling, and it takes any number.
//
//	T = ceil(log2 N) S(0, L) after the last rank has come
type barrier struct {
	r    *rank.Rank
	b    *rank.Buffer
	next []*rank.Request    // of the barrier after this one, by round
	sent [2][]*rank.Request // in this barrier, and in the one before
}

// NewBarrier prepares a barrier on a rank. All ranks of the job must call it. Begin is
// called once, with any buffer; the ranks then call Run as often as they like, with no
// other synchronisation, and each returns when all have called it.
func NewBarrier(r *rank.Rank) Algorithm { return &barrier{r: r} }

// Begin implements Algorithm.
func (m *barrier) Begin(b *rank.Buffer, _, _ int) error {
	m.b = b
	var peers []int
	for d := 1; d < m.r.Size(); d *= 2 {
		peers = append(peers, absolute(m.r, m.r.ID(), d), absolute(m.r, m.r.ID(), m.r.Size()-d))
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
		q, err := recvFrom(m.r, absolute(m.r, m.r.ID(), m.r.Size()-d), m.b, 0, 0)
		if err != nil {
			return err
		}
		m.next = append(m.next, q)
	}
	return nil
}

// Run implements Algorithm. The receives of the next barrier are there before anybody can
// have left this one.
func (m *barrier) Run() (at Times, err error) {
	now := m.next
	if err := m.post(); err != nil {
		return at, err
	}
	// What was sent two barriers ago has arrived; its acknowledgements are hardly waited for.
	if err := m.r.Wait(m.sent[1]...); err != nil {
		return at, err
	}
	m.sent[0], m.sent[1] = m.sent[1][:0], m.sent[0]
	d := 1
	for _, came := range now {
		q, err := sendTo(m.r, absolute(m.r, m.r.ID(), d), m.b, 0, 0)
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

// Close implements Algorithm: it waits for what the last barriers sent.
func (m *barrier) Close() error { return m.r.Wait(append(m.sent[1], m.sent[0]...)...) }
