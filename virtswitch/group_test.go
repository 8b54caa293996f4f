// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// ack builds feedback of host i to the group.
func (l *lone) ack(i int, psn wire.PSN, syn wire.Syndrome) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: hostIP(i), Dst: group1, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: 1, PSN: psn})
	f.AddAETH(wire.AETH{Syndrome: syn, MSN: uint32(i)})
	f.Seal(1, false)
	return f
}

// feed sends feedback from host i and runs the switch until it is idle.
func (l *lone) feed(i int, psn wire.PSN, syn wire.Syndrome) {
	l.t.Helper()
	l.stub[i].send(l.ack(i, psn, syn))
	l.run()
}

// took returns the frames that host 0, the source, has received since the last call.
func (l *lone) took(i int) string {
	var lines []string
	for _, g := range l.stub[i].got {
		_, text, _ := strings.Cut(g, " ")
		lines = append(lines, text)
	}
	l.stub[i].got = nil
	return strings.Join(lines, "\n")
}

func groupLab(t *testing.T, change func(*Config)) *lone {
	l := newLone(t, change)
	l.register(group1, 3)
	for i := range l.stub {
		l.stub[i].got = nil
	}
	return l
}

func TestReplication(t *testing.T) {
	l := groupLab(t, nil)
	l.stub[0].send(l.data(hostIP(0), group1, 9, 5, 26<<2))
	l.run()
	for i := 1; i < 4; i++ {
		want := fmt.Sprintf("10.254.0.1>10.0.0.%d RC_SEND_ONLY qp=%d psn=5 A len=1000", i+1, 100+i)
		if got := l.took(i); got != want {
			t.Errorf("host %d got %q, want %q", i, got, want)
		}
	}
	if got := l.took(0); got != "" {
		t.Errorf("the source got its own packet: %q", got)
	}
}

// TestAggregation: the source gets ACK(x) when the last path has x, with the MSN of
// the path that holds the minimum (CEP-29, CEP-32), and no tie twice.
func TestAggregation(t *testing.T) {
	l := groupLab(t, nil)
	l.feed(1, 5, wire.SyndromeACK)
	l.feed(2, 9, wire.SyndromeACK)
	if got := l.took(0); got != "" {
		t.Errorf("before the last member: %q", got)
	}
	l.feed(3, 7, wire.SyndromeACK)
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 ACK msn=1" {
		t.Errorf("after the last member: %q", got)
	}
	l.feed(1, 8, wire.SyndromeACK)
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=7 ACK msn=3" {
		t.Errorf("after member 1 went on: %q", got)
	}
	l.feed(1, 8, wire.SyndromeACK)
	l.feed(1, 4, wire.SyndromeACK)
	if got := l.took(0); got != "" {
		t.Errorf("repeated and old acknowledgements: %q", got)
	}
}

// TestDamagedFeedback: an acknowledgement with any bit wrong that the ICRC covers changes nothing, and
// is counted: the switch's packet would get a new ICRC.
func TestDamagedFeedback(t *testing.T) {
	l := groupLab(t, nil)
	l.feed(1, 5, wire.SyndromeACK)
	l.feed(2, 5, wire.SyndromeACK)
	l.feed(3, 5, wire.SyndromeACK)
	l.took(0)
	before, _ := l.sw.Group(group1)
	dropped := uint64(0)
	for bit := range uint64(200) {
		f := l.ack(1+int(bit%3), 90, wire.SyndromeACK)
		l.net.Pool.Damage(f, bit)
		l.stub[1+int(bit%3)].send(f)
		l.run()
		if got := l.took(0); got != "" {
			t.Errorf("bit %d wrong: the source got %q", bit, got)
		}
		if after, _ := l.sw.Group(group1); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("bit %d wrong: the group went from %+v to %+v", bit, before, after)
		}
		dropped++
	}
	if n := l.sw.Stats().Dropped(); n != dropped || l.sw.Stats().Drops[DropICRC] == 0 {
		t.Errorf("%d damaged acknowledgements, drops %v", dropped, l.sw.Stats().Drops)
	}
}

