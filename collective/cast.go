package collective

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// cast is Broadcast and Allgather over plain multicast, which is unreliable, after
// Khalilov et al., "Network-Offloaded Bandwidth-Optimal Broadcast and Allgather for
// Distributed AI" (SC 2024; §III and §IV, AG-1 to AG-27).
//
// The fast path streams chunks to a multicast group, their number in the immediate data,
// with nothing coming back; a receiver marks them in a bitmap. Before anybody sends, a
// barrier makes sure that all have posted receives. In an Allgather ranks stand in M
// chains, and a rank whose block has left activates the next one of its chain. The slow
// path begins if a receiver's cutoff timer runs out while chunks are missing: it fetches
// them from its left neighbour by READs over a ring of reliable connections. Last, each
// rank tells its left neighbour that it will read no more and waits for the same from the
// right one.
//
// Three kinds of worker share this (AG-23): the caller does the barrier, a send worker the
// sending, and receive workers, each with subgroups of its own, the rest; the first of
// them does the recovery and the handshake as well.
type cast struct {
	r       *rank.Rank // with connections of its own: the fetch ring's
	o       Options
	kind    rank.MulticastKind
	gather  bool
	barrier Algorithm
	chains  [][]*rank.Multicast // by chain and subgroup; of datagrams all chains have the same
	workers []*castWorker
	engine  engine
	ring    *fetchRing
	joins   []*rank.Worker

	// The operation.
	round   uint32 // of operations: what is for another one is dropped
	b       *rank.Buffer
	layout  layout
	root    int
	missing int  // chunks
	turn    bool // this rank may send,
	sent    bool // and has
	clear   bool // all have posted receives
	over    bool // the handshake is done
	settles bool // Begin waits for the receive workers
	closing bool
	cutoff  vtime.Time     // when what is missing is fetched; Never before the barrier
	barred  vtime.Duration // the last barrier took so long
	err     error
	counts  Recovery
}

// Recovery counts what a rank did beside the fast path.
type Recovery struct {
	Cutoffs    int `json:"cutoffs"`    // operations in which the timer ran out on missing chunks
	Requests   int `json:"requests"`   // fetch requests sent
	Fetched    int `json:"fetched"`    // chunks got from the left neighbour
	Duplicates int `json:"duplicates"` // chunks that came again
	Stale      int `json:"stale"`      // chunks of an earlier operation
}

// Add adds what another rank did, or this one before.
func (r *Recovery) Add(o Recovery) {
	r.Cutoffs += o.Cutoffs
	r.Requests += o.Requests
	r.Fetched += o.Fetched
	r.Duplicates += o.Duplicates
	r.Stale += o.Stale
}

// Since returns what was done after an earlier count.
func (r Recovery) Since(o Recovery) Recovery {
	return Recovery{r.Cutoffs - o.Cutoffs, r.Requests - o.Requests, r.Fetched - o.Fetched, r.Duplicates - o.Duplicates, r.Stale - o.Stale}
}

// RecoveryOf returns what an algorithm has done so far beside its fast path, or nil if it
// loses nothing.
func RecoveryOf(a Algorithm) *Recovery {
	c, ok := a.(Recovering)
	if !ok {
		return nil
	}
	r := c.Recovery()
	return &r
}

// Recovering is an Algorithm that may lose data and get it back.
type Recovering interface {
	Recovery() Recovery
}

// chunksMax is what 24 bits of immediate data number; the other 8 tell operations apart
// (AG-8).
const chunksMax = 1 << 24

