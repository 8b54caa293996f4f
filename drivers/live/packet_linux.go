// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// frameBytesMax is the longest frame: a 4096-byte payload with every header.
const frameBytesMax = 4352

// batch is the largest number of frames of one system call.
const batch = 64

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// Packet moves whole frames through a bound AF_PACKET socket, up to 64 with one system call.
// The socket is non-blocking, and delivers time stamps and VLAN tags.
type Packet struct {
	fd int
	*packetInbox
	tx   [batch]mmsghdr
	txIO [batch]unix.Iovec

	drops uint64
	cut   uint64
}

// NewPacket wraps a socket that is read by itself.
func NewPacket(fd int) *Packet { return new(Receiver).NewPacket(fd) }

func newPacket(fd int, in *packetInbox) *Packet {
	p := &Packet{fd: fd, packetInbox: in}
	for i := range p.tx {
		p.tx[i].hdr.Iov = &p.txIO[i]
		p.tx[i].hdr.SetIovlen(1)
	}
	return p
}

// FD returns the socket.
func (p *Packet) FD() int { return p.fd }

// Receive passes the waiting frames, at most 64, to take, each with the wall clock in
// nanoseconds at which the kernel received it. The bytes are valid during the call.
func (p *Packet) Receive(take func(wall int64, b []byte)) (n int, err error) {
	for i := range p.rx {
		p.rx[i].hdr.SetControllen(len(p.rxC[i]))
	}
	r, err := receive(p.fd, p.rx[:])
	for i := range r {
		m := &p.rx[i]
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			p.drops++ // longer than any frame of a lab
			continue
		}
		k := readControl(p.rxC[i][:m.hdr.Controllen])
		take(k.wall, k.whole(p.rxB[i][:wire.VLANLen+m.n], 0))
	}
	return r, err
}

// receive takes the messages that wait in a socket, at most len(m).
func receive(fd int, m []mmsghdr) (n int, err error) {
	r, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
	switch e {
	case 0:
		return int(r), nil
	case unix.EAGAIN, unix.EINTR, unix.ENETDOWN: // ENETDOWN: the link is gone, which the socket reports once
		return 0, nil
	}
	return 0, fmt.Errorf("receive frames: %w", e)
}

// send hands messages to the kernel and returns the number that it took. full means that the kernel has
// no room at the moment, gone that the link no longer exists.
func send(fd int, m []mmsghdr) (n int, full, gone bool, err error) {
	for {
		r, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(r), false, false, nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			return 0, true, false, nil
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			return 0, false, true, nil
		default:
			return 0, false, false, fmt.Errorf("send frames: %w", e)
		}
	}
}

// Send hands frames to the kernel, in order, and returns the number that it took: fewer than all only
// if it has no room at the moment.
func (p *Packet) Send(frames [][]byte) (sent int, err error) {
	for sent < len(frames) {
		n := min(batch, len(frames)-sent)
		for i := range n {
			p.txIO[i].Base = &frames[sent+i][0]
			p.txIO[i].SetLen(len(frames[sent+i]))
		}
		r, full, gone, err := send(p.fd, p.tx[:n])
		if gone {
			p.cut += uint64(len(frames) - sent) // the link is gone, and the frames with it
			return len(frames), nil
		}
		if sent += r; full || err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Cut returns the number of frames that were sent after the link was removed.
func (p *Packet) Cut() uint64 { return p.cut }

// Drops returns the number of frames that the kernel dropped for lack of room in the socket, since it
// was opened.
func (p *Packet) Drops() uint64 {
	// Reading the statistics clears them.
	if s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.drops += uint64(s.Drops)
	}
	return p.drops
}
