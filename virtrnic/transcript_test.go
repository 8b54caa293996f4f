// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// loseNth drops the n-th frame (from 1) that a side sends.
func (p *pair) loseNth(side int, numbers ...int) {
	seen := [2]int{}
	prev := p.net.Fate
	p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		seen[port]++
		if port == side {
			for _, n := range numbers {
				if seen[port] == n {
					return faults.Verdict{Drop: true}
				}
			}
		}
		if prev != nil {
			return prev(now, port, f)
		}
		return faults.Verdict{}
	}
}

// TestTranscripts compares whole conversations with golden files: every frame with its time, and the
// reports of the NICs.
func TestTranscripts(t *testing.T) {
	o := pairOptions{mtu: 1024, timeout: 8, retry: 7, rnr: 6, log: true, psn: 0xfffffd}
	transfer := func(p *pair, packets int) {
		_, sm := p.region(0, packets*1024, 3)
		_, dm := p.region(1, packets*1024, 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, packets*1024)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, packets*1024)})
	}
	for _, c := range []struct {
		name string
		run  func(p *pair)
	}{
		{"send-5", func(p *pair) { transfer(p, 5) }},
		{"loss-in-the-middle", func(p *pair) { p.loseNth(0, 3); transfer(p, 6) }},
		{"loss-of-the-last", func(p *pair) { p.loseNth(0, 3); transfer(p, 3) }},
		{"ack-lost", func(p *pair) { p.loseNth(1, 2, 3); transfer(p, 3) }},
		{"nak-lost", func(p *pair) { p.loseNth(0, 2); p.loseNth(1, 2); transfer(p, 4) }},
		{"not-ready", func(p *pair) {
			_, sm := p.region(0, 2048, 3)
			_, dm := p.region(1, 2048, 0)
			p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, 2048)})
			p.net.At(vtime.Time(5*vtime.Microsecond), func(vtime.Time) { p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, 2048)}) })
		}},
		{"write-with-imm", func(p *pair) {
			_, sm := p.region(0, 2500, 3)
			_, dm := p.region(1, 2500, 0)
			p.recv(1, RecvWR{WRID: 2})
			p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWriteWithImm, Imm: 7, SGE: whole(sm, 2500), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
		}},
		{"remote-access-error", func(p *pair) {
			_, sm := p.region(0, 2500, 3)
			p.post(0, SendWR{WRID: 1, Opcode: WRRDMAWrite, SGE: whole(sm, 2500), RemoteAddr: 1, RKey: 2})
			p.post(0, SendWR{WRID: 2, Opcode: WRSend, SGE: whole(sm, 100)})
		}},
		{"paused", func(p *pair) {
			transfer(p, 20)
			p.net.At(vtime.Time(150*vtime.Nanosecond), func(now vtime.Time) { p.nic[1].SendPause(now, 1<<3, 1000) })
			p.net.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) { p.nic[1].SendPause(now, 1<<3, 100) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, o)
			c.run(p)
			p.run()
			p.transcript(t, c.name)
		})
	}
}
