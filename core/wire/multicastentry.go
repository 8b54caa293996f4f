// SPDX-License-Identifier: Apache-2.0

package wire

// MulticastEntry is an entry of a switch's table of IP multicast groups. A packet of the group leaves by all of Ports
// except its ingress, and may arrive by Ports and by From. No protocol sets these entries up: the runtime, which has the
// attached hosts, computes them. Ranks send them as JSON.
type MulticastEntry struct {
	Switch int      `json:"switch"` // node number in the lab; a switch does not look at it
	Group  uint32   `json:"group"`  // address, 224.0.0.0/4; 0 while the tree has none yet
	Ports  []uint16 `json:"ports,omitempty"`
	From   []uint16 `json:"from,omitempty"` // ports of senders that are not members
}
