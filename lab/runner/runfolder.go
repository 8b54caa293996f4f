// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Folder is the folder of a run, as it was made: a file or folder that takes its name later is not written to, nor
// the target of a link in it. A run of root may have its folder in one of another user.
type Folder struct {
	root *os.Root
	path string
}

// noFolder is the error of a run folder that cannot be made.
func noFolder(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("make run folder: %w: name another directory with --runs", err)
	}
	return fmt.Errorf("make run folder: %w", err)
}

// makeFolder makes the folder of a run, base/<lab>-<n>, with the next free number. A run never writes into the folder of
// another.
func makeFolder(base, lab string) (*Folder, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, noFolder(err)
	}
	all, err := os.OpenRoot(base)
	if err != nil {
		return nil, fmt.Errorf("make run folder: %w", err)
	}
	defer func() { _ = all.Close() }() // nothing is written through it
	for n := lastNumber(base, lab) + 1; ; n++ {
		name := fmt.Sprintf("%s-%d", lab, n)
		err := all.Mkdir(name, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		var root *os.Root
		if err == nil {
			root, err = all.OpenRoot(name)
		}
		if err != nil {
			return nil, noFolder(err)
		}
		return &Folder{root, filepath.Join(base, name)}, nil
	}
}

// OpenFolder opens a folder that is there.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{root, path}, nil
}

// Path returns the name that the folder was made by.
func (f *Folder) Path() string { return f.path }

// Create makes a file that is not there yet, to be written.
func (f *Folder) Create(name string) (*os.File, error) {
	return f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// MkdirAll makes a folder in the folder.
func (f *Folder) MkdirAll(name string) error { return f.root.MkdirAll(name, 0o755) }

// WriteFile replaces a file atomically: a reader sees the old content or the whole new one.
func (f *Folder) WriteFile(name string, b []byte) error {
	next := name + ".tmp"
	err := f.root.WriteFile(next, b, 0o644)
	if err == nil {
		err = f.root.Rename(next, name)
	}
	if err != nil {
		_ = f.root.Remove(next) // it is not whole; the error is returned
		return fmt.Errorf("write %s: %w", filepath.Join(f.path, name), err)
	}
	return nil
}

// writeJSON is WriteFile of a value, with a checksum.
func (f *Folder) writeJSON(name string, v any) error {
	b, err := encode(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(f.path, name), err)
	}
	return f.WriteFile(name, b)
}
