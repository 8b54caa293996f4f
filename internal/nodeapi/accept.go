// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Waits between attempts to accept: the first, and the longest.
const (
	acceptWait    = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// Accept returns the next connection of a listener. An error such as too many open files may be
// temporary: it is written to log once, and Accept tries again with growing pauses. Only a closed
// listener makes it return an error.
func Accept[C net.Conn](accept func() (C, error), log io.Writer) (C, error) {
	return acceptPausing(accept, log, time.Sleep)
}

func acceptPausing[C net.Conn](accept func() (C, error), log io.Writer, pause func(time.Duration)) (C, error) {
	wait := acceptWait
	for {
		c, err := accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		if wait == acceptWait {
			fmt.Fprintf(log, "mcastlab: %v: trying again until it works\n", err)
		}
		pause(wait)
		wait = min(2*wait, acceptWaitMax)
	}
}
