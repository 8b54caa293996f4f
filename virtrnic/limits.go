// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Bounds of a NIC, each with its reason.
const (
	// MaxMessage is the largest message: the specification's 2^31 bytes.
	MaxMessage = 1 << 31
	// MaxQPs is rxe's limit; numbers start at firstQPN.
	MaxQPs = 65536
	// MaxQPWR is rxe's limit on work requests in one queue.
	MaxQPWR = 16384
	// MaxSGE is rxe's limit on the pieces of a work request.
	MaxSGE = 32
	// MaxInlineData is rxe's limit on the bytes of an inline request.
	MaxInlineData = 400
	// MaxRdAtomic is rxe's limit on READs and atomics under way in each direction.
	MaxRdAtomic = 128
	// MaxMcastQPs is rxe's limit on queue pairs attached to one group; those of UC, of which
	// there is one per sender, are not limited.
	MaxMcastQPs = 56
	// MaxMcastGroups is the number of groups that UD queue pairs of a NIC may be attached to; rxe has
	// 8192.
	MaxMcastGroups = 4096
	// GRHLen is the size of the global route header that a UD receive puts in front of the data.
	GRHLen = 40
	// MaxMTU is the largest path MTU there is.
	MaxMTU = 4096
	// firstQPN is the first queue pair number. It leaves out the special queue pairs and, as
	// rxe does, all other numbers up to 16.
	firstQPN wire.QPN = 17
	// maxOutstanding is the number of packets that may be unacknowledged: beyond half the PSN space a
	// duplicate could not be distinguished from a new packet.
	maxOutstanding = wire.PSNWindow - 1
	// pauseGap is the delay of a pause frame after its cause (see virtswitch).
	pauseGap = vtime.Picosecond
)

// timeoutUnit is the unit of the timeout attribute (InfiniBand specification, 9.7.6.1.3).
const timeoutUnit = 4096 * vtime.Nanosecond

// Timeout returns the duration of a timeout code: 4.096 us * 2^code; 0 is none.
func Timeout(code uint8) vtime.Duration {
	if code == 0 {
		return 0
	}
	return timeoutUnit << (code & 31)
}

// rnrMicros is the wait of each RNR timer code in microseconds (InfiniBand
// specification, table 45).
var rnrMicros = [32]int64{
	655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
	2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
}

// RNRTimer returns the wait of an RNR timer code.
func RNRTimer(code uint8) vtime.Duration {
	return vtime.Duration(rnrMicros[code&31]) * vtime.Microsecond
}
