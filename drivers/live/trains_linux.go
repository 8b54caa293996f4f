// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// Bounds of a train.
const (
	// TrainMax is the largest number of frames of a train, a limit of the kernel.
	TrainMax = 64
	// trainBytes is the longest train: one IP packet.
	trainBytes = 1<<16 - 1
	// trainHeads4 and 6 are the bytes of each frame that the train's first one stands for: Ethernet, IP
	// and UDP.
	trainHeads4 = wire.EthernetLen + wire.IPv4Len + wire.UDPLen
	trainHeads6 = wire.EthernetLen + wire.IPv6Len + wire.UDPLen
	// trainBatch is the number of trains that one system call moves.
	trainBatch = 8
	// vnetLen is the kernel's struct virtio_net_hdr.
	vnetLen = 10
)

// The fields of struct virtio_net_hdr that trains use.
const (
	vnetNeedsChecksum = 1
	vnetUDP           = 5 // VIRTIO_NET_HDR_GSO_UDP_L4
)

// Trains moves frames through a bound AF_PACKET socket with PACKET_VNET_HDR. Frames that
// leave one after the other, of one flow and one size, travel as a train: one buffer of the
// kernel's, for which crossing a veth costs no more than for a frame. What arrives is taken
// apart again, so a machine sees frames, and a train lasts for one link only. A frame that
// is marked, damaged or dropped inside a switch is so by itself.
//
// Inside a train IPv4 identifications count up, as the kernel has it when it takes one apart.
// The ICRC covers them: frames whose identification does not follow on begin another train.
// Frames of a VLAN, and datagrams that have a UDP checksum, travel by themselves.
type Trains struct {
	fd int
	*trainInbox

	tx    [batch]mmsghdr
	txIO  []unix.Iovec // of all trains, in order
	txV   [batch][vnetLen]byte
	txH   [batch][trainHeads6]byte
	heads []int // frames of each train

	drops, cut uint64
}

func newTrains(fd int, in *trainInbox) *Trains {
	return &Trains{fd: fd, trainInbox: in, txIO: make([]unix.Iovec, 0, 2*batch+2+TrainMax), heads: make([]int, 0, batch)}
}

// FD implements IO.
func (t *Trains) FD() int { return t.fd }

// Cut implements IO.
func (t *Trains) Cut() uint64 { return t.cut }

// Drops implements IO. A train counts as one.
func (t *Trains) Drops() uint64 {
	if s, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		t.drops += uint64(s.Drops)
	}
	return t.drops
}

// Receive implements IO: the frames of at most 8 trains.
func (t *Trains) Receive(take func(wall int64, b []byte)) (n int, err error) {
	for i := range t.rx {
		t.rx[i].hdr.SetControllen(len(t.rxC[i]))
	}
	r, err := receive(t.fd, t.rx[:])
	for i := range r {
		m := &t.rx[i]
		k := readControl(t.rxC[i][:m.hdr.Controllen])
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			t.drops++
			continue
		}
		got, err := Split(k.whole(t.rxB[i][:wire.VLANLen+m.n], vnetLen), func(b []byte) { take(k.wall, b) })
		if err != nil {
			t.drops++
		}
		n += max(got, 1)
	}
	return n, err
}

// Errors of Split.
var (
	errTrainShort = errors.New("train is shorter than its headers")
	errTrainKind  = errors.New("train is not IP and UDP")
)

// Split takes a message of a PACKET_VNET_HDR socket apart and hands each frame to take, as
// it would have come over a wire. The bytes are valid during the call. It overwrites b.
func Split(b []byte, take func(b []byte)) (n int, err error) {
	if len(b) < vnetLen {
		return 0, errTrainShort
	}
	kind, size := b[1], int(binary.LittleEndian.Uint16(b[4:6])) // virtio_net_hdr has the host's byte order
	b = b[vnetLen:]
	if kind == 0 {
		take(b)
		return 1, nil
	}
	heads := headsOf(b)
	if kind != vnetUDP || heads == 0 {
		return 0, errTrainKind
	}
	if size == 0 || len(b) == heads {
		return 0, errTrainShort
	}
	var first [trainHeads6]byte
	copy(first[:], b[:heads])
	id := idOf(first[:heads])
	for at := heads; at < len(b); at += size {
		end := min(at+size, len(b))
		// The header is written before its payload, over bytes that have been delivered
		// already.
		h := b[at-heads : at]
		copy(h, first[:])
		setHeads(h, end-at, id+uint16(n))
		take(b[at-heads : end])
		n++
	}
	return n, nil
}

// headsOf returns the bytes of Ethernet, IP and UDP that a frame begins with, or 0 if it is
// not a datagram of either family.
func headsOf(f []byte) int {
	if len(f) < trainHeads4 {
		return 0
	}
	switch kind := binary.BigEndian.Uint16(f[12:14]); {
	case kind == wire.EtherTypeIPv4 && f[14] == 0x45 && f[23] == wire.ProtocolUDP:
		return trainHeads4
	case kind == wire.EtherTypeIPv6 && f[14]>>4 == 6 && f[20] == wire.ProtocolUDP && len(f) >= trainHeads6:
		return trainHeads6
	}
	return 0
}

// idOf returns the IPv4 identification in a frame's heads; IPv6 has none.
func idOf(h []byte) uint16 {
	if len(h) == trainHeads6 {
		return 0
	}
	return binary.BigEndian.Uint16(h[18:20])
}

