// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestWindow: a fault is on from its beginning on for its duration, again after every, and
// each time with its probability, the same for all who ask.
func TestWindow(t *testing.T) {
	w := Window{From: 100, For: 10, Every: 50}
	for at, want := range map[vtime.Time]bool{99: false, 100: true, 109: true, 110: false, 149: false, 150: true, 160: false, 1205: true} { // independent of each other
		if w.On(at) != want {
			t.Errorf("at %d: on %v", at, !want)
		}
	}
	once := Window{From: 100, For: 10}
	if once.Over(109) || !once.Over(110) || (&Window{From: 100}).Over(1e9) {
		t.Error("a fault is over too early or never")
	}
	a := Window{For: 1, Every: 2, Probability: 0.3, Random: prng.New(1)}
	b := a
	n := 0
	for k := range vtime.Time(10000) {
		on := a.On(2 * k)
		if on != b.On(2*k) || on != a.On(2*k) {
			t.Fatalf("time %d: two answers", k)
		}
		if on {
			n++
		}
	}
	if n < 2800 || n > 3200 {
		t.Errorf("it came %d times of 10000, want about 3000", n)
	}
	k, at, ok := a.next(0)
	if !ok || at != vtime.Time(2*k) || !a.On(at) {
		t.Errorf("the next time is number %d at %v, %v", k, at, ok)
	}
}

// TestBurst: loss by Gilbert and Elliott's model has the rate and the length of bursts
// that its probabilities say.
func TestBurst(t *testing.T) {
	f := frame()
	m := Impairment{Burst: &Burst{ToBad: 0.01, ToGood: 0.25, LossBad: 1}, Random: prng.New(3)}
	const n = 200000
	lost, bursts, before := 0, 0, false
	for range n {
		v := m.Arrive(0, f)
		if v.Drop {
			lost++
			if !before {
				bursts++
			}
		}
		before = v.Drop
	}
	share, length := float64(lost)/n, float64(lost)/float64(bursts)
	if want := 0.01 / 0.26; share < want*0.9 || share > want*1.1 {
		t.Errorf("%.4f of the frames are lost, want about %.4f", share, want)
	}
	if length < 3.6 || length > 4.4 {
		t.Errorf("a burst is of %.2f frames, want about 4", length)
	}
	if m.Hit != uint64(lost) {
		t.Errorf("%d hits, %d frames lost", m.Hit, lost)
	}
}

// TestNumbers: frames are hit by their number among those that match.
func TestNumbers(t *testing.T) {
	f := frame()
	m := Impairment{Loss: 1, Numbers: map[int]bool{1: true, 3: true}}
	e := Impairment{Duplicate: 1, EveryNth: 3}
	for i := 1; i <= 9; i++ {
		if got := m.Arrive(0, f).Drop; got != (i == 1 || i == 3) {
			t.Errorf("frame %d lost: %v", i, got)
		}
		if got := e.Arrive(0, f).Twice; got != (i%3 == 0) {
			t.Errorf("frame %d doubled: %v", i, got)
		}
	}
}

// TestHold: a link that takes longer keeps the order of its frames, with jitter and when
// the fault ends.
func TestHold(t *testing.T) {
	f := frame()
	m := Impairment{Window: Window{From: 0, For: 1000}, Hold: 100, Jitter: 50, Random: prng.New(2)}
	var last vtime.Time
	for at := vtime.Time(1); at < 2000; at += 7 {
		v := m.Arrive(at, f)
		come := at.Add(v.Delay)
		if come <= last {
			t.Fatalf("a frame of %v comes at %v, one before it at %v", at, come, last)
		}
		if at < 1000 && v.Delay < 100 || at > 1200 && v.Delay != 0 {
			t.Fatalf("a frame of %v is held for %v", at, v.Delay)
		}
		last = come
	}
}