// TestNakAggregation: the smallest PSN wins, and is passed on only when all before it
// is there; RNR wins at equal PSN; fatal NAKs pass at once, acknowledging nothing.
func TestNakAggregation(t *testing.T) {
	l := groupLab(t, nil)
	l.feed(1, 9, wire.SyndromePSNSequence)
	l.feed(2, 7, wire.SyndromePSNSequence)
	if got := l.took(0); got != "" {
		t.Errorf("while member 3 has nothing: %q", got)
	}
	l.feed(3, 20, wire.SyndromeACK)
	want := "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=6 ACK msn=2\n10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=7 NAK(sequence) msn=2"
	if got := l.took(0); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}

	l = groupLab(t, nil)
	l.feed(1, 5, wire.SyndromeRNR|12)
	l.feed(2, 6, wire.SyndromeACK)
	l.feed(3, 6, wire.SyndromeACK)
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 RNR msn=0 timer=12" {
		t.Errorf("not ready: %q", got)
	}

	l = groupLab(t, nil)
	l.feed(1, 9, wire.SyndromeRemoteAcc)
	if got := l.took(0); got != "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 NAK(remote access) msn=0" {
		t.Errorf("fatal: %q; it must not acknowledge what members 2 and 3 lack", got)
	}
}

// TestGroupGuards: packets that must not change state are dropped, each for its reason.
func TestGroupGuards(t *testing.T) {
	l := groupLab(t, nil)
	before := fmt.Sprint(l.sw.Groups())
	foreign := loneHosts // a port outside the tree
	op := func(o wire.OpCode) *wire.Frame {
		f := l.net.Pool.Get()
		e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: group1, TTL: 9, DstPort: wire.PortRoCEv2})
		f.Start(&e, wire.BTH{OpCode: o, PKey: wire.PKeyDefault, DestQP: 1, PSN: 5})
		if o.Info().RETH {
			f.AddRETH(wire.RETH{})
		}
		f.Seal(1, false)
		return f
	}
	activate := wire.MRPHeader{Total: 1, Flags: wire.MRPActivate}
	for _, c := range []struct {
		name string
		port int
		make func() *wire.Frame
		why  DropReason
	}{
		{"data from outside", foreign, func() *wire.Frame { return l.data(hostIP(0), group1, 1, 5, 0) }, DropNotInTree},
		{"feedback from outside", foreign, func() *wire.Frame { return l.ack(1, 5, wire.SyndromeACK) }, DropNotInTree},
		{"feedback from the source", 0, func() *wire.Frame { return l.ack(0, 5, wire.SyndromeACK) }, DropOwnPath},
		{"read", 0, func() *wire.Frame { return op(wire.OpReadRequest) }, DropGroupOp},
		{"unreliable send", 0, func() *wire.Frame { return op(wire.OpSendOnly + wire.OpUC) }, DropGroupOp},
		{"activation from outside", foreign, func() *wire.Frame { return l.mrp(hostIP(0), group1, activate, wire.MRPRecord{QPN: 900}) }, DropNotInTree},
		{"activation of another group", 0, func() *wire.Frame { return l.mrp(hostIP(0), group1+1, activate, wire.MRPRecord{QPN: 900}) }, DropUnknownGroup},
		{"deletion from outside", foreign, func() *wire.Frame {
			return l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete}, wire.MRPRecord{})
		}, DropNotInTree},
		{"late member", 0, func() *wire.Frame {
			return l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1}, wire.MRPRecord{IP: 10<<24 | 1<<8 | 1, QPN: 5})
		}, DropNotInTree},
		{"unknown flags", 0, func() *wire.Frame {
			return l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: 0x80}, wire.MRPRecord{})
		}, DropMalformed},
		{"no record", 0, func() *wire.Frame { return l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1}) }, DropMalformed},
	} {
		drops := l.sw.Stats().Drops[c.why]
		l.stub[c.port].send(c.make())
		l.run()
		if l.sw.Stats().Drops[c.why] != drops+1 {
			t.Errorf("%s: not dropped as %v", c.name, c.why)
		}
		if now := fmt.Sprint(l.sw.Groups()); now != before {
			t.Errorf("%s changed the group\nfrom %s\nto   %s", c.name, before, now)
		}
	}
}

