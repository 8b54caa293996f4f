// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/mcastlab/mcastlab/virtrnic"
)

// samples is a request of each shape, with a value of its own in every field.
func samples() map[op]any {
	all := map[op]any{}
	for o := opHello; o < opGroupEnd; o++ {
		if !o.known() || o == opTime {
			continue
		}
		m := body(o)
		n := byte(0)
		fill(reflect.ValueOf(m).Elem(), &n)
		all[o] = m
	}
	return all
}

func fill(v reflect.Value, n *byte) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Int32:
		*n++
		v.SetInt(int64(*n))
	default:
		*n++
		v.SetUint(uint64(*n))
	}
}

func request(o op, m any) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(o)), encode(m)...)
}

// golden is the bytes of each sample, one after the other: numbers of four bytes, and of eight in the
// address, length and IOVA of a region.
var golden = map[op]string{
	opHello:          "0100000001000000",
	opAllocPD:        "0200000001000000",
	opRegMR:          "04000000010000000200000003000000040000000000000005000000000000000600000000000000",
	opReregMR:        "1900000001000000020000000300000004000000050000000600000000000000" + "0700000000000000",
	opCreateCQ:       "08000000010000000200000003000000",
	opCreateQP:       "0a0000000100000002000000030000000400000005000000060000000700000008000000090000000a0000000b0000000c000000",
	opCreateAH:       "0e0000000100000002030405060708090a0b0c0d0e0f1011120000001300000014000000",
	opAttachMcast:    "100000000100000002030405060708090a0b0c0d0e0f1011",
	opCreateSRQ:      "12000000010000000200000003000000",
	opModifySRQ:      "140000000100000002000000",
	opResizeCQ:       "160000000100000002000000",
	opClock:          "1700000001000000",
	opUnsent:         "1800000001000000",
	opCreateChannel:  "0600000001000000",
	opDestroyChannel: "0700000001000000",
	opCMCreate:       "40000000010000000200000003000000",
	opCMBind:         "43000000010000000200000003000000" + "0405060708090a0b0c0d0e0f10111213" + "14001500",
	opCMListen:       "460000000100000002000000",
	opCMJoin:         "4c000000010000000200000003000000" + "0400000000000000" + "05060708090a0b0c0d0e0f1011121314",
	opCMQuery:        "4d00000001000000",
	opGroupWant:      "6000000001000000",
	opGroupMember:    "61000000" + "0102030405060708090a0b0c0d0e0f10" + "1112131415161718191a1b1c1d1e1f20" + "21000000",
	opGroupRegister:  "620000000102030405060708090a0b0c0d0e0f10",
	opGroupSource:    "640000000100000002000000",
	opGroupOffer:     "650000000102030405060708090a0b0c0d0e0f1011000000",
	opGroupGrant:     "68000000" + "01000000020000000300000004000000" + "05060708090a0b0c0d0e0f1011121314",
	opModifyQP: "0c000000010000000200000003000000040000000500000006000000070000000800000009000000" +
		"0a0000000b0000000c0000000d0000000e0000000f000000100000001100000012000000130000001415161718191a1b1c1d1e1f20212223240000002500000026000000",
}

// TestRequests: golden bytes, a round trip, and every truncation and extension is refused.
func TestRequests(t *testing.T) {
	for o, m := range samples() {
		b := request(o, m)
		if want, ok := golden[o]; ok && hex.EncodeToString(b) != want {
			t.Errorf("request %d is %x, not %s", o, b, want)
		}
		if len(b) >= requestMax {
			t.Errorf("request %d has %d bytes", o, len(b))
		}
		gotOp, got, err := decode(b)
		if err != nil || gotOp != o || !reflect.DeepEqual(got, m) {
			t.Errorf("request %d comes back as %d %+v: %v", o, gotOp, got, err)
		}
		for n := range b {
			if _, _, err := decode(b[:n]); !errors.Is(err, errMalformed) {
				t.Errorf("request %d of %d bytes is read: %v", o, n, err)
			}
		}
		if _, _, err := decode(append(b, 0)); !errors.Is(err, errMalformed) {
			t.Errorf("request %d with a byte more is read: %v", o, err)
		}
	}
	for _, o := range []op{0, opEnd, opCMCreate - 1, opCMEnd, 1 << 31} {
		if _, _, err := decode(request(o, &byID{})); !errors.Is(err, errMalformed) {
			t.Errorf("request %d is read: %v", o, err)
		}
	}
}

