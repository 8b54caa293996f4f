// SPDX-License-Identifier: Apache-2.0

package sim

// A run ends, with its reason, and is repeated bit for bit, whatever faults come: idle detection, deadlocks, order of events.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// trouble is a small lab with a timeline of faults of any kinds, which a seed draws.
type trouble struct {
	seed   uint64
	r      *rand.Rand
	graph  *topo.Graph
	hosts  []int
	params bcast.Params
	specs  []faults.Spec
}

func drawTrouble(t *testing.T, seed uint64) *trouble {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 89))
	d := &trouble{seed: seed, r: r}
	var err error
	switch r.IntN(3) {
	case 0:
		d.graph, err = topo.Star(2+r.IntN(5), simlab.Link())
	case 1:
		d.graph, err = topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 2, Hosts: 2, Parallel: 1}, simlab.Link())
	default:
		d.graph, err = topo.FatTree(4, simlab.Link())
	}
	if err != nil {
		t.Fatal(err)
	}
	d.hosts = r.Perm(d.graph.Hosts)[:2+r.IntN(min(5, d.graph.Hosts-1))]
	d.params = bcast.Params{Workload: "trouble", Root: r.IntN(len(d.hosts)), Sizes: []int{r.IntN(30000), r.IntN(30000)}, Iterations: 2, Seed: seed}
	for _, s := range []string{"cepheus", []string{"chain", "binomial", "unicast"}[r.IntN(3)]} {
		d.params.Schemes = append(d.params.Schemes, bcast.Scheme{Label: s, Name: s})
	}
	kinds := faults.Kinds()
	for k := range 1 + r.IntN(5) {
		d.draw(fmt.Sprint(k), kinds[r.IntN(len(kinds))])
	}
	return d
}

// draw adds a fault of a kind. Pauses do not come again for ever: frames would wait for
// ever, too.
func (d *trouble) draw(id string, k faults.Kind) {
	r, g := d.r, d.graph
	s := faults.Spec{ID: id, Kind: k, Text: string(k), Priority: 3, Gap: vtime.Duration(1+r.IntN(9)) * vtime.Microsecond}
	s.From = vtime.Time(r.Int64N(int64(150 * vtime.Microsecond)))
	if k.Lasts() {
		s.For = vtime.Duration(1 + r.Int64N(int64(60*vtime.Microsecond)))
	}
	if pauses := k == faults.KindPause || k == faults.KindPauseStorm; !pauses && r.IntN(3) == 0 {
		s.Every = s.For + vtime.Duration(1+r.Int64N(int64(60*vtime.Microsecond)))
	}
	if r.IntN(4) == 0 {
		s.Probability = 0.2 + 0.7*r.Float64()
	}
	host, sw := r.IntN(g.Hosts), g.Hosts+r.IntN(g.Switches())
	if r.IntN(2) == 0 {
		host = d.hosts[0] // so that several faults meet
	}
	link := r.IntN(len(g.Links))
	p := 0.2 * r.Float64()
	s.Frames.Delay = 5 * vtime.Microsecond
	switch k {
	case faults.KindLoss:
		s.Frames.Loss = p
	case faults.KindCorrupt:
		s.Frames.Corrupt = p
	case faults.KindTruncate:
		s.Frames.Truncate = p
	case faults.KindDuplicate:
		s.Frames.Duplicate = p
	case faults.KindReorder:
		s.Frames.Reorder = p
	case faults.KindDelay:
		s.Frames.Hold, s.Frames.Jitter = vtime.Duration(r.IntN(int(9*vtime.Microsecond))), vtime.Duration(1+r.IntN(int(vtime.Microsecond)))
	case faults.KindRateCut:
		s.Links, s.Rate = []int{link}, int64(1+r.IntN(40))*1e9
	case faults.KindLinkDown:
		s.Links = []int{link}
	case faults.KindCrash, faults.KindAgentCrash, faults.KindRestart:
		s.Nodes = []int{[]int{host, sw}[r.IntN(2)]}
	case faults.KindWipe, faults.KindRoom:
		s.Nodes, s.Room = []int{sw}, r.IntN(2)
	default:
		s.Nodes, s.Rate = []int{host}, int64(1+r.IntN(20))*1e9
	}
	if k.OfFrames() {
		for _, l := range g.Links {
			if r.IntN(2) == 0 {
				s.Ends = append(s.Ends, l.A, l.B)
			}
		}
	}
	d.specs = append(d.specs, s)
}

func (d *trouble) String() string {
	text := fmt.Sprintf("seed %d: %d of %d hosts, root %d, sizes %v, %s then %s", d.seed, len(d.hosts), d.graph.Hosts, d.params.Root, d.params.Sizes,
		d.params.Schemes[0].Name, d.params.Schemes[1].Name)
	for _, s := range d.specs {
		text += fmt.Sprintf("; %s at %v for %v every %v, probability %.2f, %v", s.Kind, s.From, s.For, s.Every, s.Probability, s.Where(d.graph))
	}
	return text
}

// errEndless says that faults alone keep a lab busy.
var errEndless = errors.New("it does not end")

