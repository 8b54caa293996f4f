package hpl

import (
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/rank"
)

// HPL's own panel broadcasts (HPL_bcast.c), in the order of HPL.dat's BCAST. In the rings
// every process passes the whole panel on once it has all of it. With N ranks, r = N-1:
//
//	1ring   T = r S(M, L): 0 -> 1 -> 2 -> .. (HPL calls it increasing ring)
//	1ringM  0 -> 1, which passes nothing on, and 0 -> 2 -> 3 -> ..
//	2ring   two rings of half the ranks each, from 0 to 1 and to (N+1)/2
//	2ringM  0 -> 1, and two rings of the others
//	long    scatter in N pieces along a binomial tree, then N-1 steps in which each
//	        process sends the newest piece to its right: T = about 2 (r/N) wire(M)/B
//	longM   0 -> 1, and long among the others
func ringNames() []string { return []string{"1ring", "1ringM", "2ring", "2ringM", "long", "longM"} }

// ringNamed returns what makes the broadcast of that name, or nil.
func ringNamed(name string) func(r *rank.Rank) broadcast {
	ring := func(f func(me, n int) relay) func(r *rank.Rank) broadcast {
		return func(r *rank.Rank) broadcast { return &ringCast{r: r, place: f} }
	}
	switch name {
	case "1ring":
		return ring(oneRing)
	case "1ringM":
		return ring(modified(oneRing))
	case "2ring":
		return ring(twoRings)
	case "2ringM":
		return ring(modified(twoRings))
	case "long":
		return func(r *rank.Rank) broadcast { return &longCast{r: r} }
	case "longM":
		return func(r *rank.Rank) broadcast { return &longCast{r: r, modified: true} }
	}
	return nil
}

// relay says from which rank a rank gets the panel and to which it passes it on, in this
// order; numbers count from the root.
type relay struct {
	from int // -1: it is the root
	to   []int
}

func oneRing(me, n int) relay {
	r := relay{from: me - 1}
	if me+1 < n {
		r.to = []int{me + 1}
	}
	return r
}

func twoRings(me, n int) relay {
	if n < 3 {
		return oneRing(me, n)
	}
	half := (n + 1) / 2
	switch {
	case me == 0:
		return relay{-1, []int{1, half}}
	case me == half:
		return relay{0, ahead(me, n)}
	case me < half:
		return relay{me - 1, ahead(me, half)}
	}
	return relay{me - 1, ahead(me, n)}
}

// ahead returns the next rank of a ring that ends at n.
func ahead(me, n int) []int {
	if me+1 < n {
		return []int{me + 1}
	}
	return nil
}

// modified relieves the next root: rank 1 gets the panel first and passes nothing on.
// The others are numbered as if it were not there.
func modified(f func(me, n int) relay) func(me, n int) relay {
	return func(me, n int) relay {
		if me == 1 {
			return relay{from: 0}
		}
		inner := f(max(0, me-1), n-1)
		r := relay{from: inner.from}
		if r.from > 0 {
			r.from++
		}
		if me == 0 {
			r.to = []int{1}
		}
		for _, t := range inner.to {
			r.to = append(r.to, t+1)
		}
		return r
	}
}

// ringCast is a broadcast in which the panel passes along whole.
type ringCast struct {
	r     *rank.Rank
	place func(me, n int) relay
	at    relay
	out   []leg
	recv  []*rank.Request
}

// Begin implements broadcast. It ends with all receives of the ranks posted.
func (c *ringCast) Begin(b *rank.Buffer, n, root int) (err error) {
	size := c.r.Size()
	abs := func(rel int) int { return (rel + root) % size }
	c.at, c.out = c.place((c.r.ID()-root+size)%size, size), c.out[:0]
	var in []leg
	var peers []int
	if c.at.from >= 0 {
		in = []leg{{abs(c.at.from), b, 0, n}}
	}
	for _, t := range c.at.to {
		c.out = append(c.out, leg{abs(t), b, 0, n})
		peers = append(peers, abs(t))
	}
	c.recv, err = begin(c.r, in, peers)
	return err
}

// Run implements broadcast.
func (c *ringCast) Run() (t collective.Times, err error) {
	if err := c.r.Wait(c.recv...); err != nil {
		return t, err
	}
	t.Received = c.r.Now()
	for _, l := range c.out { // one after the other: the first is not to share the link
		q, err := l.send(c.r)
		if err != nil {
			return t, err
		}
		if err := c.r.Wait(q); err != nil {
			return t, err
		}
	}
	t.Done = c.r.Now()
	return t, nil
}

