// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

var readable = pairOptions{timeout: 6, retry: 7, rnr: 7, rdAtomic: 4, psn: 0xfffffe}

func read(id uint64, to, from *MR, n int) SendWR {
	return SendWR{WRID: id, Opcode: WRRDMARead, SGE: whole(to, n), RemoteAddr: from.Addr(), RKey: from.RKey()}
}

func add(id uint64, result SGE, at *MR, v uint64) SendWR {
	return SendWR{WRID: id, Opcode: WRAtomicFetchAdd, SGE: result, RemoteAddr: at.Addr(), RKey: at.RKey(), SwapAdd: v}
}

// TestRead fetches messages of all sizes, through the wrap of the PSN, with every MTU.
func TestRead(t *testing.T) {
	for _, mtu := range []int{256, 1024, 4096} {
		for _, n := range []int{0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 5000, 65536} {
			o := readable
			o.mtu = mtu
			p := newPair(t, o)
			dst, dm := p.region(0, max(1, n), 0)
			src, sm := p.region(1, max(1, n), 7)
			w := read(1, dm, sm, n)
			if n == 0 {
				w.RKey = 99 // nothing is checked for no bytes
			}
			p.post(0, w)
			p.run()
			p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: uint32(n)})
			if !bytes.Equal(src[:n], dst[:n]) {
				t.Errorf("%d bytes by %d: reader has others", n, mtu)
			}
			packets := max(1, (n+mtu-1)/mtu)
			if got, want := p.qp[0].SQPSN(), o.psn.Add(packets); got != want || p.qp[1].RQPSN() != want {
				t.Errorf("%d bytes by %d: next PSN %v and %v, want %v", n, mtu, got, p.qp[1].RQPSN(), want)
			}
		}
	}
}

// TestReadMemory reads memory without bytes and memory that knows a hash only.
func TestReadMemory(t *testing.T) {
	const n = 10000
	p := newPair(t, readable)
	h := NewHashed(n)
	h.Reset(7, true)
	hm, err := p.nic[1].RegMR(p.pd[1], h, AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	pm, err := p.nic[1].RegMR(p.pd[1], Phantom(n), AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := p.region(0, n, 7)
	got, gm := p.region(0, n, 0)
	zero, zm := p.region(0, n, 5)
	p.post(0, read(1, gm, hm, n))
	p.post(0, read(2, zm, pm, n))
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: n}, WC{WRID: 2, Opcode: WCRDMARead, ByteLen: n})
	if !bytes.Equal(got, want) || !bytes.Equal(zero, make([]byte, n)) {
		t.Error("other bytes were read")
	}
	if _, err := p.nic[1].RegMR(p.pd[1], Phantom(n), AccessLocalWrite|AccessRemoteAtomic); err == nil {
		t.Error("memory without bytes was registered for atomics")
	}
}

// TestAtomics executes both atomics and compares memory and their results.
func TestAtomics(t *testing.T) {
	p := newPair(t, readable)
	mem, m := p.region(1, 16, 0)
	res, rm := p.region(0, 64, 0)
	binary.LittleEndian.PutUint64(mem[8:], 100)
	wr := func(i int, op WROpcode, swapAdd, compare uint64) SendWR {
		return SendWR{
			WRID: uint64(i), Opcode: op, SGE: SGE{rm.Addr() + uint64(i)*8, 8, rm.LKey()}, RemoteAddr: m.Addr() + 8, RKey: m.RKey(),
			SwapAdd: swapAdd, Compare: compare,
		}
	}
	p.post(0, wr(0, WRAtomicFetchAdd, 5, 0))
	p.post(0, wr(1, WRAtomicCmpAndSwp, 7, 104)) // differs
	p.post(0, wr(2, WRAtomicCmpAndSwp, 1<<63, 105))
	p.post(0, wr(3, WRAtomicFetchAdd, 1<<63+3, 0)) // overflows
	p.run()
	p.want(0, WC{WRID: 0, Opcode: WCFetchAdd, ByteLen: 8}, WC{WRID: 1, Opcode: WCCompSwap, ByteLen: 8},
		WC{WRID: 2, Opcode: WCCompSwap, ByteLen: 8}, WC{WRID: 3, Opcode: WCFetchAdd, ByteLen: 8})
	for i, want := range []uint64{100, 105, 105, 1 << 63} {
		if got := binary.LittleEndian.Uint64(res[8*i:]); got != want {
			t.Errorf("atomic %d returned %d, want %d", i, got, want)
		}
	}
	if got := binary.LittleEndian.Uint64(mem[8:]); got != 3 || binary.LittleEndian.Uint64(mem) != 0 {
		t.Errorf("memory holds %d, want 3", got)
	}
}