// TestLateMember: an active group takes no new path, whichever port it would be, the first
// one too; a repeat for a member travels on.
func TestLateMember(t *testing.T) {
	for late := range loneHosts {
		l := newLone(t, nil)
		leader, member := (late+1)%loneHosts, (late+2)%loneHosts
		register := func(h wire.MRPHeader, r wire.MRPRecord) string {
			l.stub[leader].send(l.mrp(hostIP(leader), group1, h, r))
			l.run()
			return l.took(late) + l.took(member)
		}
		register(wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(member), QPN: 101})
		register(wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5})
		before := fmt.Sprint(l.sw.Groups())
		got := register(wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(late), QPN: 102})
		if got != "" || l.sw.Stats().Drops[DropNotInTree] != 1 {
			t.Errorf("a late member at port %d: passed on %q, drops %v", late, got, l.sw.Stats().Drops)
		}
		if now := fmt.Sprint(l.sw.Groups()); now != before {
			t.Errorf("a late member at port %d changed the group\nfrom %s\nto   %s", late, before, now)
		}
		if got := register(wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(member), QPN: 101}); !strings.Contains(got, "MRP") {
			t.Errorf("a repeat for a member reached it as %q", got)
		}
	}
}

// TestRepeatedActivation: a late repeat travels on but takes nothing back.
func TestRepeatedActivation(t *testing.T) {
	l := groupLab(t, nil)
	for i := 1; i < 4; i++ {
		l.feed(i, 50, wire.SyndromeACK)
	}
	before := fmt.Sprint(l.sw.Groups())
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate}, wire.MRPRecord{QPN: 5}))
	l.run()
	if now := fmt.Sprint(l.sw.Groups()); now != before {
		t.Errorf("activation again changed the group\nfrom %s\nto   %s", before, now)
	}
	if got := l.took(2); !strings.Contains(got, "MRP activate") {
		t.Errorf("member 2 got %q, want the activation again", got)
	}
}

// TestBeforeActivation: data does not pass a group that is only registered.
func TestBeforeActivation(t *testing.T) {
	l := newLone(t, nil)
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(1), QPN: 101}))
	l.run()
	l.stub[0].send(l.data(hostIP(0), group1, 1, 5, 0))
	l.run()
	if l.sw.Stats().Drops[DropNotActive] != 1 {
		t.Errorf("drops %v, want one as not active", l.sw.Stats().Drops)
	}
}

// TestRegistrationRefused: no room, too many paths, no route: the leader gets the reason, and nothing
// is installed.
func TestRegistrationRefused(t *testing.T) {
	for _, c := range []struct {
		why    wire.MRPErrorReason
		change func(*Config)
		record wire.MRPRecord
	}{
		{wire.MRPErrNoMemory, func(c *Config) { c.Groups = 1 }, wire.MRPRecord{IP: hostIP(1)}},
		{wire.MRPErrFanOut, func(c *Config) { c.FanOut = 1 }, wire.MRPRecord{IP: hostIP(2)}},
		{wire.MRPErrNoRoute, nil, wire.MRPRecord{IP: 10<<24 | 77<<8}},
		{wire.MRPErrNoRoute, nil, wire.MRPRecord{IP: hostIP(0)}}, // back where it came from
	} {
		l := newLone(t, c.change)
		id := group1
		if c.why == wire.MRPErrNoMemory {
			l.register(group1, 1)
			id++
		}
		before := len(l.sw.Groups())
		for i := range l.stub {
			l.stub[i].got = nil
		}
		l.stub[0].send(l.mrp(hostIP(0), id, wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(1), QPN: 101}, c.record))
		l.run()
		want := fmt.Sprintf("10.253.0.0>10.0.0.1 MRP error 1/1 leaderqp=0 {%v flags=%d qp=0}", wire.AddrOf(id), c.why)
		if got := l.took(0); got != want {
			t.Errorf("%v: the leader got %q, want %q", c.why, got, want)
		}
		if got := l.took(1); got != "" || len(l.sw.Groups()) != before {
			t.Errorf("%v: something was installed: %v, member 1 got %q", c.why, l.sw.Groups(), got)
		}
	}
}

