// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// treeSum returns the switches' sum of the numbers at an index for its owner: it follows the
// reduction's tree from its root, whose leaf rank 0 is at, and adds in the order of ports. ok is false
// if no other rank adds to it.
func treeSum(n *sim.Net, group uint32, ranks map[int]int, node, from, owner, index int) (sum float32, ok bool) {
	sw := n.Switch(node)
	if sw == nil {
		if ranks[node] == owner {
			return 0, false
		}
		return math.Float32frombits(reduceNumber(true, ranks[node], index)), true
	}
	g, _ := sw.Group(group)
	for port := range n.Graph().Nodes[node].Links {
		for _, p := range g.Paths {
			if p.Port != port || port == from {
				continue
			}
			far := n.Graph().Peer(node, port)
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

// TestReduceInNetwork: under loss, doubling and reordering each rank gets in its block, once, the sum
// over all ranks: integers the same as by the ring, to the bit, floating point in the order that the
// tree says, to the bit. Three messages follow each other, the largest of more chunks than the window
// has.
func TestReduceInNetwork(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 6
	}
	late := uint64(0)
	for seed := range seeds {
		float := seed%2 == 1
		bad := float64(seed%4/2) * 2e-3
		n := lossyNet(t, seed, faults.Impairment{Loss: bad, Duplicate: bad, Reorder: bad, Corrupt: bad / 4, Delay: 5 * vtime.Microsecond})
		r := rand.New(rand.NewPCG(seed, 83))
		hosts := r.Perm(n.Graph().Hosts)[:2+int(seed*5)%15]
		ranks := map[int]int{}
		for i, h := range hosts {
			ranks[h] = i
		}
		leaf := n.Graph().Peer(hosts[0], 0)
		counts := []int{1 + r.IntN(300), 20000 / len(hosts), 1 + r.IntN(3000)}
		err := n.Run(sim.Job{Name: "j", Hosts: hosts, Params: simlab.Params(), Program: func(k *rank.Rank) error {
			return sums(k, "in-network", counts, float, func(index int) uint32 {
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
			t.Errorf("seed %d, %d ranks, faults %g: %v\nreplay: go test ./rank/collective -run TestReduceInNetwork", seed, len(hosts), bad, err)
		}
		var dropped uint64
		for i := range n.Graph().Nodes {
			if sw := n.Switch(i); sw != nil {
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

// TestReduceUnanswered: a rank whose part never arrives ends with an error that names the missing part,
// and so do the others.
func TestReduceUnanswered(t *testing.T) {
	n := lossyNet(t, 1, faults.Impairment{})
	up := n.PortID(3, 0)
	n.SetFault(up, nil)
	err := n.Run(sim.Job{Name: "j", Hosts: []int{0, 3, 9}, Params: simlab.Params(), Program: func(k *rank.Rank) error {
		red, err := k.NewReduction("r", 0, rank.MemoryBytes)
		if err != nil {
			return err
		}
		buf, err := k.Alloc(3*4096, rank.MemoryBytes)
		if err != nil {
			return err
		}
		k.Sync()
		n.SetFault(up, &faults.Impairment{Loss: 1, Random: simlab.Random(1, "dead")})
		return red.Scatter(buf, 4096, false)
	}})
	if !errors.Is(err, rank.ErrReduction) || !strings.Contains(err.Error(), "r: chunk 0 was sent 8 times") {
		t.Errorf("the error is %v", err)
	}
}

// TestReductionRefused: invalid reductions are refused before they start.
func TestReductionRefused(t *testing.T) {
	n := lossyNet(t, 1, faults.Impairment{})
	err := n.Run(sim.Job{Name: "j", Hosts: []int{0, 3}, Params: simlab.Params(), Program: func(k *rank.Rank) error {
		if _, err := k.NewReduction("r", 0, rank.MemoryHashed); err == nil || !strings.Contains(err.Error(), "cannot be added up") {
			return fmt.Errorf("hashed memory: %w", err)
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
			return errors.New("another kind of memory: " + fmt.Sprint(err))
		}
		k.Sync()
		return red.Delete()
	}})
	if err != nil {
		t.Error(err)
	}
}
