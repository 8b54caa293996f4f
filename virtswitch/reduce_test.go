// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// registerReduce installs hosts 0 to 3 as members of a reduction. Its leader is host 0, or
// behind the given port if that is not 0.
func (l *lone) registerReduce(id uint32, leader int) {
	l.t.Helper()
	ip := hostIP(leader)
	if leader != 0 {
		ip = 10<<24 | 2<<8 | 1 // block 2
	}
	var records []wire.MRPRecord
	for i := range loneHosts {
		if hostIP(i) != ip {
			records = append(records, wire.MRPRecord{IP: hostIP(i), QPN: wire.QPN(100 + i)})
		}
	}
	l.stub[leader].send(l.mrp(ip, id, wire.MRPHeader{Total: 1, Flags: wire.MRPReduce, LeaderQPN: 100}, records...))
	l.run()
	l.stub[leader].send(l.mrp(ip, id, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5}))
	l.run()
	for i := range l.stub {
		l.stub[i].got = nil
	}
}

// reducePacket builds a packet of a reduction.
func (l *lone) reducePacket(src, group uint32, m wire.ReduceImm, data []byte) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: group, TTL: 9, SrcPort: 1, DstPort: wire.PortRoCEv2, Traffic: 26 << 2})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpUDSendOnlyImm, PKey: wire.PKeyDefault, DestQP: wire.QPNGSI})
	f.AddDETH(wire.DETH{QKey: wire.ReduceQKey, SrcQP: 9})
	f.AddImm(m.Imm())
	if len(data) > 0 {
		b := l.net.Pool.Block()
		copy(b.Fill(len(data)), data)
		f.SetPayload(b)
	}
	f.Seal(1, false)
	return f
}

