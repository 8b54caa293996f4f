// SPDX-License-Identifier: Apache-2.0

package verbs

import "golang.org/x/sys/unix"

// timedCall reports whether a call of those that only some machines have ends without another program.
func timedCall(nr int, args []uint64) bool {
	switch nr {
	case unix.SYS_POLL:
		return int32(args[2]) >= 0
	case unix.SYS_SELECT:
		return args[4] != 0
	case unix.SYS_EPOLL_WAIT:
		return int32(args[3]) >= 0
	}
	return false
}
