// SPDX-License-Identifier: Apache-2.0

package lab

// lowClass returns a DSCP whose packets wait for those of nics.traffic-class wherever both
// are, in switches and adapters: CS1 if it is one, else the lowest. Among strict priorities
// both take the higher number first.
func (l *Lab) lowClass() (dscp uint8, ok bool) {
	f := l.switchSettings()
	priority := func(d uint8) uint8 {
		if f.Classes != nil {
			return f.Classes.DSCP[d] & 7
		}
		return d >> 3
	}
	data := priority(uint8(l.NICs.TrafficClass))
	if f.Weights[data] > 0 || l.NICs.settings().Weights[data] > 0 {
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