// numbers lays out 32-bit integers.
func numbers(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func floats(v ...float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// gives sends a host's part of a chunk; without data the host is the one that gets the sum.
func (l *lone) gives(i int, chunk uint32, data []byte) {
	l.t.Helper()
	l.stub[i].send(l.reducePacket(hostIP(i), group1, wire.ReduceImm{Own: len(data) == 0, Chunk: chunk}, data))
	l.run()
}

// came returns the packets that have arrived at each port since the last call, for example "1:done 3,
// 2:result 3 05000000".
func (l *lone) came() string {
	var all []string
	for i, s := range l.stub {
		for _, f := range s.raw {
			m := wire.ReduceImmOf(f.Imm())
			text := fmt.Sprintf("%d:%s %d", i, map[wire.ReduceKind]string{wire.ReduceGive: "give", wire.ReduceResult: "result", wire.ReduceDone: "done"}[m.Kind], m.Chunk)
			if m.Own {
				text += " own"
			}
			if b := f.PayloadBytes(); b != nil {
				text += fmt.Sprintf(" %x", b)
			} else if f.Phantom() {
				text += fmt.Sprintf(" phantom %d", f.PayloadLen())
			}
			migReq := f.AppendTo(nil)[wire.EthernetLen+wire.IPv4Len+wire.UDPLen+1]&0x40 != 0
			if !migReq || !f.CheckICRC() || f.DETH().QKey != wire.ReduceQKey || i < loneHosts && (f.DestQP() != wire.QPN(100+i) || f.DstIP() != hostIP(i) || f.SrcIP() != group1) {
				text += fmt.Sprintf(" astray: %v", f)
			}
			all = append(all, text)
			l.net.Pool.Put(f)
		}
		s.raw, s.got = nil, nil
	}
	return strings.Join(all, ", ")
}

func reduceLab(t *testing.T, leader int) *lone {
	l := newLone(t, nil)
	l.registerReduce(group1, leader)
	for i := range l.stub {
		l.stub[i].keep = true
	}
	return l
}

// expect compares the packets that arrived.
func (l *lone) expect(what, want string) {
	l.t.Helper()
	if got := l.came(); got != want {
		l.t.Errorf("%s: got %q\nwant %q", what, got, want)
	}
}

// TestReduceRoot: the root answers when all have given, the sum to the member it is for.
// What comes twice is not added twice; after the answer it is answered again, to the one
// that asked.
func TestReduceRoot(t *testing.T) {
	l := reduceLab(t, 0)
	l.gives(0, 0, numbers(1, 0xffffffff))
	l.gives(1, 0, numbers(10, 2))
	l.gives(1, 0, numbers(10, 2))
	l.gives(2, 0, nil)
	l.expect("before the last", "")
	l.gives(3, 0, numbers(100, 3))
	l.expect("the answer", "0:done 0, 1:done 0, 2:result 0 6f00000004000000, 3:done 0")
	l.gives(2, 0, nil)
	l.expect("asked again by the owner", "2:result 0 6f00000004000000")
	l.gives(0, 0, numbers(1, 0xffffffff))
	l.expect("asked again by another", "0:done 0")
	// The next chunks of the slot, each for another member; the memory is used again.
	for round := uint32(1); round < 5; round++ {
		chunk, owner := round*2*wire.ReduceWindow, int(round)%4
		for i := range 4 {
			if i == owner {
				l.gives(i, chunk, nil)
			} else {
				l.gives(i, chunk, numbers(round))
			}
		}
		got := l.came()
		if want := fmt.Sprintf("%d:result %d %x", owner, chunk, numbers(3*round)); !strings.Contains(got, want) || strings.Count(got, "done") != 3 {
			t.Errorf("chunk %d: got %q, want %q among them", chunk, got, want)
		}
	}
	l.gives(0, 0, numbers(1, 2))
	l.expect("a late one", "")
	if n := l.sw.Stats().Drops[DropReduceChunk]; n != 1 {
		t.Errorf("%d packets of past chunks are counted, want 1", n)
	}
	if st := l.sw.Stats(); st.ReducedIn != 20 || st.ReducedOut != 6 {
		t.Errorf("%d parts and %d sums are counted, want 20 and 6", st.ReducedIn, st.ReducedOut)
	}
}

// TestReduceUp: below the root the sum goes up, again when asked again, and the answer
// down; a repeat after that is answered here.
func TestReduceUp(t *testing.T) {
	const up = loneHosts + 1 // where the leader is
	l := reduceLab(t, up)
	answer := func(kind wire.ReduceKind, data []byte) {
		l.stub[up].send(l.reducePacket(10<<24|9, group1, wire.ReduceImm{Kind: kind}, data))
		l.run()
	}
	give := func() {
		for i := range 4 {
			if i == 3 {
				l.gives(i, 0, nil)
			} else {
				l.gives(i, 0, numbers(uint32(i)+1))
			}
		}
	}
	answer(wire.ReduceResult, numbers(50))
	l.expect("an answer to nothing", "")
	give()
	l.expect("up", "5:give 0 own 06000000")
	l.gives(1, 0, numbers(2))
	l.expect("up again", "5:give 0 own 06000000")
	answer(wire.ReduceDone, nil)
	l.expect("no sum, and the owner is below", "")
	answer(wire.ReduceResult, numbers(50))
	l.expect("down", "0:done 0, 1:done 0, 2:done 0, 3:result 0 32000000")
	answer(wire.ReduceResult, numbers(50))
	l.expect("down again", "")
	l.gives(3, 0, nil)
	l.gives(2, 0, numbers(3))
	l.expect("asked again", "2:done 0, 3:result 0 32000000")
	want := map[DropReason]uint64{DropReduceChunk: 1, DropMalformed: 1}
	for _, r := range DropReasons() {
		if got := l.sw.Stats().Drops[r]; got != want[r] {
			t.Errorf("%d drops for %v, want %d", got, r, want[r])
		}
	}
}

// TestReduceFloat: floating-point numbers are added in the order of ports, whatever the
// order in which they come.
func TestReduceFloat(t *testing.T) {
	v := []float32{1, 1.0 / (1 << 24), 1.0 / (1 << 24), 0.25}
	want := floats((v[0] + v[1]) + v[2])
	if other := floats(v[0] + (v[1] + v[2])); string(other) == string(want) {
		t.Fatal("the order makes no difference")
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}} {
		l := reduceLab(t, 0)
		for _, i := range order {
			m, data := wire.ReduceImm{Float32: true, Own: i == 3}, floats(v[i])
			if i == 3 {
				data = nil
			}
			l.stub[i].send(l.reducePacket(hostIP(i), group1, m, data))
			l.run()
		}
		l.expect(fmt.Sprint(order), fmt.Sprintf("0:done 0, 1:done 0, 2:done 0, 3:result 0 %x", want))
	}
}

// TestReducePhantom: lengths add up to a length.
func TestReducePhantom(t *testing.T) {
	l := reduceLab(t, 0)
	for i := range 4 {
		f := l.reducePacket(hostIP(i), group1, wire.ReduceImm{Own: i == 0}, nil)
		if i > 0 {
			f.SetPhantom(64)
			f.Seal(1, false)
		}
		l.stub[i].send(f)
		l.run()
	}
	l.expect("the answer", "0:result 0 phantom 64, 1:done 0, 2:done 0, 3:done 0")
}

// TestReduceGuards: invalid packets are dropped, each for its reason, and change nothing.
func TestReduceGuards(t *testing.T) {
	l := reduceLab(t, 0)
	l.gives(0, 3, numbers(1, 2))
	l.gives(1, 3, nil)
	send := func(from int, m wire.ReduceImm, data []byte, damage bool) {
		f := l.reducePacket(hostIP(from), group1, m, data)
		if damage {
			l.net.Pool.Damage(f, 700)
		}
		l.stub[from].send(f)
		l.run()
	}
	for _, c := range []struct {
		name   string
		m      wire.ReduceImm
		data   []byte
		damage bool
		want   DropReason
	}{
		{"damaged", wire.ReduceImm{Chunk: 3}, numbers(1, 2), true, DropICRC},
		{"too short", wire.ReduceImm{Chunk: 3}, numbers(1), false, DropMalformed},
		{"half a number", wire.ReduceImm{Chunk: 3}, make([]byte, 6), false, DropMalformed},
		{"nothing", wire.ReduceImm{Chunk: 3}, nil, false, DropMalformed},
		{"other numbers", wire.ReduceImm{Chunk: 3, Float32: true}, numbers(1, 2), false, DropMalformed},
		{"a second owner", wire.ReduceImm{Chunk: 3, Own: true}, nil, false, DropMalformed},
		{"the slot's next before its time", wire.ReduceImm{Chunk: 3 + 2*wire.ReduceWindow}, numbers(1, 2), false, DropReduceChunk},
		{"far ahead", wire.ReduceImm{Chunk: 4 + 4*wire.ReduceWindow}, numbers(1, 2), false, DropReduceChunk},
		{"an answer from a member", wire.ReduceImm{Kind: wire.ReduceResult, Chunk: 3}, numbers(1, 2), false, DropGroupOp},
		{"no kind", wire.ReduceImm{Kind: 3, Chunk: 3}, numbers(1, 2), false, DropGroupOp},
	} {
		before := l.sw.Stats().Drops
		send(2, c.m, c.data, c.damage)
		if got := l.sw.Stats().Drops[c.want] - before[c.want]; got != 1 {
			t.Errorf("%s: not dropped as %v: %v", c.name, c.want, l.sw.Stats().Drops)
		}
		l.expect(c.name, "")
	}
	before := l.sw.Stats().Drops[DropGroupOp]
	l.stub[2].send(l.data(hostIP(2), group1, 9, 5, 26<<2))
	l.run()
	if l.sw.Stats().Drops[DropGroupOp] != before+1 {
		t.Error("data of a reliable connection passes a reduction")
	}
	l.gives(2, 3, numbers(10, 20))
	l.gives(3, 3, numbers(100, 200))
	l.expect("after all that", "0:done 3, 1:result 3 6f000000de000000, 2:done 3, 3:done 3")
}

// TestReduceRoom: a switch takes ReductionsMax reductions and refuses the next; a deleted one makes
// room when its McstID may be used again.
func TestReduceRoom(t *testing.T) {
	l := newLone(t, nil)
	for i := range uint32(ReductionsMax) {
		l.registerReduce(group1+i, 0)
	}
	refused := func(id uint32) bool {
		l.registerReduce(id, 0)
		_, ok := l.sw.Group(id)
		return !ok
	}
	if !refused(group1 + 100) {
		t.Error("one reduction more than there is room for")
	}
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete, LeaderQPN: 100}, wire.MRPRecord{IP: group1}))
	l.run()
	l.at(float64((l.net.Now+vtime.Time(vtime.Second))/vtime.Time(vtime.Microsecond)), func() {})
	l.run()
	if refused(group1 + 101) {
		t.Error("a deleted reduction keeps its room")
	}
	l.sw.WipeGroups()
	if refused(group1 + 102) {
		t.Error("a switch that forgot all groups has no room")
	}
}

// TestReduceTranscript: two chunks of the root's table, one of them with a repeat, frame by
// frame.
func TestReduceTranscript(t *testing.T) {
	l := newLone(t, nil)
	l.registerReduce(group1, 0)
	var log strings.Builder
	l.net.Log = &log
	for i := range 4 {
		for chunk := range uint32(2) {
			if i == int(chunk)+1 {
				l.gives(i, chunk, nil)
			} else {
				l.gives(i, chunk, numbers(uint32(i), chunk))
			}
		}
	}
	l.gives(2, 1, nil)
	machinetest.Golden(t, "reduce", log.String())
}
