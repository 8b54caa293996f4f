// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// stub is the far end of a switch port: it keeps the frames that it receives and sends the frames of
// the test.
type stub struct {
	net   *machinetest.Net
	index int
	keep  bool
	got   []string
	sum   uint32 // of all headers it got
	raw   []*wire.Frame
}

// HandleFrame implements machine.Machine.
func (s *stub) HandleFrame(now vtime.Time, _ int, f *wire.Frame) {
	s.got = append(s.got, fmt.Sprintf("%v %v", now, f))
	s.sum = crc32.Update(s.sum, crc32.IEEETable, f.Header())
	if k := f.Kind(); k == wire.KindRoCE || k == wire.KindMRP {
		s.net.Logf("               life %d, class %#x, from port %d, %x to %x", f.TTL(), f.Traffic(), f.SrcPort(), f.Header()[6:12], f.Header()[:6])
	}
	if s.keep {
		s.raw = append(s.raw, f)
		return
	}
	s.net.Pool.Put(f)
}

// HandleTimeout implements machine.Machine.
func (s *stub) HandleTimeout(vtime.Time) {}

// Settle implements machine.Machine.
func (s *stub) Settle(vtime.Time, int) {}

// NextTimeout implements machine.Machine.
func (s *stub) NextTimeout() (vtime.Time, bool) { return 0, false }

// send puts a frame on the wire as soon as the transmitter is free.
func (s *stub) send(f *wire.Frame) {
	p := &s.net.PortsOf(s.index)[0]
	p.Commit(f, f.WireLen(), max(p.Free(), s.net.Now))
}

// lone is a switch with a stub at every port. Hosts 10.0.0.(i+1) are at the first
// ports; block 1 is behind the last two ports, block 2 behind the last.
type lone struct {
	t    *testing.T
	net  *machinetest.Net
	sw   *Switch
	stub []*stub
}

const loneHosts = 4

func newLone(t *testing.T, change func(*Config)) *lone {
	t.Helper()
	const ports = loneHosts + 2
	counts := []int{ports}
	var links []machinetest.Link
	for i := range ports {
		counts = append(counts, 1)
		links = append(links, machinetest.Link{A: 0, PA: i, B: i + 1, PB: 0, BitsPerSec: 100e9, Delay: vtime.Microsecond})
	}
	l := &lone{t: t, net: machinetest.New(counts, links)}
	c := Config{
		IP: 10<<24 | 253<<16, Ports: l.net.PortsOf(0), Pool: l.net.Pool,
		Settings: Settings{Buffer: 1 << 20, Rules: RulesFixed()},
	}
	c.PFC.Obey = 0xff // pauses hold back the frames that tests want to see waiting
	for i := range loneHosts {
		c.FIB.SetHost(hostIP(i), i)
	}
	c.FIB.Sets = [][]uint16{{loneHosts, loneHosts + 1}, {loneHosts + 1}}
	c.FIB.SetRoute(1, 0)
	c.FIB.SetRoute(2, 1)
	if change != nil {
		change(&c)
	}
	l.sw = New(c)
	l.net.Set(0, "SW", l.sw)
	for i := range ports {
		s := &stub{net: l.net, index: i + 1}
		l.stub = append(l.stub, s)
		l.net.Set(i+1, fmt.Sprintf("P%d", i), s)
	}
	return l
}

func hostIP(i int) uint32 { return 10<<24 | uint32(i+1) }

func (l *lone) run() {
	l.t.Helper()
	if err := l.net.Run(100000); err != nil {
		l.t.Fatal(err)
	}
	kept := 0
	for _, s := range l.stub {
		kept += len(s.raw)
	}
	if l.net.Pool.Live != kept {
		l.t.Errorf("%d frames are live, %d are kept", l.net.Pool.Live, kept)
	}
	b, held := &l.sw.buffer, [8]int32{}
	for i := range l.sw.buffer.in {
		for prio, n := range l.sw.buffer.in[i].bytes {
			held[prio] += n + l.sw.buffer.in[i].own[prio]
		}
	}
	if b.losslessBytes != 0 || b.lossyBytes != 0 || b.used != 0 || held != [8]int32{} || len(b.freeIndex) != len(b.shared) {
		l.t.Errorf("at rest the buffer's account is not empty: %+v, ingresses hold %v", b, held)
	}
}

// data builds a one-packet SEND.
func (l *lone) data(src, dst uint32, sport uint16, psn wire.PSN, tos uint8) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 9, SrcPort: sport, DstPort: wire.PortRoCEv2, Traffic: tos})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 17, PSN: psn, AckReq: true})
	f.SetPhantom(1000)
	f.Seal(1, false)
	return f
}

// mrp builds an MRP packet.
func (l *lone) mrp(src, dst uint32, h wire.MRPHeader, records ...wire.MRPRecord) *wire.Frame {
	return mrpFrame(l.net.Pool, src, dst, h, records...)
}