// TestReplies: golden bytes of the NIC's answers.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		m    any
		want string
	}{
		{&reply{}, "01000000020000000300000004000000"},
		{&device{}, "01000000020000000300000004000000" + "05000000060000000700000008000000090000000a0000000b0000000c0000000d0000000e000000" +
			"0f0000001000000011000000120000001300000014000000" + "1500000000000000" + "161718191a1b1c1d1e1f202122232425"},
		{&clock{}, "01000000020000000300000004000000" + "0500000000000000"},
		{&event{}, "0100000002000000"},
		{&cmQuery{}, "01000000020000000300000004000000" + "05060708090a0b0c0d0e0f1011121314" + "15001600" + "1718191a1b1c1d1e1f20212223242526" + "27002800" +
			"290000002a0000002b0000002c0000002d0000002e000000" + "2f30313233343536"},
	} {
		n := byte(0)
		fill(reflect.ValueOf(c.m).Elem(), &n)
		if got := hex.EncodeToString(encode(c.m)); got != c.want {
			t.Errorf("%T is %s, not %s", c.m, got, c.want)
		}
	}
}

// entry returns the bytes of an entry, of which byte i is i at first, with numbers of four bytes put in.
func entry(size int, at map[int]uint32) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	for i, v := range at {
		binary.LittleEndian.PutUint32(b[i:], v)
	}
	return b
}

// TestSendEntry: the places of a send's fields; entries that no library writes are refused.
func TestSendEntry(t *testing.T) {
	read := func(at map[int]uint32) (s send, err error) {
		return s, s.decode((*[sendLen]byte)(entry(sendLen, at)))
	}
	s, err := read(map[int]uint32{32: 3, 36: 7, 40: 2, 44: 0})
	if err != nil {
		t.Fatal(err)
	}
	w := s.wr
	if w.WRID != 0x0706050403020100 || w.RemoteAddr != 0x0f0e0d0c0b0a0908 || w.Opcode != virtrnic.WRSendWithImm || w.Flags != 7 ||
		w.Imm != 0x33323130 || w.RKey != 0x37363534 || s.ah != 0x3b3a3938 || w.UD.QPN != 0x3e3d3c || w.UD.QKey != 0x43424140 || w.Inline != nil {
		t.Errorf("it is %+v", w)
	}
	if len(w.SGL) != 2 || w.SGL[1] != (virtrnic.SGE{Addr: 0x6766656463626160, Length: 0x6b6a6968, LKey: 0x6f6e6d6c}) {
		t.Errorf("its pieces are %+v", w.SGL)
	}
	if s, err = read(map[int]uint32{32: 2, 36: 8, 40: 0, 44: inlineMax}); err != nil || len(s.wr.Inline) != inlineMax || s.wr.Inline[1] != 81 {
		t.Errorf("inline: %+v, %v", s.wr, err)
	}
	if s, err = read(map[int]uint32{32: 5, 36: 2, 40: 1, 44: 0}); err != nil || s.wr.Compare != 0x1716151413121110 || s.wr.SwapAdd != 0x1f1e1d1c1b1a1918 {
		t.Errorf("compare and swap: %+v, %v", s.wr, err)
	}
	if s, err = read(map[int]uint32{32: 6, 36: 2, 40: 1, 44: 0}); err != nil || s.wr.SwapAdd != 0x1716151413121110 {
		t.Errorf("fetch and add: %+v, %v", s.wr, err)
	}
	if s, err = read(map[int]uint32{32: 9, 36: 2, 40: 1, 44: 0}); err != nil || s.wr.RKey != 0x33323130 {
		t.Errorf("with invalidate: %+v, %v", s.wr, err)
	}
	for _, bad := range []map[int]uint32{
		{32: 10, 36: 2, 40: 1, 44: 0}, {32: 2, 36: 16, 40: 1, 44: 0}, {32: 2, 36: 2, 40: sgesMax + 1, 44: 0}, {32: 2, 36: 8, 40: 0, 44: inlineMax + 1},
	} {
		if _, err := read(bad); !errors.Is(err, errMalformed) {
			t.Errorf("%v is read: %v", bad, err)
		}
	}
}

