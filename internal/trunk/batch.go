// SPDX-License-Identifier: Apache-2.0

// Package trunk carries the frames of many links over one connection between two servers. What waits in the links' sockets travels as one
// batch; while the connection takes no more, frames wait there, and none is dropped here.
package trunk

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A batch is a header and then its frames, numbers big-endian:
//
//	0  4  bytes of what follows the header
//	4  4  number of frames; a batch of none says that this end is there
//	8     for each frame: 4 bytes with the number of its link, 2 with its length, and the frame
const (
	headerBytes = 8
	frameHeader = 6
)

// frameMax is the longest frame, in bytes: RoCE's with 4,096 bytes of payload, all headers and a tag, with room.
const frameMax = 4352

// batchMax bounds what follows a header. A batch takes what one call to the kernel gives of a link, 64 frames, several times.
const batchMax = 1 << 19

// Errors of batches that are none.
var (
	errShort = errors.New("a batch ends in the middle of a frame")
	errRest  = errors.New("a batch has bytes after its last frame")
)

// batch is one that is being written.
type batch struct {
	b      []byte
	frames uint32
}

func newBatch() *batch { return &batch{b: make([]byte, headerBytes, headerBytes+batchMax)} }

// reset empties it.
func (b *batch) reset() { b.b, b.frames = b.b[:headerBytes], 0 }

// room returns the bytes of frames, headers included, that the batch still takes.
func (b *batch) room() int { return headerBytes + batchMax - len(b.b) }

// add appends a frame. There has to be room.
func (b *batch) add(link int, frame []byte) {
	b.b = binary.BigEndian.AppendUint32(b.b, uint32(link))
	b.b = binary.BigEndian.AppendUint16(b.b, uint16(len(frame)))
	b.b = append(b.b, frame...)
	b.frames++
}

// bytes returns the batch as it travels.
func (b *batch) bytes() []byte {
	binary.BigEndian.PutUint32(b.b, uint32(len(b.b)-headerBytes))
	binary.BigEndian.PutUint32(b.b[4:], b.frames)
	return b.b
}

// parseHeader returns how many bytes follow a header, and the number of frames in them.
func parseHeader(b *[headerBytes]byte) (size int, frames uint32, err error) {
	n := binary.BigEndian.Uint32(b[:])
	if frames = binary.BigEndian.Uint32(b[4:]); n > batchMax || uint64(frames)*frameHeader > uint64(n) {
		return 0, 0, fmt.Errorf("a batch of %d frames in %d bytes", frames, n)
	}
	return int(n), frames, nil
}

// parseFrame returns the first frame of what follows a header, and the rest. The frame is a part of b.
func parseFrame(b []byte) (link int, frame, rest []byte, err error) {
	if len(b) < frameHeader {
		return 0, nil, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n == 0 || n > frameMax {
		return 0, nil, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	if len(b) < frameHeader+n {
		return 0, nil, nil, errShort
	}
	return int(binary.BigEndian.Uint32(b)), b[frameHeader : frameHeader+n : frameHeader+n], b[frameHeader+n:], nil
}
