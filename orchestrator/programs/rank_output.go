// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Where mpirun's own words go, and those of a rank that it does not have.
const (
	mpirunOut = "mpirun.out"
	mpirunErr = "mpirun.err"
)

// rankOutput divides what mpirun --xml writes into the outputs of the ranks:
//
//	<stdout rank="3">bytes&#010;</stdout><stderr rank="0">more</stderr>
//
// Bytes that are no printable ASCII come as their decimal number, and < > & as lt, gt and amp. So no program can write
// what looks like an element. What stands outside of elements is mpirun's layout.
type rankOutput struct {
	ranks int
	open  func(name string) (*outputFile, error)
	files map[string]*outputFile
	to    *outputFile // of the open element; nil: none is open
	rest  []byte      // the beginning of a tag or of a character's name
}

func newRankOutput(ranks int, open func(name string) (*outputFile, error)) *rankOutput {
	return &rankOutput{ranks: ranks, open: open, files: map[string]*outputFile{}}
}

const (
	tagMax  = 64 // more bytes than the longest tag has
	nameMax = 8  // more bytes than the longest name of a character has
)

// Write implements io.Writer.
func (o *rankOutput) Write(b []byte) (int, error) {
	o.rest = append(o.rest, b...)
	for len(o.rest) > 0 {
		var n int
		var err error
		switch c := o.rest[0]; {
		case c == '<':
			n, err = o.tag()
		case c == '&' && o.to != nil:
			n = o.character()
		default:
			if n = bytes.IndexAny(o.rest, "<&"); n < 0 {
				n = len(o.rest)
			} else if n == 0 { // an & outside
				n = 1
			}
			o.put(o.rest[:n])
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break // the rest is yet to come
		}
		o.rest = o.rest[n:]
	}
	o.rest = bytes.Clone(o.rest)
	return len(b), nil
}

func (o *rankOutput) put(b []byte) {
	if o.to != nil {
		_, _ = o.to.Write(b) // it keeps its error
	}
}

// tag takes the tag at the front and returns its length, 0 if it is not all there.
func (o *rankOutput) tag() (n int, err error) {
	i := bytes.IndexByte(o.rest, '>')
	switch {
	case i < 0 && len(o.rest) < tagMax:
		return 0, nil
	case i < 0 || i >= tagMax: // it is no tag
		o.put(o.rest[:1])
		return 1, nil
	}
	text := string(o.rest[1:i])
	kind, attribute, _ := strings.Cut(text, " ")
	own, ending := mpirunOut, ".out"
	switch kind {
	case "stdout":
	case "stderr":
		own, ending = mpirunErr, ".err"
	default: // the end of an element, or one that holds others
		o.to = nil
		return i + 1, nil
	}
	name := own
	if number, ok := strings.CutPrefix(attribute, `rank="`); ok {
		if r, err := strconv.Atoi(strings.TrimSuffix(number, `"`)); err == nil && r >= 0 && r < o.ranks {
			name = strconv.Itoa(r) + ending
		}
	}
	o.to, err = o.file(name)
	return i + 1, err
}

// character takes the character at the front, which is given by name, and returns the length of the name, 0 if it is
// not all there.
func (o *rankOutput) character() (n int) {
	i := bytes.IndexByte(o.rest, ';')
	if i < 0 && len(o.rest) < nameMax {
		return 0
	}
	if i > 0 && i < nameMax {
		name := string(o.rest[1:i])
		if c, ok := map[string]byte{"lt": '<', "gt": '>', "amp": '&', "quot": '"', "apos": '\''}[name]; ok {
			o.put([]byte{c})
			return i + 1
		}
		if number, ok := strings.CutPrefix(name, "#"); ok {
			if c, err := strconv.ParseUint(number, 10, 8); err == nil {
				o.put([]byte{byte(c)})
				return i + 1
			}
		}
	}
	o.put(o.rest[:1])
	return 1
}

// file returns the file of a name, which it opens when it is first asked for.
func (o *rankOutput) file(name string) (*outputFile, error) {
	if k := o.files[name]; k != nil {
		return k, nil
	}
	k, err := o.open(name)
	if err != nil {
		return nil, fmt.Errorf("divide what mpirun writes: %w", err)
	}
	o.files[name] = k
	return k, nil
}

// close closes all files.
func (o *rankOutput) close() error {
	var errs []error
	for _, k := range o.files { // independent of each other
		errs = append(errs, k.close())
	}
	return errors.Join(errs...)
}
