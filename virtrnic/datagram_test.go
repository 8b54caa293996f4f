// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

var (
	connected = pairOptions{typ: TypeUC, psn: 0xfffffe}
	datagrams = pairOptions{typ: TypeUD, psn: 0xfffffe}
)

// TestUC moves SENDs and WRITEs, with and without immediate, of all sizes; nothing comes
// back, and a request is complete when its last packet has started.
func TestUC(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 5000} {
		for op := WRRDMAWrite; op <= WRSendWithImm; op++ {
			p := newPair(t, connected)
			src, sm := p.region(0, max(1, n), 3)
			dst, dm := p.region(1, max(1, n), 0)
			back := 0
			p.net.Fate = func(_ vtime.Time, port int, _ *wire.Frame) faults.Verdict {
				back += port
				return faults.Verdict{}
			}
			p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
			p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey(), Imm: 0xabcd})
			if at, ok := p.nic[0].NextTimeout(); n > 1024 && (!ok || at != p.net.PortsOf(0)[0].Next()) {
				t.Errorf("the next deadline is %v %v, want the port's next start (starts are deadlines)", at, ok)
			}
			p.run()
			p.want(0, WC{WRID: 1, Opcode: wcOpcode(op), ByteLen: uint32(n)})
			switch op {
			case WRSend:
				p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: uint32(n)})
			case WRSendWithImm:
				p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: uint32(n), WithImm: true, Imm: 0xabcd})
			case WRRDMAWriteWithImm:
				p.want(1, WC{WRID: 2, Opcode: WCRecvRDMAWithImm, ByteLen: uint32(n), WithImm: true, Imm: 0xabcd})
			default:
				p.want(1)
			}
			if !bytes.Equal(src[:n], dst[:n]) || back != 0 {
				t.Errorf("opcode %d, %d bytes: wrong bytes or %d answers", op, n, back)
			}
		}
	}
}

// TestUCLoss loses each packet of three messages in turn: its message is not delivered,
// the others are, and the receive goes to the next message.
func TestUCLoss(t *testing.T) {
	const n, packets = 3000, 3
	for k := range 3 * packets {
		p := newPair(t, connected)
		p.loseNth(0, k+1)
		var want []WC
		dst := make([]Bytes, 3)
		for i := range 3 {
			_, sm := p.region(0, n, uint64(i+1))
			var dm *MR
			dst[i], dm = p.region(1, n, 0)
			p.recv(1, RecvWR{WRID: uint64(i), SGE: whole(dm, n)})
			p.post(0, SendWR{WRID: uint64(i), Opcode: WRSendWithImm, SGE: whole(sm, n), Imm: uint32(i)})
			if i != k/packets {
				want = append(want, WC{WRID: uint64(len(want)), Opcode: WCRecv, ByteLen: n, WithImm: true, Imm: uint32(i)})
			}
		}
		p.run()
		if got := p.completions(0); len(got) != 3 {
			t.Fatalf("%d sends completed, want 3", len(got))
		}
		p.want(1, want...)
		for i, w := range want {
			src, _ := p.region(0, n, uint64(w.Imm)+1)
			if !bytes.Equal(dst[i], src) {
				t.Errorf("packet %d lost: receive %d holds other bytes than message %d", k, i, w.Imm)
			}
		}
	}
}

