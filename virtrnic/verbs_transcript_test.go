// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestVerbTranscripts holds conversations of READ, atomics, UC and UD against golden
// files, as TestTranscripts does those of SEND and WRITE.
func TestVerbTranscripts(t *testing.T) {
	o := pairOptions{mtu: 1024, timeout: 8, retry: 7, rnr: 6, log: true, psn: 0xfffffd, rdAtomic: 2}
	reading := func(p *pair) {
		_, dm := p.region(0, 4000, 0)
		_, sm := p.region(1, 4000, 3)
		p.post(0, read(1, dm, sm, 4000))
		p.post(0, add(2, whole(dm, 8), sm, 5))
		p.post(0, read(3, dm, sm, 100))
		p.post(0, SendWR{WRID: 4, Opcode: WRRDMAWrite, SGE: whole(dm, 100), RemoteAddr: sm.Addr(), RKey: sm.RKey()})
	}
	with := func(typ QPType) pairOptions {
		o := o
		o.typ = typ
		return o
	}
	for _, c := range []struct {
		name string
		o    pairOptions
		run  func(p *pair)
	}{
		{"read-atomic", o, reading},
		{"read-request-lost", o, func(p *pair) { p.loseNth(0, 1); reading(p) }},
		{"read-response-lost", o, func(p *pair) { p.loseNth(1, 2); reading(p) }},
		{"atomic-ack-lost", o, func(p *pair) { p.loseNth(1, 5); reading(p) }},
		{"read-memory-gone", o, func(p *pair) {
			_, dm := p.region(0, 4000, 0)
			_, sm := p.region(1, 4000, 3)
			p.post(0, read(1, dm, sm, 4000))
			p.net.At(1200*us/1000, func(vtime.Time) {
				if err := p.nic[1].DeregMR(sm); err != nil {
					t.Fatal(err)
				}
			})
		}},
		{"drain", o, func(p *pair) {
			_, dm := p.region(0, 4000, 0)
			_, sm := p.region(1, 4000, 3)
			p.post(0, read(1, dm, sm, 4000))
			p.post(0, read(2, dm, sm, 4000))
			p.post(0, read(3, dm, sm, 4000))
			p.net.At(us, func(vtime.Time) { p.modify(0, StateSQD, QPAttr{}) })
			p.net.At(20*us, func(vtime.Time) { p.modify(0, StateRTS, QPAttr{}) })
		}},
		{"uc-loss", with(TypeUC), func(p *pair) {
			p.loseNth(0, 2)
			_, sm := p.region(0, 3000, 3)
			_, dm := p.region(1, 3000, 0)
			for i := range uint64(2) {
				p.recv(1, RecvWR{WRID: 10 + i, SGE: whole(dm, 3000)})
				p.post(0, SendWR{WRID: i, Opcode: WRSend, SGE: whole(sm, 3000)})
			}
		}},
		{"ud", with(TypeUD), func(p *pair) {
			_, m := p.region(1, 100, 0)
			p.recv(1, RecvWR{WRID: 10, SGE: whole(m, 100)})
			p.post(0, SendWR{WRID: 1, Opcode: WRSendWithImm, Imm: 9, Flags: SendInline, Inline: make([]byte, 60), UD: p.dest(0)})
			p.post(0, SendWR{WRID: 2, Opcode: WRSend, Flags: SendInline, UD: p.dest(0)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, c.o)
			c.run(p)
			p.run()
			p.transcript(t, c.name)
		})
	}
}