// setHeads writes the fields that differ between the frames of a train: lengths, identification and
// checksums, for n bytes after UDP's header.
func setHeads(h []byte, n int, id uint16) {
	if len(h) == trainHeads6 {
		binary.BigEndian.PutUint16(h[18:20], uint16(wire.UDPLen+n))
	} else {
		binary.BigEndian.PutUint16(h[16:18], uint16(wire.IPv4Len+wire.UDPLen+n))
		binary.BigEndian.PutUint16(h[18:20], id)
		h[24], h[25] = 0, 0
		binary.BigEndian.PutUint16(h[24:26], ^sum(h[14:34], 0))
	}
	udp := h[len(h)-wire.UDPLen:]
	binary.BigEndian.PutUint16(udp[4:6], uint16(wire.UDPLen+n))
	udp[6], udp[7] = 0, 0 // RoCE's UDP checksum
}

// pseudo returns the checksum of the pseudo header for n bytes of UDP; the kernel completes it
// when it splits the train.
func pseudo(h []byte, n int) uint16 {
	s := uint32(wire.ProtocolUDP) + uint32(n)
	if len(h) == trainHeads6 {
		return sum(h[22:54], s)
	}
	return sum(h[26:34], s)
}

// sum adds 16-bit words to s as Internet checksums do.
func sum(b []byte, s uint32) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}

// Send implements IO.
func (t *Trains) Send(frames [][]byte) (sent int, err error) {
	for sent < len(frames) {
		n := t.couple(frames[sent:])
		r, full, gone, err := send(t.fd, t.tx[:n])
		if gone {
			t.cut += uint64(len(frames) - sent) // the link is gone, and the frames with it
			return len(frames), nil
		}
		for _, k := range t.heads[:r] {
			sent += k
		}
		if full || err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// couple makes trains of the first frames, in order, at most trainBatch, and returns their number.
func (t *Trains) couple(frames [][]byte) (trains int) {
	t.txIO, t.heads = t.txIO[:0], t.heads[:0]
	for len(frames) > 0 && trains < batch && len(t.txIO)+2+TrainMax <= cap(t.txIO) {
		k := trainLen(frames)
		first := frames[0]
		v := &t.txV[trains]
		*v = [vnetLen]byte{}
		from := len(t.txIO)
		t.add(v[:])
		if k == 1 {
			t.add(first)
		} else {
			heads := headsOf(first)
			size := len(first) - heads
			total := 0
			for _, f := range frames[:k] {
				total += len(f) - heads
			}
			v[0], v[1] = vnetNeedsChecksum, vnetUDP
			binary.LittleEndian.PutUint16(v[2:4], uint16(heads))
			binary.LittleEndian.PutUint16(v[4:6], uint16(size))
			binary.LittleEndian.PutUint16(v[6:8], uint16(heads-wire.UDPLen))
			binary.LittleEndian.PutUint16(v[8:10], 6)
			h := t.txH[trains][:heads]
			copy(h, first)
			setHeads(h, total, idOf(first[:heads]))
			binary.BigEndian.PutUint16(h[heads-2:], pseudo(h, wire.UDPLen+total))
			t.add(h)
			for _, f := range frames[:k] {
				t.add(f[heads:])
			}
		}
		m := &t.tx[trains].hdr
		m.Iov = &t.txIO[from]
		m.SetIovlen(len(t.txIO) - from)
		t.heads = append(t.heads, k)
		frames = frames[k:]
		trains++
	}
	return trains
}

func (t *Trains) add(b []byte) {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	t.txIO = append(t.txIO, v)
}

// trainLen returns the number of the first frames that may travel as one train: of one flow and size
// (the last may be shorter), with identifications that count up.
func trainLen(frames [][]byte) (k int) {
	first := frames[0]
	heads := headsOf(first)
	if heads == 0 || !bare(first, heads) {
		return 1
	}
	size := len(first) - heads
	id := idOf(first[:heads])
	bytes := heads + size
	for k = 1; k < min(len(frames), TrainMax); k++ {
		f := frames[k]
		n := len(f) - heads
		if n <= 0 || n > size || bytes+n > trainBytes || !sameFlow(first[:heads], f[:heads]) || !bare(f, heads) {
			break
		}
		if heads == trainHeads4 && idOf(f[:heads]) != id+uint16(k) {
			break
		}
		bytes += n
		if n < size {
			k++
			break // a shorter one is the last
		}
	}
	return k
}

// bare reports whether a frame is nothing but its datagram, with no padding, which a train
// would not keep, and the datagram has no checksum.
func bare(f []byte, heads int) bool {
	udp := f[heads-wire.UDPLen : heads]
	return int(binary.BigEndian.Uint16(udp[4:6])) == len(f)-heads+wire.UDPLen && udp[6] == 0 && udp[7] == 0 && len(f) > heads
}

// sameFlow reports whether the heads of two frames are equal in all fields that setHeads does
// not write.
func sameFlow(a, b []byte) bool {
	if len(a) == trainHeads6 {
		return [18]byte(a[:18]) == [18]byte(b[:18]) && [38]byte(a[20:58]) == [38]byte(b[20:58])
	}
	return [16]byte(a[:16]) == [16]byte(b[:16]) && [4]byte(a[20:24]) == [4]byte(b[20:24]) && [12]byte(a[26:38]) == [12]byte(b[26:38])
}
