// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// spread broadcasts in two halves. First the root's message is scattered down a tree, which
// leaves each rank with a block of M/N; then every rank gets the blocks that it lacks from the
// others.
//
// scatter-allgather (BAS-8; van de Geijn's for any radix, as UCC has it) scatters by the
// k-nomial tree and gathers by dissemination with the same radix:
//
//	T = 2 (N-1)/N wire(M)/B + start-up of up to (radix-1) log_radix N sends and log_radix N rounds
//
// long is HPL's bandwidth-reducing broadcast (F-8): a binary scatter, after which the blocks
// pass round the ring in N-1 steps:
//
//	T = 2 (N-1)/N wire(M)/B + (log2 N + N-1) start-ups
//
// longM sends the whole message to rank 1 first and then does the same with the other ranks.
type spread struct {
	r        *rank.Rank
	radix    int
	roll     bool // the second half goes round the ring
	modified bool

	b        *rank.Buffer
	n        int
	whole    int // rank that gets the whole message first, or -1
	places   []int
	parent   int // place of the parent; -1 at the root
	children []int
	got      []*rank.Request
	gather   exchange
}

func newScatterAllgather(r *rank.Rank, o *Options) (Algorithm, error) {
	return &spread{r: r, radix: o.Radix}, nil
}

func newLong(r *rank.Rank, _ *Options) (Algorithm, error) {
	return &spread{r: r, radix: 2, roll: true}, nil
}

func newLongM(r *rank.Rank, _ *Options) (Algorithm, error) {
	return &spread{r: r, radix: 2, roll: true, modified: true}, nil
}

// Begin implements Algorithm.
func (s *spread) Begin(b *rank.Buffer, n, root int) error {
	s.b, s.n, s.whole = b, n, -1
	s.places, s.children, s.got, s.gather = s.places[:0], nil, s.got[:0], exchange{}
	me := relative(s.r, root)
	for i := range s.r.Size() {
		if s.modified && i == 1 {
			s.whole = absolute(s.r, root, 1)
			continue
		}
		s.places = append(s.places, absolute(s.r, root, i))
	}
	if s.whole == s.r.ID() {
		q, err := recvFrom(s.r, root, b, 0, n)
		s.got = append(s.got, q)
		return err
	}
	if s.whole >= 0 && me > 0 {
		me--
	}
	return s.begin(me, root)
}

// begin prepares a rank that takes part in the scatter.
func (s *spread) begin(me, root int) error {
	size := len(s.places)
	bound := equal(s.n, size)
	var span int
	s.parent, s.children, span = nomial(me, size, s.radix)
	has := func(i int) int {
		_, _, n := nomial(i, size, s.radix)
		return n
	}
	s.gather = exchange{r: s.r, places: s.places, bound: bound, inTurn: !s.roll}
	if s.roll {
		s.gather.rounds = ringRounds(me, size, has)
	} else {
		s.gather.rounds = disseminationRounds(me, size, s.radix, has)
	}
	peers := s.gather.peers()
	for _, c := range s.children {
		peers = append(peers, s.places[c])
	}
	if s.parent >= 0 {
		peers = append(peers, s.places[s.parent])
	}
	if s.whole >= 0 && me == 0 {
		peers = append(peers, s.whole)
	}
	if err := connectAny(s.r, peers); err != nil {
		return err
	}
	if s.parent >= 0 {
		q, err := recvFrom(s.r, s.places[s.parent], s.b, bound(me), bound(me+span)-bound(me))
		if err != nil {
			return err
		}
		s.got = append(s.got, q)
	}
	return s.gather.post(s.b)
}

// Run implements Algorithm.
func (s *spread) Run() (at Times, err error) {
	at.Received = s.r.Now()
	if err := s.r.Wait(s.got...); err != nil {
		return at, err
	}
	if s.whole == s.r.ID() {
		at.Received = s.r.Now()
		at.Done = at.Received
		return at, nil
	}
	sent, err := s.scatter()
	if err != nil {
		return at, err
	}
	gathered, err := s.gather.run()
	if err != nil {
		return at, err
	}
	if s.parent >= 0 {
		at.Received = s.r.Now()
	}
	err = s.r.Wait(append(sent, gathered...)...)
	at.Done = s.r.Now()
	return at, err
}

// scatter passes the children's blocks on. Blocks above one packet go one after the other.
func (s *spread) scatter() (sent []*rank.Request, err error) {
	post := func(to, off, n int) error {
		q, err := sendTo(s.r, to, s.b, off, n)
		if err != nil {
			return err
		}
		if n > s.r.MTU() {
			return s.r.Wait(q)
		}
		sent = append(sent, q)
		return nil
	}
	if s.parent < 0 && s.whole >= 0 {
		if err := post(s.whole, 0, s.n); err != nil {
			return sent, err
		}
	}
	for _, c := range s.children {
		_, _, span := nomial(c, len(s.places), s.radix)
		off := s.gather.bound(c)
		if err := post(s.places[c], off, s.gather.bound(c+span)-off); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Close implements Algorithm.
func (s *spread) Close() error { return nil }
