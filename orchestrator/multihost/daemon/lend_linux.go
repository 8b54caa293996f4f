// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"sync"
	"time"
)

// lendMax bounds how long a daemon listens at the port of links for one session: longer than a probe waits.
const lendMax = 2 * probeWait

// lent is the UDP port of links between servers while the daemon listens there for probes. Otherwise it is the kernel's, for links.
type lent struct {
	mu      sync.Mutex
	c       *net.UDPConn // nil: it does not listen
	users   int
	over    bool
	running sync.WaitGroup
}

// open listens for a session more. It returns what ends that, which may be called more than once and also happens by itself, and nil if the port
// is in use.
func (l *lent) open(at *net.TCPAddr, receive func(c *net.UDPConn)) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil
	}
	if l.c == nil {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port + LinksPort, Zone: at.Zone})
		if err != nil {
			return nil
		}
		l.c = c
		l.running.Go(func() { receive(c) })
	}
	l.users++
	once := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 && l.c != nil {
			_ = l.c.Close() // nothing is sent there
			l.c = nil
		}
	})
	time.AfterFunc(lendMax, once)
	return once
}

// close ends all.
func (l *lent) close() {
	l.mu.Lock()
	if l.over = true; l.c != nil {
		_ = l.c.Close() // nothing is sent there
		l.c = nil
	}
	l.mu.Unlock()
	l.running.Wait()
}
