// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"errors"
	"testing"
)

// TestRegMRAs: a region at an address and with a key that the application chooses takes
// WRITEs like any other until it is deregistered; keys that are taken or not for choosing,
// and ranges that wrap, are refused.
func TestRegMRAs(t *testing.T) {
	const n, va, key = 5000, 0x4000, ChosenKeys | 0x100
	p := newPair(t, pairOptions{timeout: 6, retry: 7})
	src, sm := p.region(0, n, 3)
	mem := make(Bytes, n)
	const access = AccessLocalWrite | AccessRemoteWrite
	m, err := p.nic[1].RegMRAs(p.pd[1], mem, access, va, key)
	if err != nil || m.Addr() != va || m.RKey() != key {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, c := range []struct {
		addr uint64
		key  uint32
	}{{va, key}, {va, ChosenKeys - 1}, {^uint64(0) - n + 1, key + 1}} {
		if _, err := p.nic[1].RegMRAs(p.pd[1], mem, access, c.addr, c.key); !errors.Is(err, ErrInvalid) {
			t.Errorf("address %#x, key %#x: %v, want %v", c.addr, c.key, err, ErrInvalid)
		}
	}
	if _, err := p.nic[1].RegMRAs(p.pd[1], mem, AccessRemoteWrite, va, key+1); !errors.Is(err, ErrInvalid) {
		t.Errorf("remote write without local write: %v", err)
	}
	w := SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, n), RemoteAddr: va, RKey: key}
	p.post(0, w)
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite, ByteLen: n})
	if !bytes.Equal(mem, src) {
		t.Error("the WRITE did not land")
	}
	if err := p.nic[1].DeregMR(m); err != nil {
		t.Fatal(err)
	}
	if err := p.nic[1].DeregMR(m); !errors.Is(err, ErrKey) {
		t.Errorf("deregistered again: %v, want %v", err, ErrKey)
	}
	p.post(0, w)
	p.run()
	p.want(0, WC{WRID: 1, Status: WCRemAccessErr})
}
