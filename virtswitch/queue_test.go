// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// pause sends a pause frame from a stub.
func (l *lone) pause(stub int, classes uint8, quanta uint16) {
	p := wire.PFC{Enable: classes}
	for i := range p.Quanta {
		p.Quanta[i] = quanta
	}
	f := l.net.Pool.Get()
	f.BuildPFC(p)
	l.stub[stub].send(f)
}

// at arranges for f to be called at an instant in microseconds.
func (l *lone) at(us float64, f func()) {
	l.net.At(max(l.net.Now, vtime.Time(us*float64(vtime.Microsecond))), func(vtime.Time) { f() })
}

// times returns when a stub got its frames, in microseconds, pauses left out.
func (l *lone) times(stub int) (us []float64) {
	for _, line := range l.stub[stub].got {
		word, text, _ := strings.Cut(line, " ")
		d, err := vtime.ParseDuration(word)
		if err != nil {
			l.t.Fatal(err)
		}
		if !strings.HasPrefix(text, "PFC") {
			us = append(us, float64(d)/float64(vtime.Microsecond))
		}
	}
	return us
}

// TestWeights: the strict priority goes first; the others share the rest by weight, in
// bytes, and one alone has all of it.
func TestWeights(t *testing.T) {
	l := newLone(t, func(c *Config) { c.Weights = [8]uint8{1: 1, 2: 3} })
	const each = 200
	l.pause(3, 0xff, 6000) // so that all queues fill
	l.at(1.2, func() {
		for i := range each {
			l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 1<<5))
			l.stub[1].send(l.data(hostIP(1), hostIP(3), 1, wire.PSN(i), 2<<5))
		}
		for i := range 5 {
			l.stub[2].send(l.data(hostIP(2), hostIP(3), 1, wire.PSN(i), 6<<5))
		}
	})
	l.run()
	var order []byte
	for _, line := range l.stub[3].got {
		order = append(order, line[strings.Index(line, "10.0.0.")+7]) // the sender's last digit
	}
	if len(order) != 2*each+5 || string(order[:5]) != "33333" {
		t.Fatalf("%d frames, the strict ones not first: %q", len(order), order)
	}
	count := map[byte]int{}
	for _, c := range order[5 : 5+each] {
		count[c]++
	}
	if r := float64(count['2']) / float64(count['1']); r < 2.7 || r > 3.3 {
		t.Errorf("of the first %d frames %d have weight 1 and %d weight 3", each, count['1'], count['2'])
	}
}

// TestClasses: DSCPs and priority code points go to the priorities they are mapped to.
func TestClasses(t *testing.T) {
	classes := DefaultClasses()
	classes.DSCP[46], classes.PCP[1] = 2, 4
	l := newLone(t, func(c *Config) { c.Classes = classes })
	tagged := func(pcp uint8) *wire.Frame {
		e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: hostIP(3), TTL: 9, DstPort: wire.PortRoCEv2, VLAN: &wire.VLAN{PCP: pcp, ID: 5}})
		f := l.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 17})
		f.Seal(1, false)
		return f
	}
	l.pause(3, 0xff, 0xffff)
	l.at(2, func() {
		for _, f := range []*wire.Frame{l.data(hostIP(0), hostIP(3), 1, 0, 46<<2), l.data(hostIP(0), hostIP(3), 1, 0, 26<<2), tagged(1), tagged(7)} {
			l.stub[0].send(f)
		}
	})
	l.at(5, func() {
		e := &l.sw.eg[3]
		for prio, want := range []int{2: 1, 3: 1, 4: 1, 7: 1} {
			got := 0
			if e.ready>>prio&1 != 0 {
				got = e.queue(uint8(prio)).Len()
			}
			if got != want {
				t.Errorf("priority %d has %d frames, want %d", prio, got, want)
			}
		}
	})
	l.run()
}

