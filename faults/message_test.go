// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/test/golden"
)

var replicas = []string{"controller0", "controller1", "controller2"}

func messageGraph(t testing.TB) *topo.Graph {
	t.Helper()
	g, err := topo.Star(3, topo.LinkParams{Rate: 100e9, Delay: 10})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// drawSpec returns a fault of a kind with whatever that can have.
func drawSpec(r *prng.Stream, k Kind, g *topo.Graph) Spec {
	some := func() bool { return r.Chance(0.5) }
	span := func() vtime.Duration { return vtime.Duration(r.Float64() * float64(vtime.Second)) }
	s := Spec{Kind: k, Window: Window{From: vtime.Time(span()), For: span(), Probability: r.Float64()}}
	if some() {
		s.Every = s.For + 1
	}
	switch {
	case k.OfFrames():
		s.Ends = []topo.End{{Node: 1}, {Node: 3, Port: 2}}
		s.Frames = drawFrames(r, k, g)
	case k.OfLinks():
		s.Links = []int{2, 0}
	case k.OfControl():
		s.Controllers = replicas[1:]
		if k == KindControlPartition {
			s.Cut = []Way{{replicas[1], replicas[0]}, {replicas[0], replicas[2]}}
		}
	default:
		s.Nodes = []int{3, 1}
	}
	switch k {
	case KindRateCut, KindSlowReceiver:
		s.Rate = 1 + int64(r.Uint64()>>20)
	case KindPause, KindPauseStorm:
		s.Priority, s.Gap = uint8(r.IntN(8)), 1+span()
	case KindRoom:
		s.Room = r.IntN(100)
	}
	return s
}

func drawFrames(r *prng.Stream, k Kind, g *topo.Graph) Impairment {
	i := Impairment{Delay: 5}
	p := map[Kind]*float64{KindLoss: &i.Loss, KindCorrupt: &i.Corrupt, KindTruncate: &i.Truncate, KindDuplicate: &i.Duplicate, KindReorder: &i.Reorder}[k]
	if p != nil {
		*p = r.Float64()
	} else {
		i.Hold, i.Jitter = 7, vtime.Duration(r.IntN(9))
	}
	switch r.IntN(4) {
	case 0:
		i.Burst = &Burst{ToBad: r.Float64(), ToGood: r.Float64(), LossGood: r.Float64(), LossBad: 1}
	case 1:
		i.Numbers = map[int]bool{1 + r.IntN(9): true, 17: true}
	case 2:
		i.EveryNth = 1 + r.IntN(9)
	}
	if r.Chance(0.5) {
		m := &Match{Classes: Class(r.IntN(256)), Group: r.Chance(0.5), QP: wire.QPN(r.IntN(1 << 24))}
		if r.Chance(0.5) {
			m.OpCodes = []wire.OpCode{wire.OpSendOnly, wire.OpAcknowledge}
		}
		if r.Chance(0.5) {
			m.Src, m.Dst = []uint32{g.Nodes[2].IP}, []uint32{g.Nodes[0].IP, g.Nodes[1].IP}
		}
		if r.Chance(0.5) {
			m.PSN, m.First, m.Last = true, 0xfffff0, wire.PSN(r.IntN(99))
		}
		i.Match = m
	}
	return i
}

// TestMessage: every fault comes out of its message as it went in, the same one has the same
// bytes, and a message that was cut off anywhere is an error.
func TestMessage(t *testing.T) {
	g, r := messageGraph(t), prng.New(5)
	for _, k := range Kinds() {
		for range 100 {
			s := drawSpec(&r, k, g)
			b, err := Encode(&s, g)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(b, g, replicas)
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			if !reflect.DeepEqual(got, s) {
				t.Fatalf("%s:\n%+v\nwent in as\n%+v", b, got, s)
			}
			if again, err := Encode(&got, g); err != nil || string(again) != string(b) {
				t.Fatalf("%s\ncomes back as\n%s, %v", b, again, err)
			}
			for n := range b {
				if _, err := Decode(b[:n:n], g, replicas); err == nil {
					t.Fatalf("%s is taken for a fault", b[:n])
				}
			}
		}
	}
}

// TestMessageGolden: the bytes of a message of each kind do not change under the schema's name, since
// logs hold them.
func TestMessageGolden(t *testing.T) {
	g, r := messageGraph(t), prng.New(6)
	var all []byte
	for _, k := range Kinds() {
		s := drawSpec(&r, k, g)
		b, err := Encode(&s, g)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, b...), '\n')
	}
	golden.Compare(t, "testdata/messages.golden", string(all))
}

