// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// listing builds a registration with regions: of the leader, host 0, and of hosts, at
// round<<12 + host<<8 with key round<<4 + host.
func (l *lone) listing(id uint32, round uint8, hosts ...int) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: id, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP, Traffic: mrpTraffic})
	f := l.net.Pool.Get()
	f.StartDatagram(&e)
	b := l.net.Pool.Block()
	buf := wire.MRPHeader{Total: 1, Flags: wire.MRPMRUpdate, LeaderQPN: 100}.AppendTo(b.Fill(wire.BlockCap)[:0])
	for _, h := range append([]int{0}, hosts...) {
		buf = wire.MRPRecord{IP: hostIP(h), Flags: round, QPN: wire.QPN(100 + h)}.AppendTo(buf)
		buf = wire.MRPRegion{VA: uint64(round)<<12 + uint64(h)<<8, RKey: uint32(round)<<4 + uint32(h)}.AppendTo(buf)
	}
	b.Fill(len(buf))
	f.SetPayload(b)
	f.Seal(0, false)
	return f
}

// regionLab has a group of hosts 0 to 3 with regions, active from PSN 5 on.
func regionLab(t *testing.T, change func(*Config)) *lone {
	l := newLone(t, change)
	l.stub[0].send(l.listing(group1, 0, 1, 2, 3))
	l.run()
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5}))
	l.run()
	for i := range l.stub {
		l.stub[i].got = nil
	}
	return l
}

// write builds a WRITE of one packet; a payload of records makes it an announcement.
func (l *lone) write(from int, psn wire.PSN, va uint64, rkey uint32, records ...wire.MRUpdate) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: hostIP(from), Dst: group1, TTL: 9, SrcPort: 1, DstPort: wire.PortRoCEv2})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpWriteOnly, PKey: wire.PKeyDefault, DestQP: 1, PSN: psn, AckReq: true})
	n := max(16, 16*len(records))
	f.AddRETH(wire.RETH{VA: va, RKey: rkey, DMALen: uint32(n)})
	if len(records) == 0 {
		f.SetPhantom(n)
	} else {
		b := l.net.Pool.Block()
		buf := b.Fill(wire.BlockCap)[:0]
		for _, r := range records {
			buf = r.AppendTo(buf)
		}
		b.Fill(len(buf))
		f.SetPayload(b)
	}
	f.Seal(1, false)
	return f
}

// announce builds an announcement that WRITEs go to va with the key at hosts 1 to 3.
func (l *lone) announce(psn wire.PSN, va uint64, rkey uint32) *wire.Frame {
	var all []wire.MRUpdate
	for h := 1; h < 4; h++ {
		all = append(all, wire.MRUpdate{IP: hostIP(h), RKey: rkey + uint32(h), VA: va + uint64(h)<<8})
	}
	return l.write(0, psn, wire.MRUpdateVA, 0, all...)
}

func named(psn wire.PSN) uint32 { return wire.MRAnnounced | uint32(psn) }

// lands sends a WRITE from host 0 and returns the address and key host 1 gets it with, or
// the reason for which it does not. The ICRC must be right at the end.
func (l *lone) lands(f *wire.Frame) string {
	l.t.Helper()
	before := l.sw.Stats().Drops
	l.stub[1].keep = true
	l.stub[0].send(f)
	l.run()
	l.stub[1].keep = false
	defer func() {
		for _, f := range l.stub[1].raw {
			l.net.Pool.Put(f)
		}
		l.stub[1].raw = nil
		for i := range l.stub {
			l.stub[i].got = nil
		}
	}()
	if len(l.stub[1].raw) == 0 {
		for _, r := range DropReasons() {
			if l.sw.Stats().Drops[r] > before[r] {
				return r.String()
			}
		}
		return "nothing"
	}
	g := l.stub[1].raw[0]
	if !g.CheckICRC() {
		return "wrong ICRC"
	}
	return fmt.Sprintf("%#x %#x", g.RETH().VA, g.RETH().RKey)
}