// TestMatch: predicates on frames.
func TestMatch(t *testing.T) {
	var pool wire.Pool
	make := func(op wire.OpCode, psn wire.PSN, src, dst uint32, syndrome wire.Syndrome) *wire.Frame {
		e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 9, DstPort: wire.PortRoCEv2})
		f := pool.Get()
		f.Start(&e, wire.BTH{OpCode: op, PSN: psn, DestQP: 7})
		if op == wire.OpAcknowledge {
			f.AddAETH(wire.AETH{Syndrome: syndrome})
		}
		f.Seal(0, false)
		return f
	}
	send := make(wire.OpSendOnly, 5, 1, 2, 0)
	ack := make(wire.OpAcknowledge, 0xfffffe, 2, wire.GroupNet|1, wire.SyndromeACK)
	nak := make(wire.OpAcknowledge, 3, 2, 1, wire.SyndromePSNSequence)
	pause := pool.Get()
	pause.BuildPFC(wire.PFC{})
	for i, c := range []struct {
		m    Match
		want [4]bool // send, ack, nak, pause
	}{
		{Match{}, [4]bool{true, true, true, false}},
		{Match{Classes: Data}, [4]bool{true, false, false, false}},
		{Match{Classes: ACK}, [4]bool{false, true, false, false}},
		{Match{Classes: ACK | NAK}, [4]bool{false, true, true, false}},
		{Match{Classes: PFC}, [4]bool{false, false, false, true}},
		{Match{OpCodes: []wire.OpCode{wire.OpSendOnly}}, [4]bool{true, false, false, false}},
		{Match{Src: []uint32{2}}, [4]bool{false, true, true, false}},
		{Match{Dst: []uint32{1}}, [4]bool{false, false, true, false}},
		{Match{Dst: []uint32{2}, Group: true}, [4]bool{true, true, false, false}},
		{Match{PSN: true, First: 0xfffff0, Last: 3}, [4]bool{false, true, true, false}},
		{Match{QP: 8}, [4]bool{}},
	} {
		for k, f := range []*wire.Frame{send, ack, nak, pause} {
			if got := c.m.Frame(f); got != c.want[k] {
				t.Errorf("match %d, frame %d: %v", i, k, got)
			}
		}
	}
}

// TestCut: the rest of a frame that is cut short is no frame.
func TestCut(t *testing.T) {
	var pool wire.Pool
	e := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 9, DstPort: wire.PortRoCEv2})
	for bit := range uint64(90) {
		f := pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly})
		f.SetPhantom(32)
		f.Seal(0, false)
		if bit >= uint64(f.Len()) {
			pool.Put(f)
			break
		}
		if left := reread(&pool, f, Verdict{Cut: true, Bit: bit}); left != nil {
			t.Errorf("%d bytes are still %v", bit, left)
			pool.Put(left)
		}
	}
	if pool.Live != 0 {
		t.Errorf("%d frames are not back", pool.Live)
	}
}

// TestDamaged: a frame with a flipped bit is delivered with that bit and a wrong ICRC; it is dropped if
// its headers contradict the rest. Nothing of a trusted frame is read again.
func TestDamaged(t *testing.T) {
	var pool wire.Pool
	e := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 9, DstPort: wire.PortRoCEv2})
	other, gone := 0, 0
	for bit := range uint64(8 * (wire.BTHLen + 34)) {
		f := pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly})
		block := pool.Block()
		copy(block.Fill(34), bytes.Repeat([]byte{0xff}, 34))
		f.SetPayload(block)
		f.Seal(0, false)
		pool.Damage(f, bit)
		op, want := f.OpCode(), f.AppendTo(nil)
		left := reread(&pool, f, Verdict{Damage: true, Bit: bit})
		if left == nil {
			gone++
			continue
		}
		if got := left.AppendTo(nil); !bytes.Equal(got, want) || left.CheckICRC() {
			t.Errorf("bit %d: %x with an ICRC that fits: %v, was %x", bit, got, left.CheckICRC(), want)
		}
		if op != wire.OpSendOnly {
			other++
		}
		pool.Put(left)
	}
	if other == 0 || gone == 0 || pool.Live != 0 {
		t.Errorf("%d frames have another opcode, %d have gone, %d are not back", other, gone, pool.Live)
	}
	f := pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly})
	f.Seal(0, true)
	pool.Damage(f, 1)
	if left := reread(&pool, f, Verdict{Damage: true, Bit: 1}); left != f {
		t.Errorf("a trusted frame has become %v", left)
	}
}

