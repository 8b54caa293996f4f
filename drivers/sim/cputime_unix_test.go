// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sim_test

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this process has spent in user mode. On a machine that
// others use too it says more about a loop than the time on the wall.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano())
}
