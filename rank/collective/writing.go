// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// writing is cepheus by registered WRITEs (docs/writes.md), in which external hosts can take part: the
// leaf switches have the address of a receiving device's memory, and the device posts nothing. Members
// are not notified of a WRITE, so a root that runs a program announces out of band that all have the
// data. An external root WRITEs with immediate data, which completes a receive of each member.
type writing struct {
	r     *rank.Rank
	name  string
	g     *rank.Group
	v     *rank.Window
	b     *rank.Buffer
	n     int
	round int
	recv  *rank.Request
}

// Begin implements Algorithm. The first call makes the group. A message longer than all before
// gets a new window.
func (w *writing) Begin(b *rank.Buffer, n, root int) (err error) {
	w.b, w.n = b, n
	w.round++
	switch {
	case w.g == nil:
		w.g, w.v, err = w.r.NewWriteGroup(w.name, w.r.First(), rank.MRRegistered, n, rank.MemoryBytes)
	case w.v.Len() < n:
		w.v, err = w.g.NewWindow(n, rank.MemoryBytes)
	}
	if err != nil {
		return err
	}
	if err := w.g.SetSource(root); err != nil {
		return err
	}
	if w.r.External(root) {
		w.recv, err = w.g.Recv(b, 0, n)
	}
	if err == nil && w.r.ID() == w.r.First() {
		awaitExternals(w.r, root, w.g.McstID())
	}
	return err
}

// Run implements Algorithm.
func (w *writing) Run() (t Times, err error) {
	source, done := w.g.Source(), fmt.Sprintf("written/%s/%d", w.name, w.round)
	t.Received = w.r.Now()
	switch {
	case source == w.r.ID():
		q, err := w.g.Write(w.v, 0, w.b, 0, w.n)
		if err == nil {
			err = w.r.Wait(q)
		}
		if err != nil {
			return t, err
		}
		t.Done = w.r.Now()
		w.r.Put(done, nil)
		return t, nil
	case w.r.External(source):
		err = w.r.Wait(w.recv)
	default:
		w.r.Get(done)
	}
	t.Received = w.r.Now()
	t.Done = t.Received
	copy(w.b.Bytes(), w.v.Bytes()[:w.n])
	return t, err
}

// Close implements Algorithm.
func (w *writing) Close() error {
	if w.g == nil {
		return nil
	}
	return w.g.Delete()
}

// Writes reports whether an algorithm expects WRITEs of an external root.
func Writes(a Algorithm) bool {
	_, is := a.(*writing)
	return is
}
