// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// cnp builds a congestion notification of host i to the group.
func (l *lone) cnp(i int) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: hostIP(i), Dst: group1, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2, Traffic: 48 << 2})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpCNP, PKey: wire.PKeyDefault, DestQP: 1})
	f.SetPhantom(16)
	f.Seal(0, false)
	return f
}

// TestCNPFilter: of several congested paths one reaches the source, the one with the most
// notifications; when it falls silent another takes over within a few windows (CEP-43,
// promise M13).
func TestCNPFilter(t *testing.T) {
	l := groupLab(t, func(c *Config) { c.CNPWindow = 50 * vtime.Microsecond })
	base := float64(l.net.Now) / float64(vtime.Microsecond)
	for i := range 100 { // host 1: 100 in 400 us, host 2: 50, host 3: 8
		us := base + float64(4*i)
		l.at(us, func() { l.stub[1].send(l.cnp(1)) })
		if i%2 == 0 {
			l.at(us+1, func() { l.stub[2].send(l.cnp(2)) })
		}
		if i%12 == 11 {
			l.at(us+2, func() { l.stub[3].send(l.cnp(3)) })
		}
	}
	l.run()
	lines := strings.Split(l.took(0), "\n")
	if n := len(lines); n < 97 || n > 103 || !strings.HasPrefix(lines[0], "10.254.0.1>10.0.0.1 CNP qp=100 psn=0") {
		t.Errorf("the source got %d notifications, want about the 100 of the worst path; the first is %q", n, lines[0])
	}
	if st := l.sw.Stats(); st.CNPsIn != 158 || st.CNPsOut != uint64(len(lines)) {
		t.Errorf("%d notifications in and %d out are counted", st.CNPsIn, st.CNPsOut)
	}
	filtered := uint64(0)
	for port, want := range []uint64{0, 100, 50, 8} {
		st := l.sw.PortStats(port)
		if filtered += st.CNPsFiltered; st.CNPsIn != want || st.CNPsFiltered > want || port == 3 && st.CNPsFiltered < want-1 || port == 1 && st.CNPsFiltered > 6 {
			t.Errorf("port %d counts %+v, want %d in, of the worst path few filtered and of the best nearly all", port, st, want)
		}
	}
	if filtered+uint64(len(lines)) != 158 {
		t.Errorf("%d notifications passed on and %d filtered by port are not 158", len(lines), filtered)
	}
	// Host 1 has died; host 3 still sends, one per window.
	base = float64(l.net.Now) / float64(vtime.Microsecond)
	for i := range 10 {
		l.at(base+float64(50*i), func() { l.stub[3].send(l.cnp(3)) })
	}
	l.run()
	if n := len(strings.Split(l.took(0), "\n")); n < 5 {
		t.Errorf("after the worst path died the source got %d of 10 notifications", n)
	}

	l = groupLab(t, nil)
	for i := 1; i < 4; i++ {
		l.stub[i].send(l.cnp(i))
	}
	l.run()
	if n := len(strings.Split(l.took(0), "\n")); n != 3 {
		t.Errorf("without a filter the source got %d notifications of 3", n)
	}
}

// TestCNPFilterNeverSilences: whatever comes from where, some of a window's notifications
// are passed on in each run of windows, and no more than came from one path.
func TestCNPFilterNeverSilences(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 43))
		g := &group{path: make([]path, 2+r.IntN(6))}
		g.ackOut = r.IntN(len(g.path))
		for phase := range 5 {
			passed := 0
			weights := make([]int, len(g.path))
			total := 0
			for k := range weights {
				if k != g.ackOut {
					weights[k] = r.IntN(5)
					total += weights[k]
				}
			}
			count := make([]int, len(g.path))
			for window := range int64(40) {
				for range total {
					k := r.IntN(len(g.path))
					if weights[k] == 0 || r.IntN(5) >= weights[k] {
						continue
					}
					count[k]++
					if g.mostCongested(k, int64(phase)*40+window) {
						passed++
					}
				}
			}
			if slices.Max(count) > 20 && passed == 0 {
				t.Fatalf("seed %d: none of %v notifications was passed on", seed, count)
			}
		}
	}
}

