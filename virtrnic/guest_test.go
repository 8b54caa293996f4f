// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"errors"
	"testing"
)

// TestGuest: the NIC reads the image of a guest's memory, and hands over its writes without keeping
// their bytes.
func TestGuest(t *testing.T) {
	type put struct {
		off uint64
		b   []byte
	}
	var puts []put
	m := &Guest{Image: []byte("image of memory"), Put: func(off uint64, b []byte) { puts = append(puts, put{off, bytes.Clone(b)}) }}
	got := make([]byte, 5)
	if m.read(got, 0); string(got) != "image" || m.Size() != 15 {
		t.Errorf("it reads %q of %d", got, m.Size())
	}
	m.write([]byte("new"), 3, 3)
	m.write(nil, 9, 2)
	if len(puts) != 2 || puts[0].off != 3 || string(puts[0].b) != "new" || puts[1].off != 9 || !bytes.Equal(puts[1].b, []byte{0, 0}) {
		t.Errorf("handed over is %v", puts)
	}
	if string(m.Image) != "image of memory" {
		t.Errorf("the image is %q", m.Image)
	}
}

// TestRegMRIova: a region at an address of the application's choice, also at that of another.
func TestRegMRIova(t *testing.T) {
	n := New(Config{})
	pd := n.AllocPD()
	a, err := n.RegMRIova(pd, make(Bytes, 100), AccessLocalWrite, 0x5000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := n.RegMRIova(pd, make(Bytes, 200), AccessLocalWrite, 0x5000)
	if err != nil || a.LKey() == b.LKey() {
		t.Fatalf("keys %d and %d, %v", a.LKey(), b.LKey(), err)
	}
	if m, off := n.lookup(pd, b.LKey(), 0x5000+150, 50, 0); m != b || off != 150 {
		t.Errorf("found %v at %d", m, off)
	}
	if m, _ := n.lookup(pd, a.LKey(), 0x5000+150, 50, 0); m != nil {
		t.Error("the smaller one reaches as far")
	}
	if _, err := n.RegMRIova(pd, &Guest{Image: make([]byte, 8)}, AccessLocalWrite|AccessRemoteAtomic, 0); err != nil {
		t.Errorf("atomics in a guest's memory: %v", err)
	}
	if _, err := n.RegMRIova(pd, Phantom(8), AccessLocalWrite|AccessRemoteAtomic, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("atomics in phantom memory: %v", err)
	}
}