// TestUCPartialWrite: a WRITE that loses a packet in the middle has landed up to it, and the peer gets
// no completion.
func TestUCPartialWrite(t *testing.T) {
	p := newPair(t, connected)
	p.loseNth(0, 3)
	src, sm := p.region(0, 5*1024, 3)
	dst, dm := p.region(1, 5*1024, 0)
	p.recv(1, RecvWR{WRID: 1})
	p.post(0, SendWR{Opcode: WRRDMAWriteWithImm, SGE: whole(sm, 5*1024), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.run()
	p.want(1)
	if !bytes.Equal(dst[:2048], src[:2048]) || !bytes.Equal(dst[2048:], make(Bytes, 3*1024)) {
		t.Error("not just the first two packets have landed")
	}
	if got := p.nic[1].Stats().Drops[DropSequence]; got != 2 {
		t.Errorf("%d packets dropped for their sequence, want the last 2", got)
	}
}

// TestUCDrops: UC drops packets, each for its reason, and the next message gets through.
func TestUCDrops(t *testing.T) {
	for _, c := range []struct {
		name string
		why  DropReason
		wr   func(w *SendWR)
		pair func(p *pair, m *MR)
	}{
		{"no receive", DropNoReceive, func(w *SendWR) { w.Opcode = WRSend }, nil},
		{"no receive for the immediate", DropNoReceive, func(w *SendWR) { w.Opcode = WRRDMAWriteWithImm }, nil},
		{"bad key", DropAccess, func(w *SendWR) { w.RKey ^= 1 }, nil},
		{"no right", DropInvalid, func(*SendWR) {}, func(p *pair, _ *MR) { p.qp[1].attr.Access = 0 }},
		{"too long", DropInvalid, func(w *SendWR) { w.Opcode = WRSend }, func(p *pair, m *MR) { p.recv(1, RecvWR{WRID: 7, SGE: whole(m, 99)}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, connected)
			_, sm := p.region(0, 100, 3)
			_, dm := p.region(1, 100, 0)
			w := SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 100), RemoteAddr: dm.Addr(), RKey: dm.RKey()}
			c.wr(&w)
			if c.pair != nil {
				c.pair(p, dm)
			}
			p.post(0, w)
			p.run()
			if got := p.nic[1].Stats().Drops[c.why]; got != 1 || p.qp[1].State() != StateRTS {
				t.Errorf("dropped %d times as %v, state %v", got, c.why, p.qp[1].State())
			}
			p.want(1)
			p.recv(1, RecvWR{WRID: 8})
			p.post(0, SendWR{Opcode: WRSend})
			p.run()
			if got := p.completions(1); len(got) != 1 || got[0].Status != WCSuccess {
				t.Errorf("the next message: %+v", got)
			}
		})
	}
	// A receive that is this side's own mistake ends its queue pair.
	p := newPair(t, connected)
	_, sm := p.region(0, 100, 3)
	p.recv(1, RecvWR{WRID: 7, SGE: SGE{1, 100, 9}})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 100)})
	p.run()
	p.want(1, WC{WRID: 7, Status: WCLocProtErr})
	if p.qp[1].State() != StateErr {
		t.Errorf("state %v", p.qp[1].State())
	}
}

// TestSQE: a request of UC or UD that cannot be sent stops the send queue and no more;
// SQE to RTS starts it again.
func TestSQE(t *testing.T) {
	for _, typ := range []QPType{TypeUC, TypeUD} {
		p := newPair(t, pairOptions{typ: typ})
		_, m := p.region(0, 5000, 3)
		_, rm := p.region(1, 5000, 0)
		w := SendWR{Opcode: WRSend}
		back := SendWR{Opcode: WRSend}
		if typ == TypeUD {
			w.UD, back.UD = p.dest(0), p.dest(1)
		}
		post := func(id uint64, e SGE) {
			v := w
			v.WRID, v.SGE = id, e
			p.post(0, v)
		}
		good := whole(m, 100)
		bad := SGE{m.Addr(), 5000, m.LKey() ^ 1}
		if typ == TypeUD {
			bad.Length = 100
		}
		for i := range 3 {
			p.recv(1, RecvWR{WRID: uint64(i), SGE: whole(rm, 5000)})
			p.recv(0, RecvWR{WRID: uint64(10 + i), SGE: whole(m, 5000)})
		}
		post(1, good)
		post(2, bad)
		post(3, good)
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: 100}, WC{WRID: 2, Status: WCLocProtErr}, WC{WRID: 3, Status: WCWRFlushErr})
		if p.qp[0].State() != StateSQE {
			t.Fatalf("state %v, want SQE", p.qp[0].State())
		}
		post(4, good)
		p.want(0, WC{WRID: 4, Status: WCWRFlushErr})
		p.post(1, back) // receiving continues
		p.run()
		if got := p.completions(0); len(got) != 1 || got[0].Status != WCSuccess || got[0].Opcode != WCRecv {
			t.Errorf("receive in SQE: %+v", got)
		}
		p.modify(0, StateRTS, QPAttr{})
		post(5, good)
		p.run()
		p.want(0, WC{WRID: 5, Opcode: WCSend, ByteLen: 100})
		if got := p.completions(1); len(got) != 3 { // 1, 5 and its own send
			t.Errorf("peer: %+v", got)
		}
	}
}

