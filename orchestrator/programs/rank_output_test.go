// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// file is a kept file in memory.
type file struct{ bytes.Buffer }

// Close implements io.Closer.
func (*file) Close() error { return nil }

// divided returns what rankOutput makes of a text that comes in the given pieces, by file.
func divided(t *testing.T, ranks int, pieces ...string) map[string]string {
	t.Helper()
	files := map[string]*file{}
	o := newRankOutput(ranks, func(name string) (*outputFile, error) {
		files[name] = &file{}
		return &outputFile{f: files[name], left: outputMax}, nil
	})
	for _, p := range pieces {
		if n, err := io.WriteString(o, p); n != len(p) || err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(p), err)
		}
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, f := range files {
		all[name] = f.String()
	}
	return all
}

// written is output of Open MPI 4.1.4 for two ranks, shortened.
const written = "<mpirun>\n<stderr rank=\"0\">err&#010;</stderr>\n<stdout rank=\"0\">hi &lt;stdout rank=\"1\"&gt; &amp; &#195;&#169;&#010;</stdout>\n" +
	"<stdout rank=\"0\">no newline&#000;&#001;x</stdout><stdout rank=\"1\">other&#010;</stdout>\n<stdout rank=\"0\">&#010;</stdout>\n" +
	"<stderr>-----&#010;</stderr>\n<stderr>  Exit code:    3&#010;</stderr>\n<stdout rank=\"7\">nobody</stdout></mpirun>\n"

// TestRankOutput: what mpirun writes is divided by ranks, byte by byte as they have written it, in whatever pieces it
// comes; a rank that there is not counts as mpirun.
func TestRankOutput(t *testing.T) {
	want := map[string]string{
		"0.out": "hi <stdout rank=\"1\"> & é\nno newline\x00\x01x\n", "0.err": "err\n", "1.out": "other\n",
		mpirunErr: "-----\n  Exit code:    3\n", mpirunOut: "nobody",
	}
	check := func(got map[string]string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	check(divided(t, 2, written))
	check(divided(t, 2, strings.Split(written, "")...))
	for i := range written {
		check(divided(t, 2, written[:i], written[i:]))
	}
	if got := divided(t, 2, "<stdout rank=\"0\">a & b &nosuch; &#999; <"+strings.Repeat("x", tagMax)+"</stdout>after"); got["0.out"] != "a & b &nosuch; &#999; <"+strings.Repeat("x", tagMax) {
		t.Errorf("of what mpirun does not write there is %q", got)
	}
}

// FuzzRankOutput: any input gives the same output in one piece as in two, and no part waits for ever.
func FuzzRankOutput(f *testing.F) {
	for i := range written {
		f.Add(written[:i], i/2)
	}
	f.Add("<stdout rank=\"0\">&#&#1;&<<stdout>", 3)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = max(0, min(at, len(text)))
		whole, parts := divided(t, 2, text), divided(t, 2, text[:at], text[at:])
		if fmt.Sprint(whole) != fmt.Sprint(parts) {
			t.Fatalf("%q at %d: %q in one piece, %q in two", text, at, whole, parts)
		}
		size := 0
		for _, s := range whole {
			size += len(s)
		}
		if size > len(text) {
			t.Fatalf("%d bytes of %d", size, len(text))
		}
	})
}

// TestKept: a file keeps what a program writes up to its limit, says that there was more, and knows the last line.
func TestKept(t *testing.T) {
	f := &file{}
	k := &outputFile{f: f, left: 10}
	for _, s := range []string{"first\n", "second, ", "which is more\n", "and more\n", "\x1b[1mlast\n", "-----\n"} {
		if n, err := io.WriteString(k, s); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := f.String(); !strings.HasPrefix(got, "first\nseco\n[mcastlab keeps") || strings.Count(got, "\n") != 3 {
		t.Errorf("kept is %q", got)
	}
	if got := k.lastLine(); got != "[1mlast" {
		t.Errorf("the last line is %q", got)
	}
	for text, want := range map[string]string{"": "", "\n\n": "", "one": "one", "é\xff\n": "é\ufffd", strings.Repeat("x", 2*tailMax): strings.Repeat("x", shownMax)} { // independent of each other
		k := &outputFile{f: &file{}, left: outputMax}
		_, _ = io.WriteString(k, text) // it returns no error
		if got := k.lastLine(); got != want {
			t.Errorf("of %q the last line is %q, not %q", text, got, want)
		}
	}
	k = &outputFile{f: brokenFile{}, left: outputMax}
	if n, err := io.WriteString(k, "lost"); n != 4 || err != nil {
		t.Errorf("the program is told: %v", err)
	}
	if k.close() == nil {
		t.Error("nobody is told that a file is not whole")
	}
}

// brokenFile is a file on a full disk.
type brokenFile struct{}

// Write implements io.Writer.
func (brokenFile) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Close implements io.Closer.
func (brokenFile) Close() error { return nil }
