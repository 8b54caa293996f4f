// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// The entries of rings; verbs/protocol.h has the same in C.
const (
	ringHeader    = 256
	sendLen       = 512
	recvLen       = 448
	completionLen = 64
	sgesMax       = 27
	inlineMax     = virtrnic.MaxInlineData
	sendSGEs      = 80 // where the pieces of a send begin
	recvSGEs      = 16
	sgeLen        = 16
	wcTime        = 40
	wcImm         = 1
	wcGRH         = 2
	wcInv         = 4
)

// send is a request as its entry has it.
type send struct {
	wr  virtrnic.SendWR
	ah  uint32
	sgl [sgesMax]virtrnic.SGE

	regions [sgesMax]*region // which the pieces are read from; see client.find
}

// decode reads an entry, whose bytes may no longer change: inline data stay in b. It refuses entries
// that no correct library writes.
func (s *send) decode(b *[sendLen]byte) error {
	le := binary.LittleEndian
	opcode, flags := le.Uint32(b[32:]), le.Uint32(b[36:])
	sges, inline := le.Uint32(b[40:]), le.Uint32(b[44:])
	if opcode > 9 || flags > 15 || sges > sgesMax || inline > inlineMax {
		return fmt.Errorf("read a send: opcode %d, flags %#x, %d pieces, %d bytes inline: %w", opcode, flags, sges, inline, errMalformed)
	}
	s.ah = le.Uint32(b[56:])
	s.wr = virtrnic.SendWR{
		WRID: le.Uint64(b[0:]), RemoteAddr: le.Uint64(b[8:]), Opcode: virtrnic.WROpcode(opcode), Flags: virtrnic.SendFlags(flags),
		Imm: le.Uint32(b[48:]), RKey: le.Uint32(b[52:]),
		UD: virtrnic.UDDest{QPN: wire.QPN(le.Uint32(b[60:])) & wire.QPNMask, QKey: le.Uint32(b[64:])},
	}
	switch w := &s.wr; w.Opcode {
	case virtrnic.WRAtomicCmpAndSwp:
		w.Compare, w.SwapAdd = le.Uint64(b[16:]), le.Uint64(b[24:])
	case virtrnic.WRAtomicFetchAdd:
		w.SwapAdd = le.Uint64(b[16:])
	case virtrnic.WRSendWithInv:
		w.RKey = w.Imm
	}
	if s.wr.Flags&virtrnic.SendInline != 0 {
		s.wr.Inline = b[sendSGEs : sendSGEs+inline]
		return nil
	}
	s.wr.SGL = pieces(s.sgl[:0], b[sendSGEs:], sges)
	return nil
}

// pieces appends n pieces of memory to l.
func pieces(l []virtrnic.SGE, b []byte, n uint32) []virtrnic.SGE {
	le := binary.LittleEndian
	for ; n > 0; n-- {
		l = append(l, virtrnic.SGE{Addr: le.Uint64(b), Length: le.Uint32(b[8:]), LKey: le.Uint32(b[12:])})
		b = b[sgeLen:]
	}
	return l
}

// recv is a receive as its entry has it.
type recv struct {
	wr  virtrnic.RecvWR
	sgl [sgesMax]virtrnic.SGE
}

func (r *recv) decode(b *[recvLen]byte) error {
	le := binary.LittleEndian
	sges := le.Uint32(b[8:])
	if sges > sgesMax {
		return fmt.Errorf("read a receive of %d pieces: %w", sges, errMalformed)
	}
	r.wr = virtrnic.RecvWR{WRID: le.Uint64(b[0:]), SGL: pieces(r.sgl[:0], b[recvSGEs:], sges)}
	return nil
}

// encodeWC writes a completion that the NIC reported at the given time.
func encodeWC(b *[completionLen]byte, w *virtrnic.WC, at vtime.Time) {
	le := binary.LittleEndian
	clear(b[:])
	flags := uint32(0)
	if w.WithImm {
		flags |= wcImm
	}
	if w.GRH {
		flags |= wcGRH
	}
	if w.WithInv {
		flags |= wcInv
	}
	le.PutUint64(b[0:], w.WRID)
	le.PutUint64(b[wcTime:], nanoseconds(at))
	for i, v := range [...]uint32{uint32(w.Status), uint32(w.Opcode), w.ByteLen, w.Imm, uint32(w.QPN), uint32(w.SrcQP), flags} {
		le.PutUint32(b[8+4*i:], v)
	}
}

// nanoseconds converts the NIC's time to the unit that programs see.
func nanoseconds(t vtime.Time) uint64 { return uint64(t) / uint64(vtime.Nanosecond) }
