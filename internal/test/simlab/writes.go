// SPDX-License-Identifier: Apache-2.0

package simlab

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
)

// GroupWrites is a plan of WRITEs to a group, from changing sources into changing windows.
type GroupWrites struct {
	Mode  rank.MRMode
	Ranks int
	MTU   int
	Size  int // bytes of a window

	rounds []writeRound
}

// groupWrite is one WRITE to a group.
type groupWrite struct {
	window, at, n int
	imm           bool
	seed          uint64
}

// writeRound lists the WRITEs of one source before the next one's.
type writeRound struct {
	source    int
	newWindow bool // before it
	writes    []groupWrite
}

// Draw draws the WRITEs of each source, for the plan's ranks, MTU and size of windows.
func (v *GroupWrites) Draw(r *rand.Rand) {
	windows := 1
	for range 1 + r.IntN(5) {
		w := writeRound{source: r.IntN(v.Ranks)}
		if r.IntN(3) == 0 {
			w.newWindow = true
			windows++
		}
		most := 6
		if r.IntN(5) == 0 {
			most = 3 * wire.MRVersionsMax / 2 // more than leaves keep regions for
		}
		for range 1 + r.IntN(most) {
			g := groupWrite{window: windows - 1, at: r.IntN(v.Size), seed: r.Uint64(), imm: r.IntN(4) == 0}
			if v.Mode != rank.MRRegistered {
				g.window = r.IntN(windows)
			}
			g.n = r.IntN(min(v.Size-g.at, 3*v.MTU) + 1)
			w.writes = append(w.writes, g)
		}
		v.rounds = append(v.rounds, w)
	}
}

// Program is the program that each rank runs: all have the plan, and after each round compare every
// byte of all their windows with it.
func (v *GroupWrites) Program(r *rank.Rank) error {
	g, first, err := r.NewWriteGroup("w", 0, v.Mode, v.Size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	windows, want := []*rank.Window{first}, [][]byte{make([]byte, v.Size)}
	none, err := r.Alloc(1, rank.MemoryBytes)
	if err != nil {
		return err
	}
	for k, round := range v.rounds {
		if round.newWindow {
			w, err := g.NewWindow(v.Size, rank.MemoryBytes)
			if err != nil {
				return err
			}
			windows, want = append(windows, w), append(want, make([]byte, v.Size))
		}
		if err := g.SetSource(round.source); err != nil {
			return err
		}
		if r.ID() == round.source {
			err = v.write(r, g, round, windows)
		} else {
			err = receive(r, g, round, want, none)
		}
		if err != nil {
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

// receive is a round at a rank that receives.
func receive(r *rank.Rank, g *rank.Group, round writeRound, want [][]byte, none *rank.Buffer) error {
	var reqs []*rank.Request
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

// write is a round at its source.
func (v *GroupWrites) write(r *rank.Rank, g *rank.Group, round writeRound, windows []*rank.Window) error {
	r.Sync()
	buf, err := r.Alloc(len(round.writes)*3*v.MTU, rank.MemoryBytes)
	if err != nil {
		return err
	}
	var reqs []*rank.Request
	for i, w := range round.writes {
		off := i * 3 * v.MTU
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
