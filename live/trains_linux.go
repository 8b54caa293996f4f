package live

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/wire"
)

// Bounds of a train.
const (
	// TrainMax is how many frames one train has at the most: what the kernel takes.
	TrainMax = 64
	// trainBytes is the longest train: one IP packet.
	trainBytes = 1<<16 - 1
	// trainHeads is how much of each frame the train's first one stands for: Ethernet,
	// IPv4 and UDP.
	trainHeads = wire.EthernetLen + wire.IPv4Len + wire.UDPLen
	// trainBatch is how many trains one system call moves.
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
// Inside a train IP identifications count up, as the kernel has it when it takes one apart.
// The ICRC covers them: frames whose identification does not follow on begin another train.
type Trains struct {
	fd   int
	rx   [trainBatch]mmsghdr
	rxIO [trainBatch]unix.Iovec
	rxB  [trainBatch][]byte
	rxC  [trainBatch][64]byte

	tx    [batch]mmsghdr
	txIO  []unix.Iovec // of all trains, in order
	txV   [batch][vnetLen]byte
	txH   [batch][trainHeads]byte
	heads []int // frames of each train

	drops, cut uint64
}

// NewTrains takes over a socket.
func NewTrains(fd int) *Trains {
	t := &Trains{fd: fd, txIO: make([]unix.Iovec, 0, 2*batch+2+TrainMax), heads: make([]int, 0, batch)}
	for i := range t.rx {
		t.rxB[i] = make([]byte, vnetLen+wire.EthernetLen+trainBytes)
		t.rxIO[i].Base = &t.rxB[i][0]
		t.rxIO[i].SetLen(len(t.rxB[i]))
		t.rx[i].hdr.Iov = &t.rxIO[i]
		t.rx[i].hdr.SetIovlen(1)
		t.rx[i].hdr.Control = &t.rxC[i][0]
	}
	return t
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
		wall := stamp(t.rxC[i][:m.hdr.Controllen])
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			t.drops++
			continue
		}
		got, err := Split(t.rxB[i][:m.n], func(b []byte) { take(wall, b) })
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
	errTrainKind  = errors.New("train is not IPv4 and UDP")
)

// Split takes a message of a PACKET_VNET_HDR socket apart and hands each frame to take, as
// it would have come over a wire. The bytes are valid during the call. It overwrites b.
func Split(b []byte, take func(b []byte)) (n int, err error) {
	if len(b) < vnetLen {
		return 0, errTrainShort
	}
	kind, size := b[1], int(binary.LittleEndian.Uint16(b[4:6])) // virtio_net_hdr is in the host's order
	b = b[vnetLen:]
	if kind == 0 {
		take(b)
		return 1, nil
	}
	if kind != vnetUDP || len(b) < trainHeads || b[12] != byte(wire.EtherTypeIPv4>>8) || b[13] != 0 || b[14] != 0x45 || b[23] != wire.ProtocolUDP {
		return 0, errTrainKind
	}
	if size == 0 || len(b) == trainHeads {
		return 0, errTrainShort
	}
	var head [trainHeads]byte
	copy(head[:], b)
	id := binary.BigEndian.Uint16(head[18:20])
	for at := trainHeads; at < len(b); at += size {
		end := min(at+size, len(b))
		// The header goes in front of its payload, over what has been taken already.
		h := b[at-trainHeads : at]
		copy(h, head[:])
		setHeads(h, end-at, id+uint16(n))
		take(b[at-trainHeads : end])
		n++
	}
	return n, nil
}

// setHeads writes what differs between the frames of a train: lengths, identification and
// checksums, for n bytes after UDP's header.
func setHeads(h []byte, n int, id uint16) {
	binary.BigEndian.PutUint16(h[16:18], uint16(wire.IPv4Len+wire.UDPLen+n))
	binary.BigEndian.PutUint16(h[18:20], id)
	h[24], h[25] = 0, 0
	binary.BigEndian.PutUint16(h[24:26], ^sum(h[14:34], 0))
	binary.BigEndian.PutUint16(h[38:40], uint16(wire.UDPLen+n))
	h[40], h[41] = 0, 0 // RoCE's UDP checksum
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

// couple makes trains of the first frames, in order, at most a batch, and returns how many.
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
			size := len(first) - trainHeads
			total := 0
			for _, f := range frames[:k] {
				total += len(f) - trainHeads
			}
			v[0], v[1] = vnetNeedsChecksum, vnetUDP
			binary.LittleEndian.PutUint16(v[2:4], trainHeads)
			binary.LittleEndian.PutUint16(v[4:6], uint16(size))
			binary.LittleEndian.PutUint16(v[6:8], wire.EthernetLen+wire.IPv4Len)
			binary.LittleEndian.PutUint16(v[8:10], 6)
			h := &t.txH[trains]
			copy(h[:], first)
			setHeads(h[:], total, binary.BigEndian.Uint16(first[18:20]))
			// What the kernel completes when it takes the train apart.
			pseudo := sum(h[26:34], uint32(wire.ProtocolUDP)+uint32(wire.UDPLen+total))
			binary.BigEndian.PutUint16(h[40:42], pseudo)
			t.add(h[:])
			for _, f := range frames[:k] {
				t.add(f[trainHeads:])
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

// trainLen returns how many of the first frames may travel as one train: of one flow and
// size (the last may be shorter), with identifications that count up.
func trainLen(frames [][]byte) (k int) {
	first := frames[0]
	if len(first) <= trainHeads || first[12] != byte(wire.EtherTypeIPv4>>8) || first[13] != 0 || first[14] != 0x45 || first[23] != wire.ProtocolUDP {
		return 1
	}
	size := len(first) - trainHeads
	if int(binary.BigEndian.Uint16(first[16:18])) != len(first)-wire.EthernetLen {
		return 1 // padded: the train would not tell
	}
	id := binary.BigEndian.Uint16(first[18:20])
	bytes := trainHeads + size
	for k = 1; k < min(len(frames), TrainMax); k++ {
		f := frames[k]
		n := len(f) - trainHeads
		if n <= 0 || n > size || bytes+n > trainBytes || binary.BigEndian.Uint16(f[18:20]) != id+uint16(k) || !sameFlow(first, f) {
			break
		}
		if int(binary.BigEndian.Uint16(f[16:18])) != len(f)-wire.EthernetLen {
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

// sameFlow compares the headers of two frames but for what setHeads writes.
func sameFlow(a, b []byte) bool {
	return [16]byte(a[:16]) == [16]byte(b[:16]) && [4]byte(a[20:24]) == [4]byte(b[20:24]) && [12]byte(a[26:38]) == [12]byte(b[26:38])
}
