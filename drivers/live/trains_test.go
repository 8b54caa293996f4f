// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mcastlab/mcastlab/core/wire"
)

// roce builds the bytes of a RoCE frame.
func roce(pool *wire.Pool, psn wire.PSN, payload int, src uint32, ce bool, change ...func(*wire.Flow)) []byte {
	traffic := 26<<2 | wire.ECNECT0
	if ce {
		traffic |= wire.ECNCE
	}
	w := wire.Flow{
		SrcMAC: wire.HostMAC(src), DstMAC: wire.HostMAC(2), Src: src, Dst: 2, Traffic: traffic, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2,
	}
	for _, c := range change {
		c(&w)
	}
	e := wire.NewEnvelope(w)
	f := pool.Get()
	defer pool.Put(f)
	f.Start(&e, wire.BTH{OpCode: wire.OpSendMiddle, PKey: 0xffff, DestQP: 17, PSN: psn})
	if payload > 0 {
		b := pool.Block()
		for i := range b.Fill(payload) {
			b.Fill(payload)[i] = byte(int(psn) + i)
		}
		f.SetPayload(b)
	}
	f.Seal(uint16(psn), false)
	return f.AppendTo(nil)
}

func overIPv6(w *wire.Flow) { w.IPv6, w.Label = true, 0xabcde }

// registrations builds the bytes of MRP datagrams over IPv6, which have a UDP checksum.
func registrations(pool *wire.Pool, n int) (all [][]byte) {
	for i := range n {
		e := wire.NewEnvelope(wire.Flow{IPv6: true, Src: 1, Dst: wire.GroupNet | 1, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
		f := pool.Get()
		f.StartDatagram(&e)
		b := pool.Block()
		wire.MRPRecord{IP: uint32(i)}.AppendTo(wire.MRPHeader{Seq: uint16(i), Total: uint16(n)}.AppendTo(b.Fill(16)[:0]))
		f.SetPayload(b)
		f.Seal(0, false)
		all = append(all, f.AppendTo(nil))
		pool.Put(f)
	}
	return all
}

// message returns the kernel's message to the other end for train i.
func (t *Trains) message(i int) (b []byte) {
	m := &t.tx[i].hdr
	for _, v := range unsafe.Slice(m.Iov, m.Iovlen) {
		b = append(b, unsafe.Slice(v.Base, v.Len)...)
	}
	return b
}

// TestTrains: whatever frames there are to send, the trains they make give the same frames
// when they are taken apart, byte for byte, and frames that belong together travel so.
func TestTrains(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var pool wire.Pool
		var frames [][]byte
		psn := wire.PSN(r.Uint32()) & wire.PSNMask
		family := func(w *wire.Flow) { w.IPv6 = seed%2 == 1 }
		for range 1 + r.IntN(batch) {
			src, size, ce := uint32(1), 1024, false
			tag := func(*wire.Flow) {}
			switch r.IntN(14) {
			case 0:
				src = 3
			case 1:
				size = 4 * r.IntN(300)
			case 2:
				ce = true
			case 3:
				psn = psn.Add(5)
			case 4:
				frames = append(frames, registrations(&pool, 2)...)
			case 5:
				tag = func(w *wire.Flow) { w.VLAN = &wire.VLAN{PCP: 3, ID: 7} }
			}
			frames = append(frames, roce(&pool, psn, size, src, ce, family, tag))
			psn = psn.Add(1)
		}
		tr := new(Receiver).NewTrains(-1)
		var got [][]byte
		left := frames
		for len(left) > 0 {
			n := tr.couple(left)
			for i := range n {
				k, err := Split(tr.message(i), func(b []byte) { got = append(got, bytes.Clone(b)) })
				if err != nil || k != tr.heads[i] {
					t.Fatalf("seed %d: train of %d gave %d frames: %v", seed, tr.heads[i], k, err)
				}
			}
			for _, k := range tr.heads {
				left = left[k:]
			}
		}
		for i := range frames {
			if !bytes.Equal(frames[i], got[i]) {
				t.Fatalf("seed %d: frame %d went in as\n%x and came out as\n%x", seed, i, frames[i], got[i])
			}
			f, err := pool.Parse(got[i])
			if err != nil || f.Kind() == wire.KindRoCE && !f.CheckICRC() {
				t.Fatalf("seed %d: frame %d: %v", seed, i, err)
			}
			pool.Put(f)
		}
	}
}

// TestTrainLength: a run of equal frames is one train, up to the size of one IP packet; a frame of
// another flow, mark or identification begins another.
func TestTrainLength(t *testing.T) {
	var pool wire.Pool
	run := func(n, payload int, from wire.PSN, change ...func(*wire.Flow)) (f [][]byte) {
		for i := range n {
			f = append(f, roce(&pool, from.Add(i), payload, 1, false, change...))
		}
		return f
	}
	marked := run(6, 1024, 1)
	marked[3] = roce(&pool, 4, 1024, 1, true)
	shorter := run(6, 1024, 1)
	shorter[2] = roce(&pool, 3, 512, 1, false)
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   string
	}{
		{"equal", run(32, 1024, 1), "[32]"},
		{"identification wraps", run(8, 1024, 0xfffffc), "[8]"},
		{"one packet's limit", run(32, 4096, 1), "[15 15 2]"},
		{"a gap", append(run(3, 1024, 1), run(3, 1024, 9)...), "[3 3]"},
		{"a mark", marked, "[3 1 2]"},
		{"a shorter one ends a train", shorter, "[3 3]"},
		{"short frames, padded by Ethernet", run(3, 0, 1), "[1 1 1]"},
		{"IPv6", append(run(64, 512, 1, overIPv6), run(4, 64, 70, overIPv6)...), "[64 4]"},
		{"IPv6, a gap in PSNs", append(run(3, 1024, 1, overIPv6), run(3, 1024, 9, overIPv6)...), "[6]"},
		{"IPv6, one packet's limit", run(32, 4096, 1, overIPv6), "[15 15 2]"},
		{"two families", append(run(3, 1024, 1), run(3, 1024, 4, overIPv6)...), "[3 3]"},
		{"a VLAN", run(3, 1024, 1, overIPv6, func(w *wire.Flow) { w.VLAN = &wire.VLAN{ID: 7} }), "[1 1 1]"},
		{"UDP checksums", registrations(&pool, 3), "[1 1 1]"},
	} {
		tr := new(Receiver).NewTrains(-1)
		var got []int
		for left := c.frames; len(left) > 0; {
			tr.couple(left)
			for _, k := range tr.heads {
				got, left = append(got, k), left[k:]
			}
		}
		if s := fmt.Sprint(got); s != c.want {
			t.Errorf("%s: trains of %s, want %s", c.name, s, c.want)
		}
	}
}

// FuzzSplit: no message of a socket, however broken, is read beyond its end.
func FuzzSplit(f *testing.F) {
	var pool wire.Pool
	tr := new(Receiver).NewTrains(-1)
	var frames [][]byte
	for i := range 4 {
		frames = append(frames, roce(&pool, wire.PSN(i), 256, 1, false))
	}
	tr.couple(frames)
	f.Add(tr.message(0))
	for i := range frames {
		frames[i] = roce(&pool, wire.PSN(i), 256, 1, false, overIPv6)
	}
	tr.couple(frames)
	f.Add(tr.message(0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		n, err := Split(bytes.Clone(b), func(frame []byte) { total += len(frame) })
		if err == nil && n == 0 || total > len(b)+n*trainHeads6 {
			t.Fatalf("%d frames of %d bytes, %v", n, total, err)
		}
	})
}

var _ IO = (*Trains)(nil)
