// SPDX-License-Identifier: Apache-2.0

package mrp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// oneOf returns one of some values.
func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// anyPacket hands the agent a frame: mostly a packet of registration that nearly fits its phase, also
// others, and bytes of any kind.
func (o *outbox) anyPacket(r *rand.Rand, a *Agent, now vtime.Time) {
	src, dst := leader+uint32(r.IntN(4)), oneOf[uint32](r, leader, leader, leader, group, group, group+1, leader+1)
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 64, SrcPort: wire.PortMRP, DstPort: oneOf[uint16](r, wire.PortMRP, wire.PortMRP, wire.PortMRP, wire.PortMRP, 9)})
	f := o.pool.Get()
	f.StartDatagram(&e)
	if r.IntN(20) > 0 {
		b := o.pool.Block()
		buf := b.Fill(wire.BlockCap)[:0]
		h := wire.MRPHeader{Total: 1, LeaderQPN: 17, Flags: oneOf(r, 0, wire.MRPConfirm, wire.MRPConfirm, wire.MRPError, wire.MRPActivate, wire.MRPDelete, wire.MRPMRUpdate) |
			oneOf(r, 0, 0, 0, wire.MRPActivate, wire.MRPDelete, wire.MRPMRUpdate, wire.MRPMRUpdate|wire.MRPConfirm), Attempt: oneOf[uint32](r, 0, 0, 0, 0, 0, 1)}
		if r.IntN(20) == 0 {
			h.Seq = 7 // of one
		}
		buf = h.AppendTo(buf)
		for range 1 + r.IntN(2) {
			rec := wire.MRPRecord{IP: oneOf[uint32](r, group, group, group+1, leader, src), Flags: oneOf[uint8](r, 0, 1, 0, 1, uint8(wire.MRPErrRoutes)), QPN: oneOf[wire.QPN](r, 17, wire.QPN(20+src-leader), wire.QPN(20+src-leader), 22)}
			buf = rec.AppendTo(buf)
			if h.Flags&wire.MRPMRUpdate != 0 {
				buf = wire.MRPRegion{VA: uint64(src-leader) * uint64(oneOf(r, 1, 1, 1, 2))}.AppendTo(buf)
			}
		}
		b.Fill(max(1, len(buf)-oneOf(r, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 8, 20)))
		f.SetPayload(b)
	}
	f.Seal(0, false)
	a.HandleFrame(now, f)
}

// note writes the result of a call.
func (o *outbox) note(err error) { o.sent = append(o.sent, fmt.Sprint("call: ", err)) }

// anyCall calls one of the agent's methods as its owner does, rightly or wrongly.
func (o *outbox) anyCall(r *rand.Rand, a *Agent, now vtime.Time) {
	id := oneOf[uint32](r, group, group, group+1, group+2, 5)
	switch r.IntN(8) {
	case 0:
		a.Join(id, 17)
	case 1:
		a.Leave(id)
	case 2:
		a.Answer(17)
	case 3, 4:
		g := Group{McstID: id, LeaderQPN: 17, StartPSN: 99, Activate: r.IntN(2) == 0, Regions: r.IntN(2) == 0, Reduce: r.IntN(6) == 0}
		for i := range oneOf(r, 0, 1, 2, 3, 3, 3) {
			g.Members = append(g.Members, Member{IP: leader + 1 + uint32(i), QPN: wire.QPN(21 + i), Region: wire.MRPRegion{VA: uint64(i + 1)}})
		}
		o.note(a.Register(now, g)) // refusals are the subject of this test
	case 5:
		o.note(a.Update(now, id, wire.MRPRegion{}, make([]wire.MRPRegion, r.IntN(4))))
	case 6:
		o.note(a.Delete(now, id))
	default:
		a.HandleTimeout(now)
	}
}

