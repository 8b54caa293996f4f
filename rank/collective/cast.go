// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// cast is Broadcast and Allgather over plain multicast, which is unreliable, after Khalilov et
// al., "Network-Offloaded Bandwidth-Optimal Broadcast and Allgather for Distributed AI" (SC
// 2024; §III and §IV, AG-1, AG-7).
//
// The fast path streams chunks to a multicast group, with their numbers in the immediate data,
// and nothing is sent back; a receiver marks them in a bitmap. Before any rank sends, a
// barrier makes sure that all have posted receives. In an Allgather ranks form M chains, and a
// rank that has sent its block activates the next one of its chain. The slow path starts on a
// receiver when its cutoff timer expires while chunks are missing: it fetches them from its
// left neighbour by READs over a ring of reliable connections. At the end each rank tells its
// left neighbour that it will read no more, and waits for the same message from its right
// neighbour.
// right one.
// Three kinds of workers share this (AG-23). The caller does the barrier; a send worker sends;
// receive workers, each with subgroups of its own, do the rest. The first receive worker also
// does the recovery and the handshake.
type cast struct {
	r       *rank.Rank // view with connections of its own, for the fetch ring
	o       Options
	kind    rank.MulticastKind
	gather  bool
	barrier Algorithm
	chains  [][]*rank.Multicast // by chain and subgroup; with datagrams all chains share the same groups
	workers []*castWorker
	engine  engine
	ring    *fetchRing
	joins   []*rank.Worker

	// State of the current operation.
	round   uint32 // number of the operation: messages of others are dropped
	b       *rank.Buffer
	layout  layout
	root    int
	missing int  // chunks that this rank lacks
	turn    bool // this rank may send
	sent    bool // this rank has sent its block
	clear   bool // all ranks have posted receives
	over    bool // the handshake is done
	settles bool // Begin waits until the receive workers are idle
	closing bool
	flagged vtime.Time     // when the host sees that the receive workers are done
	cutoff  vtime.Time     // when missing chunks are fetched; Never before the barrier
	barred  vtime.Duration // duration of the last barrier
	err     error
	counts  Recovery

	movedAt vtime.Time // when the rank had everything, or had sent its block, whichever was later so far
	phases  Phases
}

// Phases is the time that a rank has spent in each part of its operations, in all of them together (AG-10,
// AG-16).
type Phases struct {
	Barrier   vtime.Duration `json:"barrier"`   // until all ranks have posted receives
	Multicast vtime.Duration `json:"multicast"` // from then on until the rank has everything and has sent its block, fetches included
	Handshake vtime.Duration `json:"handshake"` // from then on until the right neighbour reads no more
}

// Since returns the difference to an earlier value.
func (p Phases) Since(o Phases) Phases {
	return Phases{p.Barrier - o.Barrier, p.Multicast - o.Multicast, p.Handshake - o.Handshake}
}

// Add adds the times of another rank, or earlier ones of this rank.
func (p *Phases) Add(o Phases) {
	p.Barrier, p.Multicast, p.Handshake = p.Barrier+o.Barrier, p.Multicast+o.Multicast, p.Handshake+o.Handshake
}

// PhasesOf returns an algorithm's phases so far, or nil if it has none.
func PhasesOf(a Algorithm) *Phases {
	c, ok := a.(Phased)
	if !ok {
		return nil
	}
	p := c.Phases()
	return &p
}

// Phased is an Algorithm that consists of a barrier, a multicast and a handshake.
type Phased interface {
	Phases() Phases
}

// Phases implements Phased.
func (c *cast) Phases() Phases { return c.phases }

// Recovery counts a rank's work beside the fast path.
type Recovery struct {
	Cutoffs    int `json:"cutoffs"`    // operations in which the timer expired while chunks were missing
	Requests   int `json:"requests"`   // fetch requests sent
	Fetched    int `json:"fetched"`    // chunks fetched from the left neighbour
	Duplicates int `json:"duplicates"` // chunks that arrived again
	Stale      int `json:"stale"`      // chunks of an earlier operation
}

