package live

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// frameBytesMax is the longest frame: a 4096-byte payload with every header.
const frameBytesMax = 4352

// batch is how many frames one system call moves.
const batch = 32

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// Packet moves whole frames through a bound AF_PACKET socket, up to 32 with one system
// call. The socket is non-blocking and stamps what it receives.
type Packet struct {
	fd   int
	rx   [batch]mmsghdr
	rxIO [batch]unix.Iovec
	rxB  [batch][frameBytesMax]byte
	rxC  [batch][64]byte
	tx   [batch]mmsghdr
	txIO [batch]unix.Iovec

	drops uint64
	cut   uint64
}

// NewPacket takes over a socket.
func NewPacket(fd int) *Packet {
	p := &Packet{fd: fd}
	for i := range p.rx {
		p.rxIO[i].Base = &p.rxB[i][0]
		p.rxIO[i].SetLen(frameBytesMax)
		p.rx[i].hdr.Iov = &p.rxIO[i]
		p.rx[i].hdr.SetIovlen(1)
		p.rx[i].hdr.Control = &p.rxC[i][0]
		p.tx[i].hdr.Iov = &p.txIO[i]
		p.tx[i].hdr.SetIovlen(1)
	}
	return p
}

// FD returns the socket.
func (p *Packet) FD() int { return p.fd }

// Receive hands what is waiting, at most 32 frames, to take, with the wall clock in
// nanoseconds at which the kernel got each. The bytes are valid during the call.
func (p *Packet) Receive(take func(wall int64, b []byte)) (n int, err error) {
	for i := range p.rx {
		p.rx[i].hdr.SetControllen(len(p.rxC[i]))
	}
	r, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&p.rx[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	switch e {
	case 0:
	case unix.EAGAIN, unix.EINTR, unix.ENETDOWN: // the last: the link went, which is said once
		return 0, nil
	default:
		return 0, fmt.Errorf("receive frames: %w", e)
	}
	for i := range int(r) {
		m := &p.rx[i]
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			p.drops++ // longer than any frame of ours
			continue
		}
		take(stamp(p.rxC[i][:m.hdr.Controllen]), p.rxB[i][:m.n])
	}
	return int(r), nil
}

// stamp returns the SCM_TIMESTAMPNS of a control message, or 0.
func stamp(c []byte) int64 {
	if len(c) < unix.CmsgSpace(16) {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_TIMESTAMPNS {
		return 0
	}
	return (*unix.Timespec)(unsafe.Pointer(&c[unix.CmsgLen(0)])).Nano()
}

// Send hands frames to the kernel, in order, and returns how many it took. It takes
// fewer only when it has no room just now.
func (p *Packet) Send(frames [][]byte) (sent int, err error) {
	for sent < len(frames) {
		n := min(batch, len(frames)-sent)
		for i := range n {
			p.txIO[i].Base = &frames[sent+i][0]
			p.txIO[i].SetLen(len(frames[sent+i]))
		}
		r, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&p.tx[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			sent += int(r)
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			return sent, nil
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			p.cut += uint64(len(frames) - sent) // the link is gone, and the frames with it
			return len(frames), nil
		default:
			return sent, fmt.Errorf("send frames: %w", e)
		}
	}
	return sent, nil
}

// Cut returns how many frames were sent on a link that is no more.
func (p *Packet) Cut() uint64 { return p.cut }

// Drops returns how many frames the kernel dropped for want of room in the socket,
// since it was opened.
func (p *Packet) Drops() uint64 {
	// Reading the statistics clears them.
	if s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.drops += uint64(s.Drops)
	}
	return p.drops
}
