// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// spent returns a frame with one hop of life left.
func spent(f *wire.Frame) *wire.Frame {
	for f.TTL() > 1 {
		f.DecTTL()
	}
	return f
}

// TestSpentLife: whatever has no life left ends here, and nothing comes of it.
func TestSpentLife(t *testing.T) {
	const udGroup = 0xe0000105
	for name, frame := range map[string]func(l *lone) *wire.Frame{ // independent of each other
		"unicast":   func(l *lone) *wire.Frame { return l.data(hostIP(0), hostIP(1), 1, 5, 0) },
		"group":     func(l *lone) *wire.Frame { return l.data(hostIP(0), group1, 1, 5, 0) },
		"multicast": func(l *lone) *wire.Frame { return l.data(hostIP(0), udGroup, 1, 5, 0) },
		"registration": func(l *lone) *wire.Frame {
			return l.mrp(hostIP(0), group1+1, wire.MRPHeader{Total: 1}, wire.MRPRecord{IP: hostIP(1)})
		},
		"activation": func(l *lone) *wire.Frame {
			return l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate}, wire.MRPRecord{QPN: 5})
		},
	} {
		l := groupLab(t, nil)
		l.sw.SetMulticast(wire.MulticastEntry{Group: udGroup, Ports: []uint16{0, 1, 2}})
		l.stub[0].send(spent(frame(l)))
		l.run()
		got := l.took(0) + l.took(1) + l.took(2) + l.took(3)
		if l.sw.Stats().Drops[DropTTL] != 1 || got != "" {
			t.Errorf("%s: drops %v, and what left is %q", name, l.sw.Stats().Drops, got)
		}
	}
	l := groupLab(t, nil)
	l.stub[1].send(spent(l.cnp(1)))
	l.stub[0].send(l.cnp(0)) // of the source itself
	l.run()
	if d := l.sw.Stats().Drops; d[DropTTL] != 1 || d[DropOwnPath] != 1 || l.took(0) != "" {
		t.Errorf("congestion notifications without life, and of the source: drops %v", d)
	}
}

// TestMulticastTable: entries are found whatever their order, replaced, and taken away; a
// packet leaves by all ports of its tree but the one it came by, a sender's included.
func TestMulticastTable(t *testing.T) {
	const a, b, c = 0xe0000101, 0xe0000102, 0xefffffff
	l := newLone(t, nil)
	l.sw.SetMulticast(wire.MulticastEntry{Group: b, Ports: []uint16{0, 1}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: c, Ports: []uint16{0}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: a, Ports: []uint16{1, 2, 3}, From: []uint16{0}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: hostIP(0), Ports: []uint16{1}}) // not multicast
	l.sw.SetMulticast(wire.MulticastEntry{Group: 0xe0000103})                    // nothing to take away
	sent := func(from int, dst uint32) (ports []int) {
		t.Helper()
		l.stub[from].send(l.data(hostIP(from), dst, 1, 5, 0))
		l.run()
		for i := range l.stub {
			if got := l.took(i); got != "" {
				ports = append(ports, i)
			}
		}
		return ports
	}
	check := func(from int, dst uint32, want ...int) {
		t.Helper()
		if got := sent(from, dst); !slices.Equal(got, want) {
			t.Errorf("from %d to %v: left by %v, want %v", from, wire.AddrOf(dst), got, want)
		}
	}
	check(0, a, 1, 2, 3)
	check(2, a, 1, 3)
	check(0, b, 1)
	check(0, c) // the only port of its tree
	check(2, b) // neither member nor sender
	check(0, 0xe0000103)
	if d := l.sw.Stats().Drops; d[DropNotInTree] != 1 || d[DropUnknownGroup] != 1 || l.sw.Stats().Absorbed != 1 {
		t.Errorf("drops %v, %d absorbed; want one not in the tree, one unknown, one absorbed", d, l.sw.Stats().Absorbed)
	}
	l.sw.SetMulticast(wire.MulticastEntry{Group: b, Ports: []uint16{0, 3}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: a})
	check(0, b, 3)
	check(0, a)
	check(0, hostIP(1), 1)
	if n := len(l.sw.multicast); n != 2 {
		t.Errorf("%d entries are left, want 2", n)
	}
}

