// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// inside checks that nothing has left the NIC, and that its packets have arrived at itself.
func (p *pair) inside() {
	p.t.Helper()
	s := p.nic[0].Stats()
	if s.SentPkts != 0 || s.RcvdPkts != 0 || s.Dropped() != 0 || s.Loopback != s.Made || s.Delivered != s.Made {
		p.t.Errorf("%d frames sent, %d received, %d dropped; %d made, of which %d came back and %d ended well",
			s.SentPkts, s.RcvdPkts, s.Dropped(), s.Made, s.Loopback, s.Delivered)
	}
	if n := p.net.Links.At(0).Frames; n != 0 {
		p.t.Errorf("%d frames were on the link", n)
	}
}

// TestLoopback: all requests of all services reach queue pairs at the same NIC, and nothing of them leaves it.
func TestLoopback(t *testing.T) {
	for _, c := range []struct {
		name string
		o    pairOptions
	}{
		{"RC", pairOptions{rdAtomic: 4, psn: 0xfffffe}}, {"IRN", pairOptions{rdAtomic: 4, irn: [2]*IRN{testIRN(), testIRN()}}}, {"UC", connected}, {"UD", datagrams},
		{"RC with VLAN", pairOptions{rdAtomic: 4, vlan: 7}}, {"RC with IPv6", pairOptions{rdAtomic: 4, ipv6: true}}, {"RC with congestion control", pairOptions{rdAtomic: 4, congestion: setOf(t, "dcqcn")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.self = true
			for _, n := range []int{1, 1024, 1025, 9000} {
				for op := WRRDMAWrite; op <= WRRDMARead; op++ {
					if c.o.typ == TypeUD && (n > 4096 || op != WRSend && op != WRSendWithImm) || c.o.typ == TypeUC && op > WRSendWithImm {
						continue
					}
					p := newPair(t, c.o)
					from, to := 0, 1
					if op == WRRDMARead {
						from, to = 1, 0
					}
					src, sm := p.region(from, n, 3)
					dst, dm := p.region(to, GRHLen+n, 0)
					if op != WRRDMARead {
						p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, GRHLen+n)})
					}
					wr := SendWR{WRID: 1, Opcode: op, SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey()}
					got := dst[:n]
					switch {
					case op == WRRDMARead:
						wr.SGE, wr.RemoteAddr, wr.RKey = whole(dm, n), sm.Addr(), sm.RKey()
					case c.o.typ == TypeUD:
						wr.UD, got = p.dest(0), dst[GRHLen:]
					}
					p.post(0, wr)
					p.run()
					if w := p.completions(0); len(w) != 1 || w[0].Status != WCSuccess || w[0].WRID != 1 {
						t.Fatalf("opcode %d of %d bytes: completions %v", op, n, w)
					}
					if received := len(p.completions(1)); received != map[WROpcode]int{WRSend: 1, WRSendWithImm: 1, WRRDMAWriteWithImm: 1}[op] {
						t.Errorf("opcode %d of %d bytes: %d receives completed", op, n, received)
					}
					if !bytes.Equal(got, src) {
						t.Errorf("opcode %d of %d bytes: other bytes arrived", op, n)
					}
					p.inside()
				}
			}
		})
	}
}

// TestLoopbackSameQP: a queue pair that is connected to itself sends to itself.
func TestLoopbackSameQP(t *testing.T) {
	p := newPair(t, pairOptions{rdAtomic: 4})
	q, err := p.nic[0].CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 4, MaxRecvWR: 4})
	if err != nil {
		t.Fatal(err)
	}
	a := QPAttr{Port: 1, Access: AccessRemoteWrite, AV: AH{DGID: p.nic[0].IP()}, PathMTU: 1024, DestQPN: q.Num(), SQPSN: 9, RQPSN: 9, Timeout: 8, RetryCnt: 7}
	if err := p.nic[0].BringUp(0, q, a); err != nil {
		t.Fatal(err)
	}
	p.qp[0] = q
	src, sm := p.region(0, 3000, 3)
	dst, dm := p.region(0, 3000, 0)
	p.recv(0, RecvWR{WRID: 2, SGE: whole(dm, 3000)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGE: whole(sm, 3000)})
	p.run()
	if w := p.completions(0); len(w) != 2 || w[0].WRID != 2 || w[1].WRID != 1 || w[0].Status != WCSuccess || w[1].Status != WCSuccess || !bytes.Equal(src, dst) {
		t.Errorf("completions %v", w)
	}
	p.inside()
}