// TestReadAtomicErrors: refused READs and atomics, the side that refuses them, and their status.
func TestReadAtomicErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   WCStatus
		event  EventType // at the responder
		atomic bool
		change func(p *pair, w *SendWR, remote, local *MR)
	}{
		{"read: key", WCRemAccessErr, EventQPAccessErr, false, func(_ *pair, w *SendWR, _, _ *MR) { w.RKey ^= 1 }},
		{"read: range", WCRemAccessErr, EventQPAccessErr, false, func(_ *pair, w *SendWR, _, _ *MR) { w.RemoteAddr++ }},
		{"read: region without remote read", WCRemAccessErr, EventQPAccessErr, false, func(_ *pair, _ *SendWR, r, _ *MR) { r.access = 3 }},
		{"read: other domain", WCRemAccessErr, EventQPAccessErr, false, func(p *pair, _ *SendWR, r, _ *MR) { r.pd = p.nic[1].AllocPD() }},
		{"read: queue pair without remote read", WCRemInvReqErr, EventQPReqErr, false, func(p *pair, _ *SendWR, _, _ *MR) { p.qp[1].attr.Access = 3 }},
		{"read: no responder resources", WCRemInvReqErr, EventQPReqErr, false, func(p *pair, _ *SendWR, _, _ *MR) { p.qp[1].attr.MaxDestRdAtomic = 0 }},
		{"read: no initiator depth", WCLocQPOpErr, 255, false, func(p *pair, _ *SendWR, _, _ *MR) { p.qp[0].attr.MaxQPRdAtomic = 0 }},
		{"read: into memory not to be written", WCLocProtErr, 255, false, func(_ *pair, _ *SendWR, _, l *MR) { l.access = 0 }},
		{"atomic: key", WCRemAccessErr, EventQPAccessErr, true, func(_ *pair, w *SendWR, _, _ *MR) { w.RKey ^= 1 }},
		{"atomic: region without remote atomic", WCRemAccessErr, EventQPAccessErr, true, func(_ *pair, _ *SendWR, r, _ *MR) { r.access = 7 }},
		{"atomic: queue pair without remote atomic", WCRemInvReqErr, EventQPReqErr, true, func(p *pair, _ *SendWR, _, _ *MR) { p.qp[1].attr.Access = 7 }},
		{"atomic: misaligned", WCRemInvReqErr, EventQPReqErr, true, func(_ *pair, w *SendWR, _, _ *MR) { w.RemoteAddr += 4 }},
		{"atomic: result of 4 bytes", WCLocLenErr, 255, true, func(_ *pair, w *SendWR, _, _ *MR) { w.SGE.Length = 4 }},
		{"atomic: bad local key", WCLocProtErr, 255, true, func(_ *pair, w *SendWR, _, _ *MR) { w.SGE.LKey ^= 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, readable)
			mem, remote := p.region(1, 64, 0)
			_, local := p.region(0, 64, 0)
			w := read(2, local, remote, 64)
			if c.atomic {
				w = add(2, whole(local, 8), remote, 1)
			}
			c.change(p, &w, remote, local)
			p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite})
			p.post(0, w)
			p.post(0, SendWR{WRID: 3, Opcode: WRSend})
			p.run()
			p.want(0, WC{WRID: 1, Opcode: WCRDMAWrite}, WC{WRID: 2, Status: c.want}, WC{WRID: 3, Status: WCWRFlushErr})
			e, ok := p.nic[1].GetAsyncEvent()
			if ok != (c.event != 255) || ok && e.Type != c.event {
				t.Errorf("responder's event %v %v, want %v", e.Type, ok, c.event)
			}
			if !bytes.Equal(mem, make([]byte, 64)) {
				t.Error("memory was changed")
			}
		})
	}
}

