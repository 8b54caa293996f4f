package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// groupWrite is one WRITE to a group.
type groupWrite struct {
	window, at, n int
	imm           bool
	seed          uint64
}

// writeRound is what one source sends before the next one does.
type writeRound struct {
	source    int
	newWindow bool // before it
	writes    []groupWrite
}

// writeTrial is everything a seed decides.
type writeTrial struct {
	seed                uint64
	mode                rank.MRMode
	graph               *topo.Graph
	hosts               []int
	mtu, ack, size      int
	psn                 wire.PSN
	loss, dup, late, ko float64
	rounds              []writeRound
	vlan                uint16
}

func drawWrites(t *testing.T, seed uint64, mode rank.MRMode) writeTrial {
	r := rand.New(rand.NewPCG(seed, 77))
	v := writeTrial{seed: seed, mode: mode, mtu: 256 << r.IntN(5), ack: 1 + r.IntN(17)}
	link := topo.LinkParams{Rate: 100e9, Delay: vtime.Duration(100+r.IntN(2000)) * vtime.Nanosecond}
	var err error
	if v.graph, err = topo.FatTree(4, link); r.IntN(3) == 0 {
		v.graph, err = topo.Star(2+r.IntN(9), link)
	}
	if err != nil {
		t.Fatal(err)
	}
	v.hosts = r.Perm(v.graph.Hosts)[:min(v.graph.Hosts, 2+r.IntN(14))]
	v.size = 1 + r.IntN(12*v.mtu)
	v.psn = wire.PSN([]uint32{0, 1 << 23, 1 << 24, r.Uint32()}[r.IntN(4)]-uint32(r.IntN(100))) & wire.PSNMask
	if r.IntN(5) > 0 {
		v.loss, v.dup, v.late, v.ko = 0.01*r.Float64(), 0.01*r.Float64(), 0.01*r.Float64(), 0.01*r.Float64()
	}
	v.drawRounds(r)
	v.vlan = simlab.Framing(v.graph, seed)
	return v
}

// drawRounds draws who sends what, for the trial's hosts, windows and MTU.
func (v *writeTrial) drawRounds(r *rand.Rand) {
	windows := 1
	for range 1 + r.IntN(5) {
		w := writeRound{source: r.IntN(len(v.hosts))}
		if r.IntN(3) == 0 {
			w.newWindow = true
			windows++
		}
		most := 6
		if r.IntN(5) == 0 {
			most = 3 * wire.MRVersionsMax / 2 // more than leaves keep regions for
		}
		for range 1 + r.IntN(most) {
			g := groupWrite{window: windows - 1, at: r.IntN(v.size), seed: r.Uint64(), imm: r.IntN(4) == 0}
			if v.mode != rank.MRRegistered {
				g.window = r.IntN(windows)
			}
			g.n = r.IntN(min(v.size-g.at, 3*v.mtu) + 1)
			w.writes = append(w.writes, g)
		}
		v.rounds = append(v.rounds, w)
	}
}

