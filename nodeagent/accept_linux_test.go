// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// lines collects log lines and signals the first one.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	first chan struct{}
	once  sync.Once
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.once.Do(func() { close(l.first) })
	return l.text.Write(b)
}

// withoutFiles does something while this process may open no more files; what is open stays open.
func withoutFiles(t *testing.T, do func() error) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	err := do()
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); back != nil || err != nil {
		t.Fatal(back, err)
	}
}

// toldOnce checks that a lack of files is logged, once.
func (l *lines) toldOnce(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.text.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "too many open files") {
		t.Errorf("it is told so:\n%.400s", s)
	}
}

// TestHandoverWithoutFiles: while the agent may open no more files a handover waits, which is logged
// once; when it may, the sockets arrive.
func TestHandoverWithoutFiles(t *testing.T) {
	l, err := listen(t.TempDir(), "s")
	if err != nil {
		t.Fatal(err)
	}
	a, log := &agent{}, &lines{first: make(chan struct{})}
	ended := make(chan struct{})
	given, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(given)
	from, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	withoutFiles(t, func() error {
		go func() { takeFiles(l, log, a.replaceSockets); close(ended) }()
		err := unix.Connect(from, &unix.SockaddrUnix{Name: l.Addr().String()})
		if err == nil {
			err = unix.Sendmsg(from, []byte{1}, unix.UnixRights(given), nil, 0)
		}
		if err == nil {
			<-log.first
		}
		return err
	})
	var done [1]byte
	if n, err := unix.Read(from, done[:]); n != 1 || err != nil {
		t.Errorf("the handover is not confirmed: %d bytes, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	a.replaceSockets(nil)
	log.toldOnce(t)
}

// TestProgramsWithoutFiles: while programs have all descriptors of the node's process, one that comes waits; it is served when
// they have given some back.
func TestProgramsWithoutFiles(t *testing.T) {
	l, err := listenPrograms(t.TempDir(), "s")
	if err != nil {
		t.Fatal(err)
	}
	a, log := &agent{}, &lines{first: make(chan struct{})} // without a NIC: it closes its connections
	ended := make(chan struct{})
	from, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	withoutFiles(t, func() error {
		go func() { a.takePrograms(l, log); close(ended) }()
		err := unix.Connect(from, &unix.SockaddrUnix{Name: l.Addr().String()})
		if err == nil {
			<-log.first
		}
		return err
	})
	select {
	case <-ended:
		t.Error("no program is taken any more")
	default:
		var b [1]byte
		if n, err := unix.Read(from, b[:]); n != 0 || err != nil { // taken, and closed
			t.Errorf("read %d bytes: %v", n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	log.toldOnce(t)
}
