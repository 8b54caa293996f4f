// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// portsMax is the largest number of sockets in one message; the kernel's limit on descriptors in a
// message is 253.
const portsMax = 128

// SendFiles hands open files over to the process that listens at a unix socket, and
// waits until it has them.
func SendFiles(socket string, files []*os.File) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("hand over sockets: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing is buffered
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if _, _, err := c.WriteMsgUnix([]byte{byte(len(fds))}, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("hand over sockets: %w", err)
	}
	var ack [1]byte
	if _, err := c.Read(ack[:]); err != nil {
		return fmt.Errorf("hand over sockets: the node did not confirm: %w", err)
	}
	return nil
}

// ReceiveFiles waits for one handover. The other side gets an answer when take has returned. Errors
// that keep it from accepting the connection are written to log.
func ReceiveFiles(l *net.UnixListener, log io.Writer, take func(fds []int)) error {
	c, err := Accept(l.AcceptUnix, log)
	if err != nil {
		return fmt.Errorf("wait for sockets: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing is buffered
	fds, err := receiveFiles(c)
	if err != nil {
		return err
	}
	take(fds)
	if _, err := c.Write([]byte{1}); err != nil {
		return fmt.Errorf("confirm sockets: %w", err)
	}
	return nil
}

func receiveFiles(c *net.UnixConn) (fds []int, err error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4*portsMax))
	n, m, flags, _, err := c.ReadMsgUnix(b[:], oob)
	if err != nil {
		return nil, fmt.Errorf("take sockets: %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:m])
	if err != nil {
		return nil, fmt.Errorf("take sockets: %w", err)
	}
	for i := range msgs {
		more, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return nil, fmt.Errorf("take sockets: %w", err)
		}
		fds = append(fds, more...)
	}
	if n != 1 || int(b[0]) != len(fds) || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, errors.New("take sockets: not all of them came")
	}
	return fds, nil
}
