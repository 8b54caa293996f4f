// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestReduceImm: golden words, and a round trip.
func TestReduceImm(t *testing.T) {
	for want, m := range map[ImmDt]ReduceImm{
		0x00000005: {Chunk: 5},
		0x10000005: {Own: true, Chunk: 5},
		0x6fffffff: {Kind: ReduceResult, Float32: true, Chunk: ReduceChunks - 1},
		0x80000000: {Kind: ReduceDone},
		0x80000001: {Kind: ReduceDone, Chunk: ReduceChunks + 1},
	} {
		if got := m.Imm(); got != want {
			t.Errorf("%+v: %#x, want %#x", m, uint32(got), uint32(want))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := ImmDt(rapid.Uint32().Draw(t, "imm"))
		if got := ReduceImmOf(v).Imm(); got != v {
			t.Fatalf("%#x became %#x", uint32(v), uint32(got))
		}
	})
	if got := fmt.Sprint(MRPReduce, MRPReduce|MRPConfirm); got != " register reduce  register reduce confirm" {
		t.Errorf("flags %q", got)
	}
	if ReduceChunks%(2*ReduceWindow) != 0 {
		t.Error("the slots of chunks do not follow each other where the numbers begin again")
	}
}

// TestReduceAdd: integers wrap, floating point keeps its order, the rest of a number is
// left alone, nothing is allocated.
func TestReduceAdd(t *testing.T) {
	sum := []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 7}
	more := []byte{2, 0, 0, 0, 0, 0, 0, 0x80, 9}
	ReduceAdd(sum, more, false)
	if got := fmt.Sprintf("%x", sum); got != "010000000100008007" {
		t.Errorf("integers: %s", got)
	}
	one, tiny := math.Float32bits(1), math.Float32bits(float32(math.Ldexp(1, -24)))
	f := func(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
	x := f(tiny)
	ReduceAdd(x, f(tiny), true)
	ReduceAdd(x, f(one), true)
	y := f(one)
	ReduceAdd(y, f(tiny), true)
	ReduceAdd(y, f(tiny), true)
	if fmt.Sprintf("%x %x", x, y) != "0100803f 0000803f" {
		t.Errorf("floating point: %x and %x", x, y)
	}
	if n := testing.AllocsPerRun(10, func() { ReduceAdd(sum, more, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
