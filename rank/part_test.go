// SPDX-License-Identifier: Apache-2.0

package rank_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankrun"
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

// TestPartsOfParts: views of views name the hosts of their members, in rows, in steps, and in any order; a number beyond the
// last member names no rank.
func TestPartsOfParts(t *testing.T) {
	const ranks, depth = 16, 4
	g, err := topo.Star(ranks, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		n, err := sim.New(sim.Config{Spec: fabric.Spec{Graph: g, Seed: seed, NIC: virtrnic.Settings{AckEvery: 1}, Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 16 << 20, Rules: virtswitch.RulesFixed()},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		err = n.Run(sim.Job{Name: "views", Hosts: simlab.Hosts(g), Params: simlab.Params(), Program: func(r *rank.Rank) error {
			s := prng.New(seed) // all ranks draw the same
			at, names, ips := r, make([]string, ranks), map[string]uint32{}
			for i := range names {
				names[i] = r.NameOf(i)
				ips[names[i]] = rankrun.Of(r).Address(i)
			}
			for level := range depth {
				members := drawPart(&s, len(names))
				var part []string
				for _, m := range members {
					part = append(part, names[m])
				}
				if names = part; !slices.Contains(members, at.ID()) {
					return nil
				}
				if at, err = at.Sub(fmt.Sprint(level), members); err != nil {
					return err
				}
				for i, name := range names {
					if ip := rankrun.Of(at).Address(i); at.NameOf(i) != name || ip != ips[name] {
						return fmt.Errorf("level %d, members %v: %d is %s at %v, want %s", level, members, i, at.NameOf(i), wire.AddrOf(ip), name)
					}
				}
				if !panics(func() { at.NameOf(len(names)) }) {
					return fmt.Errorf("level %d, members %v: there is a rank %d", level, members, len(names))
				}
			}
			return nil
		}})
		if err != nil {
			t.Fatalf("%v\ngo test ./rank -run TestPartsOfParts, seed %d", err, seed)
		}
	}
}

// drawPart draws members of a job of the given size: at equal distances, or any.
func drawPart(s *prng.Stream, ranks int) (members []int) {
	first, step := s.IntN(ranks), 1+s.IntN(3)
	for m := first; m < ranks; m += step {
		members = append(members, m)
	}
	if s.IntN(3) > 0 {
		return members
	}
	mixed := make([]int, 0, len(members))
	for _, i := range s.Perm(len(members)) {
		mixed = append(mixed, members[i])
	}
	return mixed
}

func panics(f func()) (does bool) {
	defer func() { does = recover() != nil }()
	f()
	return false
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
