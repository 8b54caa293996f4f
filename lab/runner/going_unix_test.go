// SPDX-License-Identifier: Apache-2.0

//go:build unix

package runner

import (
	"path/filepath"
	"testing"
)

// TestStatusOf: a run whose process is gone without an end record was killed; for one that is held, one that has ended
// and one of an older program, whose folder was never held, the recorded status is right.
func TestStatusOf(t *testing.T) {
	dir := t.TempDir()
	m := newMeta("x", "sim", 1)
	put := func(locked bool, s Status) {
		m.Locked, m.Status = locked, s
		if err := WriteJSON(filepath.Join(dir, "meta.json"), &m); err != nil {
			t.Fatal(err)
		}
	}
	lock := hold(dir)
	if lock == nil {
		t.Fatal("the folder cannot be locked")
	}
	put(true, StatusRunning)
	read := m
	if got := StatusOf(dir, &m); got != StatusRunning {
		t.Errorf("while it runs it is %s", got)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if got := StatusOf(dir, &m); got != StatusKilled {
		t.Errorf("without its process it is %s", got)
	}
	put(false, StatusFailed)
	if got := StatusOf(dir, &read); got != StatusFailed {
		t.Errorf("one that ended after its file was read is %s", got)
	}
	put(false, StatusRunning)
	if got := StatusOf(dir, &m); got != StatusRunning {
		t.Errorf("one that nobody held is %s", got)
	}
}
