// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// NoVXLAN implements engine.Spread. Each server probes the others at the daemons' port and, unless links of a lab use it there, at that of
// links. Of a way that cannot be probed nothing is said: a lab's own trial of its links will.
func (e Engine) NoVXLAN(ctx context.Context, all []engine.Server, port int) (pairs []shareapi.Pair, err error) {
	who, err := (&store{dir: e.State}).credentials()
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("this server has no certificate of a deployer: run mcastlab servers up here")
	}
	if err != nil {
		return nil, err
	}
	at := func(m *engine.Server) string { return daemon.At(m.Address, port-daemon.LinksPort) }
	found, errs := make([][]daemon.Seen, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	for i := range all {
		var peers []daemon.Peer
		for k := range all {
			if k != i {
				peers = append(peers, daemon.Peer{Node: all[k].Node, Address: at(&all[k]), Links: true})
			}
		}
		running.Go(func() {
			k := daemon.NewClient(who, all[i].Node, at(&all[i]), time.Now)
			defer k.Close()
			found[i], errs[i] = k.Probe(ctx, peers)
			errs[i] = serverError(&all[i], errs[i])
		})
	}
	running.Wait()
	return closedPairs(all, slices.Concat(found...), port), errors.Join(errs...)
}

// closedPairs returns the pairs of servers between which a way lets no links pass, and why, in the order of the servers.
func closedPairs(all []engine.Server, seen []daemon.Seen, port int) (pairs []shareapi.Pair) {
	number := map[string]int{}
	for i := range all {
		number[all[i].Node] = i
	}
	for a := range all {
		for b := a + 1; b < len(all); b++ {
			var why []string
			for _, s := range seen {
				if x, y := number[s.From], number[s.To]; min(x, y) == a && max(x, y) == b {
					why = append(why, noLinks(s, all[x].Name, all[y].Name, port)...)
				}
			}
			if slices.Sort(why); len(why) > 0 {
				pairs = append(pairs, shareapi.Pair{A: a, B: b, Why: strings.Join(why, ", ")})
			}
		}
	}
	return pairs
}

// noLinks explains why a path carries no links; empty if it does, or was not probed.
func noLinks(s daemon.Seen, from, to string, port int) []string {
	if s.Error != "" || s.Closed {
		return nil
	}
	frames := s.Frames
	if s.LinksTried {
		frames = s.Links
	} else {
		port -= daemon.LinksPort
	}
	most := 0
	for _, n := range frames {
		most = max(most, n)
	}
	switch {
	case most == 0:
		return []string{fmt.Sprintf("%s: UDP port %d lets nothing in from %s", to, port, from)}
	case most < daemon.LinkFrame:
		return []string{fmt.Sprintf("%s: from %s, frames of up to %d bytes arrive, and links need %d", to, from, most, daemon.LinkFrame)}
	}
	return nil
}
