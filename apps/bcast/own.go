// SPDX-License-Identifier: Apache-2.0

package bcast

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// isOwn reports whether a scheme's name means a program of the user's own.
func isOwn(name string) bool {
	_, own := setting.OwnScheme(name)
	return own
}

// algorithm prepares a scheme on a rank.
func (a App) algorithm(r *rank.Rank, s Scheme) (collective.Algorithm, error) {
	name, own := setting.OwnScheme(s.Name)
	if !own {
		return collective.NewBcast(s.Name, r, s.Options)
	}
	i := slices.IndexFunc(a.Programs, func(x rank.Program) bool { return x.Name == name && x.Broadcast != nil })
	if i < 0 {
		return nil, fmt.Errorf("the binary on %s has no broadcast program %q: the lab was brought up by another one, destroy it and run again", r.Name(), name)
	}
	b, err := a.Programs[i].Broadcast(r)
	if err == nil && b == nil {
		err = fmt.Errorf("it returned no broadcast")
	}
	if err != nil {
		return nil, fmt.Errorf("prepare program %s on %s: %w", name, r.Name(), err)
	}
	return &ownAlgorithm{b: b, r: r, name: name}, nil
}

// ownAlgorithm makes a user's broadcast one of the algorithms.
type ownAlgorithm struct {
	b    rank.Broadcast
	r    *rank.Rank
	name string
	root int // of the message that was begun
}

// Begin implements collective.Algorithm.
func (o *ownAlgorithm) Begin(b *rank.Buffer, n, root int) error {
	o.root = root
	return o.named(o.b.Begin(b, n, root))
}

// Run implements collective.Algorithm.
func (o *ownAlgorithm) Run() (at collective.Times, err error) {
	known := o.r.ID() == o.root
	at.Received = o.r.Now()
	err = o.b.Run(func() {
		if !known {
			known, at.Received = true, o.r.Now()
		}
	})
	if at.Done = o.r.Now(); !known {
		at.Received = at.Done
	}
	return at, o.named(err)
}

// Close implements collective.Algorithm.
func (o *ownAlgorithm) Close() error { return o.named(o.b.Close()) }

// named wraps an error with the name of its algorithm.
func (o *ownAlgorithm) named(err error) error {
	if err != nil {
		err = fmt.Errorf("program %s on %s: %w", o.name, o.r.Name(), err)
	}
	return err
}
