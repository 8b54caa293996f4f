// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// inputLab is a switch that queues where packets come in.
func inputLab(t *testing.T, together bool, change func(*Config)) *lone {
	t.Helper()
	return newLone(t, func(c *Config) {
		c.Input = &InputConfig{Together: together}
		if change != nil {
			change(c)
		}
	})
}

// frameTime is the time of a frame of lone.data, in microseconds; the first frame reaches the end of
// its second link after two of them and two delays.
const frameTime, firstSlot = 1082 * 8 / 100e3, 2 + 2*frameTime

// slots returns when a stub got its frames, in slots after the first instant possible.
func (l *lone) slots(stub int) (all []int) {
	for _, us := range l.times(stub) {
		x := (us - firstSlot) / frameTime
		if math.Abs(x-math.Round(x)) > 0.01 {
			l.t.Errorf("port %d got a frame at %v us, not at the end of a slot", stub, us)
		}
		all = append(all, int(math.Round(x)))
	}
	return all
}

func (l *lone) wantSlots(what string, want map[int][]int) {
	l.t.Helper()
	for stub := range loneHosts {
		if got := l.slots(stub); !slices.Equal(got, want[stub]) {
			l.t.Errorf("%s: port %d got frames in slots %v, want %v", what, stub, got, want[stub])
		}
	}
	if l.sw.Queued() != 0 || l.sw.Occupancy(0, 0) != 0 || l.sw.Occupancy(1, 0) != 0 {
		l.t.Errorf("%s: at rest %d copies wait, %d and %d bytes are charged", what, l.sw.Queued(), l.sw.Occupancy(0, 0), l.sw.Occupancy(1, 0))
	}
}

// TestHeadOfLine: a packet whose egress is busy holds up those behind it in its ingress,
// though their egress is free; with queues at the egress it does not. One of a higher
// priority passes it.
func TestHeadOfLine(t *testing.T) {
	send := func(l *lone) {
		one := func(from, to int, prio uint8) { l.stub[from].send(l.data(hostIP(from), hostIP(to), 1, 0, prio<<5)) }
		one(1, 2, 0) // alone
		l.at(0.001, func() {
			one(0, 2, 0) // a moment later: waits for the first
			one(0, 3, 0) // behind it, to an idle port
		})
		l.run()
	}
	l := newLone(t, nil)
	send(l)
	if got := len(l.times(3)); got != 1 || l.times(3)[0] > firstSlot+frameTime+0.002 {
		t.Errorf("queues at the egress: the idle port gets its frame at %v us", l.times(3))
	}
	l = inputLab(t, false, nil)
	send(l)
	// The second to port 2 starts when the first has been sent, the one behind it after that.
	l.wantSlots("input", map[int][]int{2: {0, 1}, 3: {2}})
	l = inputLab(t, false, nil)
	l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 0, 0))
	l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 1, 0))
	l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 2, 0))
	l.at(0.001, func() {
		l.stub[0].send(l.data(hostIP(0), hostIP(2), 1, 0, 0))
		l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 0, 5<<5))
	})
	l.run()
	if got := l.times(3); len(got) != 1 || got[0] > firstSlot+frameTime+0.002 {
		t.Errorf("the higher priority is held up by the lower: %v us", got)
	}
}

// TestReplicationModes: copies start each when its egress is free, or together; the
// packet behind waits for the last bit of the last one.
func TestReplicationModes(t *testing.T) {
	const ip = 239<<24 | 7
	for _, together := range []bool{false, true} {
		l := inputLab(t, together, nil)
		l.sw.SetMulticast(wire.MulticastEntry{Group: ip, Ports: []uint16{2, 3}, From: []uint16{0}})
		l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 0, 0))
		l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 1, 0))
		f := l.data(hostIP(0), ip, 1, 0, 0)
		l.at(0.001, func() {
			l.stub[0].send(f)
			l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 9, 0))
		})
		l.run()
		if together {
			l.wantSlots("together", map[int][]int{2: {0, 1, 2}, 3: {1, 2}})
			continue
		}
		// The copy for port 3 leaves at once (0.001 us after the slot); the one for port 2
		// takes its turn before the second packet to that port, and the packet behind
		// waits for its end.
		t3 := l.times(3)
		if len(t3) != 2 || math.Abs(t3[0]-firstSlot-0.001) > 1e-5 || math.Abs(t3[1]-firstSlot-2*frameTime) > 1e-5 {
			t.Errorf("each by itself: port 3 got frames at %v us", t3)
		}
		if got := l.slots(2); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("each by itself: port 2 got frames in slots %v", got)
		}
	}
}

// TestInputTurns: ingresses that want one egress take turns; the highest priority goes
// before all.
func TestInputTurns(t *testing.T) {
	l := inputLab(t, false, nil)
	for i := range 10 {
		for from := range 3 {
			l.stub[from].send(l.data(hostIP(from), hostIP(3), 1, wire.PSN(i), 0))
		}
	}
	l.at(0.5, func() { l.stub[loneHosts].send(l.data(10<<24|1<<8|1, hostIP(3), 1, 0, 6<<5)) })
	l.run()
	order := ""
	for _, line := range l.stub[3].got {
		src := line[strings.Index(line, "10.0."):]
		order += src[5:6] + src[7:8] + " " // 01 02 03, or 11
	}
	if strings.Count(order, " ") != 31 {
		t.Fatalf("%d frames: %s", strings.Count(order, " "), order)
	}
	plain := strings.ReplaceAll(order, "11 ", "")
	for i := 0; i+18 <= len(plain); i += 9 {
		if plain[i:i+9] != plain[i+9:i+18] {
			t.Errorf("ingresses do not take turns: %s", plain)
		}
	}
	if i := strings.Index(order, "11 "); i < 0 || i > 10*3 {
		t.Errorf("the higher priority waits: %s", order)
	}
}

