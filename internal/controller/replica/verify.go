// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
)

// The log is a bbolt database, which trusts its file: a damaged page makes it panic or loop
// forever. Therefore the structure is verified here first, on the file's bytes: pages, their
// children, and the list of free pages. The values in the pages have checksums of their own
// (sum.go).

// Constants of bbolt's file format.
const (
	boltMagic      = 0xED0CDAED
	boltHeader     = 16 // bytes of a page's header: number, flags, count, overflow
	boltElement    = 16 // bytes of an element's header in a page
	boltMetaSummed = 56 // bytes of a meta page behind its header that its checksum covers
	boltBranch     = 1
	boltLeaf       = 2
	boltFreelist   = 16
	boltBucket     = 1 // flag of an element
	boltNoFreelist = 1<<64 - 1
	boltManyFree   = 1<<16 - 1 // the first number of the page is the count
)

// verifyFile checks the database in a file. A file that does not exist yet is valid.
func verifyFile(name string) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	return verifyBolt(b, os.Getpagesize())
}

// boltFile is a database while it is checked.
type boltFile struct {
	b    []byte
	size uint64          // bytes of a page
	high uint64          // pages from there on have never been used
	seen map[uint64]bool // pages that were met so far, in use or free
	in   string          // the bucket whose pages are being checked; empty: the root bucket
}

// Buckets of raft-boltdb: entries by index, and values by name.
const (
	bucketLogs = "logs"
	bucketConf = "conf"
)

// verifyBolt checks a database whose pages have size bytes.
func verifyBolt(b []byte, size int) error {
	f := &boltFile{b: b, size: uint64(size), seen: map[uint64]bool{0: true, 1: true}}
	root, free, err := f.meta()
	if err != nil {
		return err
	}
	if err := f.tree(root, nil, nil); err != nil {
		return err
	}
	if free != boltNoFreelist {
		if err := f.freelist(free); err != nil {
			return err
		}
		for id := range f.high {
			if !f.seen[id] {
				return fmt.Errorf("page %d is neither used nor free", id)
			}
		}
	}
	return nil
}

// meta reads both meta pages. Both have to be valid: if a damaged newer one were skipped, the
// last write would be lost.
func (f *boltFile) meta() (root, free uint64, err error) {
	newest := uint64(0)
	for id := range uint64(2) {
		from := id*f.size + boltHeader
		if from+boltMetaSummed+8 > uint64(len(f.b)) {
			return 0, 0, errors.New("it is too short")
		}
		m := f.b[from:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:boltMetaSummed]) // it cannot fail
		e := binary.NativeEndian
		if e.Uint32(m) != boltMagic || uint64(e.Uint32(m[8:])) != f.size || e.Uint64(m[boltMetaSummed:]) != sum.Sum64() {
			return 0, 0, fmt.Errorf("its meta page %d does not match its checksum", id)
		}
		if tx := e.Uint64(m[48:]); id == 0 || tx > newest {
			newest, root, free, f.high = tx, e.Uint64(m[16:]), e.Uint64(m[32:]), e.Uint64(m[40:])
		}
	}
	if f.high > uint64(len(f.b))/f.size {
		return 0, 0, errors.New("it is shorter than its meta page says")
	}
	return root, free, nil
}

// take returns the bytes of a page, overflow pages included, and marks them as used. A page
// that was used before is damage.
func (f *boltFile) take(id uint64) (page []byte, flags, count int, err error) {
	bad := func(what string) ([]byte, int, int, error) { return nil, 0, 0, fmt.Errorf("page %d %s", id, what) }
	if id >= f.high {
		return bad("does not exist")
	}
	h, e := f.b[id*f.size:], binary.NativeEndian
	over := uint64(e.Uint32(h[12:]))
	if e.Uint64(h) != id || over >= f.high || id+over >= f.high {
		return bad("has a damaged header")
	}
	for i := range over + 1 {
		if f.seen[id+i] {
			return bad("is used twice")
		}
		f.seen[id+i] = true
	}
	return h[:(over+1)*f.size], int(e.Uint16(h[8:])), int(e.Uint16(h[10:])), nil
}

