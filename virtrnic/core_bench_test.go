// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// lone is one NIC whose peer is a few lines of the benchmark: the benchmark measures one half of the
// NIC, and the making of the peer's packets, which is said with the figures.
type lone struct {
	link *machine.Link
	pool *wire.Pool
	nic  *NIC
	cq   *CQ
	qp   *QP
	mr   *MR
	env  wire.Envelope // of the peer
	now  vtime.Time
	psn  wire.PSN // of the peer's next request
	kind loneKind
}

// loneKind is one stream.
type loneKind struct {
	op    WROpcode
	mtu   int
	bytes bool // real memory and a computed ICRC; else phantoms and a trusted one
}

func (k loneKind) String() string {
	op, mem := map[WROpcode]string{WRSend: "send", WRRDMAWrite: "write"}[k.op], "phantom"
	if k.bytes {
		mem = "bytes"
	}
	return fmt.Sprintf("%s/%dKiB/%s", op, k.mtu>>10, mem)
}

// Streams have messages of that many packets, of which every fourth and the last are acknowledged.
const (
	lonePackets = 64
	loneAck     = 4
)

func loneKinds() (all []loneKind) {
	for _, op := range []WROpcode{WRSend, WRRDMAWrite} {
		for _, mtu := range []int{1024, 4096} {
			for _, bytes := range []bool{false, true} {
				all = append(all, loneKind{op, mtu, bytes})
			}
		}
	}
	return all
}