// TestInitiatorDepth: never more READs and atomics under way than agreed on, requests
// behind them wait, and a responder that is asked for more refuses.
func TestInitiatorDepth(t *testing.T) {
	for depth := 1; depth <= 5; depth++ {
		o := readable
		o.rdAtomic = uint8(depth)
		p := newPair(t, o)
		_, dm := p.region(0, 5000, 0)
		_, sm := p.region(1, 5000, 7)
		most := 0
		p.net.After = func() {
			asked := int(p.qp[0].sq.asked)
			most = max(most, asked)
			if got := p.qp[1].rq.underway(); got > depth || asked > depth {
				t.Fatalf("%d asked, %d under way with a depth of %d", asked, got, depth)
			}
		}
		for i := range 12 {
			if i%4 == 3 {
				p.post(0, add(uint64(i), whole(dm, 8), sm, 1))
			} else {
				p.post(0, read(uint64(i), dm, sm, 5000))
			}
		}
		p.run()
		if got := len(p.completions(0)); got != 12 || most != depth {
			t.Errorf("depth %d: %d completed, at most %d under way", depth, got, most)
		}
	}
	p := newPair(t, readable)
	p.qp[1].attr.MaxDestRdAtomic = 2
	_, dm := p.region(0, 50000, 0)
	_, sm := p.region(1, 50000, 7)
	for i := range 4 {
		p.post(0, read(uint64(i), dm, sm, 50000))
	}
	p.run()
	p.want(0, WC{WRID: 0, Opcode: WCRDMARead, ByteLen: 50000}, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 50000},
		WC{WRID: 2, Status: WCRemInvReqErr}, WC{WRID: 3, Status: WCWRFlushErr})
}

// TestFence: a fenced request starts when the READs and atomics before it are complete,
// one that is not fenced does not wait.
func TestFence(t *testing.T) {
	for _, flags := range []SendFlags{0, SendFence} {
		p := newPair(t, readable)
		_, dm := p.region(0, 20000, 0)
		_, sm := p.region(1, 20000, 7)
		overtook := false
		p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) faults.Verdict {
			if f.OpCode() == wire.OpSendOnly && p.qp[0].sq.asked > 0 {
				overtook = true
			}
			return faults.Verdict{}
		}
		p.recv(1, RecvWR{})
		p.post(0, read(1, dm, sm, 20000))
		p.post(0, add(2, whole(dm, 8), sm, 1))
		p.post(0, SendWR{WRID: 3, Opcode: WRSend, Flags: flags})
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 20000}, WC{WRID: 2, Opcode: WCFetchAdd, ByteLen: 8}, WC{WRID: 3, Opcode: WCSend})
		if overtook != (flags == 0) {
			t.Errorf("flags %d: the request was sent with answers outstanding: %v", flags, overtook)
		}
	}
}

// mixed posts READs, atomics, SENDs and WRITEs from side 0 and checks at rest that each
// did its work once.
func mixed(p *pair) (check func()) {
	const n = 3000
	got := make([]Bytes, 3)
	src, sm := p.region(1, n, 7)
	mem, am := p.region(1, 8, 0)
	wrote, wm := p.region(1, n, 0)
	from, fm := p.region(0, n, 9)
	result, rm := p.region(0, 24, 0)
	var want []WC
	id := uint64(0)
	post := func(w SendWR) {
		id++
		w.WRID = id
		p.post(0, w)
		want = append(want, WC{WRID: id, Opcode: wcOpcode(w.Opcode), ByteLen: w.SGE.Length})
	}
	for i := range got {
		var m *MR
		got[i], m = p.region(0, n, 0)
		p.recv(1, RecvWR{})
		post(SendWR{Opcode: WRSend})
		post(read(0, m, sm, n))
		post(add(0, SGE{rm.Addr() + uint64(8*i), 8, rm.LKey()}, am, 1))
		post(SendWR{Opcode: WRRDMAWrite, SGE: SGE{fm.Addr() + uint64(1000*i), 1000, fm.LKey()}, RemoteAddr: wm.Addr() + uint64(1000*i), RKey: wm.RKey()})
	}
	return func() {
		p.want(0, want...)
		if k := len(p.completions(1)); k != len(got) {
			p.t.Errorf("%d receives completed, want %d", k, len(got))
		}
		for i, b := range got {
			if !bytes.Equal(b, src) {
				p.t.Errorf("READ %d brought other bytes", i)
			}
			if v := binary.LittleEndian.Uint64(result[8*i:]); v != uint64(i) {
				p.t.Errorf("atomic %d returned %d, want %d", i, v, i)
			}
		}
		if v := binary.LittleEndian.Uint64(mem); v != uint64(len(got)) || !bytes.Equal(wrote, from) {
			p.t.Errorf("counter %d, want %d; writes right: %v", v, len(got), bytes.Equal(wrote, from))
		}
	}
}

