// SPDX-License-Identifier: Apache-2.0

package live

import (
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// A Receiver has the memory that frames are received into: 300 KiB for frames, 520 KiB for trains, each made when it is
// first needed. Ports that one goroutine reads share it, so that a switch of 64 ports takes no more than a host: the
// frames of one call of Receive are valid during that call only.
type Receiver struct {
	packets *packetInbox
	trains  *trainInbox
}

// NewIO wraps a socket. trains is set if it carries trains of frames, and not single frames.
func (r *Receiver) NewIO(fd int, trains bool) IO {
	if trains {
		return r.NewTrains(fd)
	}
	return r.NewPacket(fd)
}

// NewPacket wraps a socket for single frames.
func (r *Receiver) NewPacket(fd int) *Packet {
	if r.packets == nil {
		r.packets = newPacketInbox()
	}
	return newPacket(fd, r.packets)
}

// NewTrains wraps a socket for trains.
func (r *Receiver) NewTrains(fd int) *Trains {
	if r.trains == nil {
		r.trains = newTrainInbox()
	}
	return newTrains(fd, r.trains)
}

// packetInbox is the memory into which a call to the kernel puts single frames.
type packetInbox struct {
	rx   [batch]mmsghdr
	rxIO [batch]unix.Iovec
	rxB  [batch][frameBytesMax]byte
	rxC  [batch][controlLen]byte
}

func newPacketInbox() *packetInbox {
	p := &packetInbox{}
	for i := range p.rx {
		p.rxIO[i].Base = &p.rxB[i][wire.VLANLen]
		p.rxIO[i].SetLen(frameBytesMax - wire.VLANLen)
		p.rx[i].hdr.Iov = &p.rxIO[i]
		p.rx[i].hdr.SetIovlen(1)
		p.rx[i].hdr.Control = &p.rxC[i][0]
	}
	return p
}

// trainInbox is the memory into which a call to the kernel puts trains.
type trainInbox struct {
	rx   [trainBatch]mmsghdr
	rxIO [trainBatch]unix.Iovec
	rxB  [trainBatch][]byte
	rxC  [trainBatch][controlLen]byte
}

func newTrainInbox() *trainInbox {
	t := &trainInbox{}
	for i := range t.rx {
		t.rxB[i] = make([]byte, wire.VLANLen+vnetLen+wire.EthernetLen+trainBytes)
		t.rxIO[i].Base = &t.rxB[i][wire.VLANLen]
		t.rxIO[i].SetLen(len(t.rxB[i]) - wire.VLANLen)
		t.rx[i].hdr.Iov = &t.rxIO[i]
		t.rx[i].hdr.SetIovlen(1)
		t.rx[i].hdr.Control = &t.rxC[i][0]
	}
	return t
}
