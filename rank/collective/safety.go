// SPDX-License-Identifier: Apache-2.0

package collective

// Safety counts the actions of a group's sources beside multicast.
type Safety struct {
	Fallbacks int      `json:"fallbacks"`           // times that the ranks left multicast
	Returns   int      `json:"returns"`             // times that they returned to it
	Probes    int      `json:"probes,omitempty"`    // tests of groups that were registered again
	Overlay   int      `json:"overlay,omitempty"`   // messages that went by the overlay, at least to some ranks
	Apart     int      `json:"apart,omitempty"`     // messages to single ranks
	Restarted int      `json:"restarted,omitempty"` // messages that were interrupted and begun again
	Causes    []string `json:"causes,omitempty"`    // of the fallbacks
	Lost      []Lost   `json:"lost,omitempty"`      // ranks that were given up
}

// Lost is a rank that was given up.
type Lost struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Why  string `json:"why"`
}

// SafetyOf returns the counters of an algorithm on this rank since the last call, or nil if it has no
// fallback. Each call lists all lost ranks, also those that an earlier call listed.
func SafetyOf(a Algorithm) *Safety {
	s, ok := a.(safeguard)
	if !ok {
		return nil
	}
	did := s.TakeSafety()
	all := &Safety{
		Fallbacks: did.Fallbacks, Returns: did.Returns, Probes: did.Probes, Overlay: did.Overlay,
		Apart: did.Apart, Restarted: did.Restarted, Causes: did.Causes,
	}
	for _, l := range did.Lost {
		all.Lost = append(all.Lost, Lost(l))
	}
	return all
}

// Add adds the counts of another rank.
func (s *Safety) Add(o Safety) {
	s.Fallbacks += o.Fallbacks
	s.Returns += o.Returns
	s.Probes += o.Probes
	s.Overlay += o.Overlay
	s.Apart += o.Apart
	s.Restarted += o.Restarted
	s.Causes = append(s.Causes, o.Causes...)
	s.Lost = append(s.Lost, o.Lost...)
}
