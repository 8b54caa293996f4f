// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// prefixWriter writes whole lines, each with a prefix, so that those of several nodes do not
// mix.
type prefixWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte
}

// Write implements io.Writer.
func (l *prefixWriter) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		if err := l.put(l.rest[:i+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}

func (l *prefixWriter) put(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.w, "%s%s", l.prefix, line)
	return err
}

// end writes a last line that lacks a newline.
func (l *prefixWriter) end() {
	if len(l.rest) > 0 {
		_ = l.put(append(l.rest, '\n')) // the program's own exit code counts
	}
}
