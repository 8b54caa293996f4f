// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepDescriptors marks all descriptors from 3 on close-on-exec, so that no process started from here inherits a
// file that the caller left open: a node outlives the caller and would hold its file locks, and a program of exec
// runs as another user. exec.Cmd.ExtraFiles passes a descriptor to a child all the same: the copy has no mark.
func keepDescriptors() error {
	err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return markDescriptors() // Linux before 5.11
	}
	if err != nil {
		return fmt.Errorf("mark inherited descriptors close-on-exec: %w", err)
	}
	return nil
}

// markDescriptors does the same, one descriptor at a time.
func markDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("mark inherited descriptors close-on-exec: %w: is /proc mounted?", err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
