// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDescriptors: two endpoints over a pair of sequenced-packet sockets, which behave as
// a tap device does: a descriptor, one frame per read.
func TestDescriptors(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ca, cb := configs()
	ca.Timeout, cb.Timeout = time.Minute, time.Minute // a slow machine is not loss
	a, b := start(t, ca, os.NewFile(uintptr(fds[0]), "a")), start(t, cb, os.NewFile(uintptr(fds[1]), "b"))
	converse(t, 5, a, b, 4096)
	if err := a.Write(t.Context(), []byte("over"), cb.VA+9, cb.RKey); err != nil {
		t.Error(err)
	}
	if got := make([]byte, 4); b.ReadMemory(got, cb.VA+9) != 4 || string(got) != "over" {
		t.Errorf("memory %q", got)
	}
	for _, p := range []*Peer{a, b} {
		if s := p.Stats(); s.Retransmitted+s.Timeouts+s.ICRCErrors != 0 || len(s.Rejects) != 0 {
			t.Errorf("%+v", s)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