// TestLoopbackTime: a packet to the NIC itself takes the port's time, no link's, and packets to others wait for it:
// both share the port's rate.
func TestLoopbackTime(t *testing.T) {
	const n = 1000
	p := newPair(t, pairOptions{self: true, delay: vtime.Millisecond})
	_, sm := p.region(0, n, 3)
	_, dm := p.region(1, n, 0)
	p.recv(1, RecvWR{SGE: whole(dm, n)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, n)})
	e := p.nic[0].env(0x0a000002)
	f := p.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 99})
	f.Seal(0, false)
	size := f.WireLen()
	p.nic[0].SendFrame(0, f)
	port := &p.net.PortsOf(0)[0]
	request, other, ack := port.Serialize(14+20+8+12+n+4+24), port.Serialize(size), port.Serialize(14+20+8+12+4+4+24)
	if free := port.Free(); free != vtime.Time(0).Add(request) {
		t.Errorf("the port is free at %v, want %v", free, request)
	}
	for p.nic[0].Completions() < 2 && p.net.Step() {
	}
	if want := vtime.Time(0).Add(request + other + ack); p.net.Now != want {
		t.Errorf("acknowledged at %v, want %v", p.net.Now, want)
	}
	if first := p.net.Links.At(0).Flying(0).At; first != vtime.Time(0).Add(request+other+vtime.Millisecond) {
		t.Errorf("what goes to the other arrives at %v", first)
	}
	p.run()
}

// env is the envelope of packets to an address.
func (n *NIC) env(ip uint32) wire.Envelope {
	var q QP
	q.attr.AV.DGID, q.attr.DestQPN = ip, 99
	return n.envelope(&q)
}

// TestLoopbackHeld: a pause of the class holds packets of a NIC to itself, a stall holds them on arrival too, and
// a restart loses them.
func TestLoopbackHeld(t *testing.T) {
	const n = 5000
	for _, how := range []string{"pause", "stall", "restart"} {
		t.Run(how, func(t *testing.T) {
			p := newPair(t, pairOptions{self: true, timeout: 20, retry: 7})
			src, sm := p.region(0, n, 3)
			dst, dm := p.region(1, n, 0)
			p.recv(1, RecvWR{SGE: whole(dm, n)})
			p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, n)})
			if k := p.nic[0].Queued(); k != 1 {
				t.Fatalf("the NIC holds %d frames", k)
			}
			hold := vtime.Time(vtime.Millisecond)
			switch how {
			case "pause":
				f := p.net.Pool.Get()
				pause := wire.PFC{Src: wire.HostMAC(0x0a000002), Enable: 0xff}
				for i := range pause.Quanta {
					pause.Quanta[i] = 0xffff
				}
				f.BuildPFC(pause)
				p.nic[0].HandleFrame(0, 0, f)
				hold = vtime.Time(0).Add(p.net.PortsOf(0)[0].Serialize(0xffff * wire.PauseQuantumBits / 8))
			case "stall":
				p.nic[0].Stall(0, true)
				p.net.At(hold, func(now vtime.Time) { p.nic[0].Stall(now, false) })
			case "restart":
				if lost := p.nic[0].Restart(0); lost != 1 || p.nic[0].Stats().Drops[DropRestart] != 1 {
					t.Errorf("%d frames lost", lost)
				}
				if k := p.nic[0].Queued(); k != 0 {
					t.Errorf("%d frames are left", k)
				}
				p.run()
				return
			}
			p.net.After = func() {
				if p.net.Now < hold && p.nic[0].Completions() != 0 {
					t.Fatalf("completed at %v", p.net.Now)
				}
			}
			p.run()
			if p.net.Now < hold || p.nic[0].Failures() != 0 || p.nic[0].Completions() != 2 || !bytes.Equal(src, dst) {
				t.Errorf("at %v: %d completions, %d of them failures", p.net.Now, p.nic[0].Completions(), p.nic[0].Failures())
			}
		})
	}
}

