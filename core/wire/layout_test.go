// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"unsafe"
)

// TestFrameLayout: a frame has two cache lines, of which the first holds the headers of an acknowledgement over IPv4 without a
// tag, and the fields of these lie at multiples of their size.
func TestFrameLayout(t *testing.T) {
	const ip = EthernetLen
	const udp, bth = ip + IPv4Len, ip + IPv4Len + UDPLen
	h := unsafe.Offsetof(Frame{}.h)
	if size := unsafe.Sizeof(Frame{}); size != 128 || h+bth+BTHLen+AETHLen != 64 || firstLine != bth+BTHLen+AETHLen {
		t.Errorf("a frame has %d bytes, its headers begin at byte %d, and %d of them are in the first line", size, h, firstLine)
	}
	for _, f := range []struct {
		name     string
		at, size uintptr
	}{
		{"length and identification", ip + 2, 4}, {"checksum", ip + 10, 2}, {"source", ip + 12, 4}, {"destination", ip + 16, 4},
		{"ports", udp, 4}, {"transport", bth, 8}, {"queue pair", bth + 4, 4}, {"PSN", bth + 8, 4}, {"AETH", bth + BTHLen, 4},
	} {
		if at := h + f.at; at/16 != (at+f.size-1)/16 {
			t.Errorf("%s is in bytes %d to %d, in two pieces of a copy", f.name, at, at+f.size-1)
		}
	}
}
