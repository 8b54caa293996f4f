// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestCollapse: a heap of some megabytes is in huge pages afterwards, if the kernel has any, and its
// content is the same.
func TestCollapse(t *testing.T) {
	const n = 16 << 20
	b := make([]byte, n)
	for i := 0; i < n; i += 512 {
		b[i] = byte(i >> 9)
	}
	able := collapse(func() bool { return false })
	for i := 0; i < n; i += 512 {
		if b[i] != byte(i>>9) {
			t.Fatalf("byte %d is %d, want %d", i, b[i], byte(i>>9))
		}
	}
	if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil && !able && !strings.Contains(string(mode), "[never]") {
		t.Errorf("the kernel has huge pages (%s), and the heap got none", strings.TrimSpace(string(mode)))
	}
}

// TestAnonymous: of the lines of /proc/self/maps those count that are memory of the process alone.
func TestAnonymous(t *testing.T) {
	for line, want := range map[string][2]uint64{
		"3109f9c00000-310a04000000 rw-p 00000000 00:00 0 ":                      {0x3109f9c00000, 0x310a04000000},
		"3109f8000000-3109f9c00000 ---p 00000000 00:00 0 ":                      {},
		"0058f000-0059a000 rw-p 0018f000 fe:00 10002626           /tmp/program": {},
		"00400000-004ac000 r-xp 00000000 fe:00 10002626           /tmp/program": {},
		"": {},
	} {
		from, to, ok := anonymous(line)
		if got := [2]uint64{from, to}; ok != (want != [2]uint64{}) || ok && got != want {
			t.Errorf("%q: %#x, %v; want %#x", line, got, ok, want)
		}
	}
}

// TestGrown: a small heap is left alone, and so is that of a simulation that may soon be over; one that has grown is looked after once.
func TestGrown(t *testing.T) {
	var k Keeper
	b := make([]byte, hugeFrom)
	k.Grown()
	if k.seen > 0 {
		t.Errorf("a heap of %d bytes has been moved at once", k.seen)
	}
	k.began = k.began.Add(-time.Hour)
	k.Grown()
	if k.seen < hugeFrom {
		t.Errorf("a heap of %d bytes and more was seen as %d", len(b), k.seen)
	}
	before := k.seen
	k.Grown()
	if k.seen > before+before/4 {
		t.Errorf("a heap that has not grown was %d bytes, and is %d", before, k.seen)
	}
	k.Done()
	b[0] = 1
}
