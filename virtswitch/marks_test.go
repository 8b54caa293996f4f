// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// burst has hosts send to one host more than its port takes, with any life left, to a
// switch with little buffer. The hosts ignore pauses, so that headroom is overrun too.
func burst(t *testing.T, r *rand.Rand) *lone {
	l := newLone(t, func(c *Config) {
		c.Buffer = 60000
		c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 2000, Headroom: []int{3000, 3000, 3000, 3000, 3000, 3000}}
	})
	for range 200 + r.IntN(200) {
		i := r.IntN(loneHosts - 1)
		f := l.data(hostIP(i), hostIP(loneHosts-1), uint16(r.Uint32()), 1, uint8(r.IntN(2)*26<<2))
		for ttl := uint8(1 + r.IntN(9)); f.TTL() > ttl; {
			f.DecTTL()
		}
		l.stub[i].send(f)
	}
	l.run()
	return l
}

// flooded has members acknowledge more than a slow feedback processor holds.
func flooded(t *testing.T, r *rand.Rand) *lone {
	l := groupLab(t, func(c *Config) { c.FeedbackDelay = 10 * vtime.Millisecond })
	for k := range deferredMax + 1 + r.IntN(deferredMax) {
		i := 1 + r.IntN(3)
		l.sw.HandleFrame(l.net.Now, i, l.ack(i, wire.PSN(5+k), wire.SyndromeACK))
	}
	l.run()
	return l
}

// damaged has members send acknowledgements of which a random bit is wrong.
func damaged(t *testing.T, r *rand.Rand) *lone {
	l := groupLab(t, nil)
	for k := range 20 {
		i := 1 + r.IntN(3)
		f := l.ack(i, wire.PSN(5+k), wire.SyndromeACK)
		l.net.Pool.Damage(f, r.Uint64())
		l.stub[i].send(f)
	}
	l.run()
	return l
}

// oneOf returns one of some values.
func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// noiseConfig draws a switch with any of its features, among them too little of everything.
func noiseConfig(t *testing.T, r *rand.Rand, c *Config) {
	fuzzConfig(c, []byte{byte(r.Uint32())})
	name := oneOf(r, "", "fixed", "fixed", "cepheus", "gleam", "nonesuch")
	rules, err := RulesByName(name)
	if (err != nil) != (name == "nonesuch") {
		t.Fatalf("rules %q: %v", name, err)
	}
	c.Rules, c.Groups, c.FanOut = rules, oneOf(r, 0, 1, 2, 3), oneOf(r, 0, 0, 1, 2)
	c.FIB.SetRoute(5, 0) // 3 and 4 have none
	if r.IntN(3) == 0 {
		c.ECN = ECNConfig{Classes: 1 << 3, Kmin: []int{0, 100, 2000, 0, 3000, 0}, Kmax: []int{1, 3000, 3000, 1, 3000, 1}, Pmax: 0.5}
	}
	if r.IntN(4) == 0 {
		c.PFC, c.Buffer = PFCConfig{}, 3000
	}
	if r.IntN(6) == 0 {
		c.Input = &InputConfig{Together: r.IntN(2) == 0}
	}
}