// TestOnePortUp: a tree climbs by one port, which leads to all members that are not below; if none
// does, the leader gets "no route".
func TestOnePortUp(t *testing.T) {
	up := []bool{loneHosts: true, loneHosts + 1: true}
	remote := func(block uint32) wire.MRPRecord { return wire.MRPRecord{IP: 10<<24 | block<<8 | 1, QPN: 5} }
	register := func(l *lone, port int, rec ...wire.MRPRecord) []string {
		l.stub[port].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, rec...))
		l.run()
		return []string{l.took(loneHosts), l.took(loneHosts + 1), l.took(0)}
	}
	l := newLone(t, func(c *Config) { c.Up = up })
	// Block 1 is behind both ports, block 2 behind the second only.
	if got := register(l, 0, remote(1), remote(2)); got[0] != "" || !strings.Contains(got[1], "10.0.1.1") || !strings.Contains(got[1], "10.0.2.1") {
		t.Errorf("members by both ports, and by the second: %q", got)
	}
	l = newLone(t, func(c *Config) { c.Up = up })
	if got := register(l, 0, remote(1)); got[0] == "" {
		t.Errorf("the first port is the least used, but got %q", got)
	}
	if got := register(l, 0, remote(2)); got[1] != "" || !strings.Contains(got[2], "MRP error") {
		t.Errorf("a later member behind the other port: %q", got)
	}
	l = newLone(t, func(c *Config) { c.Up = up })
	if got := register(l, loneHosts, remote(2)); got[1] != "" || got[2] == "" {
		t.Errorf("registration from above for a node above: %q", got)
	}
	l = newLone(t, func(c *Config) { c.Up = up })
	second := remote(2)
	second.IP++
	if got := register(l, 0, remote(2), second, remote(1)); got[0] != "" || strings.Count(got[1], "qp=5") != 3 {
		t.Errorf("two members behind the second port, then one behind both: %q", got)
	}
	l = newLone(t, func(c *Config) { c.Up = up })
	local := wire.MRPRecord{IP: hostIP(2), QPN: 7}
	if got := register(l, 0, local, remote(2), local); got[0] != "" || !strings.Contains(got[1], "10.0.2.1") || !strings.Contains(l.took(2), "qp=7") {
		t.Errorf("members below, and behind the second port: %q", got)
	}
	l = newLone(t, nil)
	if got := register(l, 0, remote(1), remote(2)); got[0] == "" || got[1] == "" {
		t.Errorf("without tiers a tree may take both ports: %q", got)
	}
}

// TestDeletion: a deleted group passes nothing, remembers its tree for repeats, keeps
// its McstID for a while, and is then forgotten.
func TestDeletion(t *testing.T) {
	l := groupLab(t, nil)
	drop := func() { // a deletion that does not run to the end of the quarantine
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete}, wire.MRPRecord{}))
		for l.net.Now < vtime.Time(50*vtime.Millisecond) && l.stub[1].got == nil && l.net.Step() {
		}
	}
	if r := l.sw.Resting(); len(r) != 0 {
		t.Errorf("before deletion %v rest", r)
	}
	drop()
	if r := l.sw.Resting(); len(l.sw.Groups()) != 0 || l.sw.PortLoad(1) != 0 || !slices.Equal(r, []uint32{group1}) {
		t.Errorf("after deletion: groups %v, load %d, %v rest", l.sw.Groups(), l.sw.PortLoad(1), r)
	}
	l.stub[1].got = nil
	drop()
	if got := l.took(1); !strings.Contains(got, "MRP delete") {
		t.Errorf("a repeat did not reach member 1: %q", got)
	}
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1}, wire.MRPRecord{IP: hostIP(1), QPN: 1}))
	l.run()
	if l.sw.Stats().Drops[DropNotActive] != 1 {
		t.Errorf("registration of a McstID in quarantine: drops %v", l.sw.Stats().Drops)
	}
	if r := l.sw.Resting(); l.sw.groups.n != 0 || len(r) != 0 {
		t.Errorf("%d groups are remembered after the quarantine, %v rest", l.sw.groups.n, r)
	}
	l.register(group1, 2)
	if len(l.sw.Groups()) != 1 {
		t.Error("the McstID cannot be used again")
	}
	l.sw.WipeGroups()
	if len(l.sw.Groups()) != 0 || l.sw.PortLoad(1) != 0 {
		t.Error("wiping leaves something")
	}
}

