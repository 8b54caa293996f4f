// SPDX-License-Identifier: Apache-2.0

//go:build unix

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadSpecialFiles: a device or a pipe is no lab file, and none is waited for.
func TestReadSpecialFiles(t *testing.T) {
	for _, file := range []string{"/dev/zero", "/dev/full", fifo(t)} {
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "not a lab file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestDatStaysInFolder: no path out of the lab file's folder is followed, only regular files are read,
// and no message shows the contents of a file.
func TestDatStaysInFolder(t *testing.T) {
	const secret = "root:$6$topsecret"
	top := t.TempDir()
	dir := filepath.Join(top, "labs")
	made := []error{
		os.MkdirAll(filepath.Join(dir, "below"), 0o755), os.Mkdir(filepath.Join(top, "out"), 0o755),
		os.WriteFile(filepath.Join(top, "out", "shadow"), []byte(strings.Repeat(secret+"\n", 40)), 0o600),
		os.WriteFile(filepath.Join(dir, "below", "own"), []byte(strings.Repeat(secret+"\n", 40)), 0o600),
		os.WriteFile(filepath.Join(dir, "long"), make([]byte, 1<<16+1), 0o600),
		os.Symlink(filepath.Join(top, "out", "shadow"), filepath.Join(dir, "absolute")),
		os.Symlink("../out/shadow", filepath.Join(dir, "relative")),
		os.Symlink("relative", filepath.Join(dir, "chain")),
		os.Symlink("../out", filepath.Join(dir, "folder")),
		os.Symlink("/dev/zero", filepath.Join(dir, "zero")),
		os.Symlink("below/own", filepath.Join(dir, "inside")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	}
	if err := errors.Join(made...); err != nil {
		t.Fatal(err)
	}
	const escapes, plain = "path escapes from parent", "it is not a text file of at most 65536 bytes"
	for _, c := range []struct{ dat, want string }{
		{"absolute", escapes}, {"relative", escapes}, {"chain", escapes}, {"folder/shadow", escapes}, {"zero", escapes}, {"below/../../out/shadow", "not in the lab file's folder"},
		{"pipe", plain}, {"long", plain}, {"below", plain}, {"inside", "line 5: a value is not a whole number"}, {"below/own", "line 5: a value is not a whole number"},
	} {
		_, err := Parse(filepath.Join(dir, "x.mcl.yml"), fmt.Appendf(nil, hplLab, "dat: "+c.dat))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", c.dat, err, c.want)
		}
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
