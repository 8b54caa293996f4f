// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"io"
	"net"
	"testing"
)

// TestJoin: bytes that come in at one end leave at the other, and the end of either is that of both.
func TestJoin(t *testing.T) {
	for _, first := range []bool{true, false} { // the near end closes first
		user, near := net.Pipe()
		far, share := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			Join(near, far)
		}()
		for _, way := range []struct {
			from, to net.Conn
			want     string
		}{{user, share, "ping"}, {share, user, "pong"}} {
			go func() { _, _ = way.from.Write([]byte(way.want)) }() // the reader sees what is missing
			b := make([]byte, len(way.want))
			if _, err := io.ReadFull(way.to, b); err != nil || string(b) != way.want {
				t.Errorf("%q, %v, want %q", b, err, way.want)
			}
		}
		closes, ends := user, share
		if !first {
			closes, ends = share, user
		}
		if err := closes.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := ends.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("the other end goes on: %d bytes, %v", n, err)
		}
		<-over
		_ = ends.Close() // it has ended
	}
}
