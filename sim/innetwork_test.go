package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// reduceNet is a fat-tree whose links lose, double and delay frames.
func reduceNet(t *testing.T, seed uint64, m faults.Impairment) *Net {
	t.Helper()
	g, err := topo.FatTree(4, sceneLink)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: seed, NIC: fabric.NIC{AckEvery: 4},
		Switch: fabric.Switch{Buffer: 16 << 20, Latency: 400 * vtime.Nanosecond, Lossless: 1 << 3, Rules: virtswitch.RulesFixed()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range n.Ports() {
		one := m
		one.Random = n.random.Derive(fmt.Sprintf("fault/%d", id))
		n.SetFault(id, &one)
	}
	return n
}

// treeSum is what the switches make of the numbers at an index for its owner: it follows
// the reduction's tree from its root, whose leaf rank 0 is at, and adds in the order of
// ports. ok is false if the owner alone is there.
func treeSum(n *Net, group uint32, ranks map[int]int, node, from, owner, index int) (sum float32, ok bool) {
	if n.nodes[node].sw == nil {
		if ranks[node] == owner {
			return 0, false
		}
		return math.Float32frombits(reduceNumber(true, ranks[node], index)), true
	}
	g, _ := n.nodes[node].sw.Group(group)
	for port := range n.graph.Nodes[node].Links {
		for _, p := range g.Paths {
			if p.Port != port || port == from {
				continue
			}
			far := n.graph.Peer(node, port)
			v, some := treeSum(n, group, ranks, far.Node, far.Port, owner, index)
			switch {
			case some && ok:
				sum += v
			case some:
				sum, ok = v, true
			}
		}
	}
	return sum, ok
}

// TestReduceInNetwork: under loss, doubling and reordering each rank gets in its block,
// once, what everybody had there: integers the same as the ring makes, to the bit, floating
// point in the order that the tree says, to the bit. Three messages follow each other, the
// largest of more chunks than the window has.
func TestReduceInNetwork(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 6
	}
	late := uint64(0)
	for seed := range seeds {
		float := seed%2 == 1
		bad := float64(seed%4/2) * 2e-3
		n := reduceNet(t, seed, faults.Impairment{Loss: bad, Duplicate: bad, Reorder: bad, Corrupt: bad / 4, Delay: 5 * vtime.Microsecond})
		r := rand.New(rand.NewPCG(seed, 83))
		hosts := r.Perm(n.graph.Hosts)[:2+int(seed*5)%15]
		ranks := map[int]int{}
		for i, h := range hosts {
			ranks[h] = i
		}
		leaf := n.graph.Peer(hosts[0], 0)
		counts := []int{1 + r.IntN(300), 20000 / len(hosts), 1 + r.IntN(3000)}
		err := n.Run(Job{Name: "j", Hosts: hosts, Params: testParams, Program: func(k *rank.Rank) error {
			return sumsOnce(k, counts, float, func(count, index int) uint32 {
				sum, ok := treeSum(n, wire.GroupNet|1, ranks, leaf.Node, -1, k.ID(), index)
				own := math.Float32frombits(reduceNumber(true, k.ID(), index))
				if !ok {
					return math.Float32bits(own)
				}
				return math.Float32bits(own + sum)
			})
		}})
		if err == nil {
			err = n.Leftover()
		}
		if err != nil {
			t.Errorf("seed %d, %d ranks, faults %g: %v\nreplay: go test ./sim -run TestReduceInNetwork", seed, len(hosts), bad, err)
		}
		var dropped uint64
		for i := range n.nodes {
			if sw := n.nodes[i].sw; sw != nil {
				dropped += sw.Stats().Drops[virtswitch.DropReduceChunk] + sw.Stats().Drops[virtswitch.DropICRC]
			}
		}
		if bad == 0 && dropped > 0 {
			t.Errorf("seed %d: %d packets dropped where nothing is lost", seed, dropped)
		}
		late += dropped
	}
	if late == 0 {
		t.Error("no fault made a packet come late or damaged: the seeds show nothing")
	}
}

