// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// filesMin is the smallest limit of open files to start with: below it, the Go runtime ends with a trace, and a
// lab could not be destroyed. A lab in containers takes 8 or so a node while it comes up.
const filesMin = 16

// enoughFiles returns an error if the process is allowed too few open files to do anything.
func enoughFiles() error {
	if n := softLimit(unix.RLIMIT_NOFILE); n < filesMin {
		return fmt.Errorf("this process may have %d files open (ulimit -n), and needs %d at least: raise the limit", n, filesMin)
	}
	return nil
}

// softLimit returns a limit of the process. The Go runtime has raised that of open files to the hard one.
func softLimit(of int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(of, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Cur
}

// limitHint names the limit of the process that an error is due to, with the remedy; "" if it is due to none. It goes by
// the error's text, because nodes pass theirs on as text.
func limitHint(text string) string {
	switch {
	case strings.Contains(text, unix.EMFILE.Error()):
		return fmt.Sprintf("a process may have %d files open here, which is too few for this: raise the limit (ulimit -n)", softLimit(unix.RLIMIT_NOFILE))
	case strings.Contains(text, unix.EFBIG.Error()):
		if n := softLimit(unix.RLIMIT_FSIZE); n != unix.RLIM_INFINITY {
			return fmt.Sprintf("a file may have %d bytes here, which is too few for this: raise the limit (ulimit -f)", n)
		}
	}
	return ""
}
