// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"strings"
)

// mistakesMax is the number of mistakes of a lab file that are reported. After that many the checks
// stop.
const mistakesMax = 20

// Mistakes are the mistakes of a lab file that has several.
type Mistakes struct {
	File string
	all  []*Error // in the order in which they were found
}

// Error returns a line for each mistake, in the order of the file, and one with their number.
func (m *Mistakes) Error() string {
	sorted := slices.Clone(m.all)
	slices.SortStableFunc(sorted, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	var b strings.Builder
	for _, e := range sorted {
		b.WriteString(e.Error() + "\n")
	}
	if len(m.all) < mistakesMax {
		fmt.Fprintf(&b, "%s: %d mistakes", m.File, len(m.all))
	} else {
		fmt.Fprintf(&b, "%s: %d mistakes, and there may be more", m.File, len(m.all))
	}
	return b.String()
}

// Unwrap returns the mistakes, the first that was found first.
func (m *Mistakes) Unwrap() (all []error) {
	for _, e := range m.all {
		all = append(all, e)
	}
	return all
}

// asError returns the mistakes of a file as an error: nil, one *Error, or *Mistakes.
func asError(file string, all []*Error) error {
	for _, e := range all {
		e.File, e.Text = file, shortened(e.Text)
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &Mistakes{File: file, all: all}
}

// Bounds of a message: a value may be as long as a file.
const (
	wordMax = 250
	textMax = 4000
	wordCut = 60 // the rest at both ends
)

// shortened cuts a message's quotation from a file.
func shortened(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		words[i] = cutMiddle(w, wordMax)
	}
	return cutMiddle(strings.Join(words, " "), textMax)
}

// cutMiddle cuts a text that has more than most bytes.
func cutMiddle(s string, most int) string {
	if len(s) <= most {
		return s
	}
	left := wordCut * most / wordMax
	head, tail := strings.ToValidUTF8(s[:left], ""), strings.ToValidUTF8(s[len(s)-left:], "")
	return fmt.Sprintf("%s...(%d bytes)...%s", head, len(s), tail)
}

// part returns the part of a file that a path is of: a section, or an item of one that is a list, such
// as workloads[2]. A part with a mistake is not checked further, nor are parts that depend on it:
// further errors may follow from the mistake alone.
func part(path string) string {
	p, _, _ := strings.Cut(path, ".")
	return p
}

// section returns the section that a part is of.
func section(part string) string {
	s, _, _ := strings.Cut(part, "[")
	return s
}

// spoilt are the parts of a file that have mistakes.
type spoilt map[string]bool

// has reports whether one of the sections has a mistake, in whichever of its items.
func (s spoilt) has(sections ...string) bool {
	for p := range s { // any
		if slices.Contains(sections, section(p)) {
			return true
		}
	}
	return false
}
