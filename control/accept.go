package control

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

// Accept takes the next connection of a listener. What keeps a process from taking it, such
// as too many open files, may pass: it is told to log, once, and tried again, less and less
// often. Only a listener that is closed has no more connections.
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
