package endpoint

import (
	"os"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
)

// neighbor sends RoCE frames to the MAC address that the remote has said it has, in place
// of the one that its address stands for in a lab.
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

// datagram reports whether a frame of ours carries UDP, and not a question or an answer about
// addresses.
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
