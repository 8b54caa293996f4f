// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math/bits"
)

// A flow without loss sends packets that differ in their numbers only: the PSN, the IPv4 identification,
// which Seal takes from it, and the checksums over them.

// Shifts reports whether Shift makes of the frame the packet that comes later in its flow: a RoCE packet
// without bytes of payload (zeros may be), whose identification is that of its PSN and whose ICRC is right.
func (f *Frame) Shifts() bool {
	if f.Kind() != KindRoCE || f.flags&(flagBlock|flagDamaged) != 0 || !f.CheckICRC() {
		return false
	}
	o := f.ipOff() + 4
	return f.flags&flagIPv6 != 0 || binary.BigEndian.Uint16(f.h[o:o+2]) == uint16(f.PSN())
}

// Shift moves the PSN of a frame that Shifts by d, and the fields that depend on it. decremented marks that the last to
// change its IPv4 checksum was DecTTL, which leaves the other zero of ones' complement than Seal and Bridge do.
func (f *Frame) Shift(d int, decremented bool) {
	b := f.h[f.bthOff()+8 : f.bthOff()+12]
	word := binary.BigEndian.Uint32(b)
	psn := PSN(word & uint32(PSNMask)).Add(d)
	binary.BigEndian.PutUint32(b, word&^uint32(PSNMask)|uint32(psn))
	if f.flags&flagIPv6 == 0 {
		h := f.h[f.ipOff() : f.ipOff()+IPv4Len]
		old := binary.BigEndian.Uint16(h[4:6])
		binary.BigEndian.PutUint16(h[4:6], uint16(psn))
		binary.BigEndian.PutUint16(h[10:12], sumAfter(binary.BigEndian.Uint16(h[10:12]), old, uint16(psn), decremented))
	}
	if f.flags&flagTrusted == 0 {
		f.icrc = f.computeICRC()
	}
}

// Shape has room for the words of the method of that name.
type Shape [1 + (HeaderCap+7)/8]uint64

// Shape writes the fields that Shift does not change to words, and returns as many of them as it needs:
// two frames are packets of one flow in equal roles if and only if these are equal.
func (f *Frame) Shape(words *Shape) []uint64 {
	var h [(HeaderCap + 7) / 8 * 8]byte
	copy(h[:], f.h[:f.n])
	clear(h[f.bthOff()+9 : f.bthOff()+12])
	if o := f.ipOff(); f.flags&flagIPv6 == 0 {
		clear(h[o+4 : o+6])
		clear(h[o+10 : o+12])
	}
	words[0] = uint64(f.n)<<32 | uint64(f.flags)<<16 | uint64(f.pay)
	n := 1
	for i := 0; i < int(f.n); i += 8 {
		words[n] = binary.LittleEndian.Uint64(h[i : i+8])
		n++
	}
	return words[:n]
}

// Repeat is a frame that comes again and again, each time with a PSN that is higher by the same number: what Shift and Mix
// make of it, in less time.
type Repeat struct {
	f           Frame
	d           int
	decremented bool

	// Of an IPv4 packet without a tag whose ICRC is not kept and whose header ends in the fourth pair of words: that header
	// without PSN, identification and checksum, what Mix begins with, and those numbers as they were last.
	plain bool
	w     [8]uint64
	state uint64
	psn   PSN
	sum   uint16
}

// NewRepeat returns a frame that comes again with a PSN that is higher by d each time. decremented is as in Shift.
func NewRepeat(f *Frame, d int, decremented bool) Repeat {
	r := Repeat{f: *f, d: d, decremented: decremented}
	r.plain = f.flags&(flagVLAN|flagIPv6) == 0 && f.flags&flagTrusted != 0 && f.n > 48 && f.n <= 64
	if !r.plain {
		return r
	}
	h := f.h
	clear(h[f.n:])
	r.psn, r.sum = f.PSN(), binary.BigEndian.Uint16(h[24:26])
	clear(h[18:20])
	clear(h[24:26])
	clear(h[51:54])
	for i := range r.w {
		r.w[i] = binary.LittleEndian.Uint64(h[8*i:])
	}
	r.state = f.mixState()
	return r
}

// Next is the frame's next time: it folds the frame as it is then into a digest, as Mix does.
func (r *Repeat) Next(d uint64) uint64 {
	if !r.plain {
		r.f.Shift(r.d, r.decremented)
		return r.f.Mix(d)
	}
	old := uint16(r.psn)
	r.psn = r.psn.Add(r.d)
	r.sum = sumAfter(r.sum, old, uint16(r.psn), r.decremented)
	d = mum(d^mixA, r.state^mixB)
	d = mum(r.w[0]^mixA, r.w[1]^d)
	d = mum(r.w[2]|uint64(bits.ReverseBytes16(uint16(r.psn)))<<16^mixA, r.w[3]|uint64(bits.ReverseBytes16(r.sum))^d)
	d = mum(r.w[4]^mixA, r.w[5]^d)
	return mum(r.w[6]|uint64(bits.ReverseBytes32(uint32(r.psn))>>8)<<24^mixA, r.w[7]^d)
}

// sumAfter returns an IPv4 checksum after a word of the header has changed.
func sumAfter(sum, old, v uint16, decremented bool) uint16 {
	sum = ^fold(uint32(^sum)+uint32(^old)+uint32(v)) % 0xffff
	if sum == 0 && decremented {
		return 0xffff
	}
	return sum
}
