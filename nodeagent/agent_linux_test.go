// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/rank"
)

// TestStreams: an agent announces the number of streams that a connection may have open, and the server
// enforces it: HTTP/2 has no limit of its own.
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

// nodeDir names the folder of the node that a process of the test is to be.
const nodeDir = "MCASTLAB_TEST_NODE"

// TestBeNode is that process.
func TestBeNode(t *testing.T) {
	dir := os.Getenv(nodeDir)
	if dir == "" {
		t.Skip("it is for tests that need a node's process")
	}
	stuck := rank.Program{Name: "stuck", Run: func(*rank.Rank, []string) error { select {} }}
	idle := rank.Program{Name: "idle", Run: func(*rank.Rank, []string) error { return nil }}
	if err := Serve(t.Context(), dir, "", "test", []rank.Program{stuck, idle}); err != nil {
		t.Fatal(err)
	}
}

// startNode starts it, and returns its number once it takes calls.
func startNode(t *testing.T, dir string) (pid int) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestBeNode$")
	c.Env = append(os.Environ(), nodeDir+"="+dir)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for deadline := time.Now().Add(20 * time.Second); ; {
		if l, err := net.Dial("unix", filepath.Join(dir, nodeapi.AgentSocket)); err == nil {
			_ = l.Close() // it is there
			return c.Process.Pid
		}
		if time.Now().After(deadline) {
			t.Fatal("the node does not start")
		}
	}
}

// TestNoNewPrivileges: no thread of a node, in a build without cgo, can gain by executing something what it does
// not have.
func TestNoNewPrivileges(t *testing.T) {
	pid := startNode(t, t.TempDir())
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	cannot := 0
	for _, path := range threads {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("NoNewPrivs:\t1\n")) {
			cannot++
		}
	}
	// With cgo, as tests usually are and releases are not, one thread cannot speak for all.
	want := len(threads)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); e == syscall.ENOTSUP {
		want = 1
	}
	if cannot < want {
		t.Errorf("of %d threads %d cannot gain privileges, want %d", len(threads), cannot, want)
	}
}