// TestReservations: headroom and reservations by their formulas, worked out by hand.
func TestReservations(t *testing.T) {
	us, ns := vtime.Microsecond, vtime.Nanosecond
	for _, c := range []struct{ got, want int }{
		{Headroom(100e9, 2*us, 400*ns, 0, 1024), 2*(1500+140) + 84 + 30000 + 1}, // an MRP packet is the largest frame
		{Headroom(100e9, 2*us, 400*ns, 0, 4096), 2*(4096+140) + 84 + 30000 + 1},
		{Headroom(25e9, us, 300*ns, 200*ns, 4096), 2*(4096+140) + 84 + 4687 + 1},
		{Reserved(PFCConfig{Lossless: 3 << 3, XOFF: 5000, Headroom: slices.Repeat([]int{9000}, 6)}, 6, 1e6), 6 * 2 * (4236 + 9000 + 5000)},
		{Reserved(PFCConfig{Lossless: 3 << 3, Alpha: 1, XOFF: 5000, Headroom: slices.Repeat([]int{9000}, 6)}, 6, 1e6), 6 * 2 * (4236 + 9000)},
		{Reserved(PFCConfig{Lossless: 1 << 3, Headroom: slices.Repeat([]int{9000}, 6)}, 6, 1e6), 6 * (4236 + 9000 + (500_000-54_000)/6)},
		{Reserved(PFCConfig{Lossless: 1 << 3}, 6, 1e4), 6 * (4236 + 4236)}, // XOFF is a frame at least
		{Reserved(PFCConfig{}, 6, 1e6), 0},
	} {
		if c.got != c.want {
			t.Errorf("%d bytes, want %d", c.got, c.want)
		}
	}
}

// TestQuarantineOfTwo: each deleted group is forgotten when its own time has come.
func TestQuarantineOfTwo(t *testing.T) {
	l := newLone(t, nil)
	l.register(group1, 2)
	l.register(group1+1, 2)
	base := l.net.Now
	for i, after := range []vtime.Duration{0, 30 * vtime.Millisecond} {
		l.net.At(base.Add(after), func(vtime.Time) {
			l.stub[0].send(l.mrp(hostIP(0), group1+uint32(i), wire.MRPHeader{Total: 1, Flags: wire.MRPDelete}, wire.MRPRecord{}))
		})
	}
	var forgot []vtime.Time
	for n := l.sw.groups.n; l.net.Step(); n = l.sw.groups.n {
		for range n - l.sw.groups.n {
			forgot = append(forgot, l.net.Now)
		}
	}
	if len(forgot) != 2 || forgot[1].Sub(forgot[0]) != 30*vtime.Millisecond || forgot[0].Sub(base) < quarantineMin {
		t.Errorf("deleted at %v and 30 ms later, forgotten at %v", base, forgot)
	}
	if l.sw.mftUsed != 0 {
		t.Errorf("%d bytes of tables are still taken", l.sw.mftUsed)
	}
}

// TestQueued: frames that wait in a switch are counted, pauses too, and nothing once it is at rest.
func TestQueued(t *testing.T) {
	l := newLone(t, func(c *Config) {
		c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 2000, Headroom: slices.Repeat([]int{9000}, 6)}
	})
	l.pause(3, 1<<3, 2000)
	l.at(1.2, func() {
		for i := range 4 {
			l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 26<<2))
		}
	})
	l.at(5, func() {
		if n := l.sw.Queued(); n != 4 {
			t.Errorf("%d frames wait, want 4", n)
		}
	})
	l.run()
	if n := l.sw.Queued(); n != 0 {
		t.Errorf("%d frames wait at rest", n)
	}
	l = groupLab(t, func(c *Config) { c.FeedbackDelay = 5 * vtime.Microsecond })
	base := float64(l.net.Now) / float64(vtime.Microsecond)
	l.stub[1].send(l.ack(1, 5, wire.SyndromeACK))
	l.stub[2].send(l.ack(2, 5, wire.SyndromeACK))
	l.at(base+3, func() {
		if n := l.sw.Queued(); n != 2 {
			t.Errorf("%d acknowledgements wait for the processor, want 2", n)
		}
	})
	l.run()
}