// sumsOnce makes sums of messages of so many numbers per rank and compares them: integers
// with their sum, floating point with what is wanted.
func sumsOnce(r *rank.Rank, counts []int, float bool, want func(count, index int) uint32) error {
	a, err := collective.NewReduceScatter("in-network", r, collective.Options{Float32: float})
	if err != nil {
		return err
	}
	for _, count := range counts {
		buf, err := r.Alloc(4*count*r.Size(), rank.MemoryBytes)
		if err != nil {
			return err
		}
		for i := range count * r.Size() {
			binary.LittleEndian.PutUint32(buf.Bytes()[4*i:], reduceNumber(float, r.ID(), i))
		}
		if err := a.Begin(buf, 4*count, 0); err != nil {
			return err
		}
		r.Sync()
		if _, err := a.Run(); err != nil {
			return err
		}
		for i := range count {
			at := r.ID()*count + i
			sum := uint32(0)
			for k := range r.Size() {
				sum += reduceNumber(false, k, at)
			}
			if float {
				sum = want(count, at)
			}
			if got := binary.LittleEndian.Uint32(buf.Bytes()[4*at:]); got != sum {
				return fmt.Errorf("rank %d, number %d of %d: sum %#x, want %#x", r.ID(), i, count, got, sum)
			}
		}
		for i := range count * r.Size() { // the other blocks are as they were
			if i/count != r.ID() && binary.LittleEndian.Uint32(buf.Bytes()[4*i:]) != reduceNumber(float, r.ID(), i) {
				return fmt.Errorf("rank %d: its number %d has changed", r.ID(), i)
			}
		}
		r.Sync()
		if err := buf.Free(); err != nil {
			return err
		}
	}
	return a.Close()
}

// TestReduceUnanswered: a rank whose part never arrives ends with an error that says what
// is missing, and so do the others.
func TestReduceUnanswered(t *testing.T) {
	n := reduceNet(t, 1, faults.Impairment{})
	up := n.PortID(3, 0)
	n.SetFault(up, nil)
	err := n.Run(Job{Name: "j", Hosts: []int{0, 3, 9}, Params: testParams, Program: func(k *rank.Rank) error {
		red, err := k.NewReduction("r", 0, rank.MemoryBytes)
		if err != nil {
			return err
		}
		buf, err := k.Alloc(3*4096, rank.MemoryBytes)
		if err != nil {
			return err
		}
		k.Sync()
		n.SetFault(up, &faults.Impairment{Loss: 1, Random: n.random.Derive("dead")})
		return red.Scatter(buf, 4096, false)
	}})
	if !errors.Is(err, rank.ErrReduction) || !strings.Contains(err.Error(), "r: chunk 0 was sent 8 times") {
		t.Errorf("the error is %v", err)
	}
}

// TestReductionRefused: what a reduction cannot be of is said before anything starts.
func TestReductionRefused(t *testing.T) {
	n := reduceNet(t, 1, faults.Impairment{})
	err := n.Run(Job{Name: "j", Hosts: []int{0, 3}, Params: testParams, Program: func(k *rank.Rank) error {
		if _, err := k.NewReduction("r", 0, rank.MemoryHashed); err == nil || !strings.Contains(err.Error(), "cannot be added up") {
			return fmt.Errorf("hashed memory: %v", err)
		}
		red, err := k.NewReduction("r", 0, rank.MemoryPhantom)
		if err != nil {
			return err
		}
		buf, err := k.Alloc(8, rank.MemoryBytes)
		if err != nil {
			return err
		}
		if err := red.Scatter(buf, 4, false); err == nil || !strings.Contains(err.Error(), "a buffer of kind bytes, it is of kind phantom") {
			return fmt.Errorf("another kind of memory: %v", err)
		}
		k.Sync()
		return red.Delete()
	}})
	if err != nil {
		t.Error(err)
	}
}