// TestMarking: a packet is marked by the queue behind it: never up to Kmin, always above Kmax, in
// between with growing probability, and only if it is ECN capable and of a class that is marked. The
// IPv4 checksum and the ICRC hold.
func TestMarking(t *testing.T) {
	const size = 1082
	onArrival := false
	marked := func(traffic uint8, kmin, kmax int, v6 bool) (bits string, l *lone) {
		l = newLone(t, func(c *Config) {
			six := func(k int) []int { return []int{k, k, k, k, k, k} }
			c.ECN = ECNConfig{Classes: 1 << 3, OnArrival: onArrival, Kmin: six(kmin), Kmax: six(kmax), Pmax: 0.5, Random: prng.New(7)}
		})
		l.stub[3].keep = true
		l.pause(3, 0xff, 2000)
		l.at(2, func() {
			for i := range 100 {
				e := wire.NewEnvelope(wire.Flow{Src: hostIP(0), Dst: hostIP(3), TTL: 9, DstPort: wire.PortRoCEv2, Traffic: traffic, IPv6: v6})
				f := l.net.Pool.Get()
				f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 17, PSN: wire.PSN(i)})
				f.SetPhantom(1000)
				f.Seal(uint16(i), false)
				l.stub[0].send(f)
			}
		})
		l.run()
		for _, f := range l.stub[3].raw {
			if f.ECN() == wire.ECNCE {
				bits += "x"
			} else {
				bits += "."
			}
			if _, _, err := wire.ParseIPv4(append(append([]byte(nil), f.Header()[wire.EthernetLen:]...), make([]byte, 1100)...)); err != nil && !v6 {
				t.Fatalf("after marking: %v", err)
			}
			if !f.CheckICRC() {
				t.Fatal("marking breaks the ICRC")
			}
		}
		return bits, l
	}
	if got, _ := marked(26<<2|wire.ECNECT0, 10*size, 10*size, false); got != strings.Repeat("x", 89)+strings.Repeat(".", 11) {
		t.Errorf("with Kmin = Kmax = 10 packets: %s", got)
	}
	if got, _ := marked(26<<2|wire.ECNECT1, 10*(size+20), 10*(size+20), true); got != strings.Repeat("x", 89)+strings.Repeat(".", 11) {
		t.Errorf("over IPv6: %s", got)
	}
	if got, _ := marked(26<<2|wire.ECNNotECT, 0, 0, false); strings.Contains(got, "x") {
		t.Errorf("not ECN capable: %s", got)
	}
	if got, _ := marked(5<<5|wire.ECNECT0, 0, 0, false); strings.Contains(got, "x") {
		t.Errorf("of a class that is not marked: %s", got)
	}
	got, l := marked(26<<2|wire.ECNECT0, 20*size, 99*size, false)
	high, low := strings.Count(got[:40], "x"), strings.Count(got[40:80], "x")
	if strings.Contains(got[79:], "x") || low == 0 || high <= low || high > 30 || l.sw.Stats().Marked != uint64(high+low) {
		t.Errorf("between Kmin and Kmax: %s, %d counted", got, l.sw.Stats().Marked)
	}
	onArrival = true // the first eleven find ten packets at most
	if got, _ := marked(26<<2|wire.ECNECT0, 10*size, 10*size, false); got != strings.Repeat(".", 11)+strings.Repeat("x", 89) {
		t.Errorf("on arrival with Kmin = Kmax = 10 packets: %s", got)
	}
	if got, _ := marked(26<<2|wire.ECNNotECT, 0, 0, false); strings.Contains(got, "x") {
		t.Errorf("on arrival, not ECN capable: %s", got)
	}
	got, l = marked(26<<2|wire.ECNECT0, 20*size, 99*size, false)
	low, high = strings.Count(got[20:60], "x"), strings.Count(got[60:], "x")
	if strings.Contains(got[:21], "x") || low == 0 || high <= low || l.sw.Stats().Marked != uint64(high+low) {
		t.Errorf("on arrival between Kmin and Kmax: %s, %d counted", got, l.sw.Stats().Marked)
	}
}

// TestECNThresholds: 100 Gb/s has the figures of HPCC's set-up.
func TestECNThresholds(t *testing.T) {
	if kmin, kmax := ECNThresholds(100e9); kmin != 400e3 || kmax != 1600e3 {
		t.Errorf("at 100 Gb/s %d and %d", kmin, kmax)
	}
}

