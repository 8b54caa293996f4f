// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

// The binary is mcastlab with one more program and one more broadcast algorithm. Lab files name
// them with {program: {name: hello}} and with schemes: [cepheus, program:flat].
func ExampleMain() {
	command.Main(
		rank.Program{Name: "hello", Run: hello},
		rank.Program{Name: "flat", Broadcast: newFlat},
	)
}

func hello(r *rank.Rank, args []string) error {
	r.Printf("rank %d of %d, with %q", r.ID(), r.Size(), args)
	return nil
}

// flat is a broadcast in which the root sends to one rank after the other.
type flat struct {
	r     *rank.Rank
	b     *rank.Buffer
	n     int
	conns []*rank.Conn  // of the root
	recv  *rank.Request // of the others; nil at the root
}

func newFlat(r *rank.Rank) (rank.Broadcast, error) { return &flat{r: r}, nil }

// Begin implements rank.Broadcast.
func (f *flat) Begin(b *rank.Buffer, n, root int) error {
	f.b, f.n, f.conns, f.recv = b, n, nil, nil
	if f.r.ID() != root {
		c, err := f.r.Connect(root)
		if err != nil {
			return err
		}
		f.recv, err = c.Recv(b, 0, n)
		return err
	}
	for i := range f.r.Size() {
		if i == root {
			continue
		}
		c, err := f.r.Connect(i)
		if err != nil {
			return err
		}
		f.conns = append(f.conns, c)
	}
	return nil
}

// Run implements rank.Broadcast.
func (f *flat) Run(received func()) error {
	if f.recv != nil {
		return f.r.Wait(f.recv)
	}
	received()
	for _, c := range f.conns {
		q, err := c.Send(f.b, 0, f.n)
		if err != nil {
			return err
		}
		if err := f.r.Wait(q); err != nil {
			return err
		}
	}
	return nil
}

// Close implements rank.Broadcast. Connections need no release.
func (f *flat) Close() error { return nil }