// tree checks a page and all pages below it. Keys are at least low and below high, unless these
// are nil.
func (f *boltFile) tree(id uint64, low, high []byte) error {
	page, flags, count, err := f.take(id)
	if err != nil {
		return err
	}
	return f.elements(id, page, flags, count, low, high)
}

// elements checks the elements of a page of a tree, or of a bucket that is stored inline in
// another's page.
func (f *boltFile) elements(id uint64, page []byte, flags, count int, low, high []byte) error {
	damaged := fmt.Errorf("page %d is damaged", id)
	if flags != boltBranch && flags != boltLeaf || boltHeader+count*boltElement > len(page) || flags == boltBranch && count == 0 {
		return damaged
	}
	e := binary.NativeEndian
	keys, values, kinds := make([][]byte, count), make([][]byte, count), make([]uint64, count)
	for i := range count {
		el := page[boltHeader+i*boltElement:]
		at, key, value := uint64(e.Uint32(el)), uint64(e.Uint32(el[4:])), uint64(0)
		kinds[i] = e.Uint64(el[8:]) // in a branch page this is the number of the page below
		if flags == boltLeaf {
			kinds[i] = uint64(e.Uint32(el))
			at, key, value = uint64(e.Uint32(el[4:])), uint64(e.Uint32(el[8:])), uint64(e.Uint32(el[12:]))
		}
		if room := uint64(len(el)); at < boltElement || at > room || key > room-at || value > room-at-key {
			return damaged
		}
		keys[i], values[i] = el[at:at+key], el[at+key:at+key+value]
		under := low != nil && flags == boltLeaf && bytes.Compare(keys[i], low) < 0
		over := high != nil && bytes.Compare(keys[i], high) >= 0
		if under || over || i > 0 && bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return damaged
		}
	}
	for i := range count {
		switch {
		case flags == boltBranch:
			next := high
			if i+1 < count {
				next = keys[i+1]
			}
			if err := f.tree(kinds[i], keys[i], next); err != nil {
				return err
			}
		case f.in == "" && kinds[i] == boltBucket && (string(keys[i]) == bucketLogs || string(keys[i]) == bucketConf):
			f.in = string(keys[i])
			if err := f.bucket(id, values[i]); err != nil {
				return err
			}
			f.in = ""
		case f.in == bucketLogs && kinds[i] == 0 && len(keys[i]) == 8:
		case f.in == bucketConf && kinds[i] == 0:
			if _, err := unsealValue(keys[i], values[i]); err != nil {
				return fmt.Errorf("value %q: %w", keys[i], err)
			}
		default:
			return damaged
		}
	}
	return nil
}

// bucket checks a bucket: its pages, or the page in its value if it is stored inline.
func (f *boltFile) bucket(id uint64, v []byte) error {
	e := binary.NativeEndian
	if len(v) < 16 {
		return fmt.Errorf("page %d is damaged", id)
	}
	if root := e.Uint64(v); root != 0 {
		return f.tree(root, nil, nil)
	}
	page := v[16:]
	if len(page) < boltHeader || e.Uint16(page[8:]) != boltLeaf {
		return fmt.Errorf("page %d is damaged", id)
	}
	return f.elements(id, page, boltLeaf, int(e.Uint16(page[10:])), nil, nil)
}

// freelist checks the list of free pages.
func (f *boltFile) freelist(id uint64) error {
	page, flags, count, err := f.take(id)
	if err != nil {
		return err
	}
	e, list := binary.NativeEndian, page[boltHeader:]
	n := uint64(count)
	if n == boltManyFree {
		n, list = e.Uint64(list), list[8:]
	}
	if flags != boltFreelist || n > uint64(len(list)/8) {
		return fmt.Errorf("page %d is not a list of free pages", id)
	}
	for i := range n {
		free := e.Uint64(list[i*8:])
		if free >= f.high || f.seen[free] {
			return fmt.Errorf("page %d is free and in use", free)
		}
		f.seen[free] = true
	}
	return nil
}
