// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// The kernel removes the 802.1Q tag of a frame before any socket sees it, and reports it in a
// control message (PACKET_AUXDATA). Received frames are put together again here.

// controlLen holds the two control messages of a socket: a time stamp and the tag.
const controlLen = 96

// control holds the contents of a received frame's control messages.
type control struct {
	wall   int64 // SCM_TIMESTAMPNS; 0 if there is none
	tag    uint16
	tagged bool
}

// readControl reads the control messages of a received frame.
func readControl(c []byte) (k control) {
	for len(c) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		size := int(h.Len)
		if size < unix.CmsgLen(0) || size > len(c) {
			return k
		}
		data := c[unix.CmsgLen(0):size]
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			k.wall = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= int(unsafe.Sizeof(unix.TpacketAuxdata{})):
			a := (*unix.TpacketAuxdata)(unsafe.Pointer(&data[0]))
			k.tag, k.tagged = a.Vlan_tci, a.Status&unix.TP_STATUS_VLAN_VALID != 0
		}
		c = c[min(unix.CmsgSpace(len(data)), len(c)):]
	}
	return k
}

// whole returns the received frame with its tag. The message is in b after VLANLen bytes of
// room, and the frame begins after skip bytes of the message.
func (k control) whole(b []byte, skip int) []byte {
	if at := wire.VLANLen + skip + 2*len(wire.MAC{}); k.tagged && len(b) >= at {
		copy(b, b[wire.VLANLen:at])
		binary.BigEndian.PutUint16(b[at-wire.VLANLen:], wire.EtherTypeVLAN)
		binary.BigEndian.PutUint16(b[at-wire.VLANLen+2:], k.tag)
		return b
	}
	return b[wire.VLANLen:]
}
