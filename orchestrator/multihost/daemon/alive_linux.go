// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Keep-alive of connections to shares, at both ends: a server that is gone is noticed after about 15 s in which nothing comes.
const (
	aliveIdle  = 5 * time.Second
	aliveCount = 3
)

func alive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: aliveIdle, Interval: aliveIdle, Count: aliveCount}
}

// guard has all reads and writes of a connection time out when the other server has acknowledged nothing for so long of what it was sent. Keep-alive
// does not look at a connection on which something is under way: the kernel sends that again for a quarter of an hour. (TCP_USER_TIMEOUT would also end one
// whose other end reads nothing, as a terminal that is held.) stop ends the guard.
func guard(c net.Conn, every, after time.Duration) (stop func()) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return func() {}
	}
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			silent, err := silence(tcp)
			if err != nil {
				return // it has been closed
			}
			if silent >= after {
				_ = tcp.SetDeadline(time.Unix(1, 0)) // it may have been closed
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(over) })
}

// silence returns for how long the other end has not acknowledged what is under way; 0 if nothing is. While the other end has no room, the kernel
// asks it ever more seldom whether it has, and what was answered of that is under way no more.
func silence(c *net.TCPConn) (silent time.Duration, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var ierr error
	if err := raw.Control(func(fd uintptr) { info, ierr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil {
		return 0, err
	}
	if ierr != nil || info.Unacked == 0 && info.Probes < aliveCount {
		return 0, ierr
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond, nil
}
