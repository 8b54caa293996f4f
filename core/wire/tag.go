// SPDX-License-Identifier: Apache-2.0

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

// SetTag puts the frame into a VLAN: it gets the tag, in place of one that it has. The ICRC
// does not cover it.
func (f *Frame) SetTag(v VLAN) {
	const at = EthernetLen - 2 // of the EtherType
	if f.flags&flagVLAN == 0 {
		copy(f.h[at+VLANLen:], f.h[at:f.n])
		binary.BigEndian.PutUint16(f.h[at:], EtherTypeVLAN)
		f.n += VLANLen
		f.flags |= flagVLAN
	}
	binary.BigEndian.PutUint16(f.h[EthernetLen:], v.tci())
}

// Untag removes the frame's tag, if it has one.
func (f *Frame) Untag() {
	const at = EthernetLen - 2
	if f.flags&flagVLAN == 0 {
		return
	}
	copy(f.h[at:], f.h[at+VLANLen:f.n])
	f.n -= VLANLen
	f.flags &^= flagVLAN
}

// VLANID returns the number of the frame's VLAN, 0 if it is in none: it has no tag, or one
// that gives a priority only.
func (f *Frame) VLANID() uint16 {
	if f.flags&flagVLAN == 0 {
		return 0
	}
	return binary.BigEndian.Uint16(f.h[EthernetLen:]) & 0xfff
}

// TagBits returns the 16 bits of the tag that follow its EtherType, and one more bit that is
// set if there is a tag. Two frames have equal tags if these are equal.
func (f *Frame) TagBits() uint32 {
	if f.flags&flagVLAN == 0 {
		return 0
	}
	return 1<<16 | uint32(binary.BigEndian.Uint16(f.h[EthernetLen:]))
}