func dogLab(t *testing.T, forward bool) *lone {
	return newLone(t, func(c *Config) {
		c.PFC = PFCConfig{Lossless: 1 << 3, Obey: 1 << 4, XOFF: 20000, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
		c.Watchdog = WatchdogConfig{Detect: 50 * vtime.Microsecond, Restore: 20 * vtime.Microsecond, Forward: forward}
	})
}

// storm makes a stub pause class 3 from an instant to another, as a broken NIC does: a
// frame every two microseconds, each for ten, and no XON.
func (l *lone) storm(stub int, from, until float64) {
	for us := from; us < until; us += 2 {
		l.at(us, func() { l.pause(stub, 1<<3, 1953) })
	}
}

// TestWatchdog: a priority paused for the time of detection is taken over: its frames are
// dropped, or sent all the same. It goes back to flow control only when the neighbour has
// let it go for the time of restoration, and is not taken over twice in one storm.
func TestWatchdog(t *testing.T) {
	for _, forward := range []bool{false, true} {
		l := dogLab(t, forward)
		l.storm(3, 0, 200) // arrives from 1 us on, the last pause ends at 209+
		send := func(us float64) {
			l.at(us, func() { l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(us), 3<<5)) })
		}
		send(10) // arrives at 11.1, stuck at 61.1
		send(30)
		send(100) // in the storm
		send(220) // after it, but before it counts as over (209.98 + 1 + 20)
		send(240) // as ever
		var storms []uint64
		for _, us := range []float64{61, 61.2, 150, 228, 233} {
			l.at(us, func() {
				storms = append(storms, l.sw.Stats().PauseStorms, uint64(l.sw.watchdogs[3].storm>>3&1))
			})
		}
		l.run()
		if got := fmt.Sprint(storms); got != "[0 0 1 1 1 1 1 1 1 0]" {
			t.Errorf("forward %v: storms begun and under way: %v", forward, got)
		}
		drops, got := l.sw.Stats().Drops[DropWatchdog], fmt.Sprint(psns(l.stub[3].got))
		if !forward && (drops != 4 || got != "[psn=240]") {
			t.Errorf("dropping: %d dropped, the host got %v", drops, got)
		}
		if forward && (drops != 0 || got != "[psn=10 psn=30 psn=100 psn=220 psn=240]" || l.times(3)[0] < 61 || l.times(3)[0] > 63) {
			t.Errorf("forwarding: %d dropped, the host got %v at %v", drops, got, l.times(3))
		}
	}
}

// TestWatchdogPatience: no storms are: a pause with nothing waiting, pauses with an XON or an end in
// between, and XONs by the dozen.
func TestWatchdogPatience(t *testing.T) {
	l := dogLab(t, false)
	l.storm(3, 0, 300) // nothing waits here
	l.at(1, func() { l.pause(2, 1<<3, 0xffff) })
	for us := 30.0; us < 300; us += 40 { // XON and XOFF again
		l.at(us, func() { l.pause(2, 1<<3, 0); l.pause(2, 1<<3, 0xffff) })
	}
	for us := 0.0; us < 300; us += 1 {
		l.at(us, func() { l.pause(1, 1<<3, 0) }) // XONs only
	}
	for us := 2.0; us < 290; us += 5 {
		l.at(us, func() {
			l.stub[0].send(l.data(hostIP(0), hostIP(2), 1, 1, 3<<5))
			l.stub[0].send(l.data(hostIP(0), hostIP(1), 1, 1, 3<<5))
		})
	}
	l.at(300, func() { l.pause(2, 1<<3, 0) })
	l.run()
	if st := l.sw.Stats(); st.PauseStorms != 0 || st.Drops[DropWatchdog] != 0 {
		t.Errorf("%d storms, drops %v", st.PauseStorms, st.Drops)
	}
}