// TestReadEveryLoss loses, doubles, delays each single frame of a conversation of READs,
// atomics, SENDs and WRITEs in turn.
func TestReadEveryLoss(t *testing.T) {
	fates := map[string]faults.Verdict{
		"loss": {Drop: true}, "copy": {Twice: true}, "late copy": {Twice: true, Delay: 7 * vtime.Microsecond, Delay2: 7 * vtime.Microsecond}, "delay": {Delay: 3 * vtime.Microsecond},
	}
	for name, fate := range fates { // independent of each other
		for k := 0; ; k++ {
			o := readable
			o.rdAtomic = uint8(1 + k%3)
			p := newPair(t, o)
			check := mixed(p)
			n := 0
			p.net.Fate = func(vtime.Time, int, *wire.Frame) faults.Verdict {
				n++
				if n == k+1 {
					return fate
				}
				return faults.Verdict{}
			}
			p.run()
			check()
			if t.Failed() {
				t.Fatalf("%s of frame %d", name, k)
			}
			if n <= k {
				break
			}
		}
	}
}

// TestImpliedNak: the packet after a lost answer reveals the loss, without a timeout.
func TestImpliedNak(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		o := readable
		o.timeout = 0
		p := newPair(t, o)
		_, dm := p.region(0, 3000, 0)
		_, sm := p.region(1, 3000, 7)
		p.loseNth(1, 1)
		w := read(1, dm, sm, 3000)
		if atomic {
			w = add(1, whole(dm, 8), sm, 1)
		}
		p.post(0, w)
		p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite})
		p.run()
		if got := p.completions(0); len(got) != 2 || got[0].Status != WCSuccess || got[1].Status != WCSuccess {
			t.Errorf("atomic %v: %+v", atomic, got)
		}
		if s := p.nic[0].Stats(); s.ImpliedNAK == 0 || s.CompleterRetry != 1 || s.Timeouts != 0 {
			t.Errorf("atomic %v: %d implied NAKs, %d go-backs, %d timeouts, want one go-back", atomic, s.ImpliedNAK, s.CompleterRetry, s.Timeouts)
		}
	}
}

// TestReadRetryPartly: a READ is repeated from the first answer that is missing.
func TestReadRetryPartly(t *testing.T) {
	p := newPair(t, readable)
	dst, dm := p.region(0, 10*1024, 0)
	src, sm := p.region(1, 10*1024, 7)
	p.loseNth(1, 5) // the fifth of ten answers
	var asked []wire.RETH
	prev := p.net.Fate
	p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if f.OpCode() == wire.OpReadRequest {
			asked = append(asked, f.RETH())
		}
		return prev(now, port, f)
	}
	p.post(0, read(1, dm, sm, 10*1024))
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 10 * 1024})
	want := wire.RETH{VA: sm.Addr() + 4*1024, RKey: sm.RKey(), DMALen: 6 * 1024}
	if len(asked) != 2 || asked[1] != want || !bytes.Equal(src, dst) {
		t.Errorf("requests %+v, want a second one of %+v", asked, want)
	}
}

