// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// TestPackets: a message comes as it was written, none comes of a part of one, and none that is too long or empty goes or comes.
func TestPackets(t *testing.T) {
	a, b := net.Pipe()
	w, r := NewPackets(a), NewPackets(b)
	buf := make([]byte, PacketMax)
	for _, size := range []int{1, 2, 16, 255, 256, PacketMax} {
		want := bytes.Repeat([]byte{byte(size)}, size)
		go func() { _, _ = w.Write(want) }() // the reader sees what is missing
		if n, err := r.Read(buf); err != nil || !bytes.Equal(buf[:n], want) {
			t.Errorf("%d bytes: %d have come, %v", size, n, err)
		}
	}
	for _, size := range []int{0, PacketMax + 1} {
		if n, err := w.Write(make([]byte, size)); n != 0 || err == nil {
			t.Errorf("a message of %d bytes is written: %d, %v", size, n, err)
		}
	}
	for _, wrong := range [][]byte{{}, {0}, {0, 0}, {0, 1}, {0, 3, 1, 2}, {4, 1}, {255, 255}} {
		near, far := net.Pipe()
		go func() { _, _ = near.Write(wrong); _ = near.Close() }() // the reader sees it
		if n, err := NewPackets(far).Read(buf); err == nil {
			t.Errorf("%x is a message of %d bytes", wrong, n)
		}
		_ = far.Close() // nothing is under way
	}
	go func() { _, _ = w.Write(make([]byte, 17)) }() // the reader refuses it
	if n, err := r.Read(make([]byte, 16)); err == nil {
		t.Errorf("a message of 17 bytes gives %d where there is room for 16", n)
	}
}

// TestJoinPackets: messages go both ways, and the end of either end is that of both.
func TestJoinPackets(t *testing.T) {
	for _, first := range []bool{true, false} { // the near end closes first
		a, near := net.Pipe()
		far, b := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			JoinPackets(NewPackets(near), NewPackets(far))
		}()
		user, node := NewPackets(a), NewPackets(b)
		buf := make([]byte, PacketMax)
		for i, way := range [][2]io.ReadWriter{{user, node}, {node, user}, {user, node}} {
			want := bytes.Repeat([]byte{7}, 20+i)
			go func() { _, _ = way[0].Write(want) }() // the reader sees what is missing
			if n, err := way[1].Read(buf); err != nil || !bytes.Equal(buf[:n], want) {
				t.Errorf("message %d: %x, %v", i, buf[:n], err)
			}
		}
		closes, ends := user, node
		if !first {
			closes, ends = node, user
		}
		if err := closes.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := ends.Read(buf); err == nil {
			t.Errorf("the other end goes on: %d bytes", n)
		}
		<-over
		_ = ends.Close() // it has ended
	}
}