// FuzzSwitch feeds a switch with a registered group any frames at any ports in any
// order: raw bytes, and frames bent so that they reach the group. It must not panic,
// hold no frame at rest, and keep its state within its ports.
func FuzzSwitch(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{0x1b, 0xa0, 8, 0xff, 0x40, 0x11, 9, 0x20, 0xc2, 0xa0, 8, 0, 1, 0x01, 6, 0})
	f.Add([]byte{0x75, 0x11, 5, 0x60, 1, 0x11, 6, 0x1f, 2, 0x81, 9, 0x20, 3, 0x83, 1, 1})
	f.Add([]byte{3, 0x11, 5, 0x60, 1, 0x11, 6, 0x1f, 2, 0x11, 9, 0x20})
	f.Add([]byte{0x80, 0x80, 0, 8, 0x81, 0x80, 0, 8, 0x82, 0x88, 0, 0, 0x83, 0x80, 0, 8, 0x83, 0x80, 0, 8})
	f.Fuzz(fuzzOne)
}

// fuzzOne runs one input.
func fuzzOne(t *testing.T, data []byte) { fuzzRun(t, data) }

// fuzzRun runs one input and returns the switch as it was left.
func fuzzRun(t *testing.T, data []byte) *lone {
	l := newLone(t, func(c *Config) { fuzzConfig(c, data) })
	l.register(group1, 3)
	l.registerReduce(group1+1, 0)
	if fr, err := l.net.Pool.Parse(data); err == nil {
		l.stub[0].send(fr)
	}
	for ; len(data) >= 4; data = data[4:] {
		b := data[:4]
		port := int(b[0]) % len(l.stub)
		l.stub[port].send(l.bent(port, b))
		if b[0]&0x80 != 0 {
			l.run()
		}
	}
	l.run()
	for _, g := range l.sw.Groups() {
		if len(g.Paths) > len(l.sw.ports) {
			t.Fatalf("%d paths, %d ports", len(g.Paths), len(l.sw.ports))
		}
	}
	for p := range l.sw.buffer.in {
		if l.sw.buffer.in[p].bytes != [8]int32{} {
			t.Fatalf("port %d still holds %v bytes", p, l.sw.buffer.in[p].bytes)
		}
	}
	if free := len(l.sw.buffer.freeIndex); free != len(l.sw.buffer.shared) {
		t.Fatalf("%d of %d shared charges are free", free, len(l.sw.buffer.shared))
	}
	return l
}

// fuzzConfig switches features on by the bits of the input's first byte.
func fuzzConfig(c *Config, data []byte) {
	c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 5000, Headroom: []int{9000, 9000, 9000, 9000, 9000, 9000}}
	if len(data) == 0 {
		return
	}
	if data[0]&1 != 0 {
		c.PFC.Alpha = 0.125
		c.Buffer = 6*(9000+maxFrameWire) + 20000
	}
	if data[0]&2 != 0 {
		c.Watchdog = WatchdogConfig{Detect: vtime.Microsecond, Restore: vtime.Microsecond, Forward: data[0]&4 != 0}
	}
	if data[0]&8 != 0 {
		k := []int{1000, 1000, 1000, 1000, 1000, 1000}
		c.ECN = ECNConfig{Classes: 0xff, Kmin: k, Kmax: k}
	}
	if data[0]&16 != 0 {
		c.LookAside = LookAsideConfig{Links: 4, Rate: 10e9, Delay: vtime.Nanosecond}
	}
	if data[0]&32 != 0 {
		c.FeedbackDelay, c.CNPWindow = 100*vtime.Nanosecond, vtime.Microsecond
	}
	if data[0]&64 != 0 {
		c.Weights = [8]uint8{1, 2, 3, 4, 1, 1, 0, 0}
		c.Up = []bool{loneHosts: true, loneHosts + 1: true}
	}
}