// TestReplayWhereItIs: a repeat that asks for the next packet of the answer under way changes nothing:
// the answer continues, it does not begin again, and no packet of it is sent twice.
func TestReplayWhereItIs(t *testing.T) {
	for k := range 8 {
		p := newPair(t, readable)
		src, sm := p.region(1, 10*1024, 7)
		dst, dm := p.region(0, 10*1024, 0)
		var ops []string
		p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
			if port == 1 {
				ops = append(ops, f.OpCode().String())
			}
			return faults.Verdict{}
		}
		p.post(0, read(1, dm, sm, 10*1024))
		out := &p.qp[1].rq.out
		for out.Len() == 0 || out.At(0).at < uint32(k) {
			if !p.net.Step() {
				t.Fatalf("the answer does not come to packet %d", k)
			}
		}
		k := int(out.At(0).at)
		p.replayed(wire.BTH{OpCode: wire.OpReadRequest, PSN: readable.psn.Add(k)}, &wire.RETH{VA: sm.Addr() + uint64(k)*1024, RKey: sm.RKey(), DMALen: uint32(10-k) * 1024}, nil)
		want := "RC_READ_RESPONSE_FIRST" + strings.Repeat(" RC_READ_RESPONSE_MIDDLE", 8) + " RC_READ_RESPONSE_LAST"
		if got := strings.Join(ops, " "); got != want || !bytes.Equal(src, dst) {
			t.Errorf("asked again for packet %d, the answer is %s", k, got)
		}
	}
}

// replayed hands a repeat of a READ or atomic to side 1 and returns the number of answers.
func (p *pair) replayed(bth wire.BTH, reth *wire.RETH, atomic *wire.AtomicETH) uint64 {
	p.t.Helper()
	before := p.nic[1].Stats().ResponsesSent
	f := p.net.Pool.Get()
	e := p.nic[0].envelope(p.qp[0])
	bth.PKey, bth.DestQP = wire.PKeyDefault, p.qp[1].num
	f.Start(&e, bth)
	if reth != nil {
		f.AddRETH(*reth)
	} else {
		f.AddAtomicETH(*atomic)
	}
	f.Seal(1, false)
	p.inject(f)
	p.run()
	return p.nic[1].Stats().ResponsesSent - before
}

// TestReplayBehindAnother: while the answer to one READ waits for the port the repeats of others are
// distinguished from it: of one before it, whose answer was lost, an answer is made again; its own is
// not doubled, nor that of an atomic; and everything arrives.
func TestReplayBehindAnother(t *testing.T) {
	o := readable
	o.timeout = 4 // 65 us
	p := newPair(t, o)
	src, sm := p.region(1, 3*1024, 7)
	dst, dm := p.region(0, 3*1024, 0)
	piece := func(i int) SendWR {
		w := read(uint64(i), dm, sm, 1024)
		w.SGE.Addr += uint64(i) * 1024
		w.RemoteAddr += uint64(i) * 1024
		return w
	}
	p.loseNth(1, 1)
	p.post(0, piece(0))
	p.net.At(10*us, func(now vtime.Time) { p.nic[0].SendPause(now, 1<<p.qp[1].prio, 20000) }) // 102 us
	p.net.At(20*us, func(vtime.Time) {
		p.post(0, piece(1))
		w := add(2, whole(dm, 8), sm, 5)
		w.SGE.Addr, w.RemoteAddr = w.SGE.Addr+2048, w.RemoteAddr+2048
		p.post(0, w)
	})
	p.net.At(100*us, func(vtime.Time) {
		if k := p.nic[1].Stats().Replayed; k != 1 || p.qp[1].rq.out.Len() != 3 {
			t.Errorf("%d answers are made again and %d wait, want 1 and 3", k, p.qp[1].rq.out.Len())
		}
	})
	p.run()
	p.want(0, WC{WRID: 0, Opcode: WCRDMARead, ByteLen: 1024}, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 1024}, WC{WRID: 2, Opcode: WCFetchAdd, ByteLen: 8})
	if !bytes.Equal(dst[:2048], src[:2048]) {
		t.Error("other bytes arrived")
	}
}

