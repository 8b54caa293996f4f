// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAccept: an attempt that fails is made again, after pauses that grow to a second, and logged once
// for each connection that it delayed; a closed listener is the end.
func TestAccept(t *testing.T) {
	mine, theirs := net.Pipe()
	defer mine.Close()
	full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	for _, c := range []struct {
		fails int
		err   error // in the end
		lines int
		wait  time.Duration // the last
	}{{0, nil, 0, 0}, {1, nil, 1, 5 * time.Millisecond}, {20, nil, 1, time.Second}, {0, net.ErrClosed, 0, 0}, {3, net.ErrClosed, 1, 20 * time.Millisecond}} {
		var log strings.Builder
		waits, fails := []time.Duration{0}, c.fails
		got, err := acceptPausing(func() (net.Conn, error) {
			if fails--; fails >= 0 {
				return nil, full
			}
			return theirs, c.err
		}, &log, func(d time.Duration) { waits = append(waits, d) })
		if !errors.Is(err, c.err) || err == nil && got != theirs {
			t.Errorf("%d failures: %v, %v", c.fails, got, err)
		}
		if n := strings.Count(log.String(), "accept4: too many open files: trying again"); n != c.lines || strings.Count(log.String(), "\n") != n {
			t.Errorf("%d failures are told as %q", c.fails, log.String())
		}
		if len(waits) != c.fails+1 || waits[len(waits)-1] != c.wait || !slices.IsSorted(waits) {
			t.Errorf("%d failures: pauses %v", c.fails, waits)
		}
	}
}
