// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"sync"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/internal/controller"
)

// Leases hands out the lower halves of group addresses. Without controllers each is used once
// while the lab is up; controllers keep one unused for a time after a run before they lease it
// again.
type Leases struct {
	mu    sync.Mutex
	Store *Store
	Plane ControlPlane
	Run   string
}

// The lower halves of the addresses of programs' groups. Runs lease those below, and lab files may name those above. They are
// taken in turn, and after the last the first come again: by then the fabric has long forgotten that group.
const (
	ProgramGroupFirst = 0xf001
	ProgramGroupLast  = bcast.NamedGroupFirst - 1
)

// LeasesMax is the number of lower halves that are leased; the others are those of programs, and those that the lab file can name.
const LeasesMax = ProgramGroupFirst - 1

// Next leases one to a rank.
func (l *Leases) Next(ctx context.Context, rank int) (lower uint32, err error) {
	if l.Plane.HasControllers() {
		r, err := l.Plane.Do(ctx, controller.Command{Kind: controller.KindLease, Run: l.Run, Holder: fmt.Sprint("rank ", rank)})
		return r.Lower, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st, ok, err := l.Store.Get()
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("lab %s is not up any more", l.Store.lab)
	case st.Leased >= LeasesMax:
		return 0, fmt.Errorf("all %d McstIDs of the lab have been used: destroy and deploy it", LeasesMax)
	}
	st.Leased++
	return st.Leased, l.Store.put(st)
}