func newLone(t testing.TB, k loneKind) *lone {
	t.Helper()
	l := &lone{pool: &wire.Pool{}, kind: k}
	links := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 100e9, Delay: vtime.Microsecond}})
	l.link = links.At(0)
	const near, far = 10<<24 | 1, 10<<24 | 2
	l.nic = New(Config{
		IP: near, Port: &links.Ports(0, 1)[0], Pool: l.pool, TrustICRC: !k.bytes, Keys: prng.New(1),
		Settings: Settings{AckEvery: loneAck},
	})
	pd := l.nic.AllocPD()
	mem := Memory(Phantom(lonePackets * k.mtu))
	if k.bytes {
		mem = make(Bytes, lonePackets*k.mtu)
	}
	var err error
	if l.cq, err = l.nic.CreateCQ(8); err != nil {
		t.Fatal(err)
	}
	if l.qp, err = l.nic.CreateQP(QPInit{PD: pd, SendCQ: l.cq, RecvCQ: l.cq, MaxSendWR: 2, MaxRecvWR: 2, SQSigAll: true}); err != nil {
		t.Fatal(err)
	}
	if l.mr, err = l.nic.RegMR(pd, mem, AccessLocalWrite|AccessRemoteWrite); err != nil {
		t.Fatal(err)
	}
	l.qp.attr = QPAttr{Access: AccessRemoteWrite, AV: AH{DGID: far}, PathMTU: k.mtu, DestQPN: 99, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	l.qp.becomeRTR(0)
	l.qp.becomeRTS(0)
	l.env = wire.NewEnvelope(wire.Flow{SrcMAC: wire.HostMAC(far), DstMAC: l.nic.mac, Src: far, Dst: near, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
	return l
}

// out takes the frames that the NIC has sent by now off its link, and reports whether the last of them
// asks for an acknowledgement.
func (l *lone) out() (sent int, ask bool, psn wire.PSN) {
	l.nic.Settle(l.now, 0)
	for l.link.InFlight() > 0 {
		f := l.link.Land().Frame
		ask, psn = f.AckReq(), f.PSN()
		l.pool.Put(f)
		sent++
	}
	return sent, ask, psn
}

// request has the NIC send one message, and acknowledges it as a peer would.
func (l *lone) request(t testing.TB) {
	k := l.kind
	w := SendWR{Opcode: k.op, SGE: whole(l.mr, lonePackets*k.mtu), RemoteAddr: 1 << 20, RKey: 5}
	if err := l.nic.PostSend(l.now, l.qp, w); err != nil {
		t.Fatal(err)
	}
	for sent := 0; sent < lonePackets; {
		l.now = max(l.now, l.nic.port.Free())
		n, ask, psn := l.out()
		if sent += n; !ask {
			continue
		}
		f := l.pool.Get()
		f.Start(&l.env, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: l.qp.num, PSN: psn})
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
		f.Seal(0, !k.bytes)
		l.nic.HandleFrame(l.now, 0, f)
	}
	l.completed(t)
}

// respond hands the NIC the packets of one message and takes its acknowledgements.
func (l *lone) respond(t testing.TB, data *wire.Frame) {
	k := l.kind
	if k.op == WRSend {
		if err := l.nic.PostRecv(l.now, l.qp, RecvWR{SGE: whole(l.mr, lonePackets*k.mtu)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range lonePackets {
		last := i == lonePackets-1
		op := sendOpcode(k.op, i == 0, last)
		f := l.pool.Get()
		f.Start(&l.env, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: l.qp.num, PSN: l.psn, AckReq: last || (i+1)%loneAck == 0})
		if op.Info().RETH {
			f.AddRETH(wire.RETH{VA: l.mr.addr, RKey: l.mr.key, DMALen: uint32(lonePackets * k.mtu)})
		}
		if k.bytes {
			b := l.pool.Block()
			copy(b.Fill(k.mtu), data.PayloadBytes())
			f.SetPayload(b)
		} else {
			f.SetPhantom(k.mtu)
		}
		f.Seal(0, !k.bytes)
		l.psn = l.psn.Add(1)
		l.now = l.now.Add(l.link.Serialize(k.mtu))
		l.nic.HandleFrame(l.now, 0, f)
		l.out()
	}
	if k.op == WRSend {
		l.completed(t)
	}
}

// completed takes the one completion there must be.
func (l *lone) completed(t testing.TB) {
	if w, ok := l.nic.PollCQ(l.cq); !ok || w.Status != WCSuccess {
		t.Fatalf("%v: completion %v, %+v; drops %v", l.kind, ok, w, l.nic.stats.Drops)
	}
}

// payload returns a frame with the peer's data.
func (l *lone) payload() *wire.Frame {
	f := l.pool.Get()
	f.Start(&l.env, wire.BTH{OpCode: wire.OpSendOnly})
	copy(attach(l.pool, f, l.kind.mtu), "data")
	return f
}

// BenchmarkRequester sends messages of 64 packets; time per packet sent, a quarter of an
// acknowledgement made and taken included.
func BenchmarkRequester(b *testing.B) {
	for _, k := range loneKinds() {
		b.Run(k.String(), func(b *testing.B) {
			l := newLone(b, k)
			l.request(b)
			b.ReportAllocs()
			for b.Loop() {
				l.request(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lonePackets), "ns/packet")
		})
	}
}

// BenchmarkResponder takes messages of 64 packets; time per packet, its making and a
// quarter of an acknowledgement sent included.
func BenchmarkResponder(b *testing.B) {
	for _, k := range loneKinds() {
		b.Run(k.String(), func(b *testing.B) {
			l := newLone(b, k)
			data := l.payload()
			l.respond(b, data)
			b.ReportAllocs()
			for b.Loop() {
				l.respond(b, data)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lonePackets), "ns/packet")
		})
	}
}

// TestCoresAllocateNothing: neither half of the NIC allocates in steady state.
func TestCoresAllocateNothing(t *testing.T) {
	for _, k := range loneKinds() {
		q, r := newLone(t, k), newLone(t, k)
		data := r.payload()
		for range 3 { // rings and pools grow to their size
			q.request(t)
			r.respond(t, data)
		}
		if n := testing.AllocsPerRun(50, func() { q.request(t) }); n != 0 {
			t.Errorf("requester, %v: %v allocations for %d packets", k, n, lonePackets)
		}
		if n := testing.AllocsPerRun(50, func() { r.respond(t, data) }); n != 0 {
			t.Errorf("responder, %v: %v allocations for %d packets", k, n, lonePackets)
		}
	}
}
