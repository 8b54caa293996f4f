// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math"
)

// ReduceQKey is the Q_Key of the datagrams of reductions.
const ReduceQKey uint32 = 0x4d43

// ReduceWindow is the number of chunks of a reduction that may be under way: a member sends chunk c +
// ReduceWindow when it has the answer to chunk c. Switches then need twice as many slots, and the slot
// of a chunk is free whenever that chunk arrives.
const ReduceWindow = 128

// ReduceChunks is the number of chunk numbers; the next one is 0 again.
const ReduceChunks = 1 << 28

// ReduceKind is the type of a packet of a reduction.
type ReduceKind uint8

// Kinds.
const (
	ReduceGive   ReduceKind = 0 // the part of a member, or of all below a switch
	ReduceResult ReduceKind = 1 // the sum, on its way to the member that it is for
	ReduceDone   ReduceKind = 2 // the sum is complete: sent to the other members, without payload
)

// ReduceImm is the immediate data of the datagrams of a reduction, whose payload is 32-bit
// numbers, little-endian. Own says that the packet stands also for the member that the sum is
// for; that member contributes nothing and sends an empty payload. Float32 says that the
// numbers are floating point; otherwise they are integers whose sum wraps.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---+-+-+-------------------------------------------------------+
//	|kin|F|O|                     chunk number                      |
//	+---+-+-+-------------------------------------------------------+
type ReduceImm struct {
	Kind    ReduceKind
	Float32 bool
	Own     bool
	Chunk   uint32
}

// Imm returns the immediate data.
func (r ReduceImm) Imm() ImmDt {
	v := uint32(r.Kind)<<30 | r.Chunk%ReduceChunks
	if r.Float32 {
		v |= 1 << 29
	}
	if r.Own {
		v |= 1 << 28
	}
	return ImmDt(v)
}

// ReduceImmOf returns the fields of immediate data that Imm made.
func ReduceImmOf(v ImmDt) ReduceImm {
	return ReduceImm{Kind: ReduceKind(v >> 30), Float32: v>>29&1 != 0, Own: v>>28&1 != 0, Chunk: uint32(v) % ReduceChunks}
}

// ReduceAdd adds the numbers of more to those of sum, which is as long: sum + more, in this
// order. Bytes beyond the last whole number are left unchanged.
func ReduceAdd(sum, more []byte, float32s bool) {
	for i := 0; i+4 <= len(sum); i += 4 {
		a, b := binary.LittleEndian.Uint32(sum[i:]), binary.LittleEndian.Uint32(more[i:])
		if float32s {
			a = math.Float32bits(math.Float32frombits(a) + math.Float32frombits(b))
		} else {
			a += b
		}
		binary.LittleEndian.PutUint32(sum[i:], a)
	}
}
