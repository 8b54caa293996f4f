// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of waiting.
const (
	// spinNs is the time before a deadline at which the loop stops sleeping: a sleep ends some 20 to 60
	// us late.
	spinNs = 15_000
	// rawNs is the longest wait in which the thread keeps its place in Go's scheduler. Waking such a
	// thread costs a sixth, with dozens of processes on a core.
	rawNs = 50_000_000
)

// waiter sleeps until a frame arrives, it is woken, or a deadline has come.
type waiter struct {
	fds  []unix.PollFd
	kick int // eventfd

	mu   sync.Mutex // protects the fields below
	gone bool       // closed: the descriptor number may have been reused
}

func newWaiter(fds []int) (*waiter, error) {
	k, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	w := &waiter{kick: k}
	for _, fd := range append([]int{k}, fds...) {
		w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return w, nil
}

// sharpen makes the sleeps of the calling thread end on time and not up to 50 us later.
func sharpen() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}

// wait sleeps for at most ns; a negative ns means without limit. It may return early for any
// reason.
func (w *waiter) wait(ns int64) {
	ts := unix.NsecToTimespec(max(ns, 0))
	p := unsafe.Pointer(&ts)
	if ns < 0 {
		p = nil
	}
	for i := range w.fds {
		w.fds[i].Revents = 0
	}
	if ns >= 0 && ns < rawNs {
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds[0])), uintptr(len(w.fds)), uintptr(p), 0, 0, 0)
	} else {
		_, _, _ = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds[0])), uintptr(len(w.fds)), uintptr(p), 0, 0, 0)
	}
	if w.fds[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(w.kick, b[:]) // clears the eventfd
	}
}

// wake ends the current wait, or else the next one.
func (w *waiter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return
	}
	b := [8]byte{1}
	_, _ = unix.Write(w.kick, b[:]) // a full eventfd means that a wake is pending already
}

func (w *waiter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	return unix.Close(w.kick)
}
