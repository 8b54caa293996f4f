// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
)

const (
	outputMax = 64 << 20 // bytes that are kept of what a program writes to one of its outputs
	tailMax   = 4 << 10  // of which so many are looked at for the last line
	shownMax  = 200      // bytes of that line
)

// outputFile is a file of what a program writes, up to outputMax bytes.
type outputFile struct {
	mu   sync.Mutex
	f    io.WriteCloser
	left int // bytes that it still keeps; -1: it has left out some
	tail []byte
	err  error // why something could not be written
}

// Write implements io.Writer. It discards output beyond the limit, and the program gets no error.
func (k *outputFile) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tail = append(k.tail, b[max(0, len(b)-tailMax):]...); len(k.tail) > tailMax {
		k.tail = bytes.Clone(k.tail[len(k.tail)-tailMax:])
	}
	n := min(len(b), max(0, k.left))
	if n < len(b) && k.left >= 0 { // once
		b := append(bytes.Clone(b[:n]), fmt.Sprintf("\n[mcastlab keeps %d bytes of an output, and leaves out what follows]\n", outputMax)...)
		k.write(b)
		k.left = -1
	} else if n > 0 {
		k.left -= n
		k.write(b)
	}
	return len(b), nil
}

// write writes to the file until that fails.
func (k *outputFile) write(b []byte) {
	if k.err == nil {
		_, k.err = k.f.Write(b)
	}
}

// lastLine returns the last line with a letter or a digit, without what a terminal would not show as text.
func (k *outputFile) lastLine() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for rest := k.tail; len(rest) > 0; {
		i := bytes.LastIndexByte(bytes.TrimRight(rest, "\n"), '\n')
		line := strings.TrimSpace(strings.Map(func(c rune) rune {
			if !unicode.IsPrint(c) {
				return -1
			}
			return c
		}, string(rest[i+1:])))
		if strings.ContainsFunc(line, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }) {
			return strings.ToValidUTF8(line[:min(len(line), shownMax)], "")
		}
		rest = rest[:max(i, 0)]
	}
	return ""
}

// close closes the file, and returns why not all of what was to be kept is in it.
func (k *outputFile) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.err, k.f.Close()); err != nil {
		return fmt.Errorf("keep what a program writes: %w", err)
	}
	return nil
}