// Add adds the counts of another rank, or earlier ones of this rank.
func (r *Recovery) Add(o Recovery) {
	r.Cutoffs += o.Cutoffs
	r.Requests += o.Requests
	r.Fetched += o.Fetched
	r.Duplicates += o.Duplicates
	r.Stale += o.Stale
}

// Since returns the counts since an earlier value.
func (r Recovery) Since(o Recovery) Recovery {
	return Recovery{r.Cutoffs - o.Cutoffs, r.Requests - o.Requests, r.Fetched - o.Fetched, r.Duplicates - o.Duplicates, r.Stale - o.Stale}
}

// RecoveryOf returns an algorithm's counts so far, or nil if the algorithm cannot lose data.
func RecoveryOf(a Algorithm) *Recovery {
	c, ok := a.(Recovering)
	if !ok {
		return nil
	}
	r := c.Recovery()
	return &r
}

// Recovering is an Algorithm that may lose data and recovers it.
type Recovering interface {
	Recovery() Recovery
}

// chunksMax is the number of chunks that 24 bits of immediate data can number; the other 8 bits hold
// the number of the operation (AG-8).
const chunksMax = 1 << 24

func newCast(r *rank.Rank, o *Options, kind rank.MulticastKind, gather bool) (Algorithm, error) {
	if r.Size() == 1 {
		return &single{r}, nil
	}
	if o.Workers > o.Subgroups {
		return nil, fmt.Errorf("%d receive workers for %d subgroups: each needs one of its own", o.Workers, o.Subgroups)
	}
	all := make([]int, r.Size())
	for i := range all {
		all[i] = i
	}
	c := &cast{o: *o, kind: kind, gather: gather, over: true, cutoff: vtime.Never}
	var err error
	name := "cast/" + o.Label
	if c.r, err = r.Sub(name, all); err != nil {
		return nil, err
	}
	// The barrier gets a view of its own, so that its connections carry no other messages.
	b, err := r.Sub(name+"/barrier", all)
	if err != nil {
		return nil, err
	}
	c.barrier = &barrierOf{NewBarrier(b), b}
	if c.engine, err = newEngine(r, o, kind); err != nil {
		return nil, err
	}
	if err := c.attach(); err != nil {
		return nil, err
	}
	if c.ring, err = newFetchRing(c); err != nil {
		return nil, err
	}
	if err := c.first(); err != nil {
		return nil, err
	}
	for _, w := range c.workers {
		c.joins = append(c.joins, c.r.Go(fmt.Sprintf("receive %d", w.index), w.run))
	}
	c.joins = append(c.joins, c.r.Go("send", c.sender))
	return c, nil
}

// barrierOf is a barrier with its own view of the rank, and so its own connections.
type barrierOf struct {
	Algorithm
	r *rank.Rank
}

// Close implements Algorithm.
func (b *barrierOf) Close() error {
	if err := b.Algorithm.Close(); err != nil {
		return err
	}
	b.r.Sync()
	b.r.Close()
	return nil
}

// attach joins the groups and divides them among the receive workers.
func (c *cast) attach() error {
	chains := 1
	if c.kind == rank.Writes && c.gather {
		chains = min(c.o.Parallel, c.r.Size()) // messages of two chains must not share a queue pair
	}
	for w := range c.o.Workers {
		c.workers = append(c.workers, &castWorker{c: c, index: w})
	}
	for i := range chains {
		var groups []*rank.Multicast
		for s := range c.o.Subgroups {
			m, err := c.r.NewMulticast(fmt.Sprintf("%d/%d", i, s), c.kind, stagingMax)
			if err != nil {
				return err
			}
			groups = append(groups, m)
			w := c.workers[s%len(c.workers)]
			w.inlets = append(w.inlets, &inlet{m: m})
			w.groups = append(w.groups, m)
		}
		c.chains = append(c.chains, groups)
	}
	return nil
}

