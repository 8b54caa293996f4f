// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// blocksOf returns the blocks of a pcapng file.
func blocksOf(t *testing.T, name string) (blocks []string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		if len(b) < 12 || int(binary.LittleEndian.Uint32(b[4:])) > len(b) {
			t.Fatalf("%s: its last block is cut", name)
		}
		n := binary.LittleEndian.Uint32(b[4:])
		blocks, b = append(blocks, string(b[:n])), b[n:]
	}
	return blocks
}

// packetsOf returns the packets of a capture.
func packetsOf(t *testing.T, name string) (all [][]byte) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, _, err := c.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
}