// TestReplayShrunk: a repeated atomic is not answered if the word does not lie in the
// region any more that its key now stands for.
func TestReplayShrunk(t *testing.T) {
	for size, want := range map[int]uint64{8: 1, 7: 0} { // independent of each other
		p := newPair(t, readable)
		const access = AccessLocalWrite | AccessRemoteAtomic
		_, dm := p.region(0, 8, 0)
		first := p.qp[0].SQPSN()
		m, err := p.nic[1].RegMRAs(p.pd[1], make(Bytes, 8), access, 4096, ChosenKeys)
		if err != nil {
			t.Fatal(err)
		}
		p.post(0, add(1, whole(dm, 8), m, 5))
		p.run()
		if err := p.nic[1].DeregMR(m); err != nil {
			t.Fatal(err)
		}
		if _, err := p.nic[1].RegMRAs(p.pd[1], make(Bytes, size), access, 4096, ChosenKeys); err != nil {
			t.Fatal(err)
		}
		again := wire.AtomicETH{VA: 4096, RKey: ChosenKeys, SwapAdd: 5}
		if got := p.replayed(wire.BTH{OpCode: wire.OpFetchAdd, PSN: first}, nil, &again); got != want {
			t.Errorf("the region has %d bytes now: %d answers, want %d", size, got, want)
		}
	}
}

// TestReplayChecks: a repeat is compared with the remembered request, and key, domain and rights are
// checked again (promise D6): nothing outside the first request is ever read, an atomic is never
// applied twice.
func TestReplayChecks(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   uint64
		skip   int // answers before the first one asked for
		change func(p *pair, h *wire.RETH, m *MR)
	}{
		{"the same", 4, 0, func(*pair, *wire.RETH, *MR) {}},
		{"the rest", 2, 2, func(_ *pair, h *wire.RETH, _ *MR) { h.VA, h.DMALen = h.VA+2048, 2048 }},
		{"part of it", 1, 1, func(_ *pair, h *wire.RETH, _ *MR) { h.VA, h.DMALen = h.VA+1024, 1024 }},
		{"more than it", 0, 2, func(_ *pair, h *wire.RETH, _ *MR) { h.VA += 2048 }},
		{"base moved", 0, 0, func(_ *pair, h *wire.RETH, _ *MR) { h.VA += 4 }},
		{"base and PSN apart", 0, 1, func(_ *pair, h *wire.RETH, _ *MR) { h.DMALen = 1024 }},
		{"other key", 0, 0, func(p *pair, h *wire.RETH, _ *MR) { _, m := p.region(1, 5000, 1); h.RKey = m.RKey() }},
		{"region gone", 0, 0, func(p *pair, _ *wire.RETH, m *MR) { _ = p.nic[1].DeregMR(m) }},
		{"right of the region gone", 0, 0, func(_ *pair, _ *wire.RETH, m *MR) { m.access = 3 }},
		{"right of the queue pair gone", 0, 0, func(p *pair, _ *wire.RETH, _ *MR) { p.qp[1].attr.Access = 3 }},
		{"domain changed", 0, 0, func(p *pair, _ *wire.RETH, m *MR) { m.pd = p.nic[1].AllocPD() }},
		{"forgotten", 0, 0, func(p *pair, _ *wire.RETH, m *MR) {
			_, dm := p.region(0, 8, 0)
			for range readable.rdAtomic {
				p.post(0, read(0, dm, m, 8))
			}
			p.run()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, readable)
			_, dm := p.region(0, 4096, 0)
			_, sm := p.region(1, 9000, 7) // more than the request asks for
			psn := p.qp[0].SQPSN()
			p.post(0, read(1, dm, sm, 4096))
			p.run()
			h := wire.RETH{VA: sm.Addr(), RKey: sm.RKey(), DMALen: 4096}
			c.change(p, &h, sm)
			if got := p.replayed(wire.BTH{OpCode: wire.OpReadRequest, PSN: psn.Add(c.skip)}, &h, nil); got != c.want {
				t.Errorf("%d answers, want %d", got, c.want)
			}
			if p.qp[1].State() != StateRTS {
				t.Errorf("a repeat left the responder in %v", p.qp[1].State())
			}
		})
	}
	p := newPair(t, readable)
	_, dm := p.region(0, 8, 0)
	mem, m := p.region(1, 16, 0)
	psn := p.qp[0].SQPSN()
	p.post(0, add(1, whole(dm, 8), m, 1))
	p.run()
	h := wire.AtomicETH{VA: m.Addr(), RKey: m.RKey(), SwapAdd: 1}
	other := h
	other.VA += 8
	for i, a := range []*wire.AtomicETH{&h, &h, &other} {
		want := uint64(1)
		if a == &other {
			want = 0
		}
		if got := p.replayed(wire.BTH{OpCode: wire.OpFetchAdd, PSN: psn}, nil, a); got != want {
			t.Errorf("repeat %d of the atomic: %d answers, want %d", i, got, want)
		}
	}
	if got := p.replayed(wire.BTH{OpCode: wire.OpCompareSwap, PSN: psn}, nil, &h); got != 0 {
		t.Errorf("another atomic in place of a repeat: %d answers", got)
	}
	m.access = 7
	if got := p.replayed(wire.BTH{OpCode: wire.OpFetchAdd, PSN: psn}, nil, &h); got != 0 {
		t.Errorf("repeat after the right is gone: %d answers", got)
	}
	if binary.LittleEndian.Uint64(mem) != 1 {
		t.Errorf("the atomic was applied %d times", mem[0])
	}
}