func newCast(r *rank.Rank, o Options, kind rank.MulticastKind, gather bool) (Algorithm, error) {
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
	c := &cast{o: o, kind: kind, gather: gather, over: true, cutoff: vtime.Never}
	var err error
	name := "cast/" + o.Label
	if c.r, err = r.Sub(name, all); err != nil {
		return nil, err
	}
	// Of its own, so that nothing else comes by the barrier's connections, nor the ring's.
	b, err := r.Sub(name+"/barrier", all)
	if err != nil {
		return nil, err
	}
	c.barrier = &barrierOf{NewBarrier(b), b}
	if c.engine, err = newEngine(o, kind); err != nil {
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

// barrierOf is a barrier with connections of its own.
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

// attach joins the groups and deals them out to the receive workers.
func (c *cast) attach() error {
	chains := 1
	if c.kind == rank.Writes && c.gather {
		chains = min(c.o.Parallel, c.r.Size()) // messages of two chains must not meet in a queue pair
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

// first does the first barrier: its time is what the first cutoff is reckoned with.
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
// of every rank.
func (c *cast) Begin(b *rank.Buffer, n, root int) error {
	blocks, chunk := 1, c.r.Params().MTU
	if c.gather {
		blocks = c.r.Size()
	}
	if c.kind == rank.Writes {
		chunk = c.o.Chunk
	}
	if c.kind == rank.Writes && b.Kind() == rank.MemoryHashed {
		return fmt.Errorf("hashed memory, where parts of a lost chunk would be written twice: use bytes or phantom")
	}
	// Workers that are busy with what came late use what changes here.
	c.settles = true
	c.r.Until("the receive workers", func() bool {
		return !slices.ContainsFunc(c.workers, func(w *castWorker) bool { return !w.idle })
	})
	c.settles = false
	c.b, c.root, c.layout = b, root, newLayout(blocks, n, chunk)
	if k := c.layout.count(); k > chunksMax {
		return fmt.Errorf("%d bytes in chunks of %d: %d chunks are more than the %d that immediate data can number", blocks*n, chunk, k, chunksMax)
	}
	c.round++
	c.missing = c.layout.count()
	c.turn, c.sent, c.clear, c.over, c.cutoff = false, false, false, false, vtime.Never
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

// block returns the block that this rank begins with, or -1.
func (c *cast) block() int {
	switch {
	case c.gather:
		return c.r.ID()
	case c.r.ID() == c.root:
		return 0
	}
	return -1
}

// chain returns the first and last rank of this rank's chain: M chains of R = P/M ranks
// in a row, the first P mod M of them longer by one (AG-21).
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
	if err := c.synchronise(); err != nil {
		return at, err
	}
	c.cutoff = c.r.Now().Add(c.allowance())
	c.clear = true
	c.r.Notify()
	c.r.Until("the rest of a multicast", func() bool { return c.over && c.sent || c.err != nil })
	if err := c.shut(); err != nil {
		return at, err
	}
	at.Done = c.r.Now()
	if c.gather || c.r.ID() != c.root {
		at.Received = at.Done
	}
	return at, c.err
}

// shut keeps what comes late out of the buffer, which is the user's again.
func (c *cast) shut() error {
	if c.kind == rank.Datagrams {
		return nil // it gets no further than staging
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

// around is the bytes of headers and gaps of a packet, at the most.
const around = 100

// alphaMin is what the cutoff timer allows at least for noise (AG-12).
const alphaMin = vtime.Millisecond

// allowance returns how long after the barrier chunks may come: the time of the receive
// buffer on the link, or at the receive workers if they are slower, and alpha, which
// covers what else there is (AG-12): a millisecond, or four barriers, and for the
// activations of a chain twice as long as as many steps of the barrier take.
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
	packets := chunks * max(1, (c.layout.chunk+c.r.Params().MTU-1)/c.r.Params().MTU)
	bits := float64(c.layout.blocks*c.layout.n+packets*around) * 8
	line := vtime.Picoseconds(bits / float64(c.r.LinkRate()) * float64(vtime.Second))
	if c.o.Pace > 0 {
		line = line * 100 / vtime.Duration(c.o.Pace)
	}
	return max(line, c.engine.allowance(chunks, len(c.workers))) + alpha
}

// Recovery implements Recovering.
func (c *cast) Recovery() Recovery { return c.counts }

// fail ends the operation.
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
	if err := c.barrier.Close(); err != nil { // it brings all ranks together
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
	return nil
}

// single is any operation of one rank: nothing.
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
