// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "github.com/mcastlab/mcastlab/core/wire"

// Scatter-gather lists. The data path of a work request of one piece, by far the most frequent
// kind, does not use them. One of several pieces costs a look-up per piece and packet.

// extras holds the fields that only few work requests have. It is not in the queues: a large lab has millions of
// places in them.
type extras struct {
	sgl              []SGE  // the local memory in pieces, if it is several
	inline           []byte // the data of a request with SendInline
	swapAdd, compare uint64
	ud               UDDest
}

// extra returns empty extras, with the memory of those of a finished work request.
func (n *NIC) extra() (x *extras) {
	if k := len(n.spare); k > 0 {
		x, n.spare = n.spare[k-1], n.spare[:k-1]
		*x = extras{sgl: x.sgl[:0], inline: x.inline[:0]}
		return x
	}
	return &extras{}
}

// release keeps the extras of a finished work request for reuse. They may be read until the next work request is posted.
func (n *NIC) release(x *extras) {
	if x != nil {
		n.spare = append(n.spare, x)
	}
}

// normalize returns the memory of a work request as one piece, or as a list of several, which is the caller's. A list that is empty
// and not nil is a piece without bytes.
func normalize(e SGE, l []SGE) (SGE, []SGE) {
	switch len(l) {
	case 0:
		if l != nil {
			e = SGE{}
		}
		return e, nil
	case 1:
		return l[0], nil
	}
	return SGE{}, l
}

// total returns the bytes of a work request's memory.
func total(e SGE, l []SGE) uint64 {
	if l == nil {
		return uint64(e.Length)
	}
	var sum uint64
	for _, e := range l {
		sum += uint64(e.Length)
	}
	return sum
}

// reachable reports whether every piece lies in a region of the domain that grants the rights in
// need. A piece without bytes is always reachable.
func (n *NIC) reachable(pd *PD, e SGE, l []SGE, need AccessFlags) bool {
	if l == nil {
		m, _ := n.lookup(pd, e.LKey, e.Addr, uint64(e.Length), need)
		return e.Length == 0 || m != nil
	}
	for _, e := range l {
		if m, _ := n.lookup(pd, e.LKey, e.Addr, uint64(e.Length), need); e.Length > 0 && m == nil {
			return false
		}
	}
	return true
}

// gather attaches size bytes of the list from offset off on to the frame. size must be positive,
// and the pieces must be reachable.
func (n *NIC) gather(pd *PD, l []SGE, f *wire.Frame, off uint64, size int) {
	b := n.pool.Block()
	buf := b.Fill(size)
	n.visit(pd, l, off, size, 0, func(m *MR, at uint64, from, to int) { m.mem.read(buf[from:to], at) })
	f.SetPayload(b)
}

// scatter writes size bytes at offset off of the list: b, or zeros if it is nil. It reports
// whether every piece was still reachable.
func (n *NIC) scatter(pd *PD, l []SGE, off uint64, b []byte, size int) bool {
	return n.visit(pd, l, off, size, AccessLocalWrite, func(m *MR, at uint64, from, to int) {
		if b == nil {
			m.mem.write(nil, at, to-from)
		} else {
			m.mem.write(b[from:to], at, to-from)
		}
	})
}

// visit calls f for each piece that holds some of the bytes [off, off+size) of a list, with the
// offset of those bytes in their region and their bounds in the range. It reports whether all
// bytes were visited; it stops at a piece whose region does not grant the rights in need.
func (n *NIC) visit(pd *PD, l []SGE, off uint64, size int, need AccessFlags, f func(m *MR, at uint64, from, to int)) bool {
	done := 0
	for _, e := range l {
		if off >= uint64(e.Length) {
			off -= uint64(e.Length)
			continue
		}
		if done == size {
			break
		}
		part := int(min(uint64(size-done), uint64(e.Length)-off))
		m, at := n.lookup(pd, e.LKey, e.Addr+off, uint64(part), need)
		if m == nil {
			return false
		}
		f(m, at, done, done+part)
		done += part
		off = 0
	}
	return done == size
}

// deliver writes a frame's payload at offset off of a work request's memory, and reports whether
// the memory could be written.
func (n *NIC) deliver(pd *PD, e SGE, l []SGE, off uint64, f *wire.Frame) bool {
	if l == nil {
		m, at := n.lookup(pd, e.LKey, e.Addr+off, uint64(f.PayloadLen()), AccessLocalWrite)
		if m == nil || off+uint64(f.PayloadLen()) > uint64(e.Length) {
			return false
		}
		m.mem.store(f, at)
		return true
	}
	return n.scatter(pd, l, off, f.PayloadBytes(), f.PayloadLen())
}

// writeBytes writes bytes that are not a frame's payload, which are a global route header or the
// result of an atomic, and reports whether the memory could be written.
func (n *NIC) writeBytes(pd *PD, e SGE, l []SGE, off uint64, b []byte) bool {
	one := [1]SGE{e}
	if l == nil {
		l = one[:]
	}
	return n.scatter(pd, l, off, b, len(b))
}