// TestRegisteredRegions: a WRITE of an offset goes to each member's own region, with one
// XOR of the ICRC; an update moves it, a late one does not; a group without regions leaves
// WRITEs alone.
func TestRegisteredRegions(t *testing.T) {
	l := regionLab(t, nil)
	l.stub[0].send(l.write(0, 5, 0x10, 0))
	l.run()
	for h := 1; h < 4; h++ {
		want := fmt.Sprintf("10.254.0.1>10.0.0.%d RC_WRITE_ONLY qp=%d psn=5 A va=%#x rkey=%#x dma=16 len=16", h+1, 100+h, h<<8+0x10, h)
		if got := l.took(h); got != want {
			t.Errorf("host %d got %q, want %q", h, got, want)
		}
	}
	if n := l.sw.Stats().RETHsRewritten; n != 3 {
		t.Errorf("%d WRITEs rewritten, want 3", n)
	}
	for _, c := range []struct {
		round uint8
		want  string
	}{{1, "0x1110 0x11"}, {0, "0x1110 0x11"}, {255, "0x1110 0x11"}, {100, "0x64110 0x641"}, {200, "0xc8110 0xc81"}, {60, "0x3c110 0x3c1"}} {
		l.stub[0].send(l.listing(group1, c.round, 1, 2, 3))
		l.run()
		if got := l.took(2); c.want[:4] != "0x11" && !strings.Contains(got, fmt.Sprintf("flags=%d qp=102", c.round)) {
			t.Errorf("round %d: host 2 got %q", c.round, got)
		}
		if got := l.lands(l.write(0, 6, 0x10, 0)); got != c.want {
			t.Errorf("round %d: %s, want %s", c.round, got, c.want)
		}
	}
	damaged := l.write(0, 7, 0x10, 0)
	l.net.Pool.Damage(damaged, 12*8+3) // in the RETH
	if got := l.lands(damaged); got != "wrong ICRC" {
		t.Errorf("a damaged WRITE: %s, want a wrong ICRC", got)
	}
	plain := groupLab(t, nil)
	if got := plain.lands(plain.write(0, 5, 0x10, 3)); got != "0x10 0x3" {
		t.Errorf("group without regions: %s", got)
	}
}

// TestLeaderRegion: the leader receives too, when another member is the source.
func TestLeaderRegion(t *testing.T) {
	l := regionLab(t, nil)
	l.stub[2].send(l.write(2, 5, 0x10, 0))
	l.run()
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_WRITE_ONLY qp=100 psn=5 A va=0x10 rkey=0x0 dma=16 len=16" {
		t.Errorf("leader got %q", got)
	}
	l.stub[0].send(l.listing(group1, 1, 1, 2, 3))
	l.run()
	l.took(0)
	l.stub[2].send(l.write(2, 6, 0x10, 0))
	l.run()
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_WRITE_ONLY qp=100 psn=6 A va=0x1010 rkey=0x10 dma=16 len=16" {
		t.Errorf("leader got %q", got)
	}
}

