// SPDX-License-Identifier: Apache-2.0

// Package reducescatter is the MPI-Reduce-scatter benchmark. It runs every scheme at every size for
// a number of iterations, and checks every sum at every rank.
package reducescatter

import (
	"encoding/binary"
	"math"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Name is the workload's name in lab files and reports.
const Name = "reduce-scatter"

// Params holds the benchmark's parameters.
type Params struct {
	apps.Blocks
	Float32 bool `json:"float32"` // numbers are floating point; otherwise they are integers
}

// App is the benchmark. It implements apps.App and apps.Messenger.
type App struct{}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return err
	}
	return p.Blocks.Run(Name, r, &p)
}

// Messages implements apps.Messenger.
func (a App) Messages(raw []byte, records [][][]byte) ([]apps.Message, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	return p.Blocks.Messages(records)
}

// Reduce implements apps.App.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	return p.Blocks.Reduce(Name, records)
}

// Open implements apps.Exchange.
func (p *Params) Open(r *rank.Rank, s apps.Scheme) (collective.Algorithm, error) {
	s.Options.Label, s.Options.Float32 = p.Workload+"/"+s.Label, p.Float32
	return collective.NewReduceScatter(s.Name, r, s.Options)
}

// Numbers are the summands of all ranks, drawn from a seed.
type Numbers struct {
	Seed    uint64
	Float32 bool // numbers are floating point; otherwise they are integers
}

// of returns a rank's number at an index of the buffer. A floating-point number is a small whole
// number, so that sums are exact and do not depend on the order of additions.
func (x Numbers) of(rank, index int) uint32 {
	v := uint32(prng.Mix(x.Seed + uint64(rank)<<32 + uint64(index)))
	if x.Float32 {
		return math.Float32bits(float32(v % 1024))
	}
	return v
}

// sum returns the sum of all ranks' numbers at an index.
func (x Numbers) sum(ranks, index int) uint32 {
	var whole uint32
	var float float32
	for i := range ranks {
		v := x.of(i, index)
		whole += v
		float += math.Float32frombits(v)
	}
	if x.Float32 {
		return math.Float32bits(float)
	}
	return whole
}

// Fill writes a rank's numbers into a buffer.
func (x Numbers) Fill(mem []byte, rank int) {
	for at := 0; at+4 <= len(mem); at += 4 {
		binary.LittleEndian.PutUint32(mem[at:], x.of(rank, at/4))
	}
}

// Right reports whether a rank's block of n bytes holds the sums of the numbers of all ranks.
func (x Numbers) Right(mem []byte, n, rank, ranks int) bool {
	for at := rank * n; at < (rank+1)*n; at += 4 {
		if binary.LittleEndian.Uint32(mem[at:]) != x.sum(ranks, at/4) {
			return false
		}
	}
	return true
}

// Fill implements apps.Exchange.
func (p *Params) Fill(r *rank.Rank, buf *rank.Buffer, _ int, seed uint64) {
	Numbers{seed, p.Float32}.Fill(buf.Bytes(), r.ID())
}

// Check implements apps.Exchange.
func (p *Params) Check(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) bool {
	mem := buf.Bytes()
	return mem == nil || Numbers{seed, p.Float32}.Right(mem, n, r.ID(), r.Size())
}
