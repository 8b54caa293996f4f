// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// plant puts a copy of a descriptor where another was.
func plant(t *testing.T, fd, at int) {
	t.Helper()
	if err := unix.Dup3(fd, at, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedLoop: calls of all kinds, which continue while a loop is stopped and after that, are
// refused, and do not touch files that have got the numbers of the loop's descriptors since.
func TestStoppedLoop(t *testing.T) {
	for range 20 {
		stoppedLoop(t)
	}
}

func stoppedLoop(t *testing.T) {
	mono, err := NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	link, other := wirePair(t), wirePair(t)
	l, err := New(Config{Mono: mono, IO: []IO{NewPacket(link[0].fd)}, Delays: []vtime.Duration{testDelay}, Rate: Rate{Mono: mono.Now(), Dilation: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ports := l.Ports([]machine.PortConfig{{BitsPerSec: 1e9, Delay: testDelay}})
	nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &ports[0], Pool: l.Pool(), Keys: prng.New(1)})
	l.Start(nic, nil)
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()

	over := make(chan struct{})
	var callers sync.WaitGroup
	var made atomic.Int64
	hammer := func(f func()) {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					f()
					made.Add(1)
					runtime.Gosched()
				}
			}
		})
	}
	more := func(calls int64) { // lets the callers make that many calls more together
		for target := made.Load() + calls; made.Load() < target; {
			runtime.Gosched()
		}
	}
	hammer(func() { l.Call(vtime.Never, func(vtime.Time) {}) })
	hammer(func() { l.SetRate(l.Rate()) })
	hammer(func() { l.SetAlarm(l.Now()) })
	hammer(func() { l.Stats() })
	more(50)
	l.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	kick := l.wait.kick
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	count, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(count)
	if count != kick { // it may have got the number itself
		plant(t, count, kick)
		defer unix.Close(kick)
	}
	plant(t, other[0].fd, link[0].fd)
	if _, err := unix.Write(other[1].fd, []byte("for another link")); err != nil {
		t.Fatal(err)
	}
	more(200)
	if l.Call(vtime.Never, func(vtime.Time) { t.Error("a loop that was stopped does something") }) {
		t.Error("a loop that was stopped says that it did something")
	}
	if _, ok := l.SetRate(l.Rate()); ok {
		t.Error("a loop that was stopped takes a rate")
	}
	close(over)
	callers.Wait()
	var b [32]byte
	if _, err := unix.Read(count, b[:]); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the descriptor of another link was written to (%v)", err)
	}
	if n, err := unix.Read(link[0].fd, b[:]); string(b[:max(n, 0)]) != "for another link" {
		t.Errorf("the message of another link was taken (%v)", err)
	}
}
