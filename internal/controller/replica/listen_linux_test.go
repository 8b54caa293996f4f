// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// said is a log that signals each write.
type said struct {
	first chan struct{}
	once  sync.Once
	n     atomic.Int32
}

// Write implements io.Writer.
func (s *said) Write(b []byte) (int, error) {
	s.n.Add(1)
	s.once.Do(func() { close(s.first) })
	return len(b), nil
}

// TestListensOn: a replica that has run out of file descriptors accepts connections again when
// it has some, and logs once why it did not.
func TestListensOn(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	from, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	log := &said{first: make(chan struct{})}
	n, err := Listen("a", log, func(id, name string) string { return filepath.Join(dir, id+name) })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil { // descriptors that are open stay open
		t.Fatal(err)
	}
	err = unix.Connect(from, &unix.SockaddrUnix{Name: filepath.Join(dir, "a"+nodeapi.PeerSocket)})
	if err == nil {
		select {
		case <-log.first:
		case <-time.After(20 * time.Second):
			t.Error("nothing is said of it")
		}
	}
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); back != nil || err != nil {
		t.Fatal(back, err)
	}
	if _, err := unix.Write(from, []byte{1, 'b'}); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-n.raft.queue:
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection is not taken")
	}
	if got := log.n.Load(); got > 2 { // the other socket may ask at the same time
		t.Errorf("it is logged %d times, want once for each socket", got)
	}
}
