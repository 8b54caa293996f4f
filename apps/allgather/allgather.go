// Package allgather is the MPI-Allgather benchmark: every scheme at every size, a number
// of iterations each, and every byte checked at every rank.
package allgather

import (
	"bytes"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
)

// Name is the workload's name in lab files and reports.
const Name = "allgather"

// Params are the benchmark's parameters.
type Params = apps.Blocks

// App implements apps.App.
type App struct {
	// Delivered, if set, is called on each rank before its bytes are checked. It is a
	// hook for tests of the checking itself.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return err
	}
	return p.Run(Name, r, exchange{a})
}

// Messages implements apps.Messenger.
func (a App) Messages(raw []byte, records [][][]byte) ([]apps.Message, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	return p.Messages(records)
}

// Reduce implements apps.App.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	return p.Reduce(Name, records)
}

// exchange is how every rank comes to have every block.
type exchange struct{ app App }

// Open implements apps.Exchange.
func (exchange) Open(r *rank.Rank, s apps.Scheme) (collective.Algorithm, error) {
	s.Options.Label = s.Label
	return collective.NewAllgather(s.Name, r, s.Options)
}

// Fill writes what a rank begins with into its block.
func Fill(block []byte, seed uint64, rank int) { prng.Fill(block, prng.Mix(seed+uint64(rank)), 0) }

// Right says whether there are the blocks of n bytes of so many ranks.
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
func (x exchange) Check(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) bool {
	if x.app.Delivered != nil {
		x.app.Delivered(r, buf)
	}
	mem := buf.Bytes()
	return mem == nil || Right(mem, n, seed, r.Size())
}
