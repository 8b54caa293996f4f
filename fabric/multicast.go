package fabric

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// MulticastEntry is an entry of one switch's IP multicast table.
type MulticastEntry struct {
	Switch int // node
	virtswitch.Multicast
}

// Multicast returns the entries that make a plain IP multicast group of the given hosts:
// those that receive, and those that only send. They are computed, not signalled: there
// is no IGMP in a lab. The address, in 224.0.0.0/4, chooses among equal trees.
func (s *Spec) Multicast(ip uint32, members, senders []int) ([]MulticastEntry, error) {
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
	var entries []MulticastEntry
	for _, t := range tree {
		e := MulticastEntry{Switch: t.Switch, Multicast: virtswitch.Multicast{IP: ip}}
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