// config describes the lab. Messages of its out-of-band channel take as long as is said.
func (d *trouble) config(channel vtime.Duration) Config {
	return Config{Check: true, OutOfBand: channel, Spec: fabric.Spec{
		Graph: d.graph, Seed: d.seed, NIC: virtrnic.Settings{AckEvery: 1 + int(d.seed%5)},
		Switch: fabric.Switch{
			Latency:  300 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}}
}

// inject gives simulations the timeline of faults.
func (d *trouble) inject(all ...*Net) (lines []*faults.Timeline) {
	for _, n := range all {
		lines = append(lines, n.NewTimeline(20*vtime.Microsecond, d.specs...))
	}
	return lines
}

// alike returns up to four hosts, or as many switches, in an order that is drawn.
func (d *trouble) alike(node int, r prng.Stream) (all []int) {
	from, count := 0, d.graph.Hosts
	if node >= count {
		from, count = count, d.graph.Switches()
	}
	for _, i := range r.Perm(count)[:min(count, 1+r.IntN(4))] {
		all = append(all, from+i)
	}
	return all
}

// broadcast runs the broadcasts, and returns their error and the records of their ranks. over, if set, is
// Job.Over.
func (d *trouble) broadcast(t *testing.T, n interface{ Run(Job) error }, over func(now vtime.Time)) (raw []byte, records [][][]byte, err error) {
	t.Helper()
	if raw, err = json.Marshal(d.params); err != nil {
		t.Fatal(err)
	}
	records = make([][][]byte, len(d.hosts))
	err = n.Run(Job{
		Name: "trouble", Hosts: d.hosts, Params: simlab.Params(), Program: func(r *rank.Rank) error { return (bcast.App{}).Run(r, raw) },
		Emit: func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
		Over: over,
	})
	return raw, records, err
}

// run returns how the broadcasts ended, and the lab.
func (d *trouble) run(t *testing.T) (*Net, error) {
	t.Helper()
	n, err := New(d.config(vtime.Duration(d.seed%4) * 7 * vtime.Microsecond)) // so that faults meet its messages
	if err != nil {
		t.Fatal(err)
	}
	n.Observe = func() error {
		if n.Stats().Events > 20_000_000 {
			return errEndless
		}
		return nil
	}
	d.inject(n)
	raw, records, err := d.broadcast(t, n, nil)
	n.check.conserved()
	rows, rerr := bcast.App{}.Reduce(raw, records)
	for _, row := range rows {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("%v: %s at %d bytes: wrong bytes", d, row.Scheme, row.SizeBytes)
		}
	}
	if rerr != nil {
		t.Errorf("%v: %v", d, rerr)
	}
	return n, errors.Join(err, n.err)
}

// troubled broadcasts under a timeline of faults. That may fail, but it ends, with the
// reason; who gets a message gets the right one; no invariant is broken; and again it goes
// the same way.
func troubled(t *testing.T, seed uint64) {
	t.Helper()
	d := drawTrouble(t, seed)
	n, err := d.run(t)
	if errors.Is(err, ErrInvariant) || errors.Is(err, rankhost.ErrDeadlock) || errors.Is(err, errEndless) {
		t.Errorf("%v\n%v", d, err)
	}
	again, other := drawTrouble(t, seed).run(t)
	if n.Digest() != again.Digest() || n.now != again.now || fmt.Sprint(err) != fmt.Sprint(other) {
		t.Errorf("%v: two runs differ: %016x at %v, %v\nand %016x at %v, %v", d, n.Digest(), n.now, err, again.Digest(), again.now, other)
	}
}

// sleepers has tasks sleep and wait for each other, all of which costs an event for each time that
// something has to wake one, and no more: the rest of a sleep that was cut short does not cause others.
// Nobody sleeps longer or shorter than it said.
func sleepers(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 97))
	n := newStar(t)
	waits, rounds := uint64(0), 20+r.IntN(100)
	draw := func() vtime.Duration {
		waits++
		return vtime.Duration(1+r.IntN(50)) * vtime.Microsecond
	}
	err := n.Run(Job{Name: "sleep", Hosts: []int{0}, Params: simlab.Params(), Program: func(k *rank.Rank) error {
		there := false
		w := k.Go("other", func() error {
			for range rounds {
				k.Sleep(draw())
				there = true
				k.Notify()
			}
			return nil
		})
		for range rounds {
			until := k.Now().Add(draw())
			saw := k.Look(until, "the other", nil, func() bool { return there })
			if saw != there || k.Now() > until || !saw && k.Now() < until {
				return fmt.Errorf("a look until %v ended at %v and saw %v of %v", until, k.Now(), saw, there)
			}
			there = false
			from, long := k.Now(), draw()
			if k.Sleep(long); k.Now() != from.Add(long) {
				return fmt.Errorf("a sleep of %v from %v ended at %v", long, from, k.Now())
			}
		}
		return w.Join()
	}})
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if got := n.Stats().Events; got > waits {
		t.Errorf("seed %d: %d events for %d waits", seed, got, waits)
	}
}
