// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/mcastlab/mcastlab/core/machine"

// prefetch loads the memory that the events of the given keys will need (the link, the oldest entry of its ring, the
// frame), so that the cache misses overlap. It goes level by level: where a load needs the one before, few of them fit
// into the processor at a time.
func (n *Net) prefetch(keys []uint64) {
	var sum uint64
	var flights [frontMany]*machine.Flight
	var places [frontMany]uint32
	m := 0
	for _, k := range keys[max(0, len(keys)-len(places)):] {
		_, class, id := n.unpack(k)
		if class != classArrival {
			continue
		}
		place := n.endOf(id)
		if place < n.own {
			sum += uint64(n.links.At(place).Next())
		}
		places[m] = uint32(place)
		m++
	}
	ahead := 0
	for _, place := range places[:m] {
		f := n.oldest(int(place))
		if f != nil {
			sum += uint64(f.At)
			flights[ahead] = f
			ahead++
		}
	}
	for _, f := range flights[:ahead] {
		sum += uint64(f.Frame.PayloadLen())
	}
	n.sink += sum // keeps the compiler from dropping the loads
}

// oldest returns the frame that has been longest on a link that ends in the part, or nil.
func (n *Net) oldest(place int) *machine.Flight {
	if place >= n.own {
		return n.inbound[place-n.own].Oldest()
	}
	return n.links.At(place).Oldest()
}
