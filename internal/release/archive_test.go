// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = time.Unix(1790000000, 0)

func TestDebianVersion(t *testing.T) {
	for _, c := range []struct{ version, want string }{
		{"v1.2.3", "1.2.3"}, {"v1.2.3-rc.1", "1.2.3~rc.1"}, {"v0.0.0-20261122150405-0123456789ab", "0.0.0~20261122150405.0123456789ab"},
		{"v1.2.3+dirty", "1.2.3"}, {"(devel)", ""}, {"", ""}, {"v1.2", ""}, {"v1.2.3-a b", ""},
	} {
		got, err := debianVersion(c.version)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q and %v, want %q", c.version, got, err, c.want)
		}
	}
}

// TestArchives: an archive has its folders before their contents, and does not depend on the order in
// which files were found.
func TestArchives(t *testing.T) {
	files := []file{
		{name: "b/c/two", mode: 0o755, data: []byte("2")}, {name: "a", mode: 0o644, data: []byte("1")}, {name: "b/one", mode: 0o644},
		{name: "b/c/link", mode: 0o777, link: "two"},
	}
	turned := slices.Clone(files)
	slices.Reverse(turned)
	one, err := tarOf("./", files, at)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := tarOf("./", turned, at); err != nil || !bytes.Equal(one, other) {
		t.Errorf("another order of files makes another tar archive (%v)", err)
	}
	zipped, err := zipOf(files, at)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := zipOf(turned, at.In(time.FixedZone("there", 3600))); err != nil || !bytes.Equal(zipped, other) {
		t.Errorf("another order of files or time zone makes another zip archive (%v)", err)
	}
	var names []string
	for h := range untar(t, one) {
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(at) {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		if link := strings.HasSuffix(h.Name, "link"); link != (h.Typeflag == tar.TypeSymlink) || link && h.Linkname != "two" {
			t.Errorf("%s: type %c, to %q", h.Name, h.Typeflag, h.Linkname)
		}
	}
	if want := "./a ./b/ ./b/c/ ./b/c/link ./b/c/two ./b/one"; strings.Join(names, " ") != want {
		t.Errorf("in the archive are %v, want %s", names, want)
	}
}

// TestAr: the format to the byte, with the padding of an odd length.
func TestAr(t *testing.T) {
	got := string(arOf([]file{{name: "debian-binary", mode: 0o644, data: []byte("2.0\n")}, {name: "odd", mode: 0o644, data: []byte("x")}}, at))
	want := "!<arch>\n" +
		"debian-binary   1790000000  0     0     100644  4         `\n2.0\n" +
		"odd             1790000000  0     0     100644  1         `\nx\n"
	if got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// untar yields the headers of a compressed tar archive with the contents of the files.
func untar(t *testing.T, archive []byte) func(yield func(*tar.Header, []byte) bool) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	return func(yield func(*tar.Header, []byte) bool) {
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(h, data) {
				return
			}
		}
	}
}
