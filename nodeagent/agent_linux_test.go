package nodeagent

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestStreams: an agent says how many streams a connection may have open at once, which the
// server holds it to: HTTP/2 has no limit of its own.
func TestStreams(t *testing.T) {
	a := &agent{}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	s := a.server()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() { s.Stop(); <-ended }()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The preface, and settings of which none is set; the server's settings come first.
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	const settings, maxStreams = 4, 3
	if head[3] != settings {
		t.Fatalf("the server's first frame has type %d", head[3])
	}
	body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	for ; len(body) >= 6; body = body[6:] {
		if binary.BigEndian.Uint16(body) == maxStreams {
			if n := binary.BigEndian.Uint32(body[2:]); n != streamsMax {
				t.Errorf("%d streams are allowed, want %d", n, streamsMax)
			}
			return
		}
	}
	t.Error("any number of streams is allowed")
}