// TestUD sends datagrams: header, source, immediate, bytes; nothing comes back.
func TestUD(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 4096} {
		for _, op := range []WROpcode{WRSend, WRSendWithImm} {
			p := newPair(t, datagrams)
			src, sm := p.region(0, max(1, n), 3)
			dst, dm := p.region(1, n+GRHLen, 9)
			var ip []byte
			p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
				ip = append([]byte(nil), f.IPHeader()...)
				if port == 1 {
					t.Error("something came back")
				}
				return faults.Verdict{}
			}
			p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n+GRHLen)})
			p.post(0, SendWR{WRID: 1, Opcode: op, SGE: whole(sm, n), Imm: 7, UD: p.dest(0)})
			p.run()
			p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: uint32(n)})
			w := WC{WRID: 2, Opcode: WCRecv, ByteLen: uint32(n + GRHLen), GRH: true, SrcQP: p.qp[0].Num()}
			if op == WRSendWithImm {
				w.WithImm, w.Imm = true, 7
			}
			p.want(1, w)
			if !bytes.Equal(dst[GRHLen:], src[:n]) || !bytes.Equal(dst[:20], make([]byte, 20)) || !bytes.Equal(dst[20:GRHLen], ip) {
				t.Errorf("%d bytes: buffer holds % x, header % x", n, dst[:GRHLen], ip)
			}
			if got := binary.BigEndian.Uint32(dst[32:]); got != p.nic[0].IP() {
				t.Errorf("source address in the header is %v", wire.AddrOf(got))
			}
		}
	}
}

// TestUDScatter splits header and data over pieces at odd places.
func TestUDScatter(t *testing.T) {
	p := newPair(t, datagrams)
	src, sm := p.region(0, 1000, 3)
	dst, dm := p.region(1, 2000, 0)
	from, to := split(sm, 1, 600, 99), split(dm, 39, 7, 700, 50)
	p.recv(1, RecvWR{SGL: to})
	p.post(0, SendWR{Opcode: WRSend, SGL: from, UD: p.dest(0)})
	p.post(0, SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("tail"), UD: p.dest(0)})
	p.run()
	if got := join(dst, dm, to); !bytes.Equal(got[GRHLen:][:700], join(src, sm, from)) {
		t.Error("other bytes arrived")
	}
	if got := p.nic[1].Stats().Drops[DropNoReceive]; got != 1 {
		t.Errorf("%d datagrams without a receive, want 1", got)
	}
}

