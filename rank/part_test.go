package rank_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestParts: the ranks of a job form parts; each broadcasts with every algorithm from every
// root, at once with the others, and a part's numbers, keys and barriers are its own.
func TestParts(t *testing.T) {
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 1}, Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	parts := [][]int{{0, 5, 10, 15}, {4, 3, 2}, {6, 7, 8, 9}, {1}}
	err = n.Run(sim.Job{Name: "parts", Hosts: simlab.Hosts(g), Params: simlab.Params(), Program: func(r *rank.Rank) error {
		for i, members := range parts {
			for _, m := range members {
				if m == r.ID() {
					return partProgram(r, i, members)
				}
			}
		}
		if _, err := r.Sub("none", []int{0, 1}); err == nil || !strings.Contains(err.Error(), "is not in it") {
			return errors.New("a rank is in a part that does not list it: " + fmt.Sprint(err))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Leftover(); err != nil {
		t.Fatal(err)
	}
}

func partProgram(r *rank.Rank, part int, members []int) error {
	p, err := r.Sub(fmt.Sprintf("p%d", part), members)
	if err != nil {
		return err
	}
	if p.Size() != len(members) || members[p.ID()] != r.ID() || p.NameOf(p.ID()) != r.Name() {
		return fmt.Errorf("rank %d is %d of %d in part %d", r.ID(), p.ID(), p.Size(), part)
	}
	if p.ID() == 0 {
		p.Put("key", []byte{byte(part)})
	}
	if v := p.Get("key"); !bytes.Equal(v, []byte{byte(part)}) {
		return fmt.Errorf("part %d has another part's value %v", part, v)
	}
	b, err := r.Alloc(20000, rank.MemoryBytes)
	if err != nil {
		return err
	}
	for _, name := range collective.Names() {
		if p.Size() == 1 {
			break
		}
		c, err := collective.NewBcast(name, p, collective.Options{Label: name})
		if err != nil {
			return err
		}
		for root := range p.Size() {
			seed := uint64(part<<8 | root)
			if p.ID() == root {
				b.Fill(seed, b.Len())
			} else {
				b.Expect(seed, b.Len())
			}
			if err := c.Begin(b, b.Len(), root); err != nil {
				return err
			}
			p.Sync()
			if _, err := c.Run(); err != nil {
				return err
			}
			if ok, _ := b.Check(seed, b.Len(), rank.Digest{}); !ok {
				return fmt.Errorf("part %d, %s from %d: wrong bytes at rank %d", part, name, root, r.ID())
			}
			p.Sync()
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	p.Close()
	return b.Free()
}
