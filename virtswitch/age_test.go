// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// aged registers groups, opens some of them, uses some now and then and leaves the others
// alone, at random, beside a model that knows when something of each was last heard: the
// switch has exactly the groups that are young enough, and its port loads are theirs.
func aged(t *testing.T, r *rand.Rand) *lone {
	const groups = 6
	age := vtime.Duration(1+r.IntN(5)) * vtime.Second
	if r.IntN(8) == 0 {
		age = 0
	}
	l := newLone(t, func(c *Config) { c.GroupAge = age })
	type model struct {
		there, open bool
		used        vtime.Time
	}
	var all [groups]model
	now, ages := vtime.Time(0), 0
	send := func(id uint32, h wire.MRPHeader, rec ...wire.MRPRecord) {
		h.Total = 1
		l.net.At(now, func(vtime.Time) { l.stub[0].send(l.mrp(hostIP(0), id, h, rec...)) })
		l.run()
		now = max(now, l.net.Now)
	}
	look := func() { // the model's state at this instant
		for i := range all {
			m := &all[i]
			limit := age
			if !m.open {
				limit = min(age, unopenedAge)
			}
			if m.there && age > 0 && now.Sub(m.used) >= limit {
				*m = model{}
				ages++
			}
		}
	}
	for range 60 {
		now = now.Add(vtime.Duration(1+r.IntN(1500)) * vtime.Millisecond)
		i := r.IntN(groups)
		id, m := group1+uint32(i), &all[i]
		switch r.IntN(4) {
		case 0, 1:
			look()
			before := now
			send(id, wire.MRPHeader{LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(1), QPN: 101}, wire.MRPRecord{IP: hostIP(2), QPN: 102})
			if g := l.sw.groups.get(id); g != nil && g.forgetAt == 0 {
				m.there, m.used = true, before
			}
		case 2:
			if m.there {
				m.open, m.used = true, now
				send(id, wire.MRPHeader{Flags: wire.MRPActivate}, wire.MRPRecord{IP: id})
			}
		default:
			if m.open {
				m.used = now
				l.net.At(now, func(vtime.Time) { l.stub[0].send(l.data(hostIP(0), id, 9, 5, 26<<2)) })
				l.run()
				now = max(now, l.net.Now)
			}
		}
		look()
		l.sw.Age(now)
		there := 0
		for i, m := range all {
			g, ok := l.sw.Group(group1 + uint32(i))
			if ok != m.there || ok && g.Active != m.open {
				t.Fatalf("at %v, age %v: group %d is there: %v, open: %v; heard of at %v it should be %v, %v", now, age, i, ok, g.Active, m.used, m.there, m.open)
			}
			if ok {
				there++
			}
		}
		for p := range 3 {
			if l.sw.PortLoad(p) != there {
				t.Fatalf("port %d has a load of %d with %d groups", p, l.sw.PortLoad(p), there)
			}
		}
		if l.sw.Stats().AgedOut != uint64(ages) {
			t.Fatalf("%d groups were aged out, want %d", l.sw.Stats().AgedOut, ages)
		}
	}
	return l
}

// TestAge: a group goes that nothing is heard of, when its time has come and not before; one
// of which something is heard stays.
func TestAge(t *testing.T) {
	var out, groups uint64
	for seed := range uint64(200) {
		l := aged(t, rand.New(rand.NewPCG(seed, 17)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		out += l.sw.Stats().AgedOut
		groups += uint64(len(l.sw.Groups()))
	}
	if out < 100 || groups < 100 {
		t.Errorf("%d groups were aged out, %d stayed: the test tests little", out, groups)
	}
}

// TestDeletionFindsItsWay: a deletion that is repeated for longer than the quarantine reaches
// the members each time, and the group is forgotten a quarantine after the last one.
func TestDeletionFindsItsWay(t *testing.T) {
	l := groupLab(t, nil)
	const repeats = 8
	for k := range repeats {
		l.at(float64(10_000+80_000*k), func() {
			l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete}, wire.MRPRecord{IP: group1}))
		})
	}
	l.run()
	for i := 1; i < 4; i++ {
		if len(l.stub[i].got) != repeats {
			t.Errorf("member %d got %d of %d deletions", i, len(l.stub[i].got), repeats)
		}
	}
	last := vtime.Time(10+80*(repeats-1)) * vtime.Time(vtime.Millisecond)
	if l.sw.Holding() != (Holding{}) || l.net.Now.Sub(last) < quarantineMin || l.net.Now.Sub(last) > 2*quarantineMin {
		t.Errorf("at %v the switch holds %+v", l.net.Now, l.sw.Holding())
	}
}

// TestAgeMakesRoom: a group that was left half installed neither keeps the next one out nor
// turns it to another port.
func TestAgeMakesRoom(t *testing.T) {
	l := newLone(t, func(c *Config) { c.Groups, c.GroupAge = 1, vtime.Second })
	l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(1), QPN: 101}))
	l.run()
	register := func(id uint32) {
		l.stub[0].send(l.mrp(hostIP(0), id, wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(2), QPN: 102}))
		l.run()
	}
	register(group1 + 1)
	if g := l.sw.Groups(); len(g) != 1 || g[0].McstID != group1 || l.sw.Stats().Refused != 1 {
		t.Fatalf("the table of one group has %v, %d refused", g, l.sw.Stats().Refused)
	}
	l.net.At(vtime.Time(vtime.Second+vtime.Millisecond), func(vtime.Time) {})
	l.run()
	register(group1 + 2)
	if g := l.sw.Groups(); len(g) != 1 || g[0].McstID != group1+2 || l.sw.PortLoad(1) != 0 || l.sw.PortLoad(2) != 1 {
		t.Errorf("groups %v, loads %d and %d", g, l.sw.PortLoad(1), l.sw.PortLoad(2))
	}
}
