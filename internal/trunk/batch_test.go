// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// frames returns what is in a batch as it travels, or why it is none.
func frames(b []byte) (links []int, all [][]byte, err error) {
	if len(b) < headerBytes {
		return nil, nil, errShort
	}
	size, n, err := parseHeader((*[headerBytes]byte)(b))
	if err != nil {
		return nil, nil, err
	}
	if b = b[headerBytes:]; len(b) < size {
		return nil, nil, errShort
	}
	b = b[:size:size]
	for range n {
		link, frame, rest, err := parseFrame(b)
		if err != nil {
			return nil, nil, err
		}
		links, all, b = append(links, link), append(all, frame), rest
	}
	if len(b) > 0 {
		return nil, nil, errRest
	}
	return links, all, nil
}

// golden is a batch of two frames.
const golden = "00000012" + "00000002" + "00000003" + "0004" + "01020304" + "00010000" + "0002" + "a5a5"

func twoFrames() *batch {
	b := newBatch()
	b.add(3, []byte{1, 2, 3, 4})
	b.add(1<<16, []byte{0xa5, 0xa5})
	return b
}

// TestGolden: a batch has the bytes that the format says; so has one of no frames.
func TestGolden(t *testing.T) {
	b := twoFrames()
	if got := hex.EncodeToString(b.bytes()); got != golden {
		t.Errorf("a batch is\n%s, want\n%s", got, golden)
	}
	b.reset()
	if got := hex.EncodeToString(b.bytes()); got != strings.Repeat("0", 16) {
		t.Errorf("a batch of no frames is %s", got)
	}
}

// TestRoundTrip: what is written is read.
func TestRoundTrip(t *testing.T) {
	b := newBatch()
	long := bytes.Repeat([]byte{7}, frameMax)
	n := 0
	for ; b.room() >= frameHeader+frameMax; n++ {
		b.add(n, long)
	}
	links, all, err := frames(b.bytes())
	if err != nil || len(all) != n || n < 64 {
		t.Fatalf("%d of %d frames, %v", len(all), n, err)
	}
	for i := range all {
		if links[i] != i || !bytes.Equal(all[i], long) {
			t.Fatalf("frame %d of link %d has %d bytes", i, links[i], len(all[i]))
		}
	}
}

// TestTruncated: no prefix of a batch is one.
func TestTruncated(t *testing.T) {
	whole := twoFrames().bytes()
	for n := range whole {
		if _, _, err := frames(bytes.Clone(whole)[:n:n]); err == nil {
			t.Errorf("%d of %d bytes are a batch", n, len(whole))
		}
		if n < headerBytes {
			continue
		}
		cut := bytes.Clone(whole)[:n:n]
		cut[3] = byte(n - headerBytes) // the header agrees
		if _, _, err := frames(cut); err == nil {
			t.Errorf("%d of %d bytes are a batch whose header says so", n, len(whole))
		}
	}
}

// TestWrong: sizes that no batch has, and bytes that belong to no frame, are refused.
func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"00080001" + "00000000":                                     "a batch of 0 frames in 524289 bytes",
		"00000006" + "00000002":                                     "a batch of 2 frames in 6 bytes",
		"00000006" + "00000001" + "00000001" + "0000":               "a frame of 0 bytes",
		"00000007" + "00000001" + "00000001" + "1101" + "00":        "a frame of 4353 bytes",
		"00000008" + "00000001" + "00000001" + "0001" + "00" + "00": errRest.Error(),
		"00000001" + "00000000" + "00":                              errRest.Error(),
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = frames(b); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestNoAllocations: neither end allocates for a batch.
func TestNoAllocations(t *testing.T) {
	b, frame := newBatch(), make([]byte, 1000)
	if n := testing.AllocsPerRun(100, func() {
		b.reset()
		for k := range 64 {
			b.add(k, frame)
		}
		rest := b.bytes()
		size, n, err := parseHeader((*[headerBytes]byte)(rest))
		if err != nil || size != len(rest)-headerBytes {
			t.Fatal(size, err)
		}
		rest = rest[headerBytes:]
		for range n {
			if _, _, rest, err = parseFrame(rest); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse: what is no batch is refused; what is one is written again as it was.
func FuzzParse(f *testing.F) {
	f.Add(twoFrames().bytes())
	f.Add(make([]byte, headerBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		links, all, err := frames(b)
		if err != nil {
			return
		}
		again, bytesOf := newBatch(), 0
		for i, frame := range all {
			again.add(links[i], frame)
			bytesOf += frameHeader + len(frame)
		}
		if got := again.bytes(); !bytes.Equal(got, b[:headerBytes+bytesOf]) {
			t.Errorf("%x is read, and is written as %x", b, got)
		}
	})
}
