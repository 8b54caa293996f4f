// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/window"
)

// Memory that processes share. Every region has one writer, which maps it before it is sealed: from
// then on the kernel refuses other writers and any change of size. The bell is the exception; it only
// ends sleeps, and a process that wakes reads the regions of the others.

// region is mapped shared memory.
type region []byte

// newFile makes the file of a region of the given size.
func newFile(name string, size int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make shared memory %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Truncate(int64(size))
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		_ = f.Close() // the error to report is the first one
		return nil, fmt.Errorf("make shared memory %s: %w", name, err)
	}
	return f, nil
}

// seal makes all mappings from now on read-only, and the seals final.
func seal(f *os.File) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal shared memory %s: %w", f.Name(), err)
	}
	return nil
}

// mapFile maps the file of a region, which must have the given size and be unable to change it.
func mapFile(fd int, size int, write bool) (region, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at shared memory: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&(unix.F_SEAL_SHRINK|unix.F_SEAL_GROW) != unix.F_SEAL_SHRINK|unix.F_SEAL_GROW || st.Size != int64(size) {
		return nil, fmt.Errorf("shared memory of %d bytes with seals %#x is not what a run of this lab has: %d bytes", st.Size, seals, size)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return b, nil
}

func (r region) unmap() error {
	if r == nil {
		return nil
	}
	return unix.Munmap(r)
}

func (r region) i64(off int) *atomic.Int64  { return (*atomic.Int64)(unsafe.Pointer(&r[off])) }
func (r region) u64(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r[off])) }
func (r region) u32(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r[off])) }

// grant is the coordinator's message to one node: the instant up to which it may advance. The
// coordinator writes it.
type grant struct{ region }

const grantSize = 4096

// round is the number of the grant. A node sleeps on it.
func (g grant) round() *atomic.Uint32 { return g.u32(0) }

// bound is the instant before which the node may handle its events.
func (g grant) bound() *atomic.Int64 { return g.i64(8) }

// orders is the number of orders sent to the node. It carries them out before its events.
func (g grant) orders() *atomic.Uint64 { return g.u64(16) }

// step is the kind of step that the node is granted.
func (g grant) step() *atomic.Uint32 { return g.u32(24) }

// look is the latest instant at which programs have resumed after input from outside the lab, 0 if there was none.
func (g grant) look() *atomic.Int64 { return g.i64(32) }

// check is the instant at which programs resume whose condition outside the lab holds, if they are to check it now; 0 if not.
func (g grant) check() *atomic.Int64 { return g.i64(40) }

// floor is the instant before which no frame arrives that the node takes in the round (window.Ledger).
func (g grant) floor() *atomic.Int64 { return g.i64(48) }

// What a node is granted.
const (
	stepAdvance = iota // the events before the bound
	stepMeet           // those, and at the bound itself those that come before the calls of the fault timeline
	stepCall           // plus a window.Verdict: the next of these calls, and then as stepMeet
)

// slot is a node's report to the coordinator. The node writes it.
type slot struct{ region }

// slotHead is the size of a slot without its fields of each port.
const slotHead = 192

func slotSize(ports int) int { return slotHead + 8*ports }

// round is the number of the last grant that the node has used up.
func (s slot) round() *atomic.Uint32 { return s.u32(0) }

// next is the instant of the node's next event, vtime.Never if it has none.
func (s slot) next() *atomic.Int64 { return s.i64(8) }

// last is the instant of the node's last event.
func (s slot) last() *atomic.Int64 { return s.i64(16) }

// words is the number of words that the node has sent.
func (s slot) words() *atomic.Uint64 { return s.u64(24) }

// hops is the number of frames that have arrived at the node.
func (s slot) hops() *atomic.Uint64 { return s.u64(32) }

// now is the instant of the event that the node has handled last.
func (s slot) now() *atomic.Int64 { return s.i64(40) }

// outside is the number of threads of programs on the node that wait for something outside the lab.
func (s slot) outside() *atomic.Uint64 { return s.u64(152) }

// touched counts the actions of programs on the node that others may wait for outside the lab.
func (s slot) touched() *atomic.Uint64 { return s.u64(160) }

// stuck is the number of programs on the node that wait without an end for an action of another
// program.
func (s slot) stuck() *atomic.Uint64 { return s.u64(176) }

// ready reports, by other than 0, that a program could resume at the last check (grant.check).
func (s slot) ready() *atomic.Uint32 { return s.u32(168) }

// first is the instant at which the first of the frames arrives that the node has sent on a port since
// the grant, vtime.Never if it has sent none.
func (s slot) first(port int) *atomic.Int64 { return s.i64(slotHead + 8*port) }

// putCensus sets the contents of the node (stepMeet, stepCall).
func (s slot) putCensus(c *window.Census) {
	bits := uint64(0)
	for i, set := range []bool{c.Awake, c.Registering, c.Open, c.Timed, c.Movable} {
		if set {
			bits |= 1 << i
		}
	}
	for i, v := range []int64{
		int64(bits), int64(c.Waiting), int64(c.Live), int64(c.Flying), int64(c.Pauses), int64(c.FlyingPauses),
		int64(c.Moves), int64(c.Hops), int64(c.Stalled), int64(c.PauseMax), int64(c.PauseLate),
	} {
		s.i64(64 + 8*i).Store(v)
	}
}

// census returns the contents of the node, by its own account.
func (s slot) census() (c window.Census) {
	at := func(i int) int64 { return s.i64(64 + 8*i).Load() }
	bits := at(0)
	c.Awake, c.Registering, c.Open, c.Timed, c.Movable = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0, bits&16 != 0
	c.Waiting, c.Live, c.Flying, c.Pauses, c.FlyingPauses = int(at(1)), int(at(2)), int(at(3)), int(at(4)), int(at(5))
	c.Moves, c.Hops = uint64(at(6)), uint64(at(7))
	c.Stalled, c.PauseMax, c.PauseLate = vtime.Time(at(8)), vtime.Duration(at(9)), vtime.Duration(at(10))
	return c
}

// ring announces the frames that cross a link in one direction: for each of them the instant of its
// arrival and a tag. The frames themselves go through the kernel. The sender writes it.
type ring struct{ region }

const (
	ringEntries = 4096
	ringSize    = 64 + 16*ringEntries
)

// tail is the number of frames sent.
func (r ring) tail() *atomic.Uint64 { return r.u64(0) }

func (r ring) at(i uint64) *atomic.Int64   { return r.i64(64 + int(i%ringEntries)*16) }
func (r ring) tag(i uint64) *atomic.Uint64 { return r.u64(72 + int(i%ringEntries)*16) }

// bell wakes the coordinator. All write it.
type bell struct{ region }

const bellSize = 4096

// running is the number of nodes that have not used up their grants. The coordinator sleeps on it.
func (b bell) running() *atomic.Uint32 { return b.u32(0) }

// sleep waits until the word is no longer v, or for the given time, or returns early.
func sleep(word *atomic.Uint32, v uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	// Unlike RawSyscall it lets the other goroutines of the process run.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, uintptr(v), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// doze is sleep for the one goroutine of a process that sleeps like this. It keeps its processor (GOMAXPROCS):
// else the runtime's monitor wakes up every 20 us to take it away, in each of the lab's processes.
func doze(word *atomic.Uint32, v uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, uintptr(v), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wake ends the sleep of one process on a word.
func wake(word *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1, 1, 0, 0, 0)
}

const never = int64(vtime.Never)
