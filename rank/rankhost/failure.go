// SPDX-License-Identifier: Apache-2.0

package rankhost

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// ErrDeadlock is the error of ranks that wait for events that cannot happen.
var ErrDeadlock = errors.New("deadlock")

// ErrBroken is the error of connections that the rank itself has broken off.
var ErrBroken = errors.New("the connections were broken off")

// Deadlock returns the error of a job in which every task waits for something that cannot
// come. Each entry of blocked reads NAME on WHAT.
func Deadlock(blocked []string) error {
	const show = 4
	more := ""
	if len(blocked) > show {
		more = fmt.Sprintf(", and %d more", len(blocked)-show)
		blocked = blocked[:show]
	}
	return fmt.Errorf("%w: waiting on nothing that can happen: %s%s", ErrDeadlock, strings.Join(blocked, "; "), more)
}

// ErrEnd is wrapped by the error of a run that has reached the end of lab time (vtime.End).
var ErrEnd = errors.New("lab time has ended")

// Ended returns the error of a run that has reached the end of lab time. Each entry of blocked reads NAME on
// WHAT, in any order.
func Ended(blocked []string) error {
	count := map[string]int{}
	for _, b := range blocked {
		_, what, _ := strings.Cut(b, " on ")
		count[what]++
	}
	return fmt.Errorf("%w: a run has 100 days, and most ranks wait on %s", ErrEnd, Commonest(count))
}

// Commonest returns the key with the highest count, the first in the alphabet if several have it.
func Commonest(count map[string]int) (most string) {
	for what, n := range count { // in any order, with one outcome
		if n > count[most] || n == count[most] && what < most {
			most = what
		}
	}
	return most
}

// GaveUp reports whether the text of an error is that of a NIC that used up its retries without an
// answer. It checks the text because nodes send errors as text.
func GaveUp(text string) bool { return strings.Contains(text, virtrnic.WCRetryExcErr.String()) }

// Lag returns the number of packets by which behind trails ahead. Both are PSNs that members of a group
// expect next.
func Lag(ahead, behind uint32) int { return wire.PSN(ahead).Sub(wire.PSN(behind)) }

// ErrSubnet is returned by runtimes that cannot fill multicast tables.
var ErrSubnet = errors.New("static multicast tables exist only in simulations: use --runtime sim")