// TestWatchdogWaiting: frames that waited when a storm began reveal it, too, though no more arrive.
func TestWatchdogWaiting(t *testing.T) {
	l := dogLab(t, false)
	for k := range 20 { // twice the port's rate: half of them wait when the pause comes
		for i := range 2 {
			l.stub[i].send(l.data(hostIP(i), hostIP(3), 1, wire.PSN(k), 3<<5))
		}
	}
	l.storm(3, 1, 100) // arrives from 2 us on
	l.run()
	if st := l.sw.Stats(); st.PauseStorms != 1 || st.Drops[DropWatchdog] == 0 {
		t.Errorf("%d storms, drops %v; want one that drops what waits", st.PauseStorms, st.Drops)
	}
}

// TestWatchdogFrees: the buffer that the dropped frames release lets the senders resume.
func TestWatchdogFrees(t *testing.T) {
	l := dogLab(t, false)
	l.storm(3, 0, 150)
	l.at(5, func() {
		for i := range 30 {
			l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 3<<5))
		}
	})
	l.run()
	var pauses []string
	for _, line := range l.stub[0].got {
		pauses = append(pauses, line[strings.Index(line, "PFC"):])
	}
	if len(pauses) != 2 || pauses[0] != "PFC 3:65535" || pauses[1] != "PFC 3:0" || l.sw.buffer.in[0].bytes != [8]int32{} {
		t.Errorf("the sender was told %q; %v bytes are still held", pauses, l.sw.buffer.in[0].bytes)
	}
}

// TestPauseMerged: a pause frame that waits behind another frame takes up later changes.
func TestPauseMerged(t *testing.T) {
	l := newLone(t, nil)
	l.stub[1].send(l.data(hostIP(1), hostIP(0), 1, 1, 0))
	l.at(2.1, func() { // port 0 is sending until 2.17
		l.sw.sendPause(l.net.Now, 0, 1<<3, 7)
		l.sw.sendPause(l.net.Now, 0, 1<<4, 9)
		l.sw.sendPause(l.net.Now, 0, 1<<3, 0)
	})
	l.run()
	if len(l.stub[0].got) != 2 || !strings.HasSuffix(l.stub[0].got[1], "PFC 3:0 4:9") || l.sw.Stats().PausesSent != 1 {
		t.Errorf("host 0 got %q, %d pauses counted", l.stub[0].got, l.sw.Stats().PausesSent)
	}
}

// occupied notes the bytes that port 0's arrivals of priority 3 hold at each pause frame.
type occupied struct {
	l    *lone
	held []int
}

// Trace implements machine.Tracer.
func (o *occupied) Trace(_ vtime.Time, e machine.Event) {
	if e.Kind == machine.EventPauseSent && e.Port == 0 {
		o.held = append(o.held, o.l.sw.Occupancy(0, 3))
	}
}

// TestThresholds: a queue may hold XOFF bytes; one frame more and the neighbour stops,
// until exactly XON bytes are left.
func TestThresholds(t *testing.T) {
	const size = 1082
	for _, c := range []struct {
		xoff, xon, frames int
		want              []int // bytes held at XOFF and at XON
	}{
		{10 * size, 6 * size, 10, nil},
		{10 * size, 6 * size, 11, []int{11 * size, 6 * size}},
		{10*size - 1, 6*size - 1, 10, []int{10 * size, 5 * size}},
		{8 * size, 0, 9, []int{9 * size, 6 * size}}, // three quarters
		{8 * size, 8 * size, 9, []int{9 * size, 8 * size}},
	} {
		var o occupied
		l := newLone(t, func(k *Config) {
			k.PFC = PFCConfig{Lossless: 1 << 3, XOFF: c.xoff, XON: c.xon, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
			k.Trace = &o
		})
		o.l = l
		l.pause(3, 1<<3, 2000) // 10.24 us
		l.at(1.2, func() {
			for i := range c.frames {
				l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 3<<5))
			}
		})
		l.run()
		if !slices.Equal(o.held, c.want) {
			t.Errorf("XOFF %d, XON %d, %d frames: the neighbour was told something at %v bytes, want %v", c.xoff, c.xon, c.frames, o.held, c.want)
		}
	}
}

