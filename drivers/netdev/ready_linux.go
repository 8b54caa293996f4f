// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An interface that has been set up carries nothing yet. When the second end of a veth pair comes up, the kernel notes
// that both have a carrier, and a worker of its own (linkwatch) gives the first a queue later. A frame that is sent
// before is lost, and sendmsg reports success.

// readyWait bounds the wait for that worker, which takes milliseconds on an idle server.
const readyWait = 2 * time.Minute

// ready waits until the kernel carries frames out of an interface, which people know as alias.
func (n *Namespace) ready(name, alias string) error {
	begin := time.Now()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		l, err := n.nl.LinkByName(name) // newer kernels do the worker's work for each caller
		if err != nil {
			return fmt.Errorf("find interface of %s: %w", alias, err)
		}
		if operational(l) {
			return nil
		}
		if time.Since(begin) > readyWait {
			return fmt.Errorf("interface of %s: it has been set up, and the kernel has not made it operational within %v (its state is %s): "+
				"the far end is down, or the server is overloaded", alias, readyWait, l.Attrs().OperState)
		}
		time.Sleep(pause)
	}
}

// operational reports whether the kernel carries frames out of an interface (RFC 2863). Kinds without a carrier, such as VXLAN, are
// in an unknown state for good, and carry once they are up; a veth is in that state until its first end is up.
func operational(l netlink.Link) bool {
	a := l.Attrs()
	if a.Flags&net.FlagUp == 0 {
		return false
	}
	return a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown && l.Type() != "veth" && a.RawFlags&unix.IFF_LOWER_UP != 0
}