// TestAnnouncedRegions: a WRITE goes by the announcement it names, before and after later
// ones, acknowledged or not, and not at all if that has not come, or came damaged. The
// announcement itself goes where it was registered.
func TestAnnouncedRegions(t *testing.T) {
	for _, first := range []wire.PSN{5, 0xffffff, 0x7fffff} {
		l := regionLab(t, nil)
		at := func(n int) wire.PSN { return first.Add(n) }
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete, LeaderQPN: 100}, wire.MRPRecord{}))
		l.run()
		l.sw.WipeGroups()
		l.stub[0].send(l.listing(group1, 0, 1, 2, 3))
		l.run()
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: wire.QPN(first)}))
		l.run()
		for i := range l.stub {
			l.stub[i].got = nil
		}
		damaged := func() *wire.Frame {
			f := l.announce(at(2), 0xdd000, 0xdd0)
			l.net.Pool.Damage(f, 12*8+16*8+9) // in the first record
			return f
		}
		steps := []struct {
			name string
			f    func() *wire.Frame
			want string
		}{
			{"names what never came", func() *wire.Frame { return l.write(0, at(1), 0, named(at(0))) }, "no-region"},
			{"first announcement", func() *wire.Frame { return l.announce(at(0), 0x10000, 0x100) }, "0x100 0x1"},
			{"first WRITE", func() *wire.Frame { return l.write(0, at(1), 8, named(at(0))) }, "0x10108 0x101"},
			{"damaged announcement", damaged, "malformed"},
			{"announcement without bytes", func() *wire.Frame { return l.write(0, at(2), wire.MRUpdateVA, 0) }, "malformed"},
			{"names the damaged one", func() *wire.Frame { return l.write(0, at(3), 8, named(at(2))) }, "no-region"},
			{"second announcement", func() *wire.Frame { return l.announce(at(2), 0x20000, 0x200) }, "0x100 0x1"},
			{"second WRITE", func() *wire.Frame { return l.write(0, at(3), 8, named(at(2))) }, "0x20108 0x201"},
			{"first WRITE again", func() *wire.Frame { return l.write(0, at(1), 8, named(at(0))) }, "0x10108 0x101"},
			{"first announcement again", func() *wire.Frame { return l.announce(at(0), 0x10000, 0x100) }, "0x100 0x1"},
			{"second WRITE again", func() *wire.Frame { return l.write(0, at(3), 8, named(at(2))) }, "0x20108 0x201"},
			{"names none: the registered one", func() *wire.Frame { return l.write(0, at(3), 8, 0) }, "0x108 0x1"},
		}
		for _, s := range steps {
			if got := l.lands(s.f()); got != s.want {
				t.Errorf("first PSN %v, %s: %s, want %s", first, s.name, got, s.want)
			}
		}
		for h := 1; h < 4; h++ {
			l.feed(h, at(2), wire.SyndromeACK)
		}
		if g, _ := l.sw.Group(group1); g.Paths[0].Versions+g.Paths[1].Versions != 2 {
			t.Errorf("first PSN %v: versions are freed before they have to be", first)
		}
		for _, s := range []struct {
			name string
			f    func() *wire.Frame
			want string
		}{
			{"acknowledged announcement", func() *wire.Frame { return l.write(0, at(3), 8, named(at(2))) }, "0x20108 0x201"},
			{"names one before it", func() *wire.Frame { return l.write(0, at(4), 8, named(at(1))) }, "0x20108 0x201"}, // of several packets the second
			{"names one behind it", func() *wire.Frame { return l.write(0, at(4), 8, named(at(3))) }, "no-region"},
		} {
			if got := l.lands(s.f()); got != s.want {
				t.Errorf("first PSN %v, %s: %s, want %s", first, s.name, got, s.want)
			}
		}
		g, _ := l.sw.Group(group1)
		for _, p := range g.Paths {
			if p.Versions != 0 || !p.HasRegion {
				t.Errorf("port %d has %d versions after the acknowledgement", p.Port, p.Versions)
			}
		}
	}
}

// TestRegionsFull: leaves keep as many announcements as a source may have outstanding; one
// more is dropped and finds room when some are acknowledged.
func TestRegionsFull(t *testing.T) {
	l := regionLab(t, nil)
	for k := range wire.MRVersionsMax {
		if got := l.lands(l.announce(wire.PSN(5+k), uint64(k)<<16, 0)); got != "0x100 0x1" {
			t.Fatalf("announcement %d: %s", k, got)
		}
	}
	if got, want := l.sw.MFTBytes(), MFTBytes(loneHosts+2, true)+3*wire.MRVersionsMax*versionBytes; got != want {
		t.Errorf("tables take %d bytes, want %d", got, want)
	}
	more := wire.PSN(5 + wire.MRVersionsMax)
	if got := l.lands(l.announce(more, 0x990000, 0)); got != "regions-full" {
		t.Errorf("one more: %s", got)
	}
	l.feed(1, 5, wire.SyndromeACK)
	if got := l.lands(l.announce(more, 0x990000, 0)); got != "0x100 0x1" {
		t.Errorf("one more, after an acknowledgement: %s", got)
	}
	if got := l.lands(l.write(0, more+1, 0, named(more))); got != "0x990100 0x1" {
		t.Errorf("its WRITE: %s", got)
	}
}

// TestRegionsForgotten: regions announced to a member before it was the source are not there any more
// when it receives again.
func TestRegionsForgotten(t *testing.T) {
	l := regionLab(t, nil)
	l.lands(l.announce(5, 0x10000, 0x100))
	l.feed(2, 5, wire.SyndromeACK)
	l.feed(3, 5, wire.SyndromeACK)
	l.feed(1, 5, wire.SyndromeACK)
	l.stub[1].send(l.write(1, 6, 0, 0))
	l.run()
	l.stub[0].send(l.ack(0, 6, wire.SyndromeACK))
	l.run()
	l.feed(2, 6, wire.SyndromeACK)
	l.feed(3, 6, wire.SyndromeACK)
	l.took(1)
	if got := l.lands(l.write(0, 7, 8, named(5))); got != "no-region" {
		t.Errorf("%s, want no-region", got)
	}
}