// script is a target that records its calls, on a clock of its own.
type script struct {
	now   vtime.Time
	calls []planned
	lines []string
	links map[topo.End]Link
}

type planned struct {
	at   vtime.Time
	keep Keep
	f    func(now vtime.Time)
}

func (s *script) say(now vtime.Time, format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf("%d ", int64(now))+fmt.Sprintf(format, args...))
}

func (s *script) At(at vtime.Time, keep Keep, f func(now vtime.Time)) {
	s.calls = append(s.calls, planned{max(at, s.now), keep, f})
}
func (s *script) SetFault(from topo.End, l Link) { s.links[from] = l }
func (s *script) SetCarrier(now vtime.Time, at topo.End, up bool) {
	s.say(now, "carrier %d:%d %v", at.Node, at.Port, up)
}
func (s *script) SetRoutes(now vtime.Time, down []int) { s.say(now, "routes without %v", down) }
func (s *script) SetRate(now vtime.Time, at topo.End, rate int64) {
	s.say(now, "rate %d:%d %d", at.Node, at.Port, rate)
}
func (s *script) Arrived(topo.End) uint64 { return uint64(s.now) }
func (s *script) Pause(now vtime.Time, node int, classes uint8, quanta uint16) {
	s.say(now, "pause %d %d %d", node, classes, quanta)
}
func (s *script) Restart(now vtime.Time, node int) int {
	s.say(now, "restart %d", node)
	return 3
}
func (s *script) EndAgent(now vtime.Time, node int) int {
	s.say(now, "end agent %d", node)
	return 3
}
func (s *script) WipeGroups(now vtime.Time, node int) int {
	s.say(now, "wipe %d", node)
	return 2
}
func (s *script) LimitGroups(now vtime.Time, node int, room int) {
	s.say(now, "room %d %d", node, room)
}
func (s *script) Refused(int) uint64                      { return uint64(s.now) }
func (s *script) Stall(now vtime.Time, node int, on bool) { s.say(now, "stall %d %v", node, on) }
func (s *script) SetIntake(now vtime.Time, node int, rate int64) {
	s.say(now, "intake %d %d", node, rate)
}
func (s *script) Waited(int) uint64 { return uint64(s.now) }

// until runs the calls up to an instant.
func (s *script) until(end vtime.Time) {
	for {
		sort.SliceStable(s.calls, func(i, j int) bool { return s.calls[i].at < s.calls[j].at })
		if len(s.calls) == 0 || s.calls[0].at > end {
			s.now = end
			return
		}
		c := s.calls[0]
		s.calls = s.calls[1:]
		s.now = c.at
		c.f(c.at)
	}
}

// play gives the faults to a timeline on a star of three and returns the calls of its target by the
// end.
func play(t *testing.T, end vtime.Time, specs ...Spec) (*script, *Timeline) {
	t.Helper()
	g, err := topo.Star(3, topo.LinkParams{Rate: 100e9, Delay: 10})
	if err != nil {
		t.Fatal(err)
	}
	s := &script{links: map[topo.End]Link{}}
	tl := NewTimeline(Config{Graph: g, Seed: 1, Reconverge: 100}, Target{s, s, s, s, s})
	for _, x := range specs {
		tl.Add(0, x)
	}
	s.until(end)
	return s, tl
}

