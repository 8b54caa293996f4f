// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Bounds of a lab file: it is not trusted.
const (
	fileBytesMax = 1 << 20
	depthMax     = 32
	keysMax      = 1000 // of one mapping on lines of its own, and empty items; the parser takes time with their square
)

// Error is a mistake in a lab file.
type Error struct {
	File         string
	Line, Column int // from 1; 0: the file as a whole
	Text         string
}

// Error returns file:line:column: text.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Reader reads lab files for a binary that has these programs of the user's own; nil: a
// lab may name any.
type Reader struct {
	Programs []string
	// Broadcasts are those that may stand as program:NAME among the schemes of a broadcast; nil:
	// any.
	Broadcasts []string
	Expect     bool // refuse lines of expect about quantities that no run of the lab measures
}

// Read reads and checks a lab file that may name any program.
func Read(file string) (*Lab, error) { return Reader{}.Read(file) }

// Parse is Read of the text of a lab file; file names it in messages.
func Parse(file string, text []byte) (*Lab, error) { return Reader{}.Parse(file, text) }

// Read reads and checks a lab file. What is wrong with the file is an *Error or *Mistakes, which
// unwrap to it; a file that cannot be read is another error.
func (r Reader) Read(file string) (*Lab, error) {
	l, _, err := r.ReadPoints(file)
	return l, err
}

// readFile returns the text of a lab file.
func readFile(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer does not hold it up
	if err != nil {
		return nil, fmt.Errorf("read lab file: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read lab file: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("read lab file %s: it is a directory", file)
	case !info.Mode().IsRegular():
		return nil, &Error{File: file, Text: "it is a device, a pipe or a socket, not a lab file; what a program writes is read with -, from standard input"}
	case info.Size() > fileBytesMax:
		return nil, &Error{File: file, Text: fmt.Sprintf("%d bytes are more than a lab file may have (%d)", info.Size(), fileBytesMax)}
	}
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read lab file: %w", err)
	}
	return text, nil
}

// Parse reads and checks the text of a lab file; file names it in messages. A file with one
// mistake gives an *Error, one with several *Mistakes.
func (r Reader) Parse(file string, text []byte) (*Lab, error) {
	l, _, err := r.ParsePoints(file, text)
	return l, err
}

// ParsePoints is Parse that also returns the points of the lab's sweep, in order; nil: it has none.
func (r Reader) ParsePoints(file string, text []byte) (*Lab, []Point, error) {
	l, points, mistakes := r.parse(filepath.Dir(file), text)
	if len(mistakes) > 0 {
		return nil, nil, asError(file, mistakes)
	}
	return l, points, nil
}

// parse reads the text of a lab file of a folder.
func (r Reader) parse(dir string, text []byte) (*Lab, []Point, []*Error) {
	body, e := parseBody(text)
	if e != nil {
		return nil, nil, []*Error{e}
	}
	var l Lab
	setDefaults(reflect.ValueOf(&l).Elem())
	b := &binder{at: map[string]pos{}, spoilt: spoilt{}}
	b.bind("", body, reflect.ValueOf(&l).Elem())
	mistakes := l.check(dir, b, r)
	if len(mistakes) > 0 || l.Sweep == nil {
		return &l, nil, mistakes
	}
	s := &sweeping{r: r, dir: dir, body: body, s: l.Sweep, at: b.at}
	points, mistakes := s.points()
	return &l, points, mistakes
}

// parseBody returns the mapping that a lab file is.
func parseBody(text []byte) (ast.Node, *Error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // the byte order mark that editors on Windows write
	if len(text) > fileBytesMax {
		return nil, &Error{Text: fmt.Sprintf("%d bytes are more than a lab file may have (%d)", len(text), fileBytesMax)}
	}
	if line, col := findTab(text); line > 0 {
		return nil, &Error{Line: line, Column: col, Text: "a tab indents the line: YAML wants spaces"}
	}
	if line := tooDeep(text); line > 0 {
		return nil, &Error{Line: line, Column: 1, Text: fmt.Sprintf("more than %d levels of nesting", depthMax)}
	}
	if line := tooMany(text); line > 0 {
		return nil, &Error{Line: line, Column: 1, Text: fmt.Sprintf("more than %d keys of one mapping, or items without a value: no lab file has so many", keysMax)}
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, syntaxError(err, text)
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, &Error{Line: d.Body.GetToken().Position.Line, Column: 1, Text: "a second document: a lab file has one"}
		}
		body = d.Body
	}
	if body == nil {
		return nil, &Error{Text: "the file is empty: it needs at least name, topology and workloads"}
	}
	return body, nil
}

