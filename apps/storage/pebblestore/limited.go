// SPDX-License-Identifier: Apache-2.0

package pebblestore

import (
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// limited is a file system that is full after a number of bytes. What is removed makes
// room again.
type limited struct {
	vfs.FS
	mu   sync.Mutex
	left int64
}

// limitedFile is a file that is written to.
type limitedFile struct {
	vfs.File
	fs *limited
}

// Create implements vfs.FS.
func (l *limited) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return &limitedFile{f, l}, nil
}

// ReuseForWrite implements vfs.FS: an old file is not written over, which would take no
// room, but replaced.
func (l *limited) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := l.Remove(old); err != nil {
		return nil, err
	}
	return l.Create(name, category)
}

// Remove implements vfs.FS.
func (l *limited) Remove(name string) error {
	info, err := l.Stat(name)
	if err != nil {
		return err
	}
	if err := l.FS.Remove(name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += info.Size()
	return nil
}

// Write implements vfs.File.
func (f *limitedFile) Write(b []byte) (int, error) {
	f.fs.mu.Lock()
	full := int64(len(b)) > f.fs.left
	if !full {
		f.fs.left -= int64(len(b))
	}
	f.fs.mu.Unlock()
	if full {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}
