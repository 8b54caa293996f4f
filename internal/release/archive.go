// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"path"
	"slices"
	"time"
)

// withFolders returns the files sorted by name, each folder before its content.
func withFolders(files []file) []file {
	all := slices.Clone(files)
	seen := map[string]bool{".": true}
	for _, f := range files {
		for d := path.Dir(f.name); !seen[d]; d = path.Dir(d) {
			seen[d] = true
			all = append(all, file{name: d + "/", mode: 0o755})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return all
}

// tarOf returns the files as a compressed tar archive that depends on nothing but them and
// the time given. The prefix comes before every name.
func tarOf(prefix string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range withFolders(files) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: prefix + f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		switch {
		case f.name[len(f.name)-1] == '/':
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zipOf is tarOf for systems that have no tar.
func zipOf(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range withFolders(files) {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// gzipOf compresses a file that lies compressed in a package.
func gzipOf(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
