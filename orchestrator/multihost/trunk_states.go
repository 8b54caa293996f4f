// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// trunkStatesWait bounds how long a server may take to answer with what its links in user space have carried.
const trunkStatesWait = 10 * time.Second

// Trunks returns those of a lab on several servers, each from both ends; none if the kernel makes all of its links. A server that does not
// answer has the reason for it.
func (s *serverNodes) Trunks(ctx context.Context) (all []orchestrator.Trunk) {
	if len(s.placement.Userspace) == 0 {
		return nil
	}
	states, errs := make([][]*shareapi.TrunkState, len(s.placement.Servers)), make([]error, len(s.placement.Servers))
	_ = s.eachServer(func(i int, m *engine.Server) error { // each has its error
		ctx, cancel := context.WithTimeout(ctx, trunkStatesWait)
		defer cancel()
		errs[i] = s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			a, err := k.Trunks(ctx, &shareapi.TrunksRequest{})
			states[i] = a.GetTrunks()
			return err
		})
		return nil
	})
	name := func(i int) string { return s.placement.Servers[i].Name }
	for _, u := range s.placement.Userspace {
		for _, way := range [][2]int{{u.A, u.B}, {u.B, u.A}} {
			t := orchestrator.Trunk{Server: name(way[0]), To: name(way[1])}
			if err := errs[way[0]]; err != nil {
				t.Error = err.Error()
			}
			for _, x := range states[way[0]] {
				if int(x.To) == way[1] {
					t.Error, t.Counters = x.Error, x.Counters()
				}
			}
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b orchestrator.Trunk) int { return strings.Compare(a.Server+" "+a.To, b.Server+" "+b.To) })
	return all
}