// TestInputFlowControl: packets that wait in an ingress pause its neighbour, packets that pass do not;
// nothing is dropped, and a lossy class without room is, all copies of it.
func TestInputFlowControl(t *testing.T) {
	pfc := func(c *Config) {
		c.PFC = PFCConfig{Lossless: 1, XOFF: 1, XON: 1, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
	}
	l := inputLab(t, false, pfc)
	for i := range 20 {
		l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 0))
	}
	l.run()
	if st := l.sw.Stats(); st.PausesSent != 0 || st.Dropped() != 0 {
		t.Errorf("a flow alone: %d pauses, %d drops", st.PausesSent, st.Dropped())
	}
	l = inputLab(t, false, pfc)
	for i := range 5 {
		for from := range 2 {
			l.stub[from].send(l.data(hostIP(from), hostIP(3), 1, wire.PSN(i), 0))
		}
	}
	l.run()
	if st := l.sw.Stats(); st.PausesSent < 2 || st.Dropped() != 0 {
		t.Errorf("two flows: %d pauses, %d drops", st.PausesSent, st.Dropped())
	}
	l.wantSlots("two flows", map[int][]int{3: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
	l = inputLab(t, false, func(c *Config) { c.Buffer = 3000 })
	const ip = 239<<24 | 7
	l.sw.SetMulticast(wire.MulticastEntry{Group: ip, Ports: []uint16{2, 3}, From: []uint16{0, 1}})
	for i := range 6 {
		for from := range 2 {
			l.stub[from].send(l.data(hostIP(from), ip, 1, wire.PSN(i), 0))
		}
	}
	l.run()
	st := l.sw.Stats()
	if got := len(l.times(2)); st.Drops[DropBufferFull] == 0 || st.Drops[DropBufferFull]%2 != 0 || got+int(st.Drops[DropBufferFull])/2 != 12 {
		t.Errorf("without room %d copies are dropped, %d frames come", st.Drops[DropBufferFull], got)
	}
	if l.sw.Queued() != 0 || fmt.Sprint(l.slots(2)) != fmt.Sprint(l.slots(3)) {
		t.Errorf("%d copies wait, slots %v and %v", l.sw.Queued(), l.slots(2), l.slots(3))
	}
}

// TestInputPaused: a paused priority of an egress holds its packets and those behind them, and resumes
// when the pause ends.
func TestInputPaused(t *testing.T) {
	l := inputLab(t, false, nil)
	l.pause(2, 1, 0xffff)
	l.at(2, func() {
		l.stub[0].send(l.data(hostIP(0), hostIP(2), 1, 0, 0))
		l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, 0, 0))
		l.stub[1].send(l.data(hostIP(1), hostIP(2), 1, 0, 5<<5))
	})
	l.at(20, func() {
		if l.sw.Queued() != 2 || len(l.times(2)) != 1 || len(l.times(3)) != 0 {
			t.Errorf("while paused %d copies wait, ports got %v and %v", l.sw.Queued(), l.times(2), l.times(3))
		}
		l.pause(2, 1, 0)
	})
	l.run()
	if t2, t3 := l.times(2), l.times(3); len(t2) != 2 || len(t3) != 1 || t2[1] < 21 || t3[0] < t2[1]+frameTime-0.001 {
		t.Errorf("after the pause ports got %v and %v", t2, t3)
	}
}

// TestInputCarrier: packets that wait for a neighbour that has paused them start when the neighbour's
// carrier is lost, since its pause ends with it.
func TestInputCarrier(t *testing.T) {
	l := inputLab(t, false, nil)
	l.pause(2, 1, 0xffff)
	l.at(2, func() { l.stub[0].send(l.data(hostIP(0), hostIP(2), 1, 0, 0)) })
	l.at(20, func() { l.sw.SetCarrier(l.net.Now, 2, false) })
	l.run()
	if at := l.times(2); len(at) != 1 || math.Abs(at[0]-21-frameTime) > 1e-5 || l.sw.Queued() != 0 {
		t.Errorf("the frame came at %v us, %d wait", at, l.sw.Queued())
	}
}

// TestPausedAboveOthers: a priority that is paused starts nothing while lower ones of other
// ingresses take their turns, whichever ingress it waits in.
func TestPausedAboveOthers(t *testing.T) {
	for above := range loneHosts - 1 {
		for _, together := range []bool{false, true} {
			l := inputLab(t, together, nil)
			l.pause(3, 1<<4, 4000) // 20.48 us from 1.007 on
			l.at(1.2, func() {
				l.stub[above].send(l.data(hostIP(above), hostIP(3), 1, 99, 4<<5))
				for k := range 3 {
					for i := range loneHosts - 1 {
						if i != above {
							l.stub[i].send(l.data(hostIP(i), hostIP(3), 1, wire.PSN(k), 3<<5))
						}
					}
				}
			})
			l.run()
			got := psns(l.stub[3].got)
			if at := l.times(3); len(got) != 7 || got[6] != "psn=99" || at[6] < 21.4 || at[5] > 4 {
				t.Errorf("paused at ingress %d, together %v: %v arrived at %v", above, together, got, at)
			}
		}
	}
}