// TestLoopbackReturn: a driver that takes returned frames may give them to the NIC later, for example after it has
// read memory.
func TestLoopbackReturn(t *testing.T) {
	p := newPair(t, pairOptions{self: true})
	const late = 3 * vtime.Microsecond
	taken := 0
	p.nic[0].SetReturn(func(now vtime.Time, f *wire.Frame) {
		taken++
		p.net.At(now.Add(late), func(now vtime.Time) { p.nic[0].HandleReturned(now, f) })
	})
	src, sm := p.region(0, 3000, 3)
	dst, dm := p.region(1, 3000, 0)
	p.recv(1, RecvWR{SGE: whole(dm, 3000)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 3000)})
	p.run()
	p.inside()
	if taken != 6 || p.net.Now < vtime.Time(0).Add(2*late) || !bytes.Equal(src, dst) {
		t.Errorf("%d frames taken, over at %v", taken, p.net.Now)
	}
}

// TestLoopbackOthers: a NIC that sends to itself sends to others as before.
func TestLoopbackOthers(t *testing.T) {
	logs := [2]string{}
	for i := range logs {
		p := newPair(t, pairOptions{log: true, headers: true})
		if i > 0 {
			if _, err := p.nic[0].CreateAH(p.pd[0], AH{DGID: p.nic[0].IP()}); err != nil {
				t.Fatal(err)
			}
		}
		_, sm := p.region(0, 9000, 3)
		_, dm := p.region(1, 9000, 0)
		for k := range 3 {
			p.recv(1, RecvWR{SGE: whole(dm, 9000)})
			p.post(0, SendWR{WRID: uint64(k), Opcode: WRSend, SGE: whole(sm, 9000)})
		}
		p.run()
		p.outcome()
		logs[i] = fmt.Sprint(p.net.Now, "\n", p.net.Log)
	}
	if logs[0] != logs[1] {
		t.Errorf("without\n%s\nwith\n%s", logs[0], logs[1])
	}
}

// TestLoopbackNewPath: a queue pair whose path is changed to the NIC itself sends there.
func TestLoopbackNewPath(t *testing.T) {
	p := newPair(t, pairOptions{})
	n := p.nic[0]
	q, err := n.CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 4, MaxRecvWR: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.BringUp(0, q, QPAttr{Port: 1, AV: AH{DGID: p.nic[1].IP()}, PathMTU: 1024, DestQPN: q.Num(), Timeout: 8, RetryCnt: 7}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		attr QPAttr
		mask AttrMask
	}{{QPAttr{State: StateSQD}, AttrState}, {QPAttr{State: StateSQD, AV: AH{DGID: n.IP()}}, AttrState | AttrAV}, {QPAttr{State: StateRTS}, AttrState}} {
		if err := n.ModifyQP(0, q, a.attr, a.mask); err != nil {
			t.Fatal(err)
		}
	}
	p.qp[0] = q
	_, sm := p.region(0, 100, 3)
	_, dm := p.region(0, 100, 0)
	p.recv(0, RecvWR{SGE: whole(dm, 100)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 100)})
	p.run()
	if n.Completions() != 1 || n.Failures() != 0 { // only the receive is signalled
		t.Errorf("%d completions, %d failures", n.Completions(), n.Failures())
	}
	p.inside()
}

// TestLoopbackForeign: frames that are not RoCE go to the switch whatever their address, and pauses, too.
func TestLoopbackForeign(t *testing.T) {
	p := newPair(t, pairOptions{self: true})
	e := wire.NewEnvelope(wire.Flow{Src: p.nic[0].IP(), Dst: p.nic[0].IP(), TTL: 9, SrcPort: wire.PortMRP, DstPort: wire.PortMRP, Traffic: 48 << 2})
	f := p.net.Pool.Get()
	f.StartDatagram(&e)
	f.Seal(0, false)
	p.nic[0].SendFrame(0, f)
	p.nic[0].SendPause(0, 1, 1)
	p.run()
	if s := p.nic[0].Stats(); s.SentPkts != 2 || s.Loopback != 0 || p.net.Links.At(0).Frames != 2 {
		t.Errorf("%d frames sent, %d came back", s.SentPkts, s.Loopback)
	}
}
