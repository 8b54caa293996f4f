package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// oneCause is a run of some messages in which one thing goes wrong, drawn by seed.
type oneCause struct {
	*safe
	kind      faults.Kind
	from, end vtime.Duration // of the fault; from = end: it only happens
	text      string
}

// drawCause draws a fabric, messages and what goes wrong.
func drawCause(t testing.TB, seed uint64) *oneCause {
	r := rand.New(rand.NewPCG(seed, 46))
	var g *topo.Graph
	var err error
	leaves := 2 + r.IntN(2)
	shape := topo.LeafSpineSpec{Leaves: leaves, Spines: 2, Hosts: 1 + r.IntN(3)}
	if r.IntN(3) == 0 {
		shape = topo.LeafSpineSpec{Leaves: 1, Spines: 1, Hosts: 3 + r.IntN(4)}
	}
	g, err = topo.LeafSpine(shape, safeLink)
	c := &oneCause{safe: newSafe(t, g, err, 12+r.IntN(20), 0)}
	c.seed = seed
	c.mode = []string{collective.FallbackFull, collective.FallbackPartial}[r.IntN(2)]
	c.memory = []rank.MemoryKind{rank.MemoryBytes, rank.MemoryHashed, rank.MemoryPhantom}[r.IntN(3)]
	c.params.MTU = 1024 << r.IntN(3)
	c.pause = vtime.Duration(r.IntN(2000)) * vtime.Microsecond
	size, one := 1+r.IntN(300_000), r.IntN(2) == 0
	moves := r.IntN(2) == 0
	for i := range c.sizes {
		c.sizes[i] = size
		if !one {
			c.sizes[i] = r.IntN(200_000)
		}
		root := 0
		if moves {
			root = r.IntN(g.Hosts)
		}
		c.roots = append(c.roots, root)
	}
	c.drawFault(r)
	c.text = fmt.Sprintf("seed %d: %+v, %s, %v, MTU %d, %d messages of %d, %s at %v to %v, roots %v",
		seed, shape, c.mode, c.memory, c.params.MTU, len(c.sizes), c.sizes[0], c.kind, c.from, c.end, c.roots)
	return c
}

// drawFault draws what goes wrong.
func (c *oneCause) drawFault(r *rand.Rand) {
	g := c.graph
	c.from = vtime.Duration(r.IntN(6000)) * vtime.Microsecond
	kinds := []faults.Kind{faults.KindLoss, faults.KindRateCut, faults.KindSlowReceiver, faults.KindWipe, faults.KindStall, faults.KindLinkDown, faults.KindCrash, faults.KindRoom}
	c.kind = kinds[r.IntN(len(kinds))]
	host := g.Nodes[r.IntN(g.Hosts)].Name
	h, _ := g.Find(host)
	where := g.Nodes[g.Peer(h, 0).Node].Name + "-" + host
	f := faults.Spec{Kind: c.kind}
	lasts := vtime.Duration(1+r.IntN(25)) * vtime.Millisecond
	switch c.kind {
	case faults.KindLoss:
		f.Frames.Loss = 0.03 + 0.2*r.Float64()
	case faults.KindRateCut:
		f.Rate = int64(0.4e9 + 3e9*r.Float64())
	case faults.KindSlowReceiver:
		f.Rate, where = int64(0.4e9+3e9*r.Float64()), host
	case faults.KindWipe:
		lasts, where = 0, g.Nodes[g.Hosts+r.IntN(g.Switches())].Name
	case faults.KindStall:
		lasts, where = vtime.Duration(r.IntN(5000))*vtime.Microsecond, host
	case faults.KindLinkDown:
		lasts = vtime.Duration(1+r.IntN(5000)) * vtime.Microsecond
	case faults.KindCrash:
		lasts, where = vtime.Duration(1+r.IntN(5000))*vtime.Microsecond, g.Nodes[len(g.Nodes)-1].Name
	case faults.KindRoom:
		c.from, where = 0, g.Nodes[g.Hosts].Name
	}
	c.end = c.from + lasts
	f.Window = from(c.from, lasts)
	c.add(f, where)
}

// check runs it and returns what is wrong.
func (c *oneCause) check() error {
	if err := c.run(); err != nil {
		return err
	}
	for i, n := range c.got {
		if n != len(c.sizes) {
			return fmt.Errorf("rank %d got %d of %d messages", i, n, len(c.sizes))
		}
	}
	did := c.sum()
	if did.Fallbacks > 1 || len(did.Lost) > 0 {
		return fmt.Errorf("%+v", did)
	}
	for _, e := range c.events {
		if c.end-c.from > 2*vtime.Millisecond && e.Kind == machine.EventReturn && e.Text == "" && vtime.Duration(e.at) < c.end && c.lasting() {
			return fmt.Errorf("back at %v", e.at)
		}
	}
	return nil
}

// lasting says whether the fault keeps a group from being of any use all the time.
func (c *oneCause) lasting() bool {
	return c.kind == faults.KindRateCut || c.kind == faults.KindSlowReceiver
}

// TestFallbackOncePerCause: whatever one thing goes wrong, wherever and whenever, all
// messages come to all ranks, the group is left once at most, and not used again before it
// is over. MCASTLAB_SOAK makes it 5,000 seeds.
func TestFallbackOncePerCause(t *testing.T) {
	count := uint64(50)
	if os.Getenv("MCASTLAB_SOAK") != "" {
		count = 5000
	}
	from, count := seeds(t, count)
	fell, back := 0, 0
	for seed := from; seed < from+count; seed++ {
		c := drawCause(t, seed)
		if err := c.check(); err != nil {
			t.Errorf("%s: %v; %v (go test ./sim -run FallbackOncePerCause -from %d -seeds 1)", c.text, err, c.events, seed)
		}
		did := c.sum()
		fell += did.Fallbacks
		back += min(1, did.Returns)
	}
	t.Logf("%d seeds: %d left multicast, %d came back", count, fell, back)
	if count >= 50 && (fell < int(count)/4 || back < int(count)/8) {
		t.Errorf("only %d of %d seeds left multicast, and %d came back", fell, count, back)
	}
}
