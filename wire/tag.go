package wire

import "encoding/binary"

// Tag returns the frame's 802.1Q tag, or nil if it has none.
func (f *Frame) Tag() *VLAN {
	if f.flags&flagVLAN == 0 {
		return nil
	}
	h, _, _ := ParseVLAN(f.h[EthernetLen:])
	return &h
}

// TagBits returns the 16 bits of the tag after its EtherType and one more for that there
// is one: what tells the tags of two frames apart.
func (f *Frame) TagBits() uint32 {
	if f.flags&flagVLAN == 0 {
		return 0
	}
	return 1<<16 | uint32(binary.BigEndian.Uint16(f.h[EthernetLen:]))
}