// TestUDIPv6: the header in the buffer is the IPv6 header.
func TestUDIPv6(t *testing.T) {
	p := newPair(t, datagrams)
	for i := range 2 {
		p.nic[i].ipv6 = true
	}
	dst, dm := p.region(1, 60, 0)
	p.recv(1, RecvWR{SGE: whole(dm, 60)})
	p.post(0, SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("twenty bytes of data"), UD: p.dest(0)})
	p.run()
	from := wire.IPv6Of(p.nic[0].IP())
	if dst[0]>>4 != 6 || !bytes.Equal(dst[8:24], from[:]) || string(dst[GRHLen:]) != "twenty bytes of data" {
		t.Errorf("buffer holds % x", dst)
	}
	const group = 0xef000001
	if err := p.nic[1].AttachMcast(p.qp[1], group); err != nil {
		t.Fatal(err)
	}
	ah, err := p.nic[0].CreateAH(p.pd[0], AH{DGID: group, FlowLabel: 0xabcde})
	if err != nil {
		t.Fatal(err)
	}
	p.recv(1, RecvWR{SGE: whole(dm, 60)})
	to := wire.IPv6Of(group)
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) faults.Verdict {
		// The port is that of libibverbs' ibv_flow_label_to_udp_sport.
		if mac := wire.MulticastMAC(true, group); wire.MAC(f.Header()[:6]) != mac || f.SrcPort() != 0xfcf4 {
			t.Errorf("sent to %x from port %#x, want %v", f.Header()[:6], f.SrcPort(), mac)
		}
		return faults.Verdict{}
	}
	p.post(0, SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("twenty bytes for all"), UD: UDDest{ah, wire.QPNMulticast, testQKey}})
	p.run()
	if [3]byte(dst[1:4]) != [3]byte{0x0a, 0xbc, 0xde} || !bytes.Equal(dst[24:40], to[:]) || string(dst[GRHLen:]) != "twenty bytes for all" {
		t.Errorf("buffer holds % x", dst)
	}
}

// TestUDDrops: wrong Q_Key, no receive, a receive that is too small, each with its
// reason; the small receive stays for a datagram that fits.
func TestUDDrops(t *testing.T) {
	p := newPair(t, datagrams)
	_, dm := p.region(1, 100, 0)
	to := p.dest(0)
	send := func(n int, to UDDest) {
		p.post(0, SendWR{Opcode: WRSend, Flags: SendInline, Inline: make([]byte, n), UD: to})
		p.run()
	}
	send(4, to)
	p.recv(1, RecvWR{WRID: 1, SGE: whole(dm, 50)})
	wrong := to
	wrong.QKey++
	send(4, wrong)
	send(11, to)
	p.want(1)
	send(10, to)
	p.want(1, WC{WRID: 1, Opcode: WCRecv, ByteLen: 50, GRH: true, SrcQP: p.qp[0].Num()})
	// With its highest bit set the request's Q_Key gives way to the queue pair's.
	p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, 50)})
	wrong.QKey = 1 << 31
	send(1, wrong)
	p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: 41, GRH: true, SrcQP: p.qp[0].Num()})
	for why, want := range map[DropReason]uint64{DropNoReceive: 1, DropQKey: 1, DropInvalid: 1} { // independent of each other
		if got := p.nic[1].Stats().Drops[why]; got != want {
			t.Errorf("%v: %d, want %d", why, got, want)
		}
	}
	p.recv(1, RecvWR{WRID: 3, SGE: SGE{1, 100, 3}})
	send(4, to)
	p.want(1, WC{WRID: 3, Status: WCLocProtErr})
}

// TestUDLimits: a datagram beyond the port's MTU fails, one without an address is refused, and so are
// operations that the service lacks.
func TestUDLimits(t *testing.T) {
	p := newPair(t, datagrams)
	_, m := p.region(0, 5000, 1)
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(m, 4097), UD: p.dest(0)})
	p.run()
	p.want(0, WC{WRID: 1, Status: WCLocLenErr})
	for i, w := range []SendWR{
		{Opcode: WRSend}, {Opcode: WRRDMAWrite, UD: p.dest(0)}, {Opcode: WRRDMARead, UD: p.dest(0)},
		{Opcode: WRSend, UD: UDDest{AH: &AddressHandle{pd: p.pd[1]}}},
	} {
		if err := p.nic[0].PostSend(0, p.qp[0], w); !errors.Is(err, ErrInvalid) {
			t.Errorf("request %d: %v, want %v", i, err, ErrInvalid)
		}
	}
	u := newPair(t, connected)
	for _, op := range []WROpcode{WRRDMARead, WRAtomicCmpAndSwp, WRAtomicFetchAdd, WRSendWithInv} {
		if err := u.nic[0].PostSend(0, u.qp[0], SendWR{Opcode: op}); !errors.Is(err, ErrInvalid) {
			t.Errorf("UC opcode %d: %v, want %v", op, err, ErrInvalid)
		}
	}
	if _, err := p.nic[0].CreateAH(p.pd[1], AH{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("address handle in another device's domain: %v", err)
	}
}