// first does the first barrier; its duration gives the first cutoff.
func (c *cast) first() error {
	b, err := c.r.Alloc(0, rank.MemoryPhantom)
	if err != nil {
		return err
	}
	if err := c.barrier.Begin(b, 0, 0); err != nil {
		return err
	}
	c.r.Sync()
	return c.synchronise()
}

// synchronise is the RNR barrier (AG-10).
func (c *cast) synchronise() error {
	from := c.r.Now()
	_, err := c.barrier.Run()
	c.barred = c.r.Now().Sub(from)
	return err
}

// Begin implements Algorithm. A broadcast has one block, the root's; an Allgather has one
// block per rank.
func (c *cast) Begin(b *rank.Buffer, n, root int) error {
	blocks, chunk := 1, c.r.MTU()
	if c.gather {
		blocks = c.r.Size()
	}
	if c.kind == rank.Writes {
		chunk = c.o.Chunk
	}
	if c.kind == rank.Writes && b.Kind() == rank.MemoryHashed {
		return fmt.Errorf("hashed memory, where parts of a lost chunk would be written twice: use bytes or phantom")
	}
	// Workers that still handle late arrivals read the state that changes here.
	c.settles = true
	c.r.Until("the receive workers", func() bool {
		return !slices.ContainsFunc(c.workers, func(w *castWorker) bool { return !w.idle })
	})
	c.settles = false
	c.b, c.root, c.layout = b, root, newLayout(blocks, n, chunk)
	if k := c.layout.count(); k > chunksMax {
		return fmt.Errorf("%d bytes in chunks of %d: %d chunks are more than the %d that immediate data can number", blocks*n, chunk, k, chunksMax)
	}
	if err := c.engine.begin(c.layout.count()); err != nil {
		return err
	}
	c.round++
	c.missing = c.layout.count()
	c.turn, c.sent, c.clear, c.over, c.cutoff = false, false, false, false, vtime.Never
	c.movedAt, c.flagged = 0, 0
	if c.block() >= 0 {
		c.missing -= c.layout.per
		first, _ := c.chain()
		c.turn = !c.gather || c.r.ID() == first
	} else {
		c.sent = true
	}
	for _, w := range c.workers {
		if err := w.begin(); err != nil {
			return err
		}
	}
	c.ring.begin()
	return nil
}

// block returns the block that this rank starts with, or -1.
func (c *cast) block() int {
	switch {
	case c.gather:
		return c.r.ID()
	case c.r.ID() == c.root:
		return 0
	}
	return -1
}

// chain returns the first and last rank of this rank's chain. There are M chains of R = P/M
// consecutive ranks; the first P mod M are longer by one (AG-21).
func (c *cast) chain() (first, last int) {
	i := c.chainOf(c.r.ID())
	return chainStart(c.r.Size(), c.parallel(), i), chainStart(c.r.Size(), c.parallel(), i+1) - 1
}

func (c *cast) parallel() int { return min(c.o.Parallel, c.r.Size()) }

// chainStart returns the first rank of a chain.
func chainStart(ranks, chains, i int) int { return i*(ranks/chains) + min(i, ranks%chains) }

func (c *cast) chainOf(rank int) (i int) {
	for i+1 < c.parallel() && chainStart(c.r.Size(), c.parallel(), i+1) <= rank {
		i++
	}
	return i
}