// cooperate has every member confirm its requests, so that groups make progress.
func (o *outbox) cooperate(a *Agent, now vtime.Time) {
	for _, g := range slices.Clone(a.led) {
		for _, m := range g.Members {
			if len(g.waiting) == 0 {
				break
			}
			e := wire.NewEnvelope(wire.Flow{Src: m.IP, Dst: leader, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
			f := o.pool.Get()
			f.StartDatagram(&e)
			b := o.pool.Block()
			h := wire.MRPHeader{Total: 1, LeaderQPN: 17, Flags: g.confirmation(), Attempt: g.attempt}
			buf := wire.MRPRecord{IP: g.id, Flags: g.round, QPN: m.QPN}.AppendTo(h.AppendTo(b.Fill(wire.BlockCap)[:0]))
			if h.Flags&wire.MRPMRUpdate != 0 {
				buf = m.Region.AppendTo(buf)
			}
			b.Fill(len(buf))
			f.SetPayload(b)
			f.Seal(0, false)
			a.HandleFrame(now, f)
		}
	}
}

// unsettle has a switch report changed routes for every group that a packet asks for.
func (o *outbox) unsettle(a *Agent, now vtime.Time) {
	for _, g := range a.led {
		if g.phase.asks() {
			o.packet(a, now, 10<<24|253<<16, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPError, Attempt: g.attempt},
				wire.MRPRecord{IP: g.id, Flags: uint8(wire.MRPErrRoutes)})
		}
	}
}

// registrations lets an agent take packets and calls at random, until all is done. It counts
// the phases that its groups were seen in.
func registrations(seed uint64, phases *[Failed + 1]int) (*Agent, *outbox) {
	r := rand.New(rand.NewPCG(seed, 13))
	a, o := newAgent(leader)
	a.v6 = r.IntN(4) == 0
	now := vtime.Time(0)
	for range 80 {
		now = now.Add(vtime.Duration(r.IntN(400)) * vtime.Microsecond)
		switch k := r.IntN(12); {
		case k == 0:
			o.cooperate(a, now)
		case k < 8:
			o.anyPacket(r, a, now)
		default:
			o.anyCall(r, a, now)
		}
		for _, g := range a.led {
			phases[g.phase]++
		}
		at, armed := a.NextTimeout()
		o.sent = append(o.sent, fmt.Sprint(now, ", next ", at, armed, ", changes ", a.Changes()))
	}
	for at, armed := a.NextTimeout(); armed; at, armed = a.NextTimeout() {
		if seed%4 == 0 {
			o.unsettle(a, at)
		}
		a.HandleTimeout(at)
	}
	return a, o
}

// again registers every McstID once more whose state the agent was asked to forget. That has an effect
// where the group is over, and packets of the old attempt that switches still receive do not belong to
// the new one.
func again(t *testing.T, a *Agent) {
	t.Helper()
	for _, g := range slices.Clone(a.led) {
		before, attempt := g.phase, g.attempt
		a.Forget(g.id)
		err := a.Register(vtime.Never, g.Group)
		over := before == Deleted || before == Failed
		if now := a.find(g.id); over != (err == nil) || over != (now.attempt > attempt) {
			t.Errorf("group %v was %v: registered again, %v, in attempt %d after %d", wire.AddrOf(g.id), before, err, now.attempt, attempt)
		}
	}
}

// TestGuardsFire: agents take packets and calls at random, keep no frame, and every phase of a group
// ends. Ignored packets are counted; package guards checks under coverage that each of their guards has
// fired.
func TestGuardsFire(t *testing.T) {
	const seeds = 3000
	var phases [Failed + 1]int
	var all Stats
	for seed := range uint64(seeds) {
		a, o := registrations(seed, &phases)
		for _, g := range a.led {
			if len(g.waiting) > 0 || g.left && (g.phase == Deleted || g.phase == Failed) {
				t.Errorf("seed %d: group %v is still %v", seed, wire.AddrOf(g.id), g.phase)
			}
		}
		again(t, a)
		if o.pool.Live != 0 || o.pool.LiveBlocks != 0 {
			t.Errorf("seed %d: %d frames, %d payloads live", seed, o.pool.Live, o.pool.LiveBlocks)
		}
		s := a.Stats()
		all.Received += s.Received
		all.Ignored += s.Ignored
		all.Confirmed += s.Confirmed
		all.Repeats += s.Repeats
	}
	for p := Registering; p <= Failed; p++ {
		if phases[p] == 0 {
			t.Errorf("no group was ever %v", p)
		}
	}
	if all.Ignored == 0 || all.Confirmed == 0 || all.Repeats == 0 {
		t.Errorf("of %d packets %d were ignored, %d confirmed; %d repeats", all.Received, all.Ignored, all.Confirmed, all.Repeats)
	}
}

// TestSweepTranscripts: agents handle random packets and calls as before, to the byte. Each line of the
// golden file stands for the transcript of a seed. (go test ./core/mrp -run SweepTranscripts
// -transcripts DIR writes them, before and after a change, for diff.)
func TestSweepTranscripts(t *testing.T) {
	d := machinetest.NewDigest(t)
	for seed := range uint64(100) {
		var phases [Failed + 1]int
		a, o := registrations(seed, &phases)
		for _, g := range a.led {
			o.sent = append(o.sent, fmt.Sprintf("group %#x is %v, %v", g.id, g.phase, g.err))
		}
		d.Add(fmt.Sprint("agent-", seed), o.take()+fmt.Sprintf("\n%x\n%v %+v\n", o.bytes, phases, a.Stats()))
	}
	d.Golden("sweeps")
}