// TestTimeline: the driver's calls for each kind, and that they are undone.
func TestTimeline(t *testing.T) {
	at := func(from vtime.Time, d vtime.Duration) Window { return Window{From: from, For: d} }
	for name, c := range map[string]struct { // independent of each other
		specs []Spec
		want  string
	}{
		"link-down": {[]Spec{{Kind: KindLinkDown, Window: at(50, 20), Links: []int{1}}},
			"50 carrier 1:0 false, 50 carrier 3:1 false, 70 carrier 1:0 true, 70 carrier 3:1 true, 150 routes without [1], 170 routes without []"},
		"two over one link": {[]Spec{{Kind: KindLinkDown, Window: at(50, 20), Links: []int{1}}, {ID: "b", Kind: KindCrash, Window: at(60, 20), Nodes: []int{1}}},
			"50 carrier 1:0 false, 50 carrier 3:1 false, 60 restart 1, 80 carrier 1:0 true, 80 carrier 3:1 true, 150 routes without [1], 180 routes without []"},
		"crash of the switch": {[]Spec{{Kind: KindCrash, Window: at(5, 0), Nodes: []int{3}}},
			"5 restart 3, 5 carrier 0:0 false, 5 carrier 3:0 false, 5 carrier 1:0 false, 5 carrier 3:1 false, 5 carrier 2:0 false, 5 carrier 3:2 false, 105 routes without [0 1 2]"},
		"crash of an agent": {[]Spec{{Kind: KindAgentCrash, Window: at(50, 20), Nodes: []int{1}}},
			"50 end agent 1, 50 carrier 1:0 false, 50 carrier 3:1 false, 70 carrier 1:0 true, 70 carrier 3:1 true, 150 routes without [1], 170 routes without []"},
		"rate-cut": {[]Spec{{Kind: KindRateCut, Window: at(5, 20), Links: []int{0}, Rate: 7}, {ID: "b", Kind: KindRateCut, Window: at(10, 5), Links: []int{0}, Rate: 3}},
			"5 rate 0:0 7, 5 rate 3:0 7, 10 rate 0:0 3, 10 rate 3:0 3, 15 rate 0:0 7, 15 rate 3:0 7, 25 rate 0:0 100000000000, 25 rate 3:0 100000000000"},
		"stall twice": {[]Spec{{Kind: KindStall, Window: Window{From: 1, For: 2, Every: 10}, Nodes: []int{2}}},
			"1 stall 2 true, 3 stall 2 false, 11 stall 2 true, 13 stall 2 false"},
		"room":  {[]Spec{{Kind: KindRoom, Window: at(1, 5), Nodes: []int{3}, Room: 4}}, "1 room 3 4, 6 room 3 -1"},
		"slow":  {[]Spec{{Kind: KindSlowReceiver, Window: at(1, 5), Nodes: []int{0}, Rate: 9}}, "1 intake 0 9, 6 intake 0 0"},
		"wipe":  {[]Spec{{Kind: KindWipe, Window: Window{From: 1, Every: 15}, Nodes: []int{3}}}, "1 wipe 3, 16 wipe 3"},
		"storm": {[]Spec{{Kind: KindPauseStorm, Window: at(1, 10), Nodes: []int{0}, Priority: 3, Gap: 4}}, "1 pause 0 8 65535, 5 pause 0 8 65535, 9 pause 0 8 65535"},
		"pause": {[]Spec{{Kind: KindPause, Window: at(1, 10), Nodes: []int{0}, Priority: 2}}, "1 pause 0 4 65535, 11 pause 0 4 0"},
	} {
		end := vtime.Time(20)
		if strings.Contains(c.want, "routes") || strings.Contains(c.want, "rate") {
			end = 1000
		}
		s, _ := play(t, end, c.specs...)
		if got := strings.Join(s.lines, ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestPauseAgain: a pause that comes again is renewed while it is on. When it is off nothing is
// left to be called but its next beginning, which nobody waits for.
func TestPauseAgain(t *testing.T) {
	const us = vtime.Microsecond
	w := Window{From: 1, For: 200 * us, Every: 400 * us}
	s, _ := play(t, vtime.Time(210*us), Spec{Kind: KindPause, Window: w, Nodes: []int{0}})
	if got := strings.Join(s.lines, ", "); got != "1 pause 0 1 65535, 167769601 pause 0 1 65535, 200000001 pause 0 1 0" {
		t.Error(got)
	}
	if len(s.calls) != 1 || s.calls[0].at != vtime.Time(400*us)+1 || s.calls[0].keep != KeepNot {
		t.Errorf("there are the calls %+v", s.calls)
	}
	s, _ = play(t, 1, Spec{Kind: KindPause, Window: w, Nodes: []int{0}})
	for _, c := range s.calls {
		if c.keep == KeepAlways {
			t.Errorf("%+v keeps the run going", c)
		}
	}
}

// TestAgentComesBack: an agent that has crashed is restarted whether or not a program waits for
// it. A crashed node is restarted only if a program waits for it.
func TestAgentComesBack(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		want Keep
	}{{KindAgentCrash, KeepAlways}, {KindCrash, KeepWhile}} {
		s, _ := play(t, 60, Spec{Kind: c.kind, Window: Window{From: 50, For: 20}, Nodes: []int{1}})
		back := slices.IndexFunc(s.calls, func(p planned) bool { return p.at == 70 })
		if back < 0 || s.calls[back].keep != c.want {
			t.Errorf("%s: at 60 there are the calls %+v", c.kind, s.calls)
		}
	}
}

// TestCarrierLoss: frames under way when a link goes down are lost, earlier ones are not, and nothing
// is once it is back.
func TestCarrierLoss(t *testing.T) {
	s, tl := play(t, 55, Spec{ID: "d", Kind: KindLinkDown, Window: Window{From: 50, For: 20}, Links: []int{0}})
	f := frame()
	l := s.links[topo.End{}]
	for _, c := range []struct {
		at   vtime.Time
		lost bool
	}{{50, true}, {69, true}, {70, true}, {79, true}, {80, false}, {200, false}} {
		s.until(c.at)
		if v := l.Arrive(c.at, f); v.Drop != c.lost {
			t.Errorf("a frame that comes at %v is lost: %v", c.at, v.Drop)
		}
	}
	if st := tl.List(s.now)[0]; st.Hit != 4 || st.On || !st.Over || !slices.Equal(st.Applied, []string{"h0:0", "leaf0:0"}) {
		t.Errorf("status %+v", st)
	}
}

// TestRemove: a fault that is removed is taken back at once, and does not come again.
func TestRemove(t *testing.T) {
	s, tl := play(t, 12,
		Spec{ID: "a-1", Kind: KindStall, Window: Window{From: 1, For: 5, Every: 10}, Nodes: []int{2}},
		Spec{ID: "b-1", Kind: KindLoss, Ends: []topo.End{{}}, Frames: Impairment{Loss: 1}})
	s.lines = nil
	if got := tl.Remove(12, "a-"); !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("removed %v", got)
	}
	s.until(100)
	if got := strings.Join(s.lines, ", "); got != "12 stall 2 false" {
		t.Errorf("after removal: %s", got)
	}
	if v := s.links[topo.End{}].Arrive(100, frame()); !v.Drop || len(tl.List(100)) != 1 {
		t.Error("the other fault is gone, too")
	}
	tl.Remove(100, "")
	if s.links[topo.End{}] != nil || len(tl.List(100)) != 0 {
		t.Error("a fault is left")
	}
}

func (s *script) SetControl(now vtime.Time, crashed []string, cut []Way) {
	s.say(now, "control %v %v", crashed, cut)
}

func (s *script) HeldBack(cut []Way) uint64 { return uint64(len(cut)) }

// TestRoutesOnTheirWay: links that flap faster than routes converge leave a bounded number
// of changes waiting, and switches have the state of the links in the end.
func TestRoutesOnTheirWay(t *testing.T) {
	s, tl := play(t, 0)
	tl.c.Reconverge = 30_000
	link := []int{0}
	tl.Add(0, Spec{ID: "0", Kind: KindLinkDown, Window: Window{For: 10, Every: 20}, Links: link})
	tl.Add(0, Spec{ID: "1", Kind: KindLinkDown, Window: Window{From: 60_000, For: vtime.Second}, Links: link})
	most := 0
	for at := vtime.Time(0); at < 60_100; at += 1000 {
		s.until(at)
		most = max(most, len(s.calls))
	}
	tl.Remove(s.now, "0")
	s.until(s.now.Add(2 * tl.c.Reconverge))
	last := ""
	for _, l := range s.lines {
		if strings.Contains(l, "routes without") {
			last = l
		}
	}
	if most < routesMax || most > routesMax+4 || !strings.HasSuffix(last, "routes without [0]") {
		t.Errorf("%d calls waited, and in the end there was: %s", most, last)
	}
}