// TestUnfilteredWrites: without the filter a WRITE that the member has is delivered to it again,
// whatever announcement it names: it has to answer.
func TestUnfilteredWrites(t *testing.T) {
	l := regionLab(t, func(c *Config) { c.Rules.FilterRetransmits = false })
	for k := range 3 {
		l.lands(l.announce(wire.PSN(5+2*k), uint64(k+1)<<16, 0))
		l.feed(1, wire.PSN(6+2*k), wire.SyndromeACK)
	}
	l.lands(l.write(0, 11, 0, named(9)))
	if got := l.lands(l.write(0, 6, 0, named(5))); got == "no-region" || got == "nothing" {
		t.Errorf("%s, want the packet", got)
	}
}

// TestRegionMemory: a group with regions takes the memory of two and more without; one
// that gets them later needs the rest then.
func TestRegionMemory(t *testing.T) {
	ports := loneHosts + 2
	two := (MFTBytes(ports, true) + MFTBytes(ports, false) - 1) / MFTBytes(ports, false)
	if two != 2 {
		t.Fatalf("a group with regions takes %d bytes of %d", MFTBytes(ports, true), MFTBytes(ports, false))
	}
	l := newLone(t, func(c *Config) { c.Groups = two })
	l.register(group1+1, 3)
	l.stub[0].got = nil
	l.stub[0].send(l.listing(group1, 0, 1, 2))
	l.run()
	if got := l.took(0); !strings.Contains(got, "MRP error 1/1 leaderqp=0 {10.254.0.1 flags=1 qp=0}") {
		t.Errorf("leader got %q, want no room", got)
	}
	l.stub[0].send(l.listing(group1+1, 0, 1, 2, 3)) // the one that is there
	l.run()
	if g, _ := l.sw.Group(group1 + 1); !g.Paths[1].HasRegion || l.sw.MFTBytes() != MFTBytes(ports, true) {
		t.Errorf("%+v, %d bytes", g, l.sw.MFTBytes())
	}
	l.sw.WipeGroups()
	l.register(group1, 3)
	l.register(group1+1, 3)
	before := fmt.Sprint(l.sw.Groups())
	l.stub[0].got = nil
	l.stub[0].send(l.listing(group1, 0, 1, 2, 3)) // both are there, and that is all
	l.run()
	if got := l.took(0); !strings.Contains(got, "MRP error") || fmt.Sprint(l.sw.Groups()) != before {
		t.Errorf("leader got %q, want no room, and no change", got)
	}
	l.sw.WipeGroups()
	l.stub[0].send(l.listing(group1, 0, 1, 2))
	l.run()
	if _, ok := l.sw.Group(group1); !ok {
		t.Error("no room after all groups are gone")
	}
	if l.sw.mftUsed != l.sw.MFTBytes() {
		t.Errorf("%d bytes are counted, %d used", l.sw.mftUsed, l.sw.MFTBytes())
	}
}

// TestTableLayout (GLE-2): under Gleam's rules a table has Gleam's size, in the switch's report and
// against a limit: the memory of two tables of Cepheus holds one of Gleam, and that of two of Gleam
// holds two (CON-9).
func TestTableLayout(t *testing.T) {
	const ports = loneHosts + 2
	for _, c := range []struct {
		rules       Rules
		memory      int
		groups, all int // that fit, and their size
	}{
		{RulesFixed(), 2 * MFTBytes(ports, false), 2, 2 * (11*ports + 7)},
		{RulesCepheus(), 2 * MFTBytes(ports, false), 2, 2 * (11*ports + 7)},
		{RulesGleam(), 2 * MFTBytes(ports, false), 1, 14 * ports},
		{RulesGleam(), 2 * GleamTableBytes(ports, false), 2, 2 * 14 * ports},
		{RulesGleam(), GleamTableBytes(ports, true), 1, 14 * ports},
		{RulesFixed(), MFTBytes(ports, false) - 1, 0, 0},
	} {
		l := newLone(t, func(cfg *Config) { cfg.Rules, cfg.GroupMemory = c.rules, c.memory })
		for k := range 3 {
			l.stub[0].got = nil
			l.register(group1+uint32(k), 3)
			_, there := l.sw.Group(group1 + uint32(k))
			if refused := strings.Contains(l.took(0), "MRP error"); there != (k < c.groups) || refused == there {
				t.Errorf("%+v with %d bytes: group %d is registered: %v, refused: %v; %d fit", c.rules, c.memory, k+1, there, refused, c.groups)
			}
		}
		if got := l.sw.MFTBytes(); got != c.all || l.sw.mftUsed != got {
			t.Errorf("%+v with %d bytes: tables take %d, counted as %d; want %d", c.rules, c.memory, got, l.sw.mftUsed, c.all)
		}
	}
	// With regions an entry is 12 bytes longer in either layout.
	l := newLone(t, func(cfg *Config) { cfg.Rules = RulesGleam() })
	l.stub[0].send(l.listing(group1, 0, 1, 2))
	l.run()
	if got := l.sw.MFTBytes(); got != 26*ports {
		t.Errorf("a table with regions takes %d bytes, want %d", got, 26*ports)
	}
}

