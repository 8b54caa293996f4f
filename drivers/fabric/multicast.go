// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Multicast returns the table entries of a plain IP multicast group with the given address in
// 224.0.0.0/4. members are the hosts that receive, and senders are hosts that only send. The
// entries are computed and not signalled, because a lab has no IGMP. The address chooses among
// equal trees.
func (s *Spec) Multicast(ip uint32, members, senders []int) ([]wire.MulticastEntry, error) {
	hosts := slices.Clone(members)
	for _, h := range senders {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	tree, err := s.Graph.Tree(hosts, prng.Mix(uint64(ip)))
	if err != nil {
		return nil, fmt.Errorf("group %v: %w", s.Graph.Addr(ip), err)
	}
	var entries []wire.MulticastEntry
	for _, t := range tree {
		e := wire.MulticastEntry{Switch: t.Switch, Group: ip}
		for _, p := range t.Ports {
			far := s.Graph.Peer(t.Switch, int(p)).Node
			if far < s.Graph.Hosts && !slices.Contains(members, far) {
				e.From = append(e.From, p)
			} else {
				e.Ports = append(e.Ports, p)
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}
