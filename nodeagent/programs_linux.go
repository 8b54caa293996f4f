// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/nodeagent/verbs"
)

// listenPrograms listens at the socket of programs that use libibverbs. Any process that can open it may
// connect: the permissions of its folders decide. It changes the umask as listenPrivate does.
func listenPrograms(dir, name string) (*net.UnixListener, error) {
	defer unix.Umask(unix.Umask(0o111))
	return listenAt("unixpacket", dir, name)
}

// takePrograms hands programs to the node that is configured when they connect. Where there is no NIC for them (a switch, or the node is part of a run
// in virtual time that has no programs), they see no device. Programs may use all descriptors that the process may open: others wait until some are
// closed.
func (a *agent) takePrograms(l *net.UnixListener, log io.Writer) {
	for {
		conn, err := nodeapi.Accept(l.AcceptUnix, log)
		if err != nil {
			return // it was closed
		}
		if s := a.inTurns.Load(); s != nil {
			s.Take(conn)
			continue
		}
		a.mu.RLock()
		if n := a.node; n != nil && n.programs != nil && !a.leaving {
			n.programs.Take(conn)
		} else {
			_ = conn.Close() // nothing was said
		}
		a.mu.RUnlock()
	}
}

// showClock gives the programs on a host the rates of the lab's clock.
func (n *node) showClock() error {
	if n.programs == nil {
		return nil
	}
	return n.programs.ShowClock(func() (rates []verbs.ClockRate) {
		for _, r := range n.loop.Rates() {
			rates = append(rates, verbs.ClockRate(r))
		}
		return rates
	})
}