// TestWakes: while a neighbour is paused the switch wants to be woken when any port starts
// a frame, the first port too (machine: starts are deadlines), and otherwise not.
func TestWakes(t *testing.T) {
	for _, xoff := range []int{2000, 20000} {
		for to := range loneHosts {
			from := (to + 1) % loneHosts
			l := newLone(t, func(c *Config) {
				c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: xoff, Headroom: slices.Repeat([]int{9000}, 6)}
			})
			l.pause(to, 1<<3, 600) // 3.07 us
			l.at(1.2, func() {
				for i := range 6 {
					l.stub[from].send(l.data(hostIP(from), hostIP(to), 1, wire.PSN(i), 26<<2))
				}
			})
			woken := 0
			l.net.After = func() {
				start := l.sw.ports[to].Next()
				if at, ok := l.sw.NextTimeout(); start != vtime.Never && ok && at == start {
					woken++
				}
			}
			l.run()
			if want := xoff == 2000; (woken > 0) != want {
				t.Errorf("XOFF at %d, frames wait at port %d: it was to be woken for %d of its starts", xoff, to, woken)
			}
		}
	}
}

// TestJoiningLinks: a frame takes as long over a joining link as over a port of its rate.
func TestJoiningLinks(t *testing.T) {
	for _, rate := range []int64{10e9, 25e9, 56e9, 100e9, 300e9} {
		p := machine.PortConfig{BitsPerSec: rate}
		l := lookAside{delay: vtime.Microsecond, bytePs16: machine.BytePs16(rate)}
		for size := 84; size < 5000; size += 61 {
			if got, want := l.cross(make([]vtime.Time, 1), 0, 0, size), vtime.Time(p.Serialize(size)+vtime.Microsecond); got != want {
				t.Fatalf("%d bytes at %d bit/s take %v, want %v", size, rate, got, want)
			}
		}
	}
}

// TestPortCounts: a switch has 1 to 254 ports.
func TestPortCounts(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: true, PortsMax: true, PortsMax + 1: false} { // independent of each other
		made := func() (ok bool) {
			defer func() { ok = recover() == nil }()
			New(Config{Ports: make([]machine.Port, n), Pool: &wire.Pool{}})
			return true
		}()
		if made != want {
			t.Errorf("%d ports: made %v, want %v", n, made, want)
		}
	}
}

// TestOneJoiningLink: an accelerator may hang on one link, and everything of a group
// crosses that.
func TestOneJoiningLink(t *testing.T) {
	for links, want := range map[int]vtime.Duration{0: 0, 1: 2*(500*vtime.Nanosecond) + 4*10*vtime.Nanosecond*1082/125} { // independent of each other
		l := groupLab(t, func(c *Config) {
			c.LookAside = LookAsideConfig{Links: links, Rate: 100e9, Delay: 500 * vtime.Nanosecond}
		})
		base := l.net.Now
		l.stub[0].send(l.data(hostIP(0), group1, 9, 5, 26<<2))
		l.run()
		var last float64
		for i := 1; i < 4; i++ {
			last = max(last, l.times(i)[0])
		}
		plain := 2 * (86.56 + 1000) // two links
		took := last*1000 - float64(base)/float64(vtime.Nanosecond) - plain
		if extra := float64(want) / float64(vtime.Nanosecond); took < extra-0.01 || took > extra+0.01 {
			t.Errorf("%d links: the last copy takes %.2f ns more than through the switch alone, want %.2f", links, took, extra)
		}
	}
}