// noise has hosts send anything, right or wrong, about two groups and a multicast address:
// registrations with and without regions, activations, deletions, data, WRITEs,
// announcements, feedback, pauses, and all of it with hardly any life left.
func noise(t *testing.T, r *rand.Rand) *lone {
	l := newLone(t, func(c *Config) { noiseConfig(t, r, c) })
	any239 := func() uint32 { return 239<<24 | uint32(r.IntN(3)) }
	for range 30 + r.IntN(100) {
		i := oneOf(r, 0, 0, 0, 1, 2, 3, 4)
		src, id := hostIP(i), oneOf[uint32](r, group1, group1, group1, group1+1)
		attempt := oneOf[uint32](r, 0, 0, 0, 0, 0, 0, 1, 2)
		var f *wire.Frame
		switch r.IntN(14) {
		case 0:
			f = l.listing(id, uint8(r.IntN(2)), oneOf(r, []int{1, 2, 3}, []int{1}, []int{2, 3})...)
		case 1:
			var rec []wire.MRPRecord
			for _, h := range r.Perm(loneHosts)[:1+r.IntN(3)] {
				ip := hostIP(h)
				if attempt == 2 { // some are nowhere
					ip = []uint32{10<<24 | 3<<8 | 1, 11<<24 | 1, hostIP(2), hostIP(3)}[h]
				}
				rec = append(rec, wire.MRPRecord{IP: ip, QPN: wire.QPN(100 + h)})
			}
			f = l.mrp(src, id, wire.MRPHeader{Total: 1, LeaderQPN: 100, Attempt: attempt}, rec...)
		case 2, 3:
			f = l.mrp(src, id, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100, Attempt: attempt}, wire.MRPRecord{IP: id, QPN: 5})
		case 4:
			if r.IntN(3) == 0 {
				f = l.mrp(src, id, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete, LeaderQPN: 100, Attempt: attempt}, wire.MRPRecord{IP: id})
			}
		case 5:
			f = l.ack(i, wire.PSN(r.IntN(20)), oneOf(r, wire.SyndromeACK, wire.SyndromePSNSequence, wire.SyndromeRNR))
		case 6:
			e := wire.NewEnvelope(wire.Flow{Src: src, Dst: id, TTL: 9, DstPort: wire.PortRoCEv2})
			f = l.net.Pool.Get()
			f.Start(&e, wire.BTH{OpCode: wire.OpCNP, PKey: wire.PKeyDefault, DestQP: 1})
			f.AddCNP()
			f.Seal(0, false)
		case 7:
			f = l.write(i, wire.PSN(5+r.IntN(20)), 0x10, oneOf(r, 0, named(7)))
		case 8:
			if r.IntN(4) == 0 { // more than leaves keep
				for k := range wire.MRVersionsMax + 1 {
					l.stub[0].send(l.announce(wire.PSN(6+k), 0x100, 7))
				}
				l.run()
			}
			f = l.announce(wire.PSN(5+r.IntN(100)), 0x100, 7)
		case 9:
			f = l.datagram(i%loneHosts, any239())
		case 10:
			l.sw.SetMulticast(wire.MulticastEntry{Group: oneOf(r, any239(), 5), Ports: oneOf(r, nil, []uint16{0, 1, 2}, []uint16{1}), From: oneOf(r, nil, []uint16{3})})
		case 11:
			f = l.net.Pool.Get()
			f.BuildPFC(wire.PFC{Enable: uint8(r.Uint32()), Quanta: [8]uint16{0: 9000, 3: uint16(r.IntN(9000)), 6: 9000}})
		case 12:
			if r.IntN(10) == 0 {
				l.sw.WipeGroups()
			}
			if r.IntN(6) == 0 {
				port := r.IntN(4)
				l.sw.SetCarrier(l.net.Now, port, l.sw.noCarrier.has(port))
			}
			f = l.data(src, 10<<24|uint32(r.IntN(7))<<8|uint32(1+r.IntN(5)), 1, 1, uint8(r.Uint32()))
		default:
			f = l.data(src, oneOf(r, id, hostIP(3), hostIP(3)), 9, wire.PSN(5+r.IntN(20)), oneOf[uint8](r, 26<<2, 0))
		}
		if f != nil {
			for ttl := uint8(1 + r.IntN(9)); f.Kind() != wire.KindPFC && f.TTL() > ttl; {
				f.DecTTL()
			}
			if f.Kind() == wire.KindRoCE && r.IntN(8) == 0 {
				l.net.Pool.Damage(f, r.Uint64())
			}
			l.stub[i].send(f)
		}
		if r.IntN(2) == 0 {
			l.run()
		}
	}
	l.run()
	return l
}