// TestRecvEntry: where the fields of a receive are.
func TestRecvEntry(t *testing.T) {
	var r recv
	if err := r.decode((*[recvLen]byte)(entry(recvLen, map[int]uint32{8: sgesMax}))); err != nil {
		t.Fatal(err)
	}
	if r.wr.WRID != 0x0706050403020100 || len(r.wr.SGL) != sgesMax || r.wr.SGL[14].LKey != 0xfffefdfc {
		t.Errorf("it is %+v", r.wr)
	}
	if err := r.decode((*[recvLen]byte)(entry(recvLen, map[int]uint32{8: sgesMax + 1}))); !errors.Is(err, errMalformed) {
		t.Errorf("%d pieces are read: %v", sgesMax+1, err)
	}
}

// TestCompletionEntry: golden bytes.
func TestCompletionEntry(t *testing.T) {
	b := [completionLen]byte{50: 9}
	encodeWC(&b, &virtrnic.WC{WRID: 1, Status: 2, Opcode: 128, WithImm: true, GRH: true, ByteLen: 3, Imm: 4, QPN: 5, SrcQP: 6}, 7_000_999)
	want := "0100000000000000" + "02000000" + "80000000" + "03000000" + "04000000" + "05000000" + "06000000" + "03000000" + "00000000" + "581b000000000000"
	if got := hex.EncodeToString(b[:48]); got != want || !bytes.Equal(b[48:], make([]byte, 16)) {
		t.Errorf("it is %x", b)
	}
	encodeWC(&b, &virtrnic.WC{WithInv: true}, 0)
	if b[32] != wcInv {
		t.Errorf("flags are %d", b[32])
	}
}

// TestEntriesAllocateNothing: the work for each message allocates nothing.
func TestEntriesAllocateNothing(t *testing.T) {
	var s send
	var r recv
	var c [completionLen]byte
	a, b := (*[sendLen]byte)(entry(sendLen, map[int]uint32{32: 2, 36: 2, 40: 3, 44: 0})), (*[recvLen]byte)(entry(recvLen, map[int]uint32{8: 2}))
	w := virtrnic.WC{WRID: 1}
	if n := testing.AllocsPerRun(100, func() {
		if s.decode(a) != nil || r.decode(b) != nil {
			t.Error("an entry is refused")
		}
		encodeWC(&c, &w, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode: any message of a program is refused or read, and a message that was read encodes to the
// same meaning.
func FuzzDecode(f *testing.F) {
	for o, m := range samples() {
		f.Add(request(o, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, m, err := decode(b)
		if err == nil && !bytes.Equal(request(o, m), b) {
			t.Errorf("%x is read as %+v", b, m)
		}
	})
}

// FuzzEntry: an entry may hold anything.
func FuzzEntry(f *testing.F) {
	f.Add(entry(sendLen, map[int]uint32{32: 2, 36: 2, 40: 3, 44: 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s send
		var r recv
		var e [sendLen]byte
		copy(e[:], b)
		if s.decode(&e) == nil && (len(s.wr.SGL) > sgesMax || len(s.wr.Inline) > inlineMax) {
			t.Errorf("%x has %d pieces and %d bytes inline", b, len(s.wr.SGL), len(s.wr.Inline))
		}
		_ = r.decode((*[recvLen]byte)(e[:])) // whether it is refused is TestRecvEntry's
	})
}
