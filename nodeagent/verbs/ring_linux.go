// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the fields of a ring's header are.
const (
	ringHead    = 0
	ringTail    = 64
	ringArmed   = 128
	ringStarved = 132
)

// ring is one direction of the messages between a program and the NIC: a header and entries, a power of
// two of them. Its memory is shared, so any value read from it may be wrong, and change between two
// reads.
type ring struct {
	mem     []byte
	entries uint64
	size    int // of an entry
}

// ringEntries returns the number of entries of a ring for n.
func ringEntries(n uint32) uint64 { return 1 << bits.Len32(max(n, 2)-1) }

func ringBytes(entries uint64, size int) int { return ringHeader + int(entries)*size }

// share returns memory of n bytes and a descriptor of it, which the caller closes. It is sealed:
// it cannot be made shorter under the NIC's feet.
func share(n int) (mem []byte, fd int, err error) {
	if fd, err = unix.MemfdCreate("mcastlab-verbs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return nil, 0, fmt.Errorf("make shared memory: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err == nil {
			mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, 0, fmt.Errorf("make %d bytes of shared memory: %w", n, err)
	}
	return mem, fd, nil
}

func (r *ring) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&r.mem[at])) }
func (r *ring) half(at int) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[at])) }
func (r *ring) head() uint64        { return atomic.LoadUint64(r.word(ringHead)) }
func (r *ring) tail() uint64        { return atomic.LoadUint64(r.word(ringTail)) }
func (r *ring) setHead(head uint64) { atomic.StoreUint64(r.word(ringHead), head) }
func (r *ring) setTail(tail uint64) { atomic.StoreUint64(r.word(ringTail), tail) }

// giveBack moves the tail, if it does not stand there: the program's processor keeps its cached line.
func (r *ring) giveBack(tail uint64) {
	if r.tail() != tail {
		r.setTail(tail)
	}
}

func (r *ring) entry(i uint64) []byte { return r.mem[ringHeader+int(i&(r.entries-1))*r.size:][:r.size] }

// waiting returns the number of entries that the program has posted beyond tail. A number beyond the
// ring's size is false, and nothing is taken.
func (r *ring) waiting(tail uint64) uint64 {
	if n := r.head() - tail; n <= r.entries {
		return n
	}
	return 0
}

// starve has the program ring when it has made room.
func (r *ring) starve() { atomic.StoreUint32(r.half(ringStarved), 1) }

// fire reports whether a completion raises an event, and disarms the ring if it does.
func (r *ring) fire(solicited bool) bool {
	for {
		armed := atomic.LoadUint32(r.half(ringArmed))
		if armed == 0 || armed == 1 && !solicited {
			return false
		}
		if atomic.CompareAndSwapUint32(r.half(ringArmed), armed, 0) {
			return true
		}
	}
}
