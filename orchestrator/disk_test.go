// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

var errPower = errors.New("the power is lost")

// powered is a disk whose power is lost after so many operations. inodes are contents, by
// number, as programs see them and as they are on the disk; a folder's names are such a
// content, too: names lead to inodes.
type powered struct {
	left         int
	seen, synced []([]byte) // by inode
	names, kept  map[string]int
}

func (p *powered) step() error {
	if p.left == 0 {
		return errPower
	}
	p.left--
	return nil
}

func (p *powered) open(name string, flag int) (diskFile, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	if name == "/d" {
		return poweredFile{p, -1}, nil
	}
	i, there := p.names[name]
	if !there {
		i = len(p.seen)
		p.seen, p.synced = append(p.seen, nil), append(p.synced, nil)
		p.names[name] = i
	}
	if flag&os.O_TRUNC != 0 {
		p.seen[i] = nil
	}
	return poweredFile{p, i}, nil
}

func (p *powered) rename(from, to string) error {
	if err := p.step(); err != nil {
		return err
	}
	p.names[to] = p.names[from]
	delete(p.names, from)
	return nil
}

func (p *powered) remove(name string) error {
	if err := p.step(); err != nil {
		return err
	}
	delete(p.names, name)
	return nil
}

// poweredFile is an open file, or the folder.
type poweredFile struct {
	*powered
	inode int
}

func (f poweredFile) Write(b []byte) (int, error) {
	if err := f.step(); err != nil {
		return 0, err
	}
	f.seen[f.inode] = append(bytes.Clone(f.seen[f.inode]), b...)
	return len(b), nil
}

func (f poweredFile) Sync() error {
	if err := f.step(); err != nil {
		return err
	}
	if f.inode < 0 {
		f.kept = maps.Clone(f.names)
	} else {
		f.synced[f.inode] = bytes.Clone(f.seen[f.inode])
	}
	return nil
}

func (f poweredFile) Close() error { return f.step() }

// after are all contents that a file may have once the power is back, nil for none: of what
// was not synced any part may have come to the disk.
func (p *powered) after(name string) (all [][]byte) {
	for _, names := range []map[string]int{p.kept, p.names} {
		i, there := names[name]
		if !there {
			all = append(all, nil)
			continue
		}
		all = append(all, p.synced[i])
		for n := range len(p.seen[i]) + 1 {
			if n > len(p.synced[i]) || !bytes.HasPrefix(p.seen[i], p.synced[i]) {
				all = append(all, p.seen[i][:n:n])
			}
		}
	}
	return all
}

// TestLossOfPower: wherever the power is lost while state.json is written, there is then
// the old one or the new one; of an intent there is what a line begins with, behind all
// that were written before. Whatever has returned without an error stays.
func TestLossOfPower(t *testing.T) {
	const file = "/d/file"
	before, added := []byte("old\n"), []byte("new state\n")
	for _, c := range []struct {
		what  string
		write func(disk, string, []byte) error
		after []byte
		may   func(b []byte) bool // hold, if it did not return
	}{
		{"replace", replace, added, func(b []byte) bool { return bytes.Equal(b, before) || bytes.Equal(b, added) }},
		{"append", appendTo, append(bytes.Clone(before), added...), func(b []byte) bool {
			return bytes.HasPrefix(b, before) && bytes.HasPrefix(append(bytes.Clone(before), added...), b)
		}},
	} {
		for n := 0; ; n++ {
			names := map[string]int{file: 0}
			p := &powered{left: n, seen: [][]byte{before}, synced: [][]byte{before}, names: names, kept: maps.Clone(names)}
			err := c.write(p, file, added)
			for _, b := range p.after(file) {
				if err == nil && !bytes.Equal(b, c.after) || err != nil && !c.may(b) {
					t.Errorf("%s, and the power is lost after %d operations (%v): the file may hold %q", c.what, n, err, b)
				}
			}
			if err == nil {
				break
			}
			if !errors.Is(err, errPower) {
				t.Fatal(err)
			}
		}
		p := &powered{left: 1 << 10, names: map[string]int{}}
		if err := c.write(p, file, added); err != nil {
			t.Fatal(err)
		}
		for _, b := range p.after(file) {
			if !bytes.Equal(b, added) {
				t.Errorf("%s to a file that was not there leaves %q", c.what, b)
			}
		}
	}
}

// TestFilesOfState: on the server's own disk the same, and nobody but root reads them.
func TestFilesOfState(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for i, want := range []string{"a", "ab", "c"} {
		write := appendTo
		if i == 2 {
			write = replace
		}
		if err := write(osDisk{}, name, []byte(want[max(0, len(want)-1):])); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil || string(b) != want {
			t.Errorf("%q, %v; want %q", b, err, want)
		}
	}
	info, err := os.Stat(name)
	left, globErr := filepath.Glob(name + ".*")
	if err != nil || globErr != nil || info.Mode().Perm() != 0o600 || len(left) != 0 {
		t.Errorf("%v, mode %v, beside it %v", err, info.Mode(), left)
	}
	if err := replace(osDisk{}, filepath.Join(name, "x"), nil); err == nil {
		t.Error("a file is made in a file")
	}
}
