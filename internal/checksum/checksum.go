// SPDX-License-Identifier: Apache-2.0

// Package checksum puts checksums into the files of a run, and verifies them when the files are read again. A disk, a
// copy that was cut short or an editor changes a file; a reader must not take the rest for a result.
//
// The checksum is the CRC-32C (RFC 3720, appendix B.4) of all bytes before it, as eight hexadecimal digits: it finds
// every burst of up to 32 bits, and of other changes all but one in 4 billion. It does not protect from intent.
package checksum

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrNone is the error of a file without a checksum: an older version wrote it, or someone else.
var ErrNone = errors.New("it has no checksum")

// ErrDamaged is wrapped by the error of a file that is not as it was written.
var ErrDamaged = errors.New("it is not as it was written")

// Key is the member of JSON that has the checksum.
const Key = "crc32c"

// What surrounds the eight digits in an object of JSON, and in a text with comments.
const (
	objectEnd   = "\n}\n"
	objectField = ",\n  \"" + Key + "\": \""
	objectClose = "\"" + objectEnd
	comment     = "# " + Key + " of the lines above: "
	digits      = 8
)

// Sum returns the checksum of bytes.
func Sum(b []byte) string { return text(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

func text(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// Object adds a checksum as the last member of an object of JSON, which is indented and not empty. Other texts stay
// as they are.
func Object(b []byte) []byte {
	head, ok := bytes.CutSuffix(b, []byte(objectEnd))
	if !ok {
		return b
	}
	return fmt.Append(bytes.Clone(head), objectField, Sum(b), objectClose)
}

// CheckObject compares an object with its checksum. It returns ErrNone if there is none, or ErrDamaged wrapped.
func CheckObject(b []byte) error {
	head, ok := bytes.CutSuffix(b, []byte(objectClose))
	at := len(head) - digits
	if !ok || at < 0 || !bytes.HasSuffix(head[:at], []byte(objectField)) {
		return ErrNone
	}
	body, sum := append(bytes.Clone(head[:at-len(objectField)]), objectEnd...), string(head[at:])
	return compare(sum, Sum(body))
}

// ReadObject reads an object that is as it was written, or has no checksum, into a value.
func ReadObject(b []byte, v any) error {
	if err := CheckObject(b); err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	return json.Unmarshal(b, v)
}

// Comment adds a checksum as a comment in the last line of a text in which # begins one.
func Comment(b []byte) []byte { return fmt.Append(bytes.Clone(b), comment, Sum(b), "\n") }

// CheckComment is CheckObject for such a text.
func CheckComment(b []byte) error {
	at := len(b) - len(comment) - digits - 1
	if at < 0 || !bytes.HasPrefix(b[at:], []byte(comment)) || b[len(b)-1] != '\n' {
		return ErrNone
	}
	return compare(string(b[at+len(comment):len(b)-1]), Sum(b[:at]))
}

// CutComment returns the text without its checksum, if it is as it was written. One that has no checksum stays as it is.
func CutComment(b []byte) ([]byte, error) {
	switch err := CheckComment(b); {
	case errors.Is(err, ErrNone):
		return b, nil
	case err != nil:
		return nil, err
	}
	return b[:len(b)-len(comment)-digits-1], nil
}

func compare(said, is string) error {
	if said != is {
		return fmt.Errorf("%w: its %s is %s, and that of its content is %s", ErrDamaged, Key, said, is)
	}
	return nil
}

// Lines checks a file of lines while it is read. The last line of the file has the number of the lines before it,
// and their checksum.
type Lines struct {
	sum   uint32
	lines uint64
	ended bool
	err   error
}

// Add takes a line, without its end.
func (l *Lines) Add(line []byte) {
	if l.ended && l.err == nil {
		l.err = fmt.Errorf("%w: it has lines after its end", ErrDamaged)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	l.sum = crc32.Update(crc32.Update(l.sum, table, line), table, []byte{'\n'})
	l.lines++
}

// End compares the added lines with the last line's number and sum; the last line itself must not have been added. An
// older version wrote no sum: then the number counts.
func (l *Lines) End(lines uint64, sum string) error {
	again := l.ended
	l.ended = true
	switch {
	case again:
		l.err = fmt.Errorf("%w: it has two ends", ErrDamaged)
	case lines != l.lines:
		l.err = fmt.Errorf("%w: it has %d lines before its end, which says %d: lines were taken out or put in", ErrDamaged, l.lines, lines)
	case sum == "":
		l.err = ErrNone
	default:
		l.err = compare(sum, text(l.sum))
	}
	return l.err
}

// Ended reports whether there was an end.
func (l *Lines) Ended() bool { return l.ended }

// Err returns the first damage that was found, or ErrNone. For a file without an end it is nil: a run that is
// still running has none.
func (l *Lines) Err() error { return l.err }

// Writer computes the checksum of the bytes written through it.
type Writer struct {
	W   io.Writer
	sum uint32
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.W.Write(b)
	w.sum = crc32.Update(w.sum, crc32.MakeTable(crc32.Castagnoli), b[:n])
	return n, err
}

// Sum returns the checksum of the written bytes.
func (w *Writer) Sum() string { return text(w.sum) }