// findTab returns the position of a tab in the indentation, or 0.
func findTab(text []byte) (line, col int) {
	for i, l := range strings.Split(string(text), "\n") {
		if j := strings.IndexByte(l, '\t'); j >= 0 && strings.TrimLeft(l[:j], " -") == "" {
			return i + 1, j + 1
		}
	}
	return 0, 0
}

// tooDeep returns the first line that nests deeper than a lab file may, by flow
// brackets or indentation, or 0. It runs before the parser, which recurses.
func tooDeep(text []byte) (line int) {
	depth := 0
	for i, l := range strings.Split(string(text), "\n") {
		for _, c := range l {
			switch c {
			case '{', '[':
				depth++
			case '}', ']':
				depth = max(0, depth-1)
			}
			if depth > depthMax {
				return i + 1
			}
		}
		indent := len(l) - len(strings.TrimLeft(l, " -"))
		if strings.TrimSpace(l) != "" && indent > 4*depthMax {
			return i + 1
		}
	}
	return 0
}

// tooMany returns the line at which a mapping in block style has more keys than a lab file's
// may have, or the file more lines with nothing but hyphens, or 0. It runs before the parser, too.
func tooMany(text []byte) (line int) {
	var keys [4*depthMax + 1]int // by indentation: of the mapping that is open there
	brackets, bare := 0, 0
	for i, l := range strings.Split(string(text), "\n") {
		if t := strings.TrimLeft(l, " -"); strings.Contains(l, "-") && (t == "" || t[0] == '#') {
			if bare++; bare > keysMax {
				return i + 1
			}
		}
		indent := len(l) - len(strings.TrimLeft(l, " "))
		rest := l[indent:]
		if brackets == 0 && rest != "" && rest[0] != '#' && indent < len(keys) {
			clear(keys[indent+1:])
			if rest[0] == '-' {
				keys[indent] = 0
			} else if keys[indent]++; keys[indent] > keysMax {
				return i + 1
			}
		}
		brackets = max(0, brackets+strings.Count(l, "{")+strings.Count(l, "[")-strings.Count(l, "}")-strings.Count(l, "]"))
	}
	return 0
}

// syntaxError turns the parser's error into one line.
func syntaxError(err error, text []byte) *Error {
	e := &Error{Text: "not valid YAML"}
	var y yaml.Error
	if errors.As(err, &y) {
		if t := y.GetToken(); t != nil {
			e.Line, e.Column = t.Position.Line, t.Position.Column
		}
		e.Text += ": " + strings.ReplaceAll(y.GetMessage(), "\n", " ")
	}
	if line, why := misindented(text, e.Line); why != "" {
		return &Error{Line: line, Column: 1, Text: why}
	}
	return e
}

// misindented returns the first line, up to the one at which the parser gave up, that is indented unlike its neighbours, with the
// remedy, or nothing.
func misindented(text []byte, last int) (line int, why string) {
	var open []int // indentations of the mappings and lists around the line
	brackets, opens := 0, true
	lines := strings.Split(string(text), "\n")
	for i, l := range lines[:min(last, len(lines))] { // the parser counts a lone CR as the end of a line, too
		rest := strings.TrimLeft(l, " ")
		indent := len(l) - len(rest)
		rest, _, _ = strings.Cut(rest, " #")
		if rest = strings.TrimSpace(rest); rest == "" || rest[0] == '#' {
			continue
		}
		if strings.ContainsAny(rest, "|>\"'") { // a text of several lines has indentation of its own
			return 0, ""
		}
		if brackets == 0 {
			was := indent
			for len(open) > 0 && open[len(open)-1] > indent {
				was, open = open[len(open)-1], open[:len(open)-1]
			}
			switch n := len(open); {
			case n > 0 && open[n-1] == indent:
			case was > indent && n > 0:
				return i + 1, fmt.Sprintf("line %d is indented by %d, its neighbours by %d or %d", i+1, indent, open[n-1], was)
			case was > indent || !opens && n > 0:
				if n > 0 {
					was = open[n-1]
				}
				return i + 1, fmt.Sprintf("line %d is indented by %d, its neighbours by %d", i+1, indent, was)
			default:
				open = append(open, indent)
			}
			for item := rest; strings.HasPrefix(item, "- "); { // a level of its own follows a hyphen
				after := strings.TrimLeft(item[1:], " ")
				indent += len(item) - len(after)
				item, open = after, append(open, indent)
			}
		}
		opens = strings.HasSuffix(rest, ":") || strings.HasSuffix(rest, "-")
		brackets = max(0, brackets+strings.Count(l, "{")+strings.Count(l, "[")-strings.Count(l, "}")-strings.Count(l, "]"))
	}
	return 0, ""
}
