// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// benchSwitch is a switch with five hosts and the smallest driver that will do.
type benchSwitch struct {
	b     *testing.B
	sw    *Switch
	links machine.Links
	pool  *wire.Pool
	now   vtime.Time
}

const benchHosts = 5

func newBenchSwitch(b *testing.B) *benchSwitch {
	port := machine.PortConfig{BitsPerSec: 100e9, Delay: vtime.Microsecond}
	s := &benchSwitch{b: b, links: machine.NewLinks(slices.Repeat([]machine.PortConfig{port}, benchHosts)), pool: &wire.Pool{}}
	c := Config{
		IP: 10<<24 | 253<<16, Ports: s.links.Ports(0, benchHosts), Pool: s.pool,
		Settings: Settings{Buffer: 1 << 20, Rules: RulesFixed()},
	}
	for i := range benchHosts {
		c.FIB.SetHost(hostIP(i), i)
	}
	s.sw = New(c)
	return s
}

// pass hands a frame to the switch at port 0, lets everything leave and returns the number of frames
// that left.
func (s *benchSwitch) pass(f *wire.Frame) (left int) {
	s.now = s.now.Add(vtime.Microsecond)
	s.sw.HandleFrame(s.now, 0, f)
	s.now = s.now.Add(vtime.Microsecond)
	for i := range benchHosts {
		s.sw.Settle(s.now, i)
		for l := s.links.At(i); l.InFlight() > 0; {
			s.pool.Put(l.Land().Frame)
			left++
		}
	}
	return left
}

// group registers hosts 1 to 4 and makes the group active.
func (s *benchSwitch) group() {
	var rec []wire.MRPRecord
	for i := 1; i < benchHosts; i++ {
		rec = append(rec, wire.MRPRecord{IP: hostIP(i), QPN: wire.QPN(100 + i)})
	}
	s.pass(mrpFrame(s.pool, hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, rec...))
	s.pass(mrpFrame(s.pool, hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5}))
}

// BenchmarkHop passes packets of 1000 bytes from port 0 to one host and to a group of
// four; the frame is a clone of a template, which is in the time. Time per packet that
// comes in, and per packet that leaves.
func BenchmarkHop(b *testing.B) {
	for _, c := range []struct {
		name   string
		dst    uint32
		copies int
	}{{"unicast", hostIP(1), 1}, {"1-to-4", group1, 4}} {
		b.Run(c.name, func(b *testing.B) {
			s := newBenchSwitch(b)
			s.group()
			e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: c.dst, TTL: 9, SrcPort: 1, DstPort: wire.PortRoCEv2})
			tmpl := s.pool.Get()
			tmpl.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 17, PSN: 5, AckReq: true})
			tmpl.SetPhantom(1000)
			tmpl.Seal(1, false)
			if n := s.pass(s.pool.Clone(tmpl)); n != c.copies {
				b.Fatalf("%d frames left, want %d; drops %v", n, c.copies, s.sw.stats.Drops)
			}
			if n := testing.AllocsPerRun(1000, func() { s.pass(s.pool.Clone(tmpl)) }); n != 0 {
				b.Fatalf("%v allocations for a packet in steady state", n)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.pass(s.pool.Clone(tmpl))
			}
			perPacket := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(perPacket, "ns/packet")
			b.ReportMetric(perPacket/float64(c.copies), "ns/copy")
		})
	}
}