// bent builds a frame for the group out of four bytes.
func (l *lone) bent(port int, b []byte) *wire.Frame {
	src, dst := hostIP(port), group1+uint32(b[0]>>6&1)
	switch b[1] >> 5 {
	case 4:
		m := wire.ReduceImm{Kind: wire.ReduceKind(b[1] & 3), Float32: b[1]>>2&1 != 0, Own: b[1]>>3&1 != 0, Chunk: uint32(b[0]&1)<<8 | uint32(b[2])}
		return l.reducePacket(src, group1+1, m, make([]byte, b[3]&^3))
	case 5:
		f := l.net.Pool.Get()
		f.BuildPFC(wire.PFC{Enable: b[2], Quanta: [8]uint16{3: uint16(b[3])}})
		return f
	case 6:
		return l.mrp(src, dst, wire.MRPHeader{Total: 1, Flags: wire.MRPFlags(b[1] & 0x1f), LeaderQPN: 7},
			wire.MRPRecord{IP: hostIP(int(b[2] % 6)), QPN: wire.QPN(b[3])})
	case 7:
		return l.data(src, 10<<24|uint32(b[2]&3)<<8|uint32(b[3]), uint16(b[1]), 1, b[1]<<5)
	}
	f := l.net.Pool.Get()
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 3, DstPort: wire.PortRoCEv2, Traffic: 3 << 5})
	op := wire.OpCode(b[1] & 0x1f)
	f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: 1, PSN: wire.PSN(b[2] & 0x3f), AckReq: true})
	if op.Info().RETH {
		f.AddRETH(wire.RETH{})
	}
	if op.Info().AETH {
		f.AddAETH(wire.AETH{Syndrome: wire.Syndrome(b[3])})
	}
	if op.Is(wire.OpPayload) {
		f.SetPhantom(int(b[3]) * 16)
	}
	f.Seal(0, false)
	return f
}

// TestLaterHigherNak: a NAK of a larger PSN does not take the place of one that waits.
func TestLaterHigherNak(t *testing.T) {
	l := groupLab(t, nil)
	l.feed(1, 7, wire.SyndromePSNSequence)
	l.feed(2, 9, wire.SyndromePSNSequence)
	l.feed(3, 20, wire.SyndromeACK)
	want := "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=6 ACK msn=1\n10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=7 NAK(sequence) msn=1"
	if got := l.took(0); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestAskedAgain: a NAK of a member all others wait for is passed on though it acknowledges
// nothing; not again while the packet is on its way; and again when that came and was lost,
// too. The member says it once for each gap: a NAK that is swallowed here costs a timeout.
func TestAskedAgain(t *testing.T) {
	const nak = "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 NAK(sequence) msn=0"
	l := groupLab(t, nil)
	l.feed(2, 9, wire.SyndromeACK)
	l.feed(3, 9, wire.SyndromeACK)
	l.took(0)
	l.feed(1, 5, wire.SyndromePSNSequence)
	if got := l.took(0); got != nak {
		t.Errorf("the first NAK: %q, want %q", got, nak)
	}
	l.feed(1, 5, wire.SyndromePSNSequence)
	if got := l.took(0); got != "" {
		t.Errorf("the same while the packet is on its way: %q", got)
	}
	l.stub[0].send(l.data(hostIP(0), group1, 9, 5, 26<<2))
	l.run()
	l.took(0)
	l.feed(1, 5, wire.SyndromePSNSequence)
	if got := l.took(0); got != nak {
		t.Errorf("after the repeat was lost, too: %q, want %q", got, nak)
	}
}

// TestAggregationWraps: PSNs pass through 2^24 in the minimum, from whichever PSN a group starts, and
// no path counts as having earlier packets.
func TestAggregationWraps(t *testing.T) {
	for _, start := range []wire.PSN{0, 1, 5, 1<<23 - 1, 1 << 23, 1<<24 - 3, 1<<24 - 1} {
		l := newLone(t, nil)
		rec := []wire.MRPRecord{{IP: hostIP(1), QPN: 101}, {IP: hostIP(2), QPN: 102}, {IP: hostIP(3), QPN: 103}}
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, rec...))
		l.run()
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: wire.QPN(start)}))
		l.run()
		l.took(0)
		for k := range 6 {
			psn := start.Add(k)
			ahead := psn.Add(3)
			l.feed(1, ahead, wire.SyndromeACK)
			l.feed(2, ahead, wire.SyndromeACK)
			if got := l.took(0); got != "" {
				t.Fatalf("start %v: host 3 has nothing of %v, and the source got %q", start, psn, got)
			}
			l.feed(3, psn, wire.SyndromeACK)
			want := fmt.Sprintf("10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=%v ACK msn=3", psn)
			if got := l.took(0); got != want {
				t.Fatalf("start %v: the source got %q, want %q", start, got, want)
			}
		}
	}
}