// TestDuplicateBeforeRead: the repeat of a WRITE is acknowledged up to the READ after it
// and no further: the READ's numbers are its answers' to acknowledge.
func TestDuplicateBeforeRead(t *testing.T) {
	p := newPair(t, readable)
	_, dm := p.region(0, 4096, 0)
	_, sm := p.region(1, 4096, 7)
	psn := p.qp[0].SQPSN()
	p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite})
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite})
	p.post(0, read(3, dm, sm, 4096))
	p.post(0, SendWR{WRID: 4, Opcode: WRRDMAWrite})
	p.run()
	var acks []wire.PSN
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 1 {
			acks = append(acks, f.PSN())
		}
		return faults.Verdict{}
	}
	for _, k := range []int{0, 1, 6} {
		p.replayed(wire.BTH{OpCode: wire.OpWriteOnly, PSN: psn.Add(k), AckReq: true}, &wire.RETH{}, nil)
	}
	if len(acks) != 3 || acks[0] != psn.Add(1) || acks[1] != psn.Add(1) || acks[2] != psn.Add(6) {
		t.Errorf("repeats acknowledged with %v, want %v %v %v", acks, psn.Add(1), psn.Add(1), psn.Add(6))
	}
}

// TestBadResponses: an answer that does not fit its request ends the request.
func TestBadResponses(t *testing.T) {
	for _, c := range []struct {
		name string
		want WCStatus
		send SendWR
		op   wire.OpCode
		size int
		syn  wire.Syndrome
	}{
		{"READ answer to a SEND", WCFatalErr, SendWR{Opcode: WRSend}, wire.OpReadRespOnly, 4, wire.SyndromeACK},
		{"atomic answer to a READ", WCBadRespErr, SendWR{Opcode: WRRDMARead}, wire.OpAtomicAck, 0, wire.SyndromeACK},
		{"READ answer to an atomic", WCBadRespErr, SendWR{Opcode: WRAtomicFetchAdd}, wire.OpReadRespOnly, 8, wire.SyndromeACK},
		{"last in place of first", WCBadRespErr, SendWR{Opcode: WRRDMARead}, wire.OpReadRespLast, 1024, wire.SyndromeACK},
		{"short first", WCBadRespErr, SendWR{Opcode: WRRDMARead}, wire.OpReadRespFirst, 1000, wire.SyndromeACK},
		{"first in place of only", WCBadRespErr, SendWR{Opcode: WRRDMARead, SGE: SGE{Length: 4}}, wire.OpReadRespFirst, 4, wire.SyndromeACK},
		{"NAK in a READ answer", WCBadRespErr, SendWR{Opcode: WRRDMARead}, wire.OpReadRespFirst, 1024, wire.SyndromeRemoteOp},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, readable)
			_, dm := p.region(1, 2000, 0)
			n := 2000
			if c.send.SGE.Length > 0 {
				n = int(c.send.SGE.Length)
			}
			c.send.WRID, c.send.SGE = 1, whole(dm, n)
			if c.send.Opcode == WRAtomicFetchAdd {
				c.send.SGE.Length = 8
			}
			p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) faults.Verdict { return faults.Verdict{Drop: port == 1} }
			psn := p.qp[1].SQPSN()
			p.post(1, c.send)
			f := p.net.Pool.Get()
			e := p.nic[0].envelope(p.qp[0])
			f.Start(&e, wire.BTH{OpCode: c.op, PKey: wire.PKeyDefault, DestQP: p.qp[1].num, PSN: psn})
			f.AddAETH(wire.AETH{Syndrome: c.syn})
			if c.op == wire.OpAtomicAck {
				f.AddAtomicAckETH(wire.AtomicAckETH{})
			}
			f.SetPhantom(c.size)
			f.Seal(0, false)
			p.net.At(vtime.Time(vtime.Microsecond), func(vtime.Time) { p.inject(f) })
			p.run()
			p.want(1, WC{WRID: 1, Status: c.want})
		})
	}
}

