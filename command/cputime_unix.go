// SPDX-License-Identifier: Apache-2.0

//go:build unix

package command

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns how long this process has been on processors; 0: it is not known.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