// TestMessageRefused: invalid messages are refused, each with one line that names the reason.
func TestMessageRefused(t *testing.T) {
	g := messageGraph(t)
	const head = `{"schema":"mcastlab/fault/v1","kind":`
	for in, want := range map[string]string{ // independent of each other
		`{"schema":"mcastlab/fault/v2","color":1}`:                     `"mcastlab/fault/v2", and this version reads "mcastlab/fault/v1"`,
		`{"kind":"crash"}`:                                             `the schema is "", and this version reads`,
		head + `"crash","color":1}`:                                    `unknown field "color"`,
		head + `"crash"} {}`:                                           `invalid character`,
		head + `"flood"}`:                                              `no kind "flood"`,
		head + `"crash","nodes":["h7"]}`:                               `no node "h7"`,
		head + `"link-down","links":["h0:0"]}`:                         `no link "h0:0"`,
		head + `"loss","frames":{},"ends":["h0:1"]}`:                   `no port "h0:1"`,
		head + `"loss","frames":{"match":{"from":["leaf0"]}}}`:         `no host "leaf0"`,
		head + `"loss","frames":{"match":{"classes":["big"]}}}`:        `no class of frames "big"`,
		head + `"loss","frames":{"match":{"opcodes":["X"]}}}`:          `no opcode "X"`,
		head + `"loss","frames":{"match":{"psns":[0,16777216]}}}`:      `16777216 is not a PSN`,
		head + `"loss","frames":{"numbers":[0]}}`:                      `counted from 1`,
		head + `"loss"}`:                                               `kind loss needs the field frames`,
		head + `"crash","frames":{}}`:                                  `kind crash has no field frames`,
		head + `"loss","frames":{"loss":1.5}}`:                         `1.5 is not a probability`,
		head + `"crash","for":-1}`:                                     `a duration of -1 ps`,
		head + `"crash","from":-1}`:                                    `begins at -1 ps`,
		head + `"pause","priority":8}`:                                 `priority 8`,
		head + `"pause-storm"}`:                                        `no gap`,
		head + `"rate-cut"}`:                                           `0 bit/s is not a rate`,
		head + `"mft-full","room":-1}`:                                 `room -1`,
		head + `"controller-crash","controllers":["controller9"]}`:     `no controller "controller9"`,
		head + `"control-partition","cut":[{"from":"x","to":"here"}]}`: `no controller "x"`,
	} {
		_, err := Decode([]byte(in), g, replicas)
		if err == nil || !strings.HasPrefix(err.Error(), "read fault: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	s := Spec{ID: "f", Kind: KindLoss, Frames: Impairment{Match: MatchFunc(func(*wire.Frame) bool { return true })}}
	if _, err := Encode(&s, g); err == nil || !strings.Contains(err.Error(), "write fault f: it selects frames by a function") {
		t.Errorf("a function as a message: %v", err)
	}
}

// FuzzDecode: whatever comes is refused, or is a fault with which a timeline works and whose
// message says the same.
func FuzzDecode(f *testing.F) {
	g, r := messageGraph(f), prng.New(7)
	for _, k := range Kinds() {
		s := drawSpec(&r, k, g)
		b, err := Encode(&s, g)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"schema":"mcastlab/fault/v1","kind":"crash","controllers":[],"nodes":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b, g, replicas)
		if err != nil {
			return
		}
		again, err := Encode(&s, g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(again, g, replicas)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%s: %v", again, err)
		}
		d := &script{links: map[topo.End]Link{}}
		tl := NewTimeline(Config{Graph: g, Seed: 1, Reconverge: 100}, Target{d, d, d, d, d})
		tl.Add(0, s)
		for range 100 {
			if len(d.calls) == 0 {
				break
			}
			c := d.calls[0]
			d.calls = d.calls[1:]
			d.now = max(d.now, c.at)
			c.f(d.now)
		}
		tl.Remove(d.now, "")
	})
}
