// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
)

var (
	addrA, addrB   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	addrA6, addrB6 = netip.MustParseAddr("fd6d:6361:7374::a00:1"), netip.MustParseAddr("fd6d:6361:7374::a00:2")
	macA, macB     = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
)

func flowAB() flow {
	return flow{srcMAC: macA, dstMAC: macB, src: addrA, dst: addrB, port: 0xc011}
}

// flow6AB is flowAB over IPv6.
func flow6AB() flow {
	return flow{srcMAC: macA, dstMAC: macB, src: addrA6, dst: addrB6, port: 0xc011}
}

func num(v any) string {
	if b, ok := v.(bool); ok {
		if b {
			return "1"
		}
		return "0"
	}
	return fmt.Sprint(v)
}

// end is one end of a wire between two ports. Writes of one goroutine only.
type end struct {
	in, out chan []byte
	done    chan struct{}
	once    sync.Once
	faults  faults
	held    []byte
}

// faults are the probabilities of faults of a frame.
type faults struct {
	rng                                 *rand.Rand
	lose, duplicate, reorder, corrupted float64
}

func newLink() (*end, *end) {
	x, y := make(chan []byte, 64), make(chan []byte, 64)
	return &end{in: x, out: y, done: make(chan struct{})}, &end{in: y, out: x, done: make(chan struct{})}
}

func (e *end) Read(b []byte) (int, error) {
	select {
	case f := <-e.in:
		return copy(b, f), nil
	case <-e.done:
		return 0, io.EOF
	}
}

func (e *end) Write(b []byte) (int, error) {
	f := bytes.Clone(b)
	if r := e.faults.rng; r != nil {
		switch {
		case r.Float64() < e.faults.lose:
			return len(b), nil
		case r.Float64() < e.faults.duplicate:
			e.put(f)
		case r.Float64() < e.faults.corrupted:
			f[r.IntN(len(f))] ^= 1 << r.IntN(8)
		case e.held == nil && r.Float64() < e.faults.reorder:
			e.held = f // until after the next frame
			return len(b), nil
		}
	}
	e.put(f)
	if e.held != nil {
		e.put(e.held)
		e.held = nil
	}
	return len(b), nil
}

func (e *end) put(f []byte) {
	select {
	case e.out <- f:
	case <-e.done:
	}
}

func (e *end) Close() error {
	e.once.Do(func() { close(e.done) })
	return nil
}

func configs() (a, b Config) {
	a = Config{MAC: macA[:], IP: addrA, QPN: 0x11, PeerIP: addrB, PeerQPN: 0x12, StartPSN: 0xfffff0, PeerPSN: 7, MTU: 256,
		VA: 0x7f0000001000, RKey: 0x101, Memory: make([]byte, 1<<20)}
	b = Config{MAC: macB[:], IP: addrB, QPN: 0x12, PeerIP: addrA, PeerQPN: 0x11, StartPSN: 7, PeerPSN: 0xfffff0, MTU: 256,
		VA: 0x7f0000001000, RKey: 0x202, Memory: make([]byte, 1<<20)}
	return a, b
}

func start(t *testing.T, c Config, port io.ReadWriteCloser) *Peer {
	t.Helper()
	p, err := New(c, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
