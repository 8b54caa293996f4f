package nodeagent

import (
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// lines collects what is logged and says when the first line has come.
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

// TestHandoverWithoutFiles: while the agent may open no more files a handover waits, which is
// told once; when it may, the sockets come.
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
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil { // what is open stays open
		t.Fatal(err)
	}
	go func() { takeFiles(l, log, a.replaceSockets); close(ended) }()
	err = unix.Connect(from, &unix.SockaddrUnix{Name: l.Addr().String()})
	if err == nil {
		err = unix.Sendmsg(from, []byte{1}, unix.UnixRights(given), nil, 0)
	}
	if err == nil {
		<-log.first
	}
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); back != nil || err != nil {
		t.Fatal(back, err)
	}
	var done [1]byte
	if n, err := unix.Read(from, done[:]); n != 1 || err != nil {
		t.Errorf("the handover is not confirmed: %d bytes, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	a.replaceSockets(nil)
	log.mu.Lock()
	defer log.mu.Unlock()
	if s := log.text.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "too many open files") {
		t.Errorf("it is told so:\n%.400s", s)
	}
}
