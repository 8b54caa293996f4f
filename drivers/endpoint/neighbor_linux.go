// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"os"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
)

// neighbor sends RoCE frames to the MAC address that the remote has announced, in place of the
// one that is derived from its IP address in a lab.
type neighbor struct {
	*live.Packet
	file   *os.File
	remote wire.MAC
	known  bool
}

// Send implements live.IO.
func (n *neighbor) Send(frames [][]byte) (int, error) {
	for _, b := range frames {
		if datagram(b) {
			copy(b, n.remote[:])
		}
	}
	return n.Packet.Send(frames)
}

// datagram reports whether an outgoing frame carries UDP, and is not an ARP or neighbor
// discovery message.
func datagram(b []byte) bool {
	h, rest, err := wire.ParseEthernet(b)
	if err != nil {
		return false
	}
	switch h.EtherType {
	case wire.EtherTypeIPv4:
		return true
	case wire.EtherTypeIPv6:
		ip, _, err := wire.ParseIPv6(rest)
		return err == nil && ip.NextHeader == wire.ProtocolUDP
	}
	return false
}
