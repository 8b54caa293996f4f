package endpoint

import (
	"os"

	"github.com/mcastlab/mcastlab/live"
	"github.com/mcastlab/mcastlab/wire"
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
		if len(b) > wire.EthernetLen && b[12] == byte(wire.EtherTypeIPv4>>8) && b[13] == byte(wire.EtherTypeIPv4&0xff) {
			copy(b, n.remote[:])
		}
	}
	return n.Packet.Send(frames)
}