// reductions has hosts and the root give, answer and repeat at random in a group that
// reduces, with numbers of any length and kind, while more groups register than there is
// room for and, under rules without ACTIVATE, more members join.
func reductions(t *testing.T, r *rand.Rand) *lone {
	leader := oneOf(r, 0, loneHosts+1)
	l := newLone(t, func(c *Config) {
		if r.IntN(2) == 0 {
			c.Rules = RulesCepheus()
		}
	})
	if few := r.IntN(2) == 0; few && leader == 0 {
		h := wire.MRPHeader{Total: 1, Flags: wire.MRPReduce, LeaderQPN: 100}
		l.stub[0].send(l.mrp(hostIP(0), group1, h, wire.MRPRecord{IP: hostIP(1), QPN: 101}))
		l.run()
	} else {
		l.registerReduce(group1, leader)
	}
	late := r.IntN(60)
	for k := range 60 {
		if k == late {
			l.registerReduce(group1, leader)
		}
		i := oneOf(r, 0, 1, 2, 3, leader)
		m := wire.ReduceImm{
			Kind: wire.ReduceKind(oneOf(r, 0, 0, 0, 0, 1, 2, 3)), Own: r.IntN(4) == 0, Float32: r.IntN(8) == 0,
			Chunk: oneOf[uint32](r, 0, 0, 0, 1, 2*wire.ReduceWindow, 4*wire.ReduceWindow),
		}
		f := l.reducePacket(hostIP(i), group1, m, make([]byte, oneOf(r, 0, 4, 8, 8, 8, 8, 8, 6)))
		if r.IntN(20) == 0 {
			l.net.Pool.Damage(f, r.Uint64())
		}
		l.stub[i].send(f)
		l.run()
	}
	if r.IntN(20) == 0 {
		for k := range ReductionsMax {
			l.registerReduce(group1+1+uint32(k), leader)
		}
	}
	return l
}

// again has the source send packets that all members have, to a switch that by its rules does not
// answer them.
func again(t *testing.T, r *rand.Rand) *lone {
	l := groupLab(t, func(c *Config) { c.Rules.RepeatAck = r.IntN(2) == 0 })
	for psn := wire.PSN(5); psn < 5+wire.PSN(r.IntN(5))+1; psn++ {
		l.stub[0].send(l.data(hostIP(0), group1, 9, psn, 26<<2))
		l.run()
		for i := 1; i < 4; i++ {
			l.feed(i, psn, wire.SyndromeACK)
		}
		l.stub[0].send(l.data(hostIP(0), group1, 9, psn, 26<<2))
		l.run()
	}
	return l
}

// swamped has hosts send an accelerator that takes an age more than it has room for.
func swamped(t *testing.T, r *rand.Rand) *lone {
	l := groupLab(t, func(c *Config) {
		c.LookAside, c.Buffer = LookAsideConfig{Links: 1, Rate: 1e6, Delay: vtime.Microsecond}, 1<<30
	})
	for range deferredMax + 1 + r.IntN(1000) {
		l.sw.HandleFrame(l.net.Now, 0, l.data(hostIP(0), group1, 9, 5, 26<<2))
	}
	if k := l.sw.deferred.waiting.Len(); k != deferredMax {
		t.Errorf("%d packets wait for the accelerator, it has room for %d", k, deferredMax)
	}
	l.sw.WipeGroups()
	l.run()
	return l
}

// portless reports whether a switch without ports, or with too many, panics.
func portless(ports int) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	New(Config{Ports: make([]machine.Port, ports)})
	return false
}

// TestGuardsFire: every reason to drop a frame fires in random inputs by seed. A guard
// that never fires is untested.
func TestGuardsFire(t *testing.T) {
	const seeds = 2000
	var fired [dropReasons]uint64
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 11))
		data := make([]byte, 4+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		ran := []*lone{fuzzRun(t, data)}
		if seed%4 == 0 {
			ran = append(ran, noise(t, r), reductions(t, r), again(t, r), crossed(t, seed))
		}
		if seed%100 == 0 {
			ran = append(ran, burst(t, r), flooded(t, r), damaged(t, r), restarted(t, r))
		}
		if seed%1000 == 0 {
			ran = append(ran, swamped(t, r), crowded(t))
		}
		for _, s := range ran {
			for why, n := range s.sw.stats.Drops {
				fired[why] += n
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if !portless(0) || !portless(PortsMax+1) {
		t.Error("a switch without ports, or with too many, is built")
	}
	for _, why := range DropReasons() {
		if fired[why] == 0 {
			t.Errorf("%v never fired in %d inputs", why, seeds)
		}
	}
	t.Logf("drops by reason: %v", fired)
}
