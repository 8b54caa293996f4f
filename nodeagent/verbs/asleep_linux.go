// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// A thread may have its turn and sleep in the kernel in a call that it has not announced: a read of stdio's, an open of a FIFO, a futex by its
// number. It keeps all others waiting, one of which may be the one that it waits for. So the node checks a thread that keeps its turn: one that
// sleeps is put among those that wait, and the next has its turn. When it is awake again it runs beside no other: no thread has a turn, and no lab
// time passes, until it sleeps, waits or ends. Its calls of the library take place in a turn that it asks for.
//
// The instant of the check depends on the server, but its result does not: while no other thread runs, a thread that waits for one of them sleeps
// until the node has seen it, however long that takes.

// Waits on the wall clock.
const (
	firstLook  = 200 * time.Microsecond // at a thread that keeps its turn; each further look is twice as late
	lastLook   = 5 * time.Millisecond
	asleepWait = 20 * time.Millisecond // for a call that may wait for the server, and not for a program
)

// sight is the node's view of a thread in the kernel. Calls of it do not wait for the program.
type sight struct {
	seat, folder              int // descriptors: of its page (v_seat), and of its folder of procfs
	stat, sched, syscall, acc int // of files in that; syscall and acc are -1 where they may not be read
	served                    [2]uint64
	last                      glimpse
	since                     time.Time // of the first of looks in a row at which it slept
	wrote                     string    // calls that write, when it last waited
	heard                     uint64    // messages of the thread
}

// glimpse is the result of one look at a thread.
type glimpse struct {
	asleep bool
	ran    string // for how long it has run since it began
	call   string // the system call in which it sleeps, with arguments; empty if unknown
}

