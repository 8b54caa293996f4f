// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

func frame() *wire.Frame {
	var p wire.Pool
	e := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 9, DstPort: wire.PortRoCEv2})
	f := p.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly})
	f.Seal(0, false)
	return f
}

// TestImpairment: each kind of fault hits as often as its probability says, within
// its time, and pause frames never.
func TestImpairment(t *testing.T) {
	f := frame()
	var p wire.Pool
	pause := p.Get()
	pause.BuildPFC(wire.PFC{})
	m := Impairment{
		Loss: 0.1, Corrupt: 0.1, Duplicate: 0.2, Reorder: 0.3, Delay: vtime.Microsecond,
		Window: Window{From: 1000, For: 1000}, Random: prng.New(1),
	}
	const n = 20000
	var drop, damage, twice, late int
	for i := range n {
		for _, at := range []vtime.Time{999, 2000} {
			if v := m.Arrive(at, f); v != (Verdict{}) {
				t.Fatalf("hit at %v, outside its time", at)
			}
		}
		if v := m.Arrive(1500, pause); v != (Verdict{}) {
			t.Fatal("a pause frame was hit")
		}
		v := m.Arrive(vtime.Time(1000+i%1000), f)
		for _, c := range []struct {
			hit bool
			n   *int
		}{{v.Drop, &drop}, {v.Damage, &damage}, {v.Twice, &twice}, {v.Delay > 0, &late}} {
			if c.hit {
				*c.n++
			}
		}
		if v.Delay > vtime.Microsecond+1 || v.Delay2 > vtime.Microsecond+1 {
			t.Fatalf("held back for %v, at most 1us is allowed", v.Delay)
		}
	}
	for _, c := range []struct {
		name string
		got  int
		p    float64
	}{{"lost", drop, 0.1}, {"damaged", damage, 0.09}, {"doubled", twice, 0.2}, {"held back", late, 0.3}} {
		if want := int(c.p * n); c.got < want*9/10 || c.got > want*11/10 {
			t.Errorf("%d frames %s of %d, want about %d", c.got, c.name, n, want)
		}
	}
	if m.Seen != n || m.Hit < n/3 {
		t.Errorf("%d seen, %d hit", m.Seen, m.Hit)
	}
}

func TestNthAndChain(t *testing.T) {
	f := frame()
	all := func(*wire.Frame) bool { return true }
	a, b := &Nth{Match: all, Drop: map[int]bool{2: true}}, &Nth{Match: all, Drop: map[int]bool{2: true}}
	c := Chain{a, b}
	var got []bool
	for range 4 {
		got = append(got, c.Arrive(0, f).Drop)
	}
	// The frame that a drops is never seen by b, whose second is the third.
	for i, want := range []bool{false, true, true, false} {
		if got[i] != want {
			t.Errorf("frame %d dropped %v, want %v", i+1, got[i], want)
		}
	}
}