// Close implements broadcast.
func (c *ringCast) Close() error { return nil }

// longCast is a broadcast by scatter and roll.
type longCast struct {
	r        *rank.Rank
	modified bool
	first    *leg // the root's message to rank 1, in the modified form
	whole    *rank.Request
	tree     branch
	scatter  []leg
	got      *rank.Request // my subtree's pieces
	roll     []leg         // what I send, step by step
	newest   []*rank.Request
}

// piece returns the i-th of m equal parts of n bytes, in whole numbers of words.
func piece(i, m, n int) (from, to int) {
	words := n / word
	from, to = words*i/m*word, words*(i+1)/m*word
	if i == m-1 {
		to = n
	}
	return from, to
}

// Begin implements broadcast. The ranks that roll are numbered from the root, in
// the modified form without rank 1.
func (c *longCast) Begin(b *rank.Buffer, n, root int) error {
	size := c.r.Size()
	me := (c.r.ID() - root + size) % size
	*c = longCast{r: c.r, modified: c.modified}
	skip := 0
	if c.modified {
		skip = 1
	}
	var in []leg
	var peers []int
	if c.modified && me == 1 {
		reqs, err := begin(c.r, []leg{{root, b, 0, n}}, nil)
		if err == nil {
			c.whole = reqs[0]
		}
		return err
	}
	abs := func(i int) int { // of a rank that rolls
		if i > 0 {
			i += skip
		}
		return (i + root) % size
	}
	m, i := size-skip, max(0, me-skip)
	if c.modified && me == 0 && size > 1 {
		c.first = &leg{(root + 1) % size, b, 0, n}
		peers = append(peers, c.first.peer)
	}
	span := func(peer, lo, hi int) leg {
		from, _ := piece(lo, m, n)
		_, to := piece(hi-1, m, n)
		return leg{peer, b, from, to - from}
	}
	c.tree = binomial(i, m)
	if c.tree.parent >= 0 {
		in = append(in, span(abs(c.tree.parent), i, c.tree.end))
	}
	for _, k := range c.tree.children {
		c.scatter = append(c.scatter, span(abs(k), k, binomial(k, m).end))
		peers = append(peers, abs(k))
	}
	if m > 1 {
		peers = append(peers, abs((i+1)%m))
	}
	for s := range m - 1 { // what I hold already comes again: its memory is the same
		mine, next := (i-s+m)%m, (i-s-1+m)%m
		c.roll = append(c.roll, span(abs((i+1)%m), mine, mine+1))
		in = append(in, span(abs((i-1+m)%m), next, next+1))
	}
	reqs, err := begin(c.r, in, peers)
	if err != nil {
		return err
	}
	if c.tree.parent >= 0 {
		c.got, reqs = reqs[0], reqs[1:]
	}
	c.newest = reqs
	return nil
}

// Run implements broadcast.
func (c *longCast) Run() (t collective.Times, err error) {
	if c.whole != nil {
		err := c.r.Wait(c.whole)
		t.Received = c.r.Now()
		t.Done = t.Received
		return t, err
	}
	t.Received = c.r.Now()
	var sent []*rank.Request
	out := c.scatter
	if c.first != nil {
		out = append([]leg{*c.first}, out...)
	}
	if c.got != nil {
		if err := c.r.Wait(c.got); err != nil {
			return t, err
		}
	}
	if sent, err = sendAll(c.r, out); err != nil {
		return t, err
	}
	for s, l := range c.roll {
		q, err := l.send(c.r)
		if err != nil {
			return t, err
		}
		sent = append(sent, q)
		if err := c.r.Wait(c.newest[s]); err != nil {
			return t, err
		}
		if c.tree.parent >= 0 {
			t.Received = c.r.Now()
		}
	}
	err = c.r.Wait(sent...)
	t.Done = c.r.Now()
	return t, err
}

// sendAll starts to send all legs.
func sendAll(c *rank.Rank, legs []leg) (sent []*rank.Request, err error) {
	for _, l := range legs {
		q, err := l.send(c)
		if err != nil {
			return nil, err
		}
		sent = append(sent, q)
	}
	return sent, nil
}

// Close implements broadcast.
func (c *longCast) Close() error { return nil }