// newSight takes over the descriptors of a thread's page and of its folder of procfs.
func newSight(seat, folder int) (_ *sight, err error) {
	v := &sight{seat: seat, folder: folder, stat: -1, sched: -1, syscall: -1, acc: -1}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if seals, err := unix.FcntlInt(uintptr(seat), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("the page of a thread can shrink: %w", unix.EINVAL)
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(folder, &s); err != nil || s.Type != unix.PROC_SUPER_MAGIC {
		return nil, fmt.Errorf("the folder of a thread is not of procfs: %w", unix.EINVAL)
	}
	for name, fd := range map[string]*int{"stat": &v.stat, "schedstat": &v.sched, "syscall": &v.syscall, "io": &v.acc} { // independent of each other
		if *fd, err = unix.Openat(folder, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err != nil {
			*fd = -1
		}
	}
	if v.stat < 0 || v.sched < 0 {
		return nil, fmt.Errorf("the folder of a thread is another: %w", unix.EINVAL)
	}
	if b := pread(seat, seatLen); len(b) == seatLen {
		v.served = [2]uint64{binary.NativeEndian.Uint64([]byte(b[seatServed:])), binary.NativeEndian.Uint64([]byte(b[seatServed+8:]))}
	}
	runtime.SetFinalizer(v, (*sight).close) // the last of a run's threads may end after the last turn
	return v, nil
}

func (v *sight) close() {
	for _, fd := range []*int{&v.seat, &v.folder, &v.stat, &v.sched, &v.syscall, &v.acc} {
		if *fd >= 0 {
			_ = unix.Close(*fd) // it was only read
		}
		*fd = -1
	}
}

// pread returns the first bytes of a file, up to n; nothing if it cannot be read, as that of a thread that has ended.
func pread(fd, n int) string {
	if fd < 0 {
		return ""
	}
	b := make([]byte, n)
	k, err := unix.Pread(fd, b, 0)
	if err != nil || k < 0 {
		return ""
	}
	return string(b[:k])
}

// hears counts a message of the thread.
func (x *thread) hears() {
	if x.sight != nil {
		x.sight.heard++
	}
}

// look returns the present state of the thread. Its work within the library is part of its turn.
func (v *sight) look() (g glimpse) {
	b := []byte(pread(v.seat, seatLen))
	if len(b) < seatLen || binary.NativeEndian.Uint32(b[seatBusy:]) != 0 || binary.NativeEndian.Uint64(b[seatSaid:]) != v.heard {
		return g // its last message, such as the start of a process, is still on its way
	}
	g.ran, _, _ = strings.Cut(pread(v.sched, 128), " ")
	stat := pread(v.stat, 512)
	if i := strings.LastIndexByte(stat, ')'); g.ran == "" || i < 0 || i+2 >= len(stat) || !strings.ContainsRune("STt", rune(stat[i+2])) {
		return g // it runs, waits for a disk, or has ended
	}
	g.call = strings.TrimSpace(pread(v.syscall, 256))
	if g.call == "running" {
		return g
	}
	g.asleep = !v.byItself(g.call)
	return g
}

// call returns the number of a system call and its arguments, from procfs, and false if procfs has none.
func call(text string) (nr int, args []uint64, ok bool) {
	f := strings.Fields(text)
	if len(f) < 7 {
		return 0, nil, false
	}
	nr, err := strconv.Atoi(f[0])
	if err != nil {
		return 0, nil, false
	}
	for _, s := range f[1:7] {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
		if err != nil {
			return 0, nil, false
		}
		args = append(args, n)
	}
	return nr, args, true
}

// byItself reports whether a call ends without another program: a sleep on the wall clock, a wait with a time-out, or a write to a file
// that the server reads.
func (v *sight) byItself(text string) bool {
	nr, a, ok := call(text)
	if !ok {
		return false
	}
	switch nr {
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP:
		return true
	case unix.SYS_FUTEX:
		const wait, waitBitset, private = 0, 9, 0x180
		op := a[1] &^ private
		return (op == wait || op == waitBitset) && a[3] != 0
	case unix.SYS_PPOLL:
		return a[2] != 0
	case unix.SYS_PSELECT6:
		return a[4] != 0
	case unix.SYS_EPOLL_PWAIT:
		return int32(a[3]) >= 0
	case unix.SYS_RT_SIGTIMEDWAIT:
		return a[2] != 0
	case unix.SYS_WRITE, unix.SYS_WRITEV:
		link := make([]byte, 64)
		n, err := unix.Readlinkat(v.folder, fmt.Sprintf("fd/%d", a[0]), link)
		return err == nil && slices.ContainsFunc(v.served[:], func(ino uint64) bool { return ino != 0 && string(link[:n]) == fmt.Sprintf("pipe:[%d]", ino) })
	}
	return timedCall(nr, a)
}

// forPrograms are calls that wait for other programs, and hardly ever for the server.
var forPrograms = []int{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_OPENAT,
	unix.SYS_FUTEX, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_FLOCK,
}

// settledIn reports whether a thread that sleeps as it did at the look before, since then, may be taken to wait for another program.
func (v *sight) settledIn(g glimpse, now time.Time) bool {
	if nr, _, ok := call(g.call); ok && slices.Contains(forPrograms, nr) {
		return true
	}
	return now.Sub(v.since) > asleepWait
}

// sleeps reports whether a thread that keeps its turn sleeps for others.
func (v *sight) sleeps(now time.Time) bool {
	before := v.last
	v.last = v.look()
	if !v.last.asleep || v.last != before {
		v.since = now
		return false
	}
	return v.settledIn(v.last, now)
}

// mark records in the thread's page whether its turn was passed on.
func (v *sight) mark(asleep bool) {
	var b [4]byte
	if asleep {
		b[0] = 1
	}
	_, _ = unix.Pwrite(v.seat, b[:], seatAsleep) // a page that cannot be written to is the program's own damage
}

// hasWritten reports whether the thread has written to something since it was last asked for, by any call that the kernel counts.
func (v *sight) hasWritten() bool {
	b := []byte(pread(v.acc, 512))
	_, rest, ok := bytes.Cut(b, []byte("syscw: "))
	if !ok {
		return false
	}
	n, _, _ := bytes.Cut(rest, []byte("\n"))
	before := v.wrote
	v.wrote = string(n)
	return v.wrote != before
}

// observe checks the threads that run, and puts those that sleep in the kernel among those that wait.
func (p *Program) observe() {
	now := time.Now()
	for _, x := range p.threads {
		if x.parked || x.sight == nil || !x.sight.sleeps(now) {
			continue
		}
		x.sight.mark(true)
		if g := x.sight.look(); g != x.sight.last { // it was woken before it could see the mark
			x.sight.mark(false)
			continue
		}
		began := x.park.Kind == parkKernel
		p.order.parked(&x.waiter, park{Kind: parkKernel, Until: uint64(vtime.Never)}, p.t.now(p), p.t.news())
		if !began {
			x.slept = x.number
		}
		p.t.touched++ // its earlier activity is not known
	}
}

// wake looks whether threads that slept in the kernel are awake, which then run. It reports whether there are any.
func (p *Program) wake() (any bool) {
	for _, x := range p.threads {
		if !x.parked || x.park.Kind != parkKernel {
			continue
		}
		if g := x.sight.look(); g != x.sight.last {
			x.parked, any = false, true
		}
	}
	return any
}