// TestFeedbackDelay: feedback takes its time in the processor, one after the other; data
// does not (CEP-48).
func TestFeedbackDelay(t *testing.T) {
	l := groupLab(t, func(c *Config) { c.FeedbackDelay = 2 * vtime.Microsecond })
	base := float64(l.net.Now) / float64(vtime.Microsecond)
	for i := 1; i < 4; i++ {
		l.stub[i].send(l.ack(i, 7, wire.SyndromeACK))
	}
	l.stub[0].send(l.data(hostIP(0), group1, 9, 8, 26<<2))
	l.run()
	// 6.88 ns for 86 bytes, 1 us of link, three times 2 us, 6.88 ns and 1 us again.
	if got := l.times(0); len(got) != 1 || got[0]-base < 8.013 || got[0]-base > 8.015 {
		t.Errorf("the source got the acknowledgement %v us after it was sent, want 8.014", got[0]-base)
	}
	if got := l.times(2); len(got) != 1 || got[0]-base > 2.2 {
		t.Errorf("data took %v us", got)
	}
}

// lookAsideLab is a group of three on an accelerator with four links of 100 Gb/s.
func lookAsideLab(t *testing.T, change func(*Config)) *lone {
	return groupLab(t, func(c *Config) {
		c.LookAside = LookAsideConfig{Links: 4, Rate: 100e9, Delay: 100 * vtime.Nanosecond}
		if change != nil {
			change(c)
		}
	})
}

// TestLookAside: with an accelerator a group works as without, two traversals of a link later each way;
// packets that only pass the switch are not touched (CEP-45).
func TestLookAside(t *testing.T) {
	inline, aside := groupLab(t, nil), lookAsideLab(t, nil)
	if a, b := fmt.Sprint(inline.sw.Groups()), fmt.Sprint(aside.sw.Groups()); a != b {
		t.Errorf("groups differ:\n%s\n%s", a, b)
	}
	var took [2][]string
	for k, l := range []*lone{inline, aside} {
		base := float64(l.net.Now) / float64(vtime.Microsecond)
		l.stub[0].send(l.data(hostIP(0), group1, 9, 5, 26<<2))
		l.stub[1].send(l.data(hostIP(1), hostIP(3), 9, 5, 26<<2))
		l.run()
		took[k] = append(took[k], fmt.Sprintf("%.3f %.3f", l.times(2)[0]-base, l.times(3)[0]-base))
		for i := range l.stub {
			lines := strings.Split(l.took(i), "\n")
			slices.Sort(lines)
			took[k] = append(took[k], lines...)
		}
		for i := 1; i < 4; i++ {
			l.stub[i].send(l.ack(i, wire.PSN(6+i), wire.SyndromeACK))
			l.run()
		}
		took[k] = append(took[k], l.took(0))
	}
	// 1106 bytes take 88 ns on a joining link, and its delay is 100 ns, each way.
	if took[0][0] != "2.173 2.173" || took[1][0] != "2.546 2.173" {
		t.Errorf("data for the group and from host to host took %s us, and %s with the accelerator", took[0][0], took[1][0])
	}
	if !slices.Equal(took[0][1:], took[1][1:]) {
		t.Errorf("frames differ:\n%q\n%q", took[0][1:], took[1][1:])
	}
}

// TestLookAsideLossless: packets that wait at the accelerator's links are charged to their ingress
// port, which is paused in time; nothing is lost, and nothing stays charged.
func TestLookAsideLossless(t *testing.T) {
	for _, delay := range []vtime.Duration{0, vtime.Microsecond} {
		l := lookAsideLab(t, func(c *Config) {
			c.LookAside.Rate = 20e9 // less than the ports
			c.FeedbackDelay = delay
			c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 20000, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
		})
		paused := false
		for i := range 200 {
			l.at(float64(l.net.Now)/float64(vtime.Microsecond)+float64(i)*0.1, func() {
				// A host that obeys: it stops while it is paused.
				for _, g := range l.stub[0].got {
					if _, pfc, ok := strings.Cut(g, "PFC 3:"); ok {
						paused = pfc != "0"
					}
				}
				if !paused {
					l.stub[0].send(l.data(hostIP(0), group1, 9, wire.PSN(5+i), 26<<2))
				}
				if i%20 == 7 {
					l.stub[1].send(l.ack(1, wire.PSN(5+i), wire.SyndromeACK))
				}
			})
		}
		l.run()
		if st := l.sw.Stats(); st.Dropped() != 0 || st.PausesSent == 0 {
			t.Errorf("drops %v, %d pauses", st.Drops, st.PausesSent)
		}
		if l.sw.buffer.in[0].bytes != [8]int32{} || len(l.sw.buffer.freeIndex) != len(l.sw.buffer.shared) || l.sw.deferred.waiting.Len() != 0 {
			t.Errorf("at rest %v bytes are charged, %d of %d shared charges are free", l.sw.buffer.in[0].bytes, len(l.sw.buffer.freeIndex), len(l.sw.buffer.shared))
		}
	}
}

