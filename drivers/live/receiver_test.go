// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReceiverShared: the ports of a node receive into the same memory, and each delivers its own frames whole,
// however many the others had and however long those were.
func TestReceiverShared(t *testing.T) {
	var r Receiver
	const ports = 3
	var in [ports]*Packet
	var out [ports]int
	for i := range in {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		in[i], out[i] = r.NewPacket(fds[0]), fds[1]
		defer func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) }()
		if in[i].packetInbox != in[0].packetInbox {
			t.Fatalf("port %d receives into memory of its own: a switch of 64 ports would take 19 MB", i)
		}
	}
	early := r.trains != nil
	if one, two := r.NewTrains(-1), r.NewTrains(-1); early || one.trainInbox != two.trainInbox {
		t.Error("memory for trains is there before it is needed, or not shared")
	}
	for round, sizes := range [][ports]int{{4000, 60, 1}, {60, 4000, 60}, {1, 0, frameBytesMax - 8}} {
		for i, fd := range out {
			for k := range 3 - i {
				if _, err := unix.Write(fd, bytes.Repeat([]byte{byte(16*round + 4*i + k)}, sizes[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range in {
			k := 0
			n, err := in[i].Receive(func(_ int64, b []byte) {
				if want := bytes.Repeat([]byte{byte(16*round + 4*i + k)}, sizes[i]); !bytes.Equal(b, want) {
					t.Errorf("round %d, port %d: frame %d has %d bytes that begin with %x; %d were sent", round, i, k, len(b), b[:min(4, len(b))], len(want))
				}
				k++
			})
			if n != 3-i || k != n || err != nil {
				t.Errorf("round %d, port %d: %d frames, %d delivered: %v", round, i, n, k, err)
			}
		}
	}
}
