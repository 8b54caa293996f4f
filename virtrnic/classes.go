// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "github.com/mcastlab/mcastlab/core/wire"

// priority returns the priority of packets with the given traffic class, which its DSCP decides.
func (n *NIC) priority(trafficClass uint8) uint8 {
	if n.classes != nil {
		return n.classes[trafficClass>>2] & 7
	}
	return trafficClass >> 5
}

// tag returns the 802.1Q tag of packets of a class, or nil in a fabric without VLAN. The
// class is its priority code point, by which switches take tagged packets.
func (n *NIC) tag(prio uint8) *wire.VLAN {
	if n.vlan == 0 {
		return nil
	}
	return &wire.VLAN{PCP: prio, ID: n.vlan}
}