// TestStaleSource: late packets of a former source do not make it the source again, nor does a damaged
// packet make one of a member.
func TestStaleSource(t *testing.T) {
	l := groupLab(t, nil)
	send := func(from int, psn wire.PSN, damaged bool) int {
		f := l.data(hostIP(from), group1, 9, psn, 26<<2)
		if damaged {
			l.net.Pool.Damage(f, 700)
		}
		l.stub[from].send(f)
		l.run()
		g, _ := l.sw.Group(group1)
		return g.SourceOut
	}
	send(0, 5, false)
	for i := 1; i < 4; i++ {
		l.feed(i, 5, wire.SyndromeACK)
	}
	if at := send(1, 6, true); at != 0 || l.sw.Stats().Drops[DropICRC] != 1 {
		t.Errorf("a damaged packet: the source is at port %d, drops %v", at, l.sw.Stats().Drops)
	}
	if at := send(1, 6, false); at != 1 {
		t.Errorf("the new source's first packet: the source is at port %d", at)
	}
	l.took(2)
	if at := send(0, 5, false); at != 1 || l.sw.Stats().Drops[DropStaleSource] != 1 || l.took(2) != "" {
		t.Errorf("the old source's packet again: the source is at port %d, drops %v", at, l.sw.Stats().Drops)
	}
}

// TestStaleNak: a NAK that all paths have passed by later acknowledgements is forgotten: it
// would be the smallest for ever, and keep back all that come after it (CEP-38).
func TestStaleNak(t *testing.T) {
	l := groupLab(t, nil)
	l.feed(1, 7, wire.SyndromePSNSequence)
	for i := 1; i < 4; i++ {
		l.feed(i, 20, wire.SyndromeACK)
	}
	l.took(0)
	l.feed(2, 30, wire.SyndromeACK)
	l.feed(3, 30, wire.SyndromeACK)
	l.feed(1, 25, wire.SyndromePSNSequence)
	want := "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=24 ACK msn=1\n10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=25 NAK(sequence) msn=1"
	if got := l.took(0); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestRepeatsFiltered: a repeated packet goes only to members that lack it (CEP-33); when all have it,
// the source gets another ACK (CEP-34).
func TestRepeatsFiltered(t *testing.T) {
	l := groupLab(t, nil)
	send := func() (got [4]string) {
		l.stub[0].send(l.data(hostIP(0), group1, 9, 5, 26<<2))
		l.run()
		for i := range got {
			got[i] = l.took(i)
		}
		return got
	}
	if got := send(); got[1] == "" || got[2] == "" || got[3] == "" {
		t.Fatalf("members got %q", got)
	}
	l.feed(1, 5, wire.SyndromeACK)
	l.feed(3, 5, wire.SyndromeACK)
	if got := send(); got[1] != "" || got[2] == "" || got[3] != "" || l.sw.Stats().Filtered != 2 {
		t.Errorf("of a repeat that only member 2 lacks the members got %q", got)
	}
	for port, want := range []PortStats{{}, {AcksIn: 1, Filtered: 1}, {}, {AcksIn: 1, Filtered: 1}} {
		if got := l.sw.PortStats(port); got != want {
			t.Errorf("port %d counts %+v, want %+v", port, got, want)
		}
	}
	l.feed(2, 5, wire.SyndromeACK)
	l.took(0)
	if got := send(); got != [4]string{"10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 ACK msn=1"} {
		t.Errorf("of a repeat that nobody lacks came %q", got)
	}
}