// mcastPair adds two more UD queue pairs at side 1.
func mcastPair(t *testing.T) (p *pair, qps []*QP) {
	p = newPair(t, datagrams)
	qps = append(qps, p.qp[1])
	for range 2 {
		q, err := p.nic[1].CreateQP(QPInit{Type: TypeUD, PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1], MaxRecvWR: 8})
		if err != nil {
			t.Fatal(err)
		}
		x := &pair{t: t, net: p.net, nic: p.nic, pd: p.pd, cq: p.cq, qp: [2]*QP{p.qp[0], q}}
		x.ready(1, datagrams)
		qps = append(qps, q)
	}
	return p, qps
}

// TestMulticast: a datagram to a group reaches each attached queue pair once, and no other; a refused
// copy does not stop the others.
func TestMulticast(t *testing.T) {
	const group, other = 0xef010203, 0xef010204
	p, qps := mcastPair(t)
	_, dm := p.region(1, 1000, 0)
	ah, err := p.nic[0].CreateAH(p.pd[0], AH{DGID: group})
	if err != nil {
		t.Fatal(err)
	}
	var macs []string
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) faults.Verdict {
		var m wire.MAC
		copy(m[:], f.Header())
		macs = append(macs, m.String())
		return faults.Verdict{}
	}
	send := func() (got []wire.QPN) {
		for _, q := range qps {
			if err := p.nic[1].PostRecv(p.net.Now, q, RecvWR{SGE: whole(dm, 100)}); err != nil {
				t.Fatal(err)
			}
		}
		p.post(0, SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("to all"), UD: UDDest{ah, wire.QPNMulticast, testQKey}})
		p.run()
		for _, w := range p.completions(1) {
			if w.Status != WCSuccess || w.ByteLen != GRHLen+6 {
				t.Errorf("%+v", w)
			}
			got = append(got, w.QPN)
		}
		return got
	}
	equal := func(got []wire.QPN, want ...*QP) {
		t.Helper()
		ok := len(got) == len(want)
		for i := range got {
			ok = ok && got[i] == want[i].Num()
		}
		if !ok {
			t.Errorf("delivered to %v, want %d queue pairs", got, len(want))
		}
	}
	equal(send())
	for _, q := range []*QP{qps[0], qps[1], qps[1]} {
		if err := p.nic[1].AttachMcast(q, group); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.nic[1].AttachMcast(qps[2], other); err != nil {
		t.Fatal(err)
	}
	equal(send(), qps[0], qps[1])
	if err := p.nic[1].AttachMcast(qps[2], group); err != nil {
		t.Fatal(err)
	}
	equal(send(), qps[0], qps[1], qps[2])
	qps[1].attr.QKey++
	equal(send(), qps[0], qps[2])
	if err := p.nic[1].DestroyQP(p.net.Now, qps[1]); !errors.Is(err, ErrBusy) {
		t.Errorf("destroying an attached queue pair: %v, want %v", err, ErrBusy)
	}
	if err := p.nic[1].DetachMcast(qps[0], group); err != nil {
		t.Fatal(err)
	}
	equal(send(), qps[2])
	if err := p.nic[1].DetachMcast(qps[0], group); !errors.Is(err, ErrInvalid) {
		t.Errorf("detaching twice: %v, want %v", err, ErrInvalid)
	}
	for _, m := range macs {
		if m != "01:00:5e:01:02:03" {
			t.Errorf("sent to %s", m)
		}
	}
	if got := p.nic[1].Stats().Drops[DropNoGroup]; got != 1 {
		t.Errorf("%d dropped for lack of a member, want 1", got)
	}
}

