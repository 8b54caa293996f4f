// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// slowMemory is a guest's memory into which bytes come some time after the NIC has written them.
type slowMemory struct {
	p       *pair
	r       *prng.Stream
	image   []byte // memory that a READ finds: all that was written
	there   []byte // memory that the program finds
	handed  uint64
	placed  uint64
	last    vtime.Time
	maximum uint64
}

func (m *slowMemory) put(off uint64, b []byte) {
	copy(m.image[off:], b)
	m.handed++
	n, bytes := m.handed, bytes.Clone(b)
	m.last = max(m.last, m.p.net.Now).Add(vtime.Duration(m.r.Uint64() % m.maximum))
	m.p.net.At(m.last, func(now vtime.Time) {
		copy(m.there[off:], bytes)
		m.placed = n
		m.p.nic[1].Placed(now, m.p.qp[1], n)
	})
}

func (m *slowMemory) fence(*QP) uint64 {
	if m.placed == m.handed {
		return 0
	}
	return m.handed
}

// TestPlaced: at the completion of a WRITE, a SEND or an atomic its bytes are in the memory of the target program, however long they take
// there; and nothing is lost by waiting. Loss, selective repeat and READs between are drawn.
func TestPlaced(t *testing.T) {
	for seed := range uint64(120) {
		r := prng.New(seed)
		o := pairOptions{ackEvery: 1 + int(r.Uint64()%4), timeout: 10, retry: 7, rnr: 7, rdAtomic: 4, recvWR: 64}
		if seed%2 == 1 {
			o.irn = [2]*IRN{testIRN(), testIRN()}
		}
		p := newPair(t, o)
		const slot, slots = 8 << 10, 40
		m := &slowMemory{p: p, r: &r, image: make([]byte, slot*slots), there: make([]byte, slot*slots), maximum: 1 + r.Uint64()%uint64(20*vtime.Microsecond)}
		guest, err := p.nic[1].RegMR(p.pd[1], &Guest{Image: m.image, Put: m.put}, 15)
		if err != nil {
			t.Fatal(err)
		}
		p.nic[1].SetFence(m.fence)
		lossy := seed%4 >= 2
		p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict {
			return faults.Verdict{Drop: lossy && r.Uint64()%20 == 0}
		}
		src, local := p.region(0, slot*slots, seed)
		want, ops, n := make([]byte, slot*slots), [slots]WROpcode{}, [slots]int{}
		for i := range slots {
			at := uint64(i * slot)
			n[i] = 1 + int(r.Uint64()%slot)
			wr := SendWR{WRID: uint64(i), RemoteAddr: guest.Addr() + at, RKey: guest.RKey(), Opcode: WRRDMAWrite}
			switch r.Uint64() % 4 {
			case 0:
				wr.Opcode = WRSend
				p.recv(1, RecvWR{SGE: SGE{Addr: wr.RemoteAddr, Length: slot, LKey: guest.LKey()}})
			case 1:
				wr.Opcode, wr.SwapAdd, n[i] = WRAtomicFetchAdd, uint64(i)+1, 8
			case 2:
				if r.Uint64()%2 == 0 {
					wr.Opcode = WRRDMARead
				}
			}
			wr.SGE = SGE{Addr: local.Addr() + at, Length: uint32(n[i]), LKey: local.LKey()}
			switch ops[i] = wr.Opcode; wr.Opcode {
			case WRAtomicFetchAdd:
				binary.LittleEndian.PutUint64(want[at:], wr.SwapAdd)
			case WRRDMARead:
				n[i] = 0
			default:
				copy(want[at:], src[at:][:n[i]])
			}
			p.post(0, wr)
		}
		done := 0
		for p.net.Step() {
			for _, w := range p.completions(0) {
				i := int(w.WRID)
				if done++; w.Status != WCSuccess {
					t.Fatalf("seed %d: request %d, %v: %v", seed, i, ops[i], w.Status)
				}
				if at := i * slot; !bytes.Equal(m.there[at:][:n[i]], want[at:][:n[i]]) {
					t.Fatalf("seed %d: request %d, opcode %v of %d bytes, has completed, and its bytes are not there", seed, i, ops[i], n[i])
				}
			}
		}
		if done != slots {
			t.Fatalf("seed %d: %d of %d requests have completed", seed, done, slots)
		}
		if m.placed != m.handed || p.qp[1].rq.out.Len() > 0 {
			t.Errorf("seed %d: %d of %d pieces are there, %d answers wait", seed, m.placed, m.handed, p.qp[1].rq.out.Len())
		}
	}
}

// TestPlacedMoves: while bytes of one program are always on their way, answers leave all the same, each when its own bytes are there.
func TestPlacedMoves(t *testing.T) {
	p := newPair(t, pairOptions{})
	handed := uint64(0)
	guest, err := p.nic[1].RegMR(p.pd[1], &Guest{Image: make([]byte, 64), Put: func(uint64, []byte) { handed++ }}, 15)
	if err != nil {
		t.Fatal(err)
	}
	p.nic[1].SetFence(func(*QP) uint64 { return handed })
	_, local := p.region(0, 64, 1)
	for i := range uint64(20) {
		p.post(0, SendWR{WRID: i, RemoteAddr: guest.Addr(), RKey: guest.RKey(), Opcode: WRRDMAWrite, SGE: whole(local, 64)})
		for handed <= i && p.net.Step() {
		}
		if i > 0 { // the bytes before are there, those of this one are not
			p.nic[1].Placed(p.net.Now, p.qp[1], i)
		}
		for p.net.Step() {
		}
		if all := p.completions(0); i > 0 && (len(all) != 1 || all[0].WRID != i-1) || i == 0 && len(all) > 0 {
			t.Fatalf("when the bytes of request %d are on their way %v completes", i, all)
		}
	}
}
