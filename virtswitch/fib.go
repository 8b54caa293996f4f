// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
)

// FIB is the unicast forwarding table. Hosts have addresses in 10/8, and each block of 256
// addresses is behind one leaf, so routes are kept per block and not per host.
type FIB struct {
	// Sets holds the distinct sets of equal-cost ports, each in ascending order.
	Sets [][]uint16
	// Block maps (address >> 8) & 0xffff to 1 + an index into Sets; 0 means that there is no
	// route, as for a block beyond the slice. The entry of a block that is attached here has
	// bit 15 set and holds an index into Local instead.
	Block []uint16
	// Local maps the last byte of an address in an attached block to 1 + its port.
	Local [][256]uint16

	// Uplinks holds, by multicast tree of programs' groups, the port toward the root; it is negative at the root, and
	// where the tree does not reach. Without trees, programs' groups go nowhere beyond this switch.
	Uplinks []int

	// ways holds the content of Block and Sets in one place, once index has been called: a packet needs one entry of
	// it.
	ways []way
}

// way leads to a block of addresses: its upper two bits are the kind of way, and the others a place in Sets or Local, or the
// lowest port of a set of neighbours and, in bits 8 and up, their number.
type way uint32

const (
	wayNone  way = iota << 30
	wayPorts     // ports beside each other
	waySet       // other ports
	wayLocal
)

// index makes the table ready for next.
func (t *FIB) index() {
	t.ways = make([]way, len(t.Block))
	for b, e := range t.Block {
		switch {
		case e == 0:
		case e&localBlock != 0:
			t.ways[b] = wayLocal | way(e&^localBlock)
		default:
			t.ways[b] = waySet | way(e-1)
			if set := t.Sets[e-1]; len(set) > 0 && int(set[len(set)-1]-set[0]) == len(set)-1 {
				t.ways[b] = wayPorts | way(len(set))<<8 | way(set[0])
			}
		}
	}
}

// next returns the port by which a frame leaves for dst, one of those that lookup returns, or -1.
func (t *FIB) next(f *wire.Frame, dst, seed uint32) int {
	b := int(dst >> 8 & 0xffff)
	if dst>>24 != 10 || b >= len(t.ways) {
		return -1
	}
	w := t.ways[b]
	place := int(w &^ wayLocal)
	switch w & wayLocal {
	case wayPorts:
		if n := place >> 8; n > 1 {
			return place&0xff + ecmp(f, seed, n)
		}
		return place & 0xff
	case wayLocal:
		return int(t.Local[place][dst&0xff]) - 1
	case waySet:
		if set := t.Sets[place]; len(set) > 0 {
			return int(set[ecmp(f, seed, len(set))])
		}
	}
	return -1
}

const localBlock = 1 << 15

// SetRoute makes the block reachable over the given set.
func (t *FIB) SetRoute(block, set int) { t.grow(block); t.Block[block] = uint16(set + 1) }

// SetHost attaches the host with the given address to a port.
func (t *FIB) SetHost(ip uint32, port int) {
	b := int(ip >> 8 & 0xffff)
	t.grow(b)
	if t.Block[b]&localBlock == 0 {
		t.Local = append(t.Local, [256]uint16{})
		t.Block[b] = localBlock | uint16(len(t.Local)-1)
	}
	t.Local[t.Block[b]&^localBlock][ip&0xff] = uint16(port + 1)
}

func (t *FIB) grow(block int) {
	for len(t.Block) <= block {
		t.Block = append(t.Block, 0)
	}
}

// lookup returns the port of an attached host, or the set of ports toward another
// block. Both are empty if there is no route.
func (t *FIB) lookup(ip uint32) (port int, set []uint16) {
	b := int(ip >> 8 & 0xffff)
	if ip>>24 != 10 || b >= len(t.Block) {
		return -1, nil
	}
	e := t.Block[b]
	if e&localBlock != 0 {
		return int(t.Local[e&^localBlock][ip&0xff]) - 1, nil
	}
	if e == 0 {
		return -1, nil
	}
	return -1, t.Sets[e-1]
}

// equal reports whether the tables are the same.
func (t *FIB) equal(o *FIB) bool {
	return slices.EqualFunc(t.Sets, o.Sets, slices.Equal[[]uint16]) && slices.Equal(t.Block, o.Block) &&
		slices.Equal(t.Uplinks, o.Uplinks) && slices.Equal(t.Local, o.Local)
}

// ecmp picks one of n equal-cost ports for the frame's flow. It hashes all fields of the
// 5-tuple that can differ: both addresses and the source port. The seed differs from switch to
// switch, so that the choice in one tier does not decide the choice in the next.
func ecmp(f *wire.Frame, seed uint32, n int) int {
	x := f.SrcIP()*0x9e3779b1 ^ f.DstIP()*0x85ebca6b ^ uint32(f.SrcPort())*0xc2b2ae35 ^ seed
	x ^= x >> 15
	x *= 0x2c1b3c6d
	x ^= x >> 13
	return int(uint64(x) * uint64(n) >> 32)
}