// Run implements Algorithm.
func (c *cast) Run() (at Times, err error) {
	at.Received = c.r.Now()
	begun := at.Received
	// As the paper has it the timer starts with the receive path, and the allowance is to cover the
	// barrier, of which only the last one's duration is known (AG-12).
	early := at.Received.Add(c.allowance())
	if err := c.synchronise(); err != nil {
		return at, err
	}
	c.cutoff = c.r.Now().Add(c.allowance())
	if c.o.Cutoff == CutoffBeforeBarrier {
		c.cutoff = max(c.r.Now(), early)
	}
	clear := c.r.Now()
	c.clear = true
	c.r.Notify()
	c.r.Until("the rest of a multicast", func() bool { return c.over && c.sent || c.err != nil })
	if err := c.shut(); err != nil {
		return at, err
	}
	at.Done = c.r.Now()
	moved := max(clear, c.movedAt)
	c.phases.Add(Phases{clear.Sub(begun), moved.Sub(clear), at.Done.Sub(moved)})
	if c.gather || c.r.ID() != c.root {
		at.Received = at.Done
	}
	return at, c.err
}

// shut keeps late arrivals out of the buffer, which now belongs to the user again.
func (c *cast) shut() error {
	if c.kind == rank.Datagrams {
		return nil // late datagrams get no further than staging
	}
	for _, groups := range c.chains {
		for _, m := range groups {
			if err := m.Shut(); err != nil {
				return err
			}
		}
	}
	return nil
}

// around is an upper bound of the bytes of headers and gaps of a packet.
const around = 100

// alphaMin is the least allowance of the cutoff timer for noise (AG-12).
const alphaMin = vtime.Millisecond

// allowance returns how long after the barrier chunks may still arrive. It is the transmission
// time of the receive buffer on the link, or the time that the receive workers take if that is
// longer, plus alpha, which covers everything else (AG-12). The default of alpha is
// the longer of a millisecond and four barriers, plus, for each activation in the chain, two
// steps of the barrier.
func (c *cast) allowance() vtime.Duration {
	alpha := c.o.Alpha
	if alpha == 0 {
		rounds := 0
		for d := 1; d < c.r.Size(); d *= 2 {
			rounds++
		}
		first, last := c.chain()
		alpha = max(alphaMin, 4*c.barred) + vtime.Duration(2*(last-first))*c.barred/vtime.Duration(rounds)
	}
	chunks := c.layout.count()
	packets := chunks * max(1, (c.layout.chunk+c.r.MTU()-1)/c.r.MTU())
	bits := float64(c.layout.blocks*c.layout.n+packets*around) * 8
	line := vtime.Picoseconds(bits / float64(c.r.LinkRate()) * float64(vtime.Second))
	if c.o.Pace > 0 {
		line = line * 100 / vtime.Duration(c.o.Pace)
	}
	return max(line, c.engine.allowance(chunks, len(c.workers))) + alpha
}

// Recovery implements Recovering.
func (c *cast) Recovery() Recovery { return c.counts }

// fail ends the operation with an error.
func (c *cast) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	c.r.Notify()
	return err
}

// Close implements Algorithm.
func (c *cast) Close() error {
	c.closing = true
	c.r.Notify()
	for _, w := range c.joins {
		if err := w.Join(); err != nil {
			return err
		}
	}
	if err := c.ring.close(); err != nil {
		return err
	}
	if err := c.barrier.Close(); err != nil { // this also synchronises all ranks
		return err
	}
	for _, groups := range c.chains {
		for _, m := range groups {
			if err := m.Close(); err != nil {
				return err
			}
		}
	}
	c.r.Sync()
	c.r.Close()
	for _, w := range c.workers {
		if err := w.free(); err != nil {
			return err
		}
	}
	c.engine.close()
	return nil
}

// single is any operation in a job of one rank: it does nothing.
type single struct{ r *rank.Rank }

// Begin implements Algorithm.
func (s *single) Begin(*rank.Buffer, int, int) error { return nil }

// Run implements Algorithm.
func (s *single) Run() (at Times, err error) {
	at.Received, at.Done = s.r.Now(), s.r.Now()
	return at, nil
}

// Close implements Algorithm.
func (s *single) Close() error { return nil }
