// SPDX-License-Identifier: Apache-2.0

package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/mcastlab/mcastlab/apps/storage"
)

func records(from, to int) (all []storage.Record) {
	for i := from; i < to; i++ {
		all = append(all, storage.Record{Block: uint32(i), Number: uint64(i) + 1, Data: bytes.Repeat([]byte{byte(i)}, 1000)})
	}
	return all
}

func contents(t *testing.T, s storage.Store) (all []string) {
	t.Helper()
	if err := s.Each(func(r storage.Record) error {
		all = append(all, fmt.Sprintf("%d:%d:%x", r.Block, r.Number, r.Data[:2]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCrash: synced writes are there after a crash, others are gone, every time.
func TestCrash(t *testing.T) {
	m := NewMemory()
	for round := range 5 {
		s, err := m.Open("h1", "a/b", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Put(records(round, round+1)), s.Sync(), s.Put(records(100, 110))); err != nil {
			t.Fatal(err)
		}
		s.Crash()
		if s, err = m.Open("h1", "a/b", 0); err != nil {
			t.Fatal(err)
		}
		have := contents(t, s)
		if len(have) != round+1 || have[round] != fmt.Sprintf("%d:%d:%02x%02x", round, round+1, round, round) {
			t.Fatalf("round %d: %v", round, have)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(records(0, 1)); !errors.Is(err, errClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	other, err := m.Open("h2", "a/b", 0)
	if err != nil || len(contents(t, other)) != 0 {
		t.Errorf("another host has the volume, too (%v)", err)
	}
}

// TestFull: a store on a full disk says so, at every call from then on, and ends nothing but itself;
// earlier synced writes can be read when it is opened again.
func TestFull(t *testing.T) {
	m := NewMemory()
	s, err := m.Open("h1", "v", 200<<10)
	if err != nil {
		t.Fatal(err)
	}
	synced := 0
	for {
		if err = errors.Join(s.Put(records(synced, synced+10)), s.Sync()); err != nil {
			break
		}
		if synced += 10; synced > 1000 {
			t.Fatal("a store of a megabyte fits a disk of 200 KiB")
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("full: %v", err)
	}
	if err := s.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("after it was full: %v", err)
	}
	s.Crash()
	if s, err = m.Open("h1", "v", 0); err != nil {
		t.Fatal(err)
	}
	if have := contents(t, s); len(have) < synced || synced < 50 {
		t.Errorf("%d records were synced, %d are there", synced, len(have))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFolder: a store in a folder is there for who opens it again, and one at a time.
func TestFolder(t *testing.T) {
	dir := Folder(t.TempDir())
	s, err := dir.Open("", "x/y/512", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Put(records(0, 3)), s.Sync()); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open("", "x/y/512", 0); err == nil {
		t.Error("a store that is open was opened")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = dir.Open("", "x/y/512", 0); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(1)
	if err != nil || r.Number != 2 || len(r.Data) != 1000 || r.Data[0] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Get(7); err == nil || !strings.Contains(err.Error(), "read block 7 of store") {
		t.Errorf("a block that is not there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
