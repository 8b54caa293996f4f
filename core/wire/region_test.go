// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"testing"
)

// TestMRPRegionLayout: 73 records of 20 bytes fit an MTU of 1500; half a record is none;
// records copied one by one are the packet.
func TestMRPRegionLayout(t *testing.T) {
	if MRPRegionsMax != 73 || MRPRegionsMaxIP6 != 72 {
		t.Errorf("%d and %d records with regions, want 73 and 72", MRPRegionsMax, MRPRegionsMaxIP6)
	}
	h := MRPHeader{Total: 1, Flags: MRPMRUpdate, LeaderQPN: 7}
	b := h.AppendTo(nil)
	for i := range MRPRegionsMax {
		b = MRPRegion{VA: uint64(i), RKey: uint32(i)}.AppendTo(MRPRecord{IP: uint32(i), QPN: QPN(i)}.AppendTo(b))
	}
	p, err := ParseMRP(b)
	if err != nil || p.Len() != 73 || p.Record(72) != (MRPRecord{IP: 72, QPN: 72}) || p.Region(72) != (MRPRegion{72, 72}) {
		t.Fatalf("full packet: %v, %d records", err, p.Len())
	}
	again := h.AppendTo(nil)
	for i := range p.Len() {
		again = p.AppendRecord(again, i)
	}
	if !bytes.Equal(again, b) {
		t.Error("records copied one by one differ from the packet")
	}
	for _, n := range []int{MRPRecordLen, MRPRecordLen + MRPRegionLen} {
		if _, err := ParseMRP(append(bytes.Clone(b), make([]byte, n)...)); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes more: %v, want %v", n, err, ErrLength)
		}
	}
}

// FuzzParseMRP: no payload makes the parser or its views leave their bytes; a parsed packet is the same
// when it is written again.
func FuzzParseMRP(f *testing.F) {
	for _, c := range codecs {
		switch c.name {
		case "MRP", "MRPRegion", "MRUpdate":
			f.Add(c.append(c.golden, nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for rest, err := b, error(nil); err == nil; {
			var u MRUpdate
			if u, rest, err = ParseMRUpdate(rest); err == nil && !bytes.Contains(b, u.AppendTo(nil)) {
				t.Fatalf("%+v is not in %x", u, b)
			}
		}
		p, err := ParseMRP(b)
		if err != nil {
			return
		}
		again := p.MRPHeader.AppendTo(nil)
		for i := range p.Len() {
			again = p.Record(i).AppendTo(again)
			if p.Flags&MRPMRUpdate != 0 {
				again = p.Region(i).AppendTo(again)
			}
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
