// SPDX-License-Identifier: Apache-2.0

// Package allgather is the MPI-Allgather benchmark (APP-5). It runs every scheme at every size for
// a number of iterations, and checks every byte at every rank.
package allgather

import (
	"bytes"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Name is the workload's name in lab files and reports.
const Name = "allgather"

// Params holds the benchmark's parameters.
type Params = apps.Blocks

// App is the benchmark.
type App = apps.BlockApp[exchange]

// exchange is an Allgather: every rank receives the blocks of all ranks.
type exchange struct{}

// Name implements apps.NamedExchange.
func (exchange) Name() string { return Name }

// Open implements apps.Exchange.
func (exchange) Open(r *rank.Rank, s apps.Scheme) (collective.Algorithm, error) {
	s.Options.Label = s.Label
	return collective.NewAllgather(s.Name, r, s.Options)
}

// Fill writes a rank's contents into its block.
func Fill(block []byte, seed uint64, rank int) { prng.Fill(block, prng.Mix(seed+uint64(rank)), 0) }

// Right reports whether mem holds the right blocks of all ranks, n bytes each.
func Right(mem []byte, n int, seed uint64, ranks int) bool {
	want := make([]byte, n)
	for i := range ranks {
		Fill(want, seed, i)
		if !bytes.Equal(want, mem[i*n:(i+1)*n]) {
			return false
		}
	}
	return true
}

// Fill implements apps.Exchange.
func (exchange) Fill(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) {
	if mem, me := buf.Bytes(), r.ID(); mem != nil {
		clear(mem)
		Fill(mem[me*n:(me+1)*n], seed, me)
	}
}

// Check implements apps.Exchange.
func (exchange) Check(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) bool {
	mem := buf.Bytes()
	return mem == nil || Right(mem, n, seed, r.Size())
}