// TestPausedGroups: a member that pauses stops its group at the source, and the group that
// shares the ingress with it, but not one from elsewhere (CEP-44, FLT-12).
func TestPausedGroups(t *testing.T) {
	l := newLone(t, func(c *Config) {
		c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 20000, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
	})
	const other = group1 + 1
	l.register(group1, 2) // h0 to h1 and h2
	l.stub[3].send(l.mrp(hostIP(3), other, wire.MRPHeader{Total: 1, LeaderQPN: 103}, wire.MRPRecord{IP: hostIP(2), QPN: 202}))
	l.run()
	l.stub[3].send(l.mrp(hostIP(3), other, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 103}, wire.MRPRecord{QPN: 5}))
	l.run()
	for i := range l.stub {
		l.stub[i].got = nil
	}
	base := float64(l.net.Now) / float64(vtime.Microsecond)
	l.pause(1, 1<<3, 10000) // 51.2 us
	l.at(base+2, func() {
		for i := range 30 {
			l.stub[0].send(l.data(hostIP(0), group1, 9, wire.PSN(5+i), 26<<2))
			l.stub[3].send(l.data(hostIP(3), other, 9, wire.PSN(5+i), 26<<2))
		}
	})
	l.at(base+30, func() {
		if pauses := len(l.stub[0].got); pauses != 1 || !strings.Contains(l.stub[0].got[0], "PFC 3:65535") {
			t.Errorf("the source was told %q", l.stub[0].got)
		}
		if len(l.stub[3].got) != 0 {
			t.Errorf("the other group's source was told %q", l.stub[3].got)
		}
		// The member that does not pause has both groups' packets: copies wait one by one.
		if n := len(l.stub[2].got); n != 60 || len(l.stub[1].got) != 0 {
			t.Errorf("the member that pauses has %d packets, the other %d, want 0 and 60", len(l.stub[1].got), n)
		}
	})
	l.run()
	if n := len(l.stub[1].got); n != 30 || l.sw.Stats().Dropped() != 0 {
		t.Errorf("the member that paused has %d packets in the end, drops %v", n, l.sw.Stats().Drops)
	}
}

// TestWatchdogClasses: of two priorities of a port that are stuck from different instants on
// each is taken over when its own time has come.
func TestWatchdogClasses(t *testing.T) {
	l := dogLab(t, false)
	for _, c := range []struct {
		prio uint8
		us   float64
	}{{3, 10}, {4, 30}} {
		l.at(c.us, func() {
			l.pause(3, 1<<c.prio, 0xffff)
			l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 1, c.prio<<5))
		})
		l.at(c.us+50, func() {
			if l.sw.watchdogs[3].storm>>c.prio&1 != 0 {
				t.Errorf("priority %d is taken over before its time", c.prio)
			}
		})
		l.at(c.us+53, func() {
			if l.sw.watchdogs[3].storm>>c.prio&1 == 0 {
				t.Errorf("priority %d is not taken over", c.prio)
			}
		})
	}
	l.run()
	if st := l.sw.Stats(); st.PauseStorms != 2 || st.Drops[DropWatchdog] != 2 {
		t.Errorf("%d storms, %d frames dropped, want 2 of each", st.PauseStorms, st.Drops[DropWatchdog])
	}
}

// TestWatchdogLinkDown: a neighbour that goes away while it pauses is no storm.
func TestWatchdogLinkDown(t *testing.T) {
	l := dogLab(t, false)
	l.pause(3, 1<<3, 0xffff)
	l.at(5, func() { l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 1, 3<<5)) })
	l.at(20, func() { l.sw.SetCarrier(l.net.Now, 3, false) })
	l.at(200, func() { l.sw.SetCarrier(l.net.Now, 3, true) })
	l.run()
	if st := l.sw.Stats(); st.PauseStorms != 0 || st.Drops[DropWatchdog] != 0 {
		t.Errorf("%d storms, drops %v", st.PauseStorms, st.Drops)
	}
}
