// SPDX-License-Identifier: Apache-2.0

//go:build unix

package runner

import (
	"os"

	"golang.org/x/sys/unix"
)

// hold locks a run's folder until the returned value is closed or this process ends, however it ends. It returns nil
// where the file system has no locks.
func hold(dir string) *os.File {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // it was only opened
		return nil
	}
	return f
}

// held reports whether a process holds a run's folder, or might: it cannot be seen.
func held(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }() // and the lock with it
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}