// TestRegionGuards: listings that make no sense are dropped and change nothing; neither do
// READ, atomics and datagrams to a group.
func TestRegionGuards(t *testing.T) {
	l := regionLab(t, nil)
	before := fmt.Sprint(l.sw.Groups())
	op := func(o wire.OpCode) *wire.Frame {
		f := l.net.Pool.Get()
		e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: group1, TTL: 9, DstPort: wire.PortRoCEv2})
		f.Start(&e, wire.BTH{OpCode: o, PKey: wire.PKeyDefault, DestQP: 1, PSN: 5})
		switch i := o.Info(); {
		case i.Atomic:
			f.AddAtomicETH(wire.AtomicETH{})
		case i.DETH:
			f.AddDETH(wire.DETH{})
		case i.RETH:
			f.AddRETH(wire.RETH{})
		}
		f.Seal(1, false)
		return f
	}
	for _, c := range []struct {
		name string
		port int
		f    func() *wire.Frame
		why  DropReason
	}{
		{"the leader alone", 0, func() *wire.Frame { return l.listing(group1, 9) }, DropMalformed},
		{"from outside the tree", loneHosts, func() *wire.Frame { return l.listing(group1, 9, 1) }, DropNotInTree},
		{"READ", 0, func() *wire.Frame { return op(wire.OpReadRequest) }, DropGroupOp},
		{"compare and swap", 0, func() *wire.Frame { return op(wire.OpCompareSwap) }, DropGroupOp},
		{"fetch and add", 0, func() *wire.Frame { return op(wire.OpFetchAdd) }, DropGroupOp},
		{"datagram", 0, func() *wire.Frame { return op(wire.OpUDSendOnly) }, DropGroupOp},
		{"unreliable WRITE", 0, func() *wire.Frame { return op(wire.OpWriteOnly + wire.OpUC) }, DropGroupOp},
	} {
		n := l.sw.Stats().Drops[c.why]
		l.stub[c.port].send(c.f())
		l.run()
		if l.sw.Stats().Drops[c.why] != n+1 {
			t.Errorf("%s: not dropped as %v", c.name, c.why)
		}
		if now := fmt.Sprint(l.sw.Groups()); now != before {
			t.Errorf("%s changed the group\nfrom %s\nto   %s", c.name, before, now)
		}
	}
}

// TestRegionsLeaveOthers: packets without an address pass a group with regions unchanged.
func TestRegionsLeaveOthers(t *testing.T) {
	l := regionLab(t, nil)
	for k, op := range []wire.OpCode{wire.OpSendOnly, wire.OpSendFirst, wire.OpSendLast, wire.OpWriteMiddle, wire.OpWriteLast} {
		e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: group1, TTL: 9, SrcPort: 1, DstPort: wire.PortRoCEv2})
		f := l.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: 1, PSN: wire.PSN(6 + k)})
		f.SetPhantom(1024)
		f.Seal(1, false)
		l.stub[1].keep = true
		l.stub[0].send(f)
		l.run()
		for _, g := range l.stub[1].raw {
			if !g.CheckICRC() || g.OpCode() != op || len(g.Header()) != wire.EthernetLen+wire.IPv4Len+wire.UDPLen+wire.BTHLen {
				t.Errorf("%v arrives as %v, ICRC right %v", op, g, g.CheckICRC())
			}
			l.net.Pool.Put(g)
		}
		if n := len(l.stub[1].raw); n != 1 {
			t.Errorf("%v arrived %d times", op, n)
		}
		l.stub[1].raw = nil
	}
	if n := l.sw.Stats().RETHsRewritten; n != 0 {
		t.Errorf("%d addresses rewritten in packets that have none", n)
	}
}