// TestProcessorFull: a feedback processor that cannot keep up drops, with its reason.
func TestProcessorFull(t *testing.T) {
	l := groupLab(t, func(c *Config) { c.FeedbackDelay = vtime.Microsecond })
	for range deferredMax {
		l.sw.postpone(vtime.Never-1, deferredItem{})
	}
	f := l.ack(1, 7, wire.SyndromeACK)
	l.sw.HandleFrame(l.net.Now, 1, f)
	if got := l.sw.Stats().Drops[DropProcessorFull]; got != 1 {
		t.Errorf("%d dropped, want 1", got)
	}
}

// TestLateOrder: late items come in the order of their times, equal ones as they went in.
func TestLateOrder(t *testing.T) {
	l := groupLab(t, func(c *Config) { c.FeedbackDelay = vtime.Microsecond })
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		l.sw.postpone(vtime.Time(r.IntN(50)), deferredItem{size: int32(i)})
	}
	var last queue.Due[deferredItem]
	for i := range 500 {
		x := l.sw.deferred.waiting.Pop()
		if i > 0 && (x.At < last.At || x.At == last.At && x.Value.size < last.Value.size) {
			t.Fatalf("item %d of %v after item %d of %v", x.Value.size, x.At, last.Value.size, last.At)
		}
		last = x
	}
}

// datagram builds a packet to an IP multicast group.
func (l *lone) datagram(i int, ip uint32) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(hostIP(i)), DstMAC: wire.MAC{0x01, 0, 0x5e, byte(ip >> 16 & 0x7f), byte(ip >> 8), byte(ip)},
		Src: hostIP(i), Dst: ip, TTL: 9, SrcPort: 1, DstPort: wire.PortRoCEv2,
	})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 0xffffff})
	f.SetPhantom(64)
	f.Seal(0, false)
	return f
}

// TestMulticast: the plain IP multicast table: out by every port but the one the packet came by,
// unchanged but for its time to live; senders that are no members; groups that are not in the table.
func TestMulticast(t *testing.T) {
	const ip = 239<<24 | 1<<16 | 5
	l := newLone(t, nil)
	l.sw.SetMulticast(wire.MulticastEntry{Group: ip + 1, Ports: []uint16{1}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: ip, Ports: []uint16{0, 1, loneHosts}, From: []uint16{3}})
	l.sw.SetMulticast(wire.MulticastEntry{Group: hostIP(2), Ports: []uint16{0, 1}}) // no multicast address
	heard := func(from int, ip uint32) (got []int) {
		sent := l.datagram(from, ip)
		want := fmt.Sprint(sent)
		l.stub[from].send(sent)
		l.run()
		for i := range l.stub {
			for _, line := range strings.Split(l.took(i), "\n") {
				if line == want {
					got = append(got, i)
				}
			}
		}
		return got
	}
	for _, c := range []struct {
		from int
		ip   uint32
		want []int
		why  DropReason
	}{
		{0, ip, []int{1, loneHosts}, dropReasons},
		{loneHosts, ip, []int{0, 1}, dropReasons},
		{3, ip, []int{0, 1, loneHosts}, dropReasons},
		{2, ip, nil, DropNotInTree},
		{1, ip + 1, nil, dropReasons}, // the only member gets none of its own copies
		{0, ip + 2, nil, DropUnknownGroup},
	} {
		before := *l.sw.Stats()
		if got := heard(c.from, c.ip); !slices.Equal(got, c.want) {
			t.Errorf("from %d to %v: heard at %v, want %v", c.from, wire.AddrOf(c.ip), got, c.want)
		}
		if st := l.sw.Stats(); c.why < dropReasons && st.Drops[c.why] != before.Drops[c.why]+1 || c.why == dropReasons && st.Dropped() != before.Dropped() {
			t.Errorf("from %d to %v: drops %v", c.from, wire.AddrOf(c.ip), st.Drops)
		}
	}
	l.sw.SetMulticast(wire.MulticastEntry{Group: ip})
	if got := heard(0, ip); got != nil || l.sw.Stats().Drops[DropUnknownGroup] != 2 {
		t.Errorf("after it was taken away the group is heard at %v", got)
	}
}
