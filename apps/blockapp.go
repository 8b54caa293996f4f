// SPDX-License-Identifier: Apache-2.0

package apps

import "github.com/mcastlab/mcastlab/rank"

// NamedExchange is an Exchange that knows its workload's name in lab files.
type NamedExchange interface {
	Exchange
	Name() string
}

// BlockApp is the benchmark of the zero value of an exchange X, with Blocks as its parameters. It
// implements App and Messenger.
type BlockApp[X NamedExchange] struct {
	// Delivered, if set, is called on each rank before its bytes are checked. Tests use it to
	// damage the bytes and see that the check fails.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// read returns the parameters and the workload's name.
func (BlockApp[X]) read(raw []byte) (p Blocks, name string, err error) {
	var x X
	name = x.Name()
	err = Read(name, raw, &p)
	return p, name, err
}

// Run implements App.
func (a BlockApp[X]) Run(r *rank.Rank, raw []byte) error {
	p, name, err := a.read(raw)
	if err != nil {
		return err
	}
	var x X
	return p.Run(name, r, shown{x, a.Delivered})
}

// Messages implements Messenger.
func (a BlockApp[X]) Messages(raw []byte, records [][][]byte) ([]Message, error) {
	p, _, err := a.read(raw)
	if err != nil {
		return nil, err
	}
	return p.Messages(records)
}

// Reduce implements App.
func (a BlockApp[X]) Reduce(raw []byte, records [][][]byte) ([]Row, error) {
	p, name, err := a.read(raw)
	if err != nil {
		return nil, err
	}
	return p.Reduce(name, records)
}

// shown is an exchange that calls a hook with each buffer before it is checked.
type shown struct {
	Exchange
	hook func(r *rank.Rank, b *rank.Buffer)
}

// Check implements Exchange.
func (s shown) Check(r *rank.Rank, buf *rank.Buffer, n int, seed uint64) bool {
	if s.hook != nil {
		s.hook(r, buf)
	}
	return s.Exchange.Check(r, buf, n, seed)
}
