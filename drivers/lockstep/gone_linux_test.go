// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// broken is a connection whose far end is closed.
type broken struct{ net.Conn }

// Close implements net.Conn.
func (b broken) Close() error {
	return errors.Join(b.Conn.Close(), errors.New("tls: failed to send closeNotify alert"))
}

// TestDaemonGone: the error of a server whose connection cannot be closed names the server and the instant.
func TestDaemonGone(t *testing.T) {
	here, there := net.Pipe()
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	c := &Coordinator{shared: &shared{}, far: &far{servers: []*Server{NewServer("m1 (10.0.0.2)", broken{here})}}}
	c.now.Store(2_500_000)
	err := c.Close()
	if err == nil || !strings.HasPrefix(err.Error(), "server m1 (10.0.0.2), at 2.5us of lab time: its daemon has gone before the run ended: ") {
		t.Error(err)
	}
}