// TestStaleAccount: a driver need not settle a port before something happens to it. What
// has started meanwhile holds no room when a pause is decided on (machine: never underestimate occupancy).
func TestStaleAccount(t *testing.T) {
	for _, alpha := range []float64{0, 0.5} {
		pauses := func(n int, then vtime.Time) uint64 {
			l := newLone(t, func(c *Config) {
				c.Buffer, c.PFC = 200_000, PFCConfig{Lossless: 1 << 3, Alpha: alpha, Headroom: slices.Repeat([]int{9000}, 6)}
			})
			for range n {
				l.sw.HandleFrame(0, 0, l.data(hostIP(0), hostIP(3), 1, 1, 26<<2))
			}
			for range 2 { // the second has to wait
				l.sw.HandleFrame(then, 0, l.data(hostIP(0), hostIP(2), 1, 1, 26<<2))
			}
			return l.sw.Stats().PausesSent
		}
		n := 1
		for n < 500 && pauses(n, 0) == 0 {
			n++
		}
		if n == 500 || n == 1 {
			t.Fatalf("alpha %v: no pause after %d frames", alpha, n)
		}
		if k := pauses(n, vtime.Time(vtime.Millisecond)); k != 0 {
			t.Errorf("alpha %v: %d frames that left long ago and one that waits made %d pauses", alpha, n, k)
		}
	}
}

// TestGroupTable: groups are found by all 16 bits of their number, and no other is.
func TestGroupTable(t *testing.T) {
	var table groupTable
	ids := []uint32{0, 1, 0x7f, 0x80, 0xff, 0x100, 0x180, 0x1ff, 0x8000, 0xff00, 0xffff}
	for _, id := range ids {
		table.put(&group{id: wire.GroupNet | id})
	}
	for id := range uint32(1 << 16) {
		g, want := table.get(wire.GroupNet|id), slices.Contains(ids, id)
		if (g != nil) != want || g != nil && g.id != wire.GroupNet|id {
			t.Fatalf("looking for %#x found %+v", id, g)
		}
	}
	var seen []uint32
	table.each(func(g *group) { seen = append(seen, g.id&0xffff) })
	if !slices.Equal(seen, ids) {
		t.Errorf("visited %#x", seen)
	}
	for _, id := range ids {
		table.remove(&group{id: wire.GroupNet | id})
		if table.get(wire.GroupNet|id) != nil {
			t.Errorf("%#x is there still", id)
		}
	}
	if table.n != 0 {
		t.Errorf("%d groups are left", table.n)
	}
}

// TestProfiles: the profiles by name; other names are refused.
func TestProfiles(t *testing.T) {
	for name, want := range map[string]Rules{"": RulesFixed(), "fixed": RulesFixed(), "cepheus": RulesCepheus(), "gleam": RulesGleam()} { // independent of each other
		if got, err := RulesByName(name); got != want || err != nil {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	if _, err := RulesByName("glean"); err == nil || !strings.Contains(err.Error(), "gleam") {
		t.Errorf("a profile that is none: %v", err)
	}
}

// TestQuarantineOutlastsPauses: a deleted group's McstID is kept back for longer than its
// packets can stand in a queue of the slowest port that is paused for the longest time a
// frame can say, and then once more.
func TestQuarantineOutlastsPauses(t *testing.T) {
	for _, rate := range []int64{100e6, 1e9, 100e9} {
		ports := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 100e9}, {BitsPerSec: rate}}).Ports(0, 2)
		s := New(Config{Ports: ports, Pool: &wire.Pool{}, Settings: Settings{Buffer: 1 << 20}})
		longest := ports[1].Serialize(65535 * 512 / 8)
		if s.quarantine < 2*longest || s.quarantine < quarantineMin {
			t.Errorf("at %d bit/s a pause lasts up to %v, and a McstID is kept back for %v", rate, longest, s.quarantine)
		}
	}
}
