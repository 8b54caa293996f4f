// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestEveryByte changes, removes and doubles each byte of a file: none of the results passes for the file.
func TestEveryByte(t *testing.T) {
	kinds := []struct {
		name  string
		file  []byte
		check func([]byte) error
	}{
		{"object", Object([]byte("{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}\n")), CheckObject},
		{"comment", Comment([]byte("a: 1\nb: [2]\n")), CheckComment},
		{"nothing but a comment", Comment(nil), CheckComment},
	}
	for _, k := range kinds {
		if err := k.check(k.file); err != nil {
			t.Fatalf("%s: %v of\n%s", k.name, err, k.file)
		}
		for i := range k.file {
			for _, bad := range [][]byte{
				append(bytes.Clone(k.file[:i]), k.file[i+1:]...),
				append(append(bytes.Clone(k.file[:i]), k.file[i]^0x10), k.file[i+1:]...),
				append(append(bytes.Clone(k.file[:i+1]), k.file[i]), k.file[i+1:]...),
				k.file[:i],
			} {
				if err := k.check(bad); !bytes.Equal(bad, k.file) && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNone) {
					t.Errorf("%s, byte %d: %v of\n%s", k.name, i, err, bad)
				}
			}
		}
	}
}

// TestObject: text other than an indented object is left alone.
func TestObject(t *testing.T) {
	for _, s := range []string{"", "[]\n", "{}\n", "null\n"} {
		if got := Object([]byte(s)); string(got) != s || !errors.Is(CheckObject(got), ErrNone) {
			t.Errorf("%q became %q", s, got)
		}
	}
	want := "{\n  \"a\": 1,\n  \"crc32c\": \"" + Sum([]byte("{\n  \"a\": 1\n}\n")) + "\"\n}\n"
	if got := Object([]byte("{\n  \"a\": 1\n}\n")); string(got) != want {
		t.Errorf("%q", got)
	}
	if b, err := CutComment(Comment([]byte("a"))); string(b) != "a" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := CutComment([]byte("a")); string(b) != "a" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := CutComment(append([]byte("b"), Comment([]byte("a"))...)); !errors.Is(err, ErrDamaged) {
		t.Errorf("%q, %v", b, err)
	}
	var v struct{ A int }
	if err := ReadObject(Object([]byte("{\n  \"a\": 1\n}\n")), &v); err != nil || v.A != 1 {
		t.Error(err, v)
	}
	if err := ReadObject([]byte(strings.Replace(string(Object([]byte("{\n  \"a\": 1\n}\n"))), "1", "2", 1)), &v); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if got := Sum([]byte("123456789")); got != "e3069283" { // the check value of CRC-32C
		t.Error(got)
	}
}

func TestLines(t *testing.T) {
	var file bytes.Buffer
	w := &Writer{W: &file}
	for _, s := range []string{"a\n", "b\n", "c\n"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(sum string, count uint64, lines ...string) error {
		var l Lines
		for _, s := range lines {
			l.Add([]byte(s))
		}
		if l.Ended() || l.Err() != nil {
			t.Error("an end before the end")
		}
		return l.End(count, sum)
	}
	if err := read(w.Sum(), 3, "a", "b", "c"); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]string{{"a", "b"}, {"a", "c", "b"}, {"a", "b", "b", "c"}, {"a", "b", "d"}, {}} {
		if err := read(w.Sum(), 3, bad...); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := read("", 3, "a", "b", "c"); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if err := read("", 3, "a", "b"); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	var l Lines
	_ = l.End(0, Sum(nil)) // the subject is the next call
	if l.Add([]byte("more")); !errors.Is(l.Err(), ErrDamaged) {
		t.Error(l.Err())
	}
}
