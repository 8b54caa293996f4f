// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// readFile returns the text of a file that a lab file names. A lab without a folder, as one that
// came in a message, names none.
func (c *checking) readFile(name string, max int64) ([]byte, error) {
	if c.dir == "" {
		return nil, fmt.Errorf("the lab names file %s, which only a lab file can", name)
	}
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%s is not in the lab file's folder or below it", name)
	}
	text, err := readWithin(c.dir, name, max)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

// readWithin reads a regular file of at most max bytes in a folder or below it. Links are followed as
// long as they stay there: a lab file that another user wrote must not show files that only its reader
// may see.
func readWithin(dir, name string, max int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // nothing was written
	// Without O_NONBLOCK a named pipe is waited for until a process opens its other end.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > max {
		return nil, fmt.Errorf("it is not a text file of at most %d bytes", max)
	}
	return io.ReadAll(io.LimitReader(f, max)) // it may grow meanwhile
}