// TestReadOverWindow: a READ of more packets than the window goes out alone; one of more
// than half the numbers is refused.
func TestReadOverWindow(t *testing.T) {
	p := newPair(t, readable)
	p.nic[0].window = 4
	dst, dm := p.region(0, 50*1024, 0)
	src, sm := p.region(1, 50*1024, 7)
	p.post(0, read(1, dm, sm, 50*1024))
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 50 * 1024}, WC{WRID: 2, Opcode: WCRDMAWrite})
	if !bytes.Equal(src, dst) {
		t.Error("other bytes were read")
	}
	o := readable
	o.mtu = 256
	p = newPair(t, o)
	if err := p.nic[0].PostSend(0, p.qp[0], SendWR{Opcode: WRRDMARead, SGE: SGE{Length: MaxMessage}}); err == nil {
		t.Error("a READ of 2^23 packets was taken")
	}
}

// TestNakBehindRead: the NAK of a bad request does not overtake the answers to the READ
// before it, which completes.
func TestNakBehindRead(t *testing.T) {
	o := readable
	o.timeout = 0
	p := newPair(t, o)
	_, dm := p.region(0, 50000, 0)
	_, sm := p.region(1, 50000, 7)
	p.post(0, read(1, dm, sm, 50000))
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite, SGE: whole(dm, 8), RKey: 5})
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 50000}, WC{WRID: 2, Status: WCRemAccessErr})
}

// TestReplayInMessage: the repeat of a READ that falls into the middle of a later message is answered,
// and the message continues.
func TestReplayInMessage(t *testing.T) {
	p := newPair(t, readable)
	_, dm := p.region(0, 4096, 0)
	_, sm := p.region(1, 4096, 7)
	psn := p.qp[0].SQPSN()
	p.post(0, read(1, dm, sm, 1024))
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCRDMARead, ByteLen: 1024})
	src, wm := p.region(0, 3072, 3)
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) (fate faults.Verdict) {
		if op := f.OpCode(); port == 0 && (op == wire.OpWriteMiddle || op == wire.OpWriteLast) {
			fate.Delay = 50 * vtime.Microsecond
		}
		return fate
	}
	p.post(0, SendWR{WRID: 2, Opcode: WRRDMAWrite, SGE: whole(wm, 3072), RemoteAddr: sm.Addr(), RKey: sm.RKey()})
	p.net.At(p.net.Now.Add(20*vtime.Microsecond), func(vtime.Time) {
		f := p.net.Pool.Get()
		e := p.nic[0].envelope(p.qp[0])
		f.Start(&e, wire.BTH{OpCode: wire.OpReadRequest, PKey: wire.PKeyDefault, DestQP: p.qp[1].num, PSN: psn})
		f.AddRETH(wire.RETH{VA: sm.Addr(), RKey: sm.RKey(), DMALen: 1024})
		f.Seal(1, false)
		if !p.qp[1].rq.active {
			t.Error("no message is under way")
		}
		p.inject(f)
	})
	p.run()
	p.want(0, WC{WRID: 2, Opcode: WCRDMAWrite, ByteLen: 3072})
	if got := p.nic[1].Stats().Replayed; got != 1 {
		t.Errorf("%d repeats were answered, want 1", got)
	}
	got := make([]byte, 3072)
	m := p.nic[1].region(sm.RKey())
	copy(got, m.mem.(Bytes))
	if !bytes.Equal(got, src) {
		t.Error("the message did not arrive")
	}
}
