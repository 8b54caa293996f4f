// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// benchPair is two NICs on one wire with the smallest driver that will do.
type benchPair struct {
	links machine.Links
	nic   [2]*NIC
	cq    [2]*CQ
	qp    [2]*QP
	mr    [2]*MR
	now   vtime.Time
}

const benchSize = 64 * 1024

func newBenchPair(b *testing.B) *benchPair {
	port := machine.PortConfig{BitsPerSec: 100e9, Delay: vtime.Microsecond}
	p := &benchPair{links: machine.NewLinks([]machine.PortConfig{port, port})}
	pool, keys, ports := &wire.Pool{}, prng.New(1), p.links.Ports(0, 2)
	for i := range 2 {
		p.nic[i] = New(Config{
			IP: 10<<24 | uint32(i+1), Port: &ports[i], Pool: pool, TrustICRC: true, Keys: keys,
			Settings: Settings{AckEvery: 4},
		})
		pd := p.nic[i].AllocPD()
		var err error
		if p.cq[i], err = p.nic[i].CreateCQ(64); err != nil {
			b.Fatal(err)
		}
		if p.qp[i], err = p.nic[i].CreateQP(QPInit{PD: pd, SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 8, MaxRecvWR: 8, SQSigAll: true}); err != nil {
			b.Fatal(err)
		}
		if p.mr[i], err = p.nic[i].RegMR(pd, Phantom(benchSize), AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead); err != nil {
			b.Fatal(err)
		}
	}
	for i, q := range p.qp {
		q.attr = QPAttr{
			Access: AccessRemoteWrite | AccessRemoteRead, AV: AH{DGID: p.nic[1-i].IP()}, PathMTU: 1024, DestQPN: p.qp[1-i].num,
			Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxQPRdAtomic: 4, MaxDestRdAtomic: 4,
		}
		q.becomeRTR(0)
		q.becomeRTS(0)
	}
	return p
}

// run delivers until the requester has its completion.
func (p *benchPair) run(b *testing.B) {
	link := [2]*machine.Link{p.links.At(0), p.links.At(1)}
	for {
		for i := range p.nic { // frames that start by now, as a driver's wake does
			if link[i].InFlight() == 0 && link[i].Next() != vtime.Never {
				p.nic[i].Settle(max(p.now, link[i].Next()), 0)
			}
		}
		k := 0
		if link[0].InFlight() == 0 || link[1].InFlight() > 0 && link[1].Flying(0).At < link[0].Flying(0).At {
			k = 1
		}
		if link[k].InFlight() == 0 {
			break
		}
		e := link[k].Land()
		p.now = e.At
		p.nic[k].Settle(p.now, 0)
		p.nic[1-k].HandleFrame(p.now, 0, e.Frame)
	}
	for i := range p.nic {
		for {
			w, ok := p.nic[i].PollCQ(p.cq[i])
			if !ok {
				break
			}
			if w.Status != WCSuccess {
				b.Fatal(w.Status)
			}
		}
	}
}

// BenchmarkMessage moves messages of 64 KiB in 64 packets; time per packet.
func BenchmarkMessage(b *testing.B) {
	for name, op := range map[string]WROpcode{"send": WRSend, "write": WRRDMAWrite, "read": WRRDMARead} { // each is its own figure
		b.Run(name, func(b *testing.B) {
			p := newBenchPair(b)
			w := SendWR{Opcode: op, SGE: whole(p.mr[0], benchSize), RemoteAddr: p.mr[1].addr, RKey: p.mr[1].key}
			b.ReportAllocs()
			for b.Loop() {
				if op == WRSend {
					if err := p.nic[1].PostRecv(p.now, p.qp[1], RecvWR{SGE: whole(p.mr[1], benchSize)}); err != nil {
						b.Fatal(err)
					}
				}
				if err := p.nic[0].PostSend(p.now, p.qp[0], w); err != nil {
					b.Fatal(err)
				}
				p.run(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchSize/1024), "ns/packet")
		})
	}
}