func mrpFrame(pool *wire.Pool, src, dst uint32, h wire.MRPHeader, records ...wire.MRPRecord) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP, Traffic: mrpTraffic})
	f := pool.Get()
	f.StartDatagram(&e)
	b := pool.Block()
	buf := h.AppendTo(b.Fill(wire.BlockCap)[:0])
	for _, r := range records {
		buf = r.AppendTo(buf)
	}
	b.Fill(len(buf))
	f.SetPayload(b)
	f.Seal(0, false)
	return f
}

const group1 = wire.GroupNet | 1

// register installs hosts 1.. as members of a group led by host 0 and activates it.
func (l *lone) register(id uint32, members int) {
	l.t.Helper()
	var rec []wire.MRPRecord
	for i := 1; i <= members; i++ {
		rec = append(rec, wire.MRPRecord{IP: hostIP(i), QPN: wire.QPN(100 + i)})
	}
	l.stub[0].send(l.mrp(hostIP(0), id, wire.MRPHeader{Total: 1, LeaderQPN: 100}, rec...))
	l.run()
	l.stub[0].send(l.mrp(hostIP(0), id, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5}))
	l.run()
}

func TestForward(t *testing.T) {
	l := newLone(t, nil)
	l.stub[0].send(l.data(hostIP(0), hostIP(2), 1, 7, 0))
	l.run()
	if fmt.Sprint(l.stub[2].got) != "[2.17312us 10.0.0.1>10.0.0.3 RC_SEND_ONLY qp=17 psn=7 A len=1000]" {
		t.Errorf("host 2 got %v", l.stub[2].got)
	}
	// Flows spread over equal-cost ports; a flow stays on one.
	for sport := range uint16(400) {
		for range 2 {
			l.stub[0].send(l.data(hostIP(0), 10<<24|1<<8|1, sport, 0, 0))
		}
	}
	l.run()
	a, b := len(l.stub[loneHosts].got), len(l.stub[loneHosts+1].got)
	if a+b != 800 || a < 300 || b < 300 || a%2 != 0 {
		t.Errorf("400 flows of two packets spread %d to %d", a, b)
	}
	for dst, why := range map[uint32]DropReason{ // order does not matter: counted apart
		10<<24 | 9<<8 | 1: DropNoRoute, // unknown block
		hostIP(9):         DropNoRoute, // no host there
		11 << 24:          DropNoRoute, // not ours
		group1:            DropUnknownGroup,
	} {
		before := l.sw.Stats().Drops[why]
		l.stub[0].send(l.data(hostIP(0), dst, 1, 0, 0))
		l.run()
		if l.sw.Stats().Drops[why] != before+1 {
			t.Errorf("to %v: not counted as %v", wire.AddrOf(dst), why)
		}
	}
	dying := l.data(hostIP(0), hostIP(1), 1, 0, 0)
	for dying.TTL() > 1 {
		dying.DecTTL()
	}
	l.stub[0].send(dying)
	l.run()
	if l.sw.Stats().Drops[DropTTL] != 1 {
		t.Error("a packet at the end of its life was forwarded")
	}
}

// TestPriority: at a busy port the higher class goes first, and within a class the
// earlier frame; a pause stops its class only.
func TestPriority(t *testing.T) {
	l := newLone(t, nil)
	for i, tos := range []uint8{0, 0, 3 << 5, 6 << 5, 3 << 5} {
		l.stub[i%3].send(l.data(hostIP(i%3), hostIP(3), 1, wire.PSN(i), tos))
	}
	l.run()
	// Frames 0, 1 and 2 arrive at one instant. Whichever is handled first leaves at once;
	// of the rest class 6 goes before class 3 before class 0, and 0 before its twin 3 by port.
	got := psns(l.stub[3].got)
	if len(got) != 5 || !slices.Contains([]string{"psn=0", "psn=1", "psn=2"}, got[0]) {
		t.Fatalf("order %v", got)
	}
	class := map[string]int{"psn=0": 0, "psn=1": 0, "psn=2": 3, "psn=3": 6, "psn=4": 3}
	for i := 2; i < 5; i++ {
		if class[got[i]] > class[got[i-1]] {
			t.Errorf("order %v: %s waits behind %s", got, got[i], got[i-1])
		}
	}

	l = newLone(t, nil)
	p := l.net.Pool.Get()
	p.BuildPFC(wire.PFC{Enable: 1 << 3, Quanta: [8]uint16{3: 1000}})
	l.stub[3].send(p)
	l.net.At(vtime.Time(2*vtime.Microsecond), func(vtime.Time) {
		l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 1, 3<<5))
		l.stub[1].send(l.data(hostIP(1), hostIP(3), 1, 2, 0))
	})
	l.run()
	// The pause arrives at 1.00672 us and lasts 1000 quanta of 512 bits at 100 Gb/s; the
	// frame then takes 86.56 ns and the link 1 us.
	want := []string{
		"4.17312us 10.0.0.2>10.0.0.4 RC_SEND_ONLY qp=17 psn=2 A len=1000",
		"7.21328us 10.0.0.1>10.0.0.4 RC_SEND_ONLY qp=17 psn=1 A len=1000",
	}
	if got := l.stub[3].got; !slices.Equal(got, want) {
		t.Errorf("with class 3 paused\n got %q\nwant %q", got, want)
	}
}

