// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// PacketMax is the longest message of Packets, in bytes.
const PacketMax = 1024

// Packets are messages over a connection: each read and write is of one, which has two bytes with its length before it.
type Packets struct {
	c  net.Conn
	mu sync.Mutex // of writing
}

// NewPackets returns the messages of a connection.
func NewPackets(c net.Conn) *Packets { return &Packets{c: c} }

// Write implements io.Writer: b is one message.
func (p *Packets) Write(b []byte) (int, error) {
	if len(b) == 0 || len(b) > PacketMax {
		return 0, fmt.Errorf("a message of %d bytes, and one has 1 to %d", len(b), PacketMax)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read implements io.Reader: it returns one message, for which there has to be room.
func (p *Packets) Read(b []byte) (int, error) {
	var head [2]byte
	if _, err := io.ReadFull(p.c, head[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n == 0 || n > PacketMax || n > len(b) {
		return 0, fmt.Errorf("a message of %d bytes where %d are awaited", n, len(b))
	}
	_, err := io.ReadFull(p.c, b[:n])
	return n, err
}

// Close implements io.Closer.
func (p *Packets) Close() error { return p.c.Close() }

// JoinPackets passes messages both ways between two ends, until one has no more, and closes both.
func JoinPackets(near, far io.ReadWriteCloser) {
	var both sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{near, far}, {far, near}} {
		both.Go(func() {
			b := make([]byte, PacketMax)
			for {
				n, err := way[0].Read(b)
				if err != nil || n == 0 {
					break
				}
				if _, err := way[1].Write(b[:n]); err != nil {
					break
				}
			}
			_, _ = near.Close(), far.Close() // the far reader gets the end of the stream
		})
	}
	both.Wait()
}
