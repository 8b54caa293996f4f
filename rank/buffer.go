// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// MemoryKind is the kind of memory behind a buffer.
type MemoryKind string

// Kinds of memory (virtrnic.Memory).
const (
	MemoryBytes   MemoryKind = "bytes"   // real bytes
	MemoryHashed  MemoryKind = "hashed"  // only a hash of the written bytes
	MemoryPhantom MemoryKind = "phantom" // only a length
)

// Buffer is registered memory of a rank.
type Buffer struct {
	r      *Rank
	kind   MemoryKind
	size   uint64
	bytes  virtrnic.Bytes
	hashed *virtrnic.Hashed
	mr     *virtrnic.MR
	freed  bool
	seed   uint64 // names the message that is expected (Expect)
}

// Alloc registers a buffer of n bytes that other ranks may write to and read.
func (r *Rank) Alloc(n int, kind MemoryKind) (*Buffer, error) {
	return r.alloc(n, kind, func(nic *virtrnic.NIC, mem virtrnic.Memory) (*virtrnic.MR, error) {
		return nic.RegMR(r.pd, mem, r.access(kind))
	})
}

// access returns the operations that peers may do on memory of a kind. A job with external
// hosts also allows atomics, which need real bytes.
func (r *Rank) access(kind MemoryKind) virtrnic.AccessFlags {
	if r.c.Peers != nil && kind == MemoryBytes {
		return bufferAccess | virtrnic.AccessRemoteAtomic
	}
	return bufferAccess
}

const bufferAccess = virtrnic.AccessLocalWrite | virtrnic.AccessRemoteWrite | virtrnic.AccessRemoteRead

// alloc makes the memory and registers it with register.
func (r *Rank) alloc(n int, kind MemoryKind, register func(*virtrnic.NIC, virtrnic.Memory) (*virtrnic.MR, error)) (*Buffer, error) {
	b := &Buffer{r: r, kind: kind, size: uint64(n)}
	switch kind {
	case MemoryBytes:
		b.bytes = make(virtrnic.Bytes, n)
	case MemoryHashed:
		b.hashed = virtrnic.NewHashed(uint64(n))
	case MemoryPhantom:
	default:
		return nil, fmt.Errorf("allocate %d bytes: no kind of memory %q", n, kind)
	}
	var err error
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		b.mr, err = r.newMR(register(nic, b.memory()))
	})
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	return b, nil
}

// memory returns the memory of the buffer as the NIC takes it.
func (b *Buffer) memory() virtrnic.Memory {
	switch b.kind {
	case MemoryBytes:
		return b.bytes
	case MemoryHashed:
		return b.hashed
	}
	return virtrnic.Phantom(b.size)
}

// Copy copies n bytes from offset from of src, another buffer of the same rank, to offset to.
// It takes no lab time.
func (b *Buffer) Copy(to int, src *Buffer, from, n int) {
	virtrnic.Copy(b.memory(), uint64(to), src.memory(), uint64(from), n)
}

// Free deregisters the buffer.
func (b *Buffer) Free() error {
	var err error
	b.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = b.r.deregister(nic, b.mr) })
	b.freed = b.freed || err == nil
	return err
}

// Kind returns the kind of memory behind the buffer.
func (b *Buffer) Kind() MemoryKind { return b.kind }

// Len returns the buffer's size.
func (b *Buffer) Len() int { return int(b.size) }

// Bytes returns the contents of real memory (MemoryBytes), and nil for other kinds.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Addr returns the buffer's virtual address.
func (b *Buffer) Addr() uint64 { return b.mr.Addr() }

// RKey returns the key that peers need for WRITEs, READs and atomics.
func (b *Buffer) RKey() uint32 { return b.mr.RKey() }

// Fill writes the first n bytes of the message that seed names.
func (b *Buffer) Fill(seed uint64, n int) {
	switch b.kind {
	case MemoryBytes:
		prng.Fill(b.bytes[:n], seed, 0)
	case MemoryHashed:
		b.hashed.Reset(seed, true)
	}
}

// Expect clears the buffer before the message that seed names is received into it.
func (b *Buffer) Expect(seed uint64, n int) {
	b.seed = seed
	switch b.kind {
	case MemoryBytes:
		clear(b.bytes[:n])
	case MemoryHashed:
		b.hashed.Reset(seed, false)
	}
}

// Digest is the hash that a message of n bytes must have (HashMessage).
type Digest struct{ sum uint64 }

// Bytes returns the digest as bytes that can be published (Rank.Put).
func (d Digest) Bytes() []byte { return binary.BigEndian.AppendUint64(nil, d.sum) }

// DigestOf returns the digest that Bytes has encoded. Malformed bytes give a digest that no
// message has.
func DigestOf(b []byte) Digest {
	if len(b) != 8 {
		return Digest{^uint64(0)}
	}
	return Digest{binary.BigEndian.Uint64(b)}
}

// HashMessage returns the digest of the first n bytes of the message that seed names.
func HashMessage(seed uint64, n int) Digest {
	var buf [1 << 15]byte
	var sum uint64
	for off := 0; off < n; off += len(buf) {
		part := buf[:min(len(buf), n-off)]
		prng.Fill(part, seed, uint64(off))
		sum = wire.HashAdd(sum, wire.HashAt(wire.HashBytes(part), uint64(off)))
	}
	return Digest{sum}
}

// Check reports in ok whether the first n bytes of the buffer are the expected message, whose
// digest is want. known is false for phantom memory, which has no contents to compare.
func (b *Buffer) Check(seed uint64, n int, want Digest) (ok, known bool) {
	switch b.kind {
	case MemoryBytes:
		var part [1 << 12]byte
		for off := 0; off < n; off += len(part) {
			w := part[:min(len(part), n-off)]
			prng.Fill(w, seed, uint64(off))
			if !bytes.Equal(w, b.bytes[off:off+len(w)]) {
				return false, true
			}
		}
		return true, true
	case MemoryHashed:
		sum, complete := b.hashed.Sum(uint64(n))
		return complete && sum == want.sum, true
	}
	return false, false
}

// Flip inverts the byte at an offset, as faulty memory would, so that tests can see that Check
// notices it.
func (b *Buffer) Flip(off int) {
	switch b.kind {
	case MemoryBytes:
		b.bytes[off] ^= 1
	case MemoryHashed:
		b.hashed.Flip(uint64(off))
	}
}

// sge returns the scatter/gather element of n bytes from off on.
func (b *Buffer) sge(off, n int) virtrnic.SGE {
	return virtrnic.SGE{Addr: b.mr.Addr() + uint64(off), Length: uint32(n), LKey: b.mr.LKey()}
}