// TestPauseOfLossyClass: a pause frame that names all classes stops those with PFC, and those that are
// paused asymmetrically; the others keep sending, whether it pauses or resumes them.
func TestPauseOfLossyClass(t *testing.T) {
	for _, c := range []struct{ lossless, obey, stops uint8 }{{0, 0, 0}, {1 << 3, 0, 1 << 3}, {0x28, 0, 0x28}, {1 << 3, 1 << 5, 0x28}} {
		for _, quanta := range []uint16{0, 60000} { // 307 us
			l := newLone(t, func(k *Config) {
				k.PFC = PFCConfig{Lossless: c.lossless, Obey: c.obey, XOFF: 20000, Headroom: []int{9000, 9000, 9000, 9000, 9000, 9000}}
			})
			l.pause(3, 0xff, quanta)
			l.at(2, func() {
				for prio := range uint8(8) {
					l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(prio), prio<<5))
				}
			})
			came := map[string]bool{}
			l.at(50, func() {
				for _, psn := range psns(l.stub[3].got) {
					came[psn] = true
				}
			})
			l.run()
			ignored := uint64(0)
			if c.stops != 0xff {
				ignored = 1
			}
			for prio := range uint8(8) {
				if paused := quanta > 0 && c.stops>>prio&1 != 0; came[fmt.Sprint("psn=", prio)] == paused {
					t.Errorf("lossless %#x, obeyed %#x, %d quanta: class %d has gone on: %v", c.lossless, c.obey, quanta, prio, paused)
				}
			}
			if st := l.sw.Stats(); st.PausesReceived != 1 || st.PausesIgnored != ignored || len(l.stub[3].got) != 8 {
				t.Errorf("lossless %#x: %d pauses received, %d ignored, %d frames in the end", c.lossless, st.PausesReceived, st.PausesIgnored, len(l.stub[3].got))
			}
		}
	}
}

func psns(lines []string) (all []string) {
	for _, l := range lines {
		for w := range slices.Values(splitWords(l)) {
			if len(w) > 4 && w[:4] == "psn=" {
				all = append(all, w)
			}
		}
	}
	return all
}

func splitWords(s string) (words []string) {
	start := 0
	for i := range len(s) + 1 {
		if i == len(s) || s[i] == ' ' {
			words = append(words, s[start:i])
			start = i + 1
		}
	}
	return words
}

// TestMFTBytes: the packed table is 711 bytes at 64 ports whatever the group's size,
// 0.694 MiB for 1024 groups (CEP-21, F-17, R-C20); by Gleam's layout at most 0.92 MB (R-G9) (CON-8).
func TestMFTBytes(t *testing.T) {
	if got := MFTBytes(64, false); got != 711 {
		t.Errorf("%d bytes at 64 ports, want 711", got)
	}
	if got := float64(1024*MFTBytes(64, false)) / (1 << 20); got < 0.6935 || got > 0.6945 {
		t.Errorf("1024 groups take %.4f MiB, want 0.694", got)
	}
	if got := GleamTableBytes(64, false) * 1024; got > 920_000 || got < 900_000 {
		t.Errorf("Gleam's tables of 1024 groups take %d bytes, want at most 0.92 MB", got)
	}
}

// TestGroupMemory registers 1024 groups of all 64 hosts of a switch, the most there can be, and reports
// the cost of a group on the heap.
func TestGroupMemory(t *testing.T) {
	const hosts, groups = 64, 1024
	counts := make([]int, hosts+1)
	counts[0] = hosts
	var links []machinetest.Link
	for i := range hosts {
		counts[i+1] = 1
		links = append(links, machinetest.Link{A: 0, PA: i, B: i + 1, BitsPerSec: 100e9})
	}
	net := machinetest.New(counts, links)
	l := &lone{t: t, net: net}
	c := Config{
		IP: 10<<24 | 253<<16, Ports: net.PortsOf(0), Pool: net.Pool,
		Settings: Settings{Buffer: 1 << 24, Rules: RulesFixed()},
	}
	var rec []wire.MRPRecord
	for i := range hosts {
		c.FIB.SetHost(hostIP(i), i)
		if i > 0 {
			rec = append(rec, wire.MRPRecord{IP: hostIP(i), QPN: 100})
		}
	}
	l.sw = New(c)
	var before, after runtime.MemStats
	f := l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, rec...)
	p, err := wire.ParseMRP(f.Payload().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for id := range uint32(groups) {
		g := &group{id: wire.GroupNet | id, index: make([]uint8, hosts)}
		out, why := l.sw.route(g, 0, p)
		if why != 0 {
			t.Fatal(why)
		}
		l.sw.groups.put(g)
		l.sw.addIngress(g, 0, hostIP(0), 100)
		for i, port := range out {
			l.sw.addNode(g, port, p.Record(i))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("a group of %d paths takes %d bytes of heap, %d packed", hosts, (after.HeapAlloc-before.HeapAlloc)/groups, MFTBytes(hosts, false))
	for _, g := range l.sw.Groups() {
		if len(g.Paths) != hosts {
			t.Fatalf("%d paths, want %d", len(g.Paths), hosts)
		}
	}
	runtime.KeepAlive(l)
}
