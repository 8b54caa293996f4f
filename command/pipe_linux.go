// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitReaderless calls gone when one of the files is a pipe that nobody reads any more. A
// run that writes nothing for hours would not notice before its end.
func awaitReaderless(gone func(), files ...*os.File) {
	var fds []unix.PollFd
	for _, f := range files {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			fds = append(fds, unix.PollFd{Fd: int32(f.Fd())}) // errors are reported unasked
		}
	}
	if len(fds) == 0 {
		return
	}
	go func() {
		for {
			n, err := unix.Poll(fds, -1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return // the writer still notices
			}
			if n > 0 {
				gone()
				return
			}
		}
	}()
}