// TestMulticastLimits: only UD, only groups, and not without end; DestroyQP after detach.
func TestMulticastLimits(t *testing.T) {
	p := newPair(t, pairOptions{})
	if err := p.nic[0].AttachMcast(p.qp[0], 0xef000001); !errors.Is(err, ErrInvalid) {
		t.Errorf("RC: %v, want %v", err, ErrInvalid)
	}
	p = newPair(t, datagrams)
	if err := p.nic[0].AttachMcast(p.qp[0], 0x0a000001); !errors.Is(err, ErrInvalid) {
		t.Errorf("unicast address: %v, want %v", err, ErrInvalid)
	}
	for i := range MaxMcastQPs + 1 {
		q, err := p.nic[0].CreateQP(QPInit{Type: TypeUD, PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0]})
		if err != nil {
			t.Fatal(err)
		}
		err = p.nic[0].AttachMcast(q, 0xef000001)
		if i < MaxMcastQPs && err != nil || i == MaxMcastQPs && !errors.Is(err, ErrNoMem) {
			t.Errorf("member %d: %v", i, err)
		}
		if i == 0 {
			if err := p.nic[0].DetachMcast(q, 0xef000001); err != nil {
				t.Fatal(err)
			}
			if err := p.nic[0].DestroyQP(0, q); err != nil {
				t.Error(err)
			}
			if err := p.nic[0].AttachMcast(p.qp[0], 0xef000001); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUCMulticast: messages to a group over UC reach its UC members and no other queue pair, from any
// sender, in order and with its immediate data; a lost packet costs its message; a window that was
// deregistered takes nothing.
func TestUCMulticast(t *testing.T) {
	const group, key = 0xef010203, ChosenKeys | 7
	p := newPair(t, datagrams)
	if err := p.nic[1].AttachMcast(p.qp[1], group); err != nil {
		t.Fatal(err)
	}
	if err := p.nic[1].AttachUC(p.qp[1], group); !errors.Is(err, ErrInvalid) {
		t.Errorf("attach UD as UC: %v, want %v", err, ErrInvalid)
	}
	src, sm := p.region(0, 4000, 3)
	dst := make(Bytes, 4000)
	window, err := p.nic[1].RegMRAs(p.pd[1], dst, AccessLocalWrite|AccessRemoteWrite, 1<<40, key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		q, err := p.nic[i].CreateQP(QPInit{Type: TypeUC, PD: p.pd[i], SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 8, MaxRecvWR: 8})
		if err != nil {
			t.Fatal(err)
		}
		p.connectUC(i, q, group, wire.QPNMulticast, StateRTS)
		if err := p.nic[i].AttachUC(q, group+1); !errors.Is(err, ErrInvalid) {
			t.Errorf("attach to a group, connected to another: %v, want %v", err, ErrInvalid)
		}
		if err := p.nic[i].AttachUC(q, group); err != nil {
			t.Fatal(err)
		}
		p.qp[i] = q
	}
	send := func(off, n int, imm uint32) (got []WC) {
		if err := p.nic[1].PostRecv(p.net.Now, p.qp[1], RecvWR{WRID: 5}); err != nil {
			t.Fatal(err)
		}
		p.post(0, SendWR{
			Opcode: WRRDMAWriteWithImm, SGE: SGE{Addr: sm.Addr() + uint64(off), Length: uint32(n), LKey: sm.LKey()},
			RemoteAddr: 1<<40 + uint64(off), RKey: key, Imm: imm,
		})
		p.run()
		return p.completions(1)
	}
	for i, n := range []int{1000, 3000} { // the second one's first packet has an unexpected PSN
		got := send(1000*i, n, uint32(i))
		if len(got) != 1 || got[0].Status != WCSuccess || got[0].Imm != uint32(i) || got[0].ByteLen != uint32(n) || got[0].QPN != p.qp[1].Num() {
			t.Errorf("message %d: %+v", i, got)
		}
		p.qp[0].sq.nxt, p.qp[0].sq.una, p.qp[0].sq.end, p.qp[0].sq.maxSeq = 100, 100, 100, 100 // as another sender would
	}
	if !bytes.Equal(dst, src) {
		t.Error("wrong bytes have landed")
	}
	p.loseNth(0, 2)
	if got := send(0, 3000, 9); len(got) != 0 {
		t.Errorf("a packet of it was lost: %+v", got)
	}
	if err := p.nic[1].DeregMR(window); err != nil {
		t.Fatal(err)
	}
	before := p.nic[1].Stats().Drops[DropAccess]
	if got := send(0, 10, 9); len(got) != 0 || p.nic[1].Stats().Drops[DropAccess] != before+1 {
		t.Errorf("without its window: %+v, drops %v", got, p.nic[1].Stats().Drops)
	}
	if err := p.nic[1].DetachMcast(p.qp[1], group); err != nil {
		t.Fatal(err)
	}
	lost := p.nic[1].Stats().Drops[DropService]
	if send(0, 10, 9); p.nic[1].Stats().Drops[DropService] != lost+1 {
		t.Errorf("only a UD member is left: drops %v", p.nic[1].Stats().Drops)
	}
}

// TestMulticastDemux: multicast packets that are no datagrams of the group are dropped.
func TestMulticastDemux(t *testing.T) {
	for _, c := range []struct {
		why DropReason
		bth func(*wire.BTH)
		bad bool
	}{
		{DropVersion, func(h *wire.BTH) { h.Version = 1 }, false},
		{DropNoQP, func(h *wire.BTH) { h.DestQP = 17 }, false},
		{DropService, func(h *wire.BTH) { h.OpCode = wire.OpSendOnly }, false},
		{DropPKey, func(h *wire.BTH) { h.PKey = 1 }, false},
		{DropICRC, func(*wire.BTH) {}, true},
	} {
		p := newPair(t, datagrams)
		if err := p.nic[1].AttachMcast(p.qp[1], 0xef000001); err != nil {
			t.Fatal(err)
		}
		f := p.request(func(w *wire.Flow) { w.Dst = 0xef000001 }, func(h *wire.BTH) {
			h.OpCode, h.DestQP = wire.OpUDSendOnly, wire.QPNMulticast
			c.bth(h)
		})
		if c.bad {
			p.net.Pool.Damage(f, 80) // in the PSN
		}
		p.inject(f)
		if got := p.nic[1].Stats().Drops[c.why]; got != 1 {
			t.Errorf("%v: counted %d times; %v", c.why, got, p.nic[1].Stats().Drops)
		}
		p.run()
	}
}

// TestUDClasses: a datagram goes out in the class of its address handle: a pause of one
// class holds its datagrams, and those behind them in the queue, and lets others pass.
func TestUDClasses(t *testing.T) {
	p := newPair(t, datagrams)
	var got []uint8
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 0 {
			got = append(got, f.Traffic()>>5)
		}
		return faults.Verdict{}
	}
	post := func(class uint8) {
		ah, err := p.nic[0].CreateAH(p.pd[0], AH{DGID: p.nic[1].IP(), TrafficClass: class << 5})
		if err != nil {
			t.Fatal(err)
		}
		p.post(0, SendWR{WRID: uint64(class), Opcode: WRSend, UD: UDDest{ah, p.qp[1].Num(), testQKey}})
	}
	p.nic[1].SendPause(0, 1<<4, 0xffff)
	p.net.At(vtime.Time(2*vtime.Microsecond), func(vtime.Time) {
		post(1)
		post(4)
		post(1)
	})
	p.net.At(vtime.Time(50*vtime.Microsecond), func(now vtime.Time) {
		if len(got) != 1 || got[0] != 1 {
			t.Errorf("while class 4 is paused classes %v were sent, want [1]", got)
		}
		p.nic[1].SendPause(now, 1<<4, 0)
	})
	p.run()
	if !bytes.Equal(got, []byte{1, 4, 1}) {
		t.Errorf("classes sent %v, want 1 4 1", got)
	}
}

// TestServiceTransitions holds the state tables of UC and UD against the verbs'
// (ibv_modify_qp.3), every pair of states, and every attribute too many or missing.
func TestServiceTransitions(t *testing.T) {
	type row struct{ required, optional AttrMask }
	const some = AttrCurState | AttrAccessFlags
	tables := map[QPType]map[[2]QPState]row{
		TypeUC: {
			{StateReset, StateInit}: {AttrPKeyIndex | AttrPort | AttrAccessFlags, 0},
			{StateInit, StateInit}:  {0, AttrPKeyIndex | AttrPort | AttrAccessFlags},
			{StateInit, StateRTR}:   {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrAccessFlags | AttrPKeyIndex},
			{StateRTR, StateRTS}:    {AttrSQPSN, some}, {StateRTS, StateRTS}: {0, some}, {StateSQD, StateRTS}: {0, some}, {StateSQE, StateRTS}: {0, some},
			{StateRTS, StateSQD}: {0, AttrEnSQDAsyncNotify},
			{StateSQD, StateSQD}: {0, AttrPort | AttrAV | AttrAccessFlags | AttrPKeyIndex},
		},
		TypeUD: {
			{StateReset, StateInit}: {AttrPKeyIndex | AttrPort | AttrQKey, 0},
			{StateInit, StateInit}:  {0, AttrPKeyIndex | AttrPort | AttrQKey},
			{StateInit, StateRTR}:   {0, AttrPKeyIndex | AttrQKey},
			{StateRTR, StateRTS}:    {AttrSQPSN, AttrCurState | AttrQKey}, {StateRTS, StateRTS}: {0, AttrCurState | AttrQKey},
			{StateSQD, StateRTS}: {0, AttrCurState | AttrQKey}, {StateSQE, StateRTS}: {0, AttrCurState | AttrQKey},
			{StateRTS, StateSQD}: {0, AttrEnSQDAsyncNotify},
			{StateSQD, StateSQD}: {0, AttrPKeyIndex | AttrQKey},
		},
	}
	for _, typ := range []QPType{TypeUC, TypeUD} {
		table := tables[typ]
		p := newPair(t, pairOptions{typ: typ})
		at := func(s QPState) *QP {
			q, err := p.nic[0].CreateQP(QPInit{Type: typ, PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 4})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range []QPState{StateInit, StateRTR, StateRTS, StateSQD} {
				if s == StateReset || q.state == s || s == StateErr && q.state == StateInit || s == StateSQE && q.state == StateRTS {
					break
				}
				if err := p.nic[0].ModifyQP(0, q, validAttr(to), findTransition(q.service, q.state, to).required|AttrState); err != nil {
					t.Fatal(err)
				}
			}
			switch s {
			case StateErr:
				if err := p.nic[0].ModifyQP(0, q, QPAttr{State: StateErr}, AttrState); err != nil {
					t.Fatal(err)
				}
			case StateSQE:
				q.becomeSQE(0)
			}
			return q
		}
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				tr, known := table[[2]QPState{from, to}]
				mask := tr.required | AttrState
				legal := known || to == StateReset || to == StateErr && from != StateReset
				q := at(from)
				if err := p.nic[0].ModifyQP(0, q, validAttr(to), mask); (err == nil) != legal {
					t.Errorf("type %d, %v to %v: %v, legal %v", typ, from, to, err, legal)
				}
			}
		}
		for way, tr := range table { // independent of each other
			for bit := AttrMask(2); bit <= AttrDestQPN; bit <<= 1 {
				if bit&tr.optional != 0 {
					continue
				}
				q := at(way[0])
				a := validAttr(way[1])
				a.CurState = way[0]
				if err := p.nic[0].ModifyQP(0, q, a, (tr.required^bit)|AttrState); !errors.Is(err, ErrInvalid) {
					t.Errorf("type %d, %v to %v, attribute %#x flipped: %v", typ, way[0], way[1], uint32(bit), err)
				}
				if err := p.nic[0].ModifyQP(0, at(way[0]), a, tr.required|tr.optional|AttrState); err != nil {
					t.Errorf("type %d, %v to %v with all attributes: %v", typ, way[0], way[1], err)
				}
			}
		}
	}
}