// program is what each rank runs: all know the plan, and after each round compare every
// byte of all their windows with what it says.
func (v writeTrial) program(r *rank.Rank) error {
	g, first, err := r.NewWriteGroup("w", 0, v.mode, v.size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	windows, want := []*rank.Window{first}, [][]byte{make([]byte, v.size)}
	none, err := r.Alloc(1, rank.MemoryBytes)
	if err != nil {
		return err
	}
	for k, round := range v.rounds {
		if round.newWindow {
			w, err := g.NewWindow(v.size, rank.MemoryBytes)
			if err != nil {
				return err
			}
			windows, want = append(windows, w), append(want, make([]byte, v.size))
		}
		if err := g.SetSource(round.source); err != nil {
			return err
		}
		if err := v.round(r, g, round, windows, want, none); err != nil {
			return err
		}
		r.Sync()
		for i, w := range windows {
			if !bytes.Equal(w.Bytes(), want[i]) {
				return fmt.Errorf("rank %d, round %d: wrong bytes in window %d", r.ID(), k, i)
			}
		}
		r.Sync()
	}
	return g.Delete()
}

func (v writeTrial) round(r *rank.Rank, g *rank.Group, round writeRound, windows []*rank.Window, want [][]byte, none *rank.Buffer) error {
	var reqs []*rank.Request
	if r.ID() != round.source {
		for _, w := range round.writes {
			prng.Fill(want[w.window][w.at:w.at+w.n], w.seed, 0)
			if w.imm {
				q, err := g.Recv(none, 0, 0)
				if err != nil {
					return err
				}
				reqs = append(reqs, q)
			}
		}
		r.Sync()
		return r.Wait(reqs...)
	}
	r.Sync()
	buf, err := r.Alloc(len(round.writes)*3*v.mtu, rank.MemoryBytes)
	if err != nil {
		return err
	}
	for i, w := range round.writes {
		off := i * 3 * v.mtu
		prng.Fill(buf.Bytes()[off:off+w.n], w.seed, 0)
		var q *rank.Request
		if w.imm {
			q, err = g.WriteImm(windows[w.window], w.at, buf, off, w.n, uint32(i))
		} else {
			q, err = g.Write(windows[w.window], w.at, buf, off, w.n)
		}
		if err != nil {
			return err
		}
		reqs = append(reqs, q)
	}
	return r.Wait(reqs...)
}

// run returns the network after it.
func (v writeTrial) run(t *testing.T) *Net {
	t.Helper()
	n, err := New(Config{Check: true, RetryAfter: 200 * vtime.Microsecond, RetriesMax: 20, Spec: fabric.Spec{
		Graph: v.graph, Seed: v.seed, NIC: virtrnic.Settings{AckEvery: v.ack}, VLAN: v.vlan,
		Switch: fabric.Switch{
			Latency:  300 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range n.Ports() {
		link := fmt.Sprintf("%s>%s", v.graph.Nodes[n.from[id].node].Name, v.graph.Nodes[n.Link(id).Node].Name)
		n.SetFault(id, faults.Chain{
			simlab.NewOneRETH(t, fmt.Sprintf("seed %d, %s, %s", v.seed, v.mode, link)),
			&faults.Impairment{Loss: v.loss, Duplicate: v.dup, Reorder: v.late, Delay: 5 * vtime.Microsecond, Random: n.random.Derive(fmt.Sprintf("fault/%d", id))},
			&faults.Impairment{Corrupt: v.ko, Match: faults.MatchFunc(simlab.IsData), Random: n.random.Derive(fmt.Sprintf("flip/%d", id))},
		})
	}
	params := simlab.Params()
	params.MTU, params.FirstPSN = v.mtu, &v.psn
	if err := n.Run(Job{Name: "w", Hosts: v.hosts, Params: params, Program: v.program}); err != nil {
		t.Fatalf("seed %d, %s, mtu %d, %d ranks, first PSN %v: %v (go test ./drivers/sim -run '^%s$' -from %d -seeds 1)",
			v.seed, v.mode, v.mtu, len(v.hosts), v.psn, err, t.Name(), v.seed)
	}
	return n
}

// TestGroupWrites: WRITEs to a group in the three modes, with members that move, windows
// that change, more WRITEs at once than leaves keep regions for, and frames lost, doubled,
// late and damaged. After every round each byte of every window is what it should be.
func TestGroupWrites(t *testing.T) {
	from, count := simlab.Seeds(t, 60)
	for seed := from; seed < from+count; seed++ {
		for _, mode := range simlab.MRModes() {
			v := drawWrites(t, seed, mode)
			n := v.run(t)
			var rewritten, updates uint64
			for i := range n.nodes {
				if sw := n.nodes[i].sw; sw != nil {
					rewritten, updates = rewritten+sw.Stats().RETHsRewritten, updates+sw.Stats().MRUpdates
				}
			}
			if (rewritten > 0) != (mode != rank.MRShared) || (updates > 0) != (mode == rank.MRPerRequest) {
				t.Errorf("seed %d, %s: switches rewrote %d WRITEs and took %d announcements", seed, mode, rewritten, updates)
			}
		}
	}
}
