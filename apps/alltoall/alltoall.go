// SPDX-License-Identifier: Apache-2.0

// Package alltoall is the MPI-Alltoall benchmark (APP-5). It runs every scheme at every size for a
// number of iterations, and checks every byte at every rank.
package alltoall

import (
	"bytes"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Name is the workload's name in lab files and reports.
const Name = "alltoall"

// Params holds the benchmark's parameters.
type Params = apps.Blocks

// App is the benchmark.
type App = apps.BlockApp[exchange]

// exchange is an Alltoall: every rank receives a block of its own from each rank.
type exchange struct{}

// Name implements apps.NamedExchange.
func (exchange) Name() string { return Name }

// Open implements apps.Exchange.
func (exchange) Open(r *rank.Rank, s apps.Scheme) (collective.Algorithm, error) {
	s.Options.Label = s.Label
	return collective.NewAlltoall(s.Name, r, s.Options)
}

// fill writes the contents of the block that one rank sends to another.
func fill(block []byte, seed uint64, from, to int) {
	prng.Fill(block, prng.Mix(prng.Mix(seed+uint64(from))+uint64(to)), 0)
}

// Fill implements apps.Exchange.
func (exchange) Fill(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) {
	if mem := buf.Bytes(); mem != nil {
		for i := range r.Size() {
			fill(mem[i*n:(i+1)*n], seed, r.ID(), i)
		}
	}
}

// Check implements apps.Exchange.
func (exchange) Check(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) bool {
	mem, want := buf.Bytes(), make([]byte, n)
	for i := range r.Size() {
		if mem == nil {
			break
		}
		if fill(want, seed, i, r.ID()); !bytes.Equal(want, mem[i*n:(i+1)*n]) {
			return false
		}
	}
	return true
}
