package lab

import (
	"slices"

	"github.com/mcastlab/mcastlab/collective"
)

// fallsBack says whether some workload has a scheme with a fallback.
func (l *Lab) fallsBack() bool {
	on := func(mode string) bool { return mode != "" && mode != collective.FallbackOff }
	for _, w := range l.Workloads {
		if w.Bcast != nil && slices.ContainsFunc(w.Bcast.Schemes, func(s Scheme) bool { return on(s.Fallback) }) {
			return true
		}
		if w.HPL != nil && on(w.HPL.Fallback) {
			return true
		}
	}
	return false
}

// lowClass returns a DSCP whose packets wait for those of nics.traffic-class wherever both
// are, in switches and adapters: CS1 if it is one, else the lowest. Adapters, and switches
// among strict priorities, take the higher number first.
func (l *Lab) lowClass() (dscp uint8, ok bool) {
	f := l.fabricSwitch()
	priority := func(d uint8) uint8 {
		if f.Classes != nil {
			return f.Classes.DSCP[d] & 7
		}
		return d >> 3
	}
	data := priority(uint8(l.NICs.TrafficClass))
	if f.Weights[data] > 0 {
		return 0, false
	}
	const cs1 = 8
	for _, d := range append([]uint8{cs1}, dscps()...) {
		if priority(d) < data {
			return d, true
		}
	}
	return 0, false
}

// dscps returns all there are.
func dscps() (all []uint8) {
	for d := range uint8(64) {
		all = append(all, d)
	}
	return all
}

// checkFallback verifies what a scheme does when multicast does not work.
func (c *checking) checkFallback(at string, a algorithms, s *Scheme) {
	switch {
	case s.Fallback == "" || c.err != nil:
	case a.kind != "broadcast" || !collective.HasFallback(s.Name):
		c.failf(at+".fallback", "%s scheme %s has no fallback: it is for broadcasts by cepheus and gleam", a.kind, s.Name)
	default:
		c.checkPartial(at, s.Fallback)
	}
}

// checkPartial makes sure that what is served apart waits for all else.
func (c *checking) checkPartial(at, fallback string) {
	if _, ok := c.l.lowClass(); !ok && fallback == collective.FallbackPartial {
		c.failf(at+".fallback", "fallback partial needs a class that waits for that of nics.traffic-class (DSCP %d): "+
			"give it a strict priority above 0, by switches.scheduling, switches.classes or another DSCP", c.l.NICs.TrafficClass)
	}
}
