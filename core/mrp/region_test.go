// SPDX-License-Identifier: Apache-2.0

package mrp

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// confirmRegion hands the leader a confirmation of the regions.
func (o *outbox) confirmRegion(a *Agent, ip uint32, qpn wire.QPN, round uint8, m wire.MRPRegion) {
	e := wire.NewEnvelope(wire.Flow{Src: ip, Dst: leader, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
	f := o.pool.Get()
	f.StartDatagram(&e)
	b := o.pool.Block()
	buf := wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm | wire.MRPMRUpdate, LeaderQPN: 17}.AppendTo(b.Fill(wire.BlockCap)[:0])
	b.Fill(len(m.AppendTo(wire.MRPRecord{IP: group, Flags: round, QPN: qpn}.AppendTo(buf))))
	f.SetPayload(b)
	f.Seal(0, false)
	a.HandleFrame(0, f)
}

// TestRegions: registration carries the regions, the leader's first in every packet; Update announces
// new ones, and a late confirmation of the old ones has no effect.
func TestRegions(t *testing.T) {
	a, o := newAgent(leader)
	g := twoMembers()
	g.Regions, g.Region = true, wire.MRPRegion{VA: 0x100, RKey: 1}
	g.Members[0].Region, g.Members[1].Region = wire.MRPRegion{VA: 0x200, RKey: 2}, wire.MRPRegion{VA: 0x300, RKey: 3}
	if err := a.Register(0, g); err != nil {
		t.Fatal(err)
	}
	want := "10.0.0.1>10.254.0.7 MRP mr-update 1/1 leaderqp=17 {10.0.0.1 qp=17 va=0x100 rkey=0x1} {10.0.0.2 qp=21 va=0x200 rkey=0x2} {10.0.0.3 qp=22 va=0x300 rkey=0x3}"
	if got := o.take(); got != want {
		t.Errorf("sent %q\nwant %q", got, want)
	}
	if err := a.Update(0, group, g.Region, make([]wire.MRPRegion, 2)); err == nil {
		t.Error("regions are updated while the group is being registered")
	}
	o.confirmRegion(a, leader+1, 21, 0, g.Members[0].Region)
	o.confirmRegion(a, leader+2, 22, 0, g.Members[0].Region) // another region
	a.HandleTimeout(vtime.Time(vtime.Millisecond))
	if got := o.take(); got != "10.0.0.1>10.254.0.7 MRP mr-update 1/1 leaderqp=17 {10.0.0.1 qp=17 va=0x100 rkey=0x1} {10.0.0.3 qp=22 va=0x300 rkey=0x3}" {
		t.Errorf("asked again with %q", got)
	}
	o.confirmRegion(a, leader+2, 22, 0, g.Members[1].Region)
	for i := range 2 {
		o.packet(a, 0, leader+1+uint32(i), leader, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm | wire.MRPActivate, LeaderQPN: 17}, wire.MRPRecord{IP: group, QPN: wire.QPN(21 + i)})
	}
	o.take()
	if p, err := a.Status(group); p != Active || err != nil {
		t.Fatalf("phase %v, %v", p, err)
	}

	if err := a.Update(0, group, g.Region, nil); err == nil {
		t.Error("no region for any member is accepted")
	}
	news := []wire.MRPRegion{{VA: 0x400, RKey: 4}, {VA: 0x500, RKey: 5}}
	if err := a.Update(0, group, wire.MRPRegion{VA: 0x600, RKey: 6}, news); err != nil {
		t.Fatal(err)
	}
	if got := o.take(); got != "10.0.0.1>10.254.0.7 MRP mr-update 1/1 leaderqp=17 {10.0.0.1 flags=1 qp=17 va=0x600 rkey=0x6} {10.0.0.2 flags=1 qp=21 va=0x400 rkey=0x4} {10.0.0.3 flags=1 qp=22 va=0x500 rkey=0x5}" {
		t.Errorf("update %q", got)
	}
	if g.Members[0].Region.VA != 0x200 {
		t.Error("the caller's list was changed")
	}
	o.confirmRegion(a, leader+1, 21, 1, news[0])
	o.confirmRegion(a, leader+2, 22, 0, g.Members[1].Region) // late, of the registration
	if p, _ := a.Status(group); p != Updating {
		t.Errorf("phase %v, want %v", p, Updating)
	}
	o.confirmRegion(a, leader+2, 22, 1, news[1])
	if p, _ := a.Status(group); p != Active {
		t.Errorf("phase %v, want %v", p, Active)
	}
}

// TestRegionsChunks: 73 records fill a packet, of which one is the leader's.
func TestRegionsChunks(t *testing.T) {
	a, o := newAgent(leader)
	g := Group{McstID: group, LeaderQPN: 17, Activate: true, Regions: true}
	for i := range 73 {
		g.Members = append(g.Members, Member{IP: leader + 1 + uint32(i), QPN: 21})
	}
	if err := a.Register(0, g); err != nil {
		t.Fatal(err)
	}
	packets := strings.Split(o.take(), "\n")
	if len(packets) != 2 || strings.Count(packets[0], "va=") != 73 || strings.Count(packets[1], "va=") != 2 || strings.Count(packets[1], "{10.0.0.1 ") != 1 {
		t.Errorf("sent %q", packets)
	}
}

// TestMemberRegion: a member confirms the regions it was listed with.
func TestMemberRegion(t *testing.T) {
	a, o := newAgent(leader + 1)
	a.Join(group, 21)
	e := wire.NewEnvelope(wire.Flow{Src: leader, Dst: group, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
	f := o.pool.Get()
	f.StartDatagram(&e)
	b := o.pool.Block()
	buf := wire.MRPHeader{Total: 1, Flags: wire.MRPMRUpdate, LeaderQPN: 17}.AppendTo(b.Fill(wire.BlockCap)[:0])
	buf = wire.MRPRegion{VA: 1, RKey: 2}.AppendTo(wire.MRPRecord{IP: leader, Flags: 9, QPN: 17}.AppendTo(buf))
	b.Fill(len(wire.MRPRegion{VA: 3, RKey: 4}.AppendTo(wire.MRPRecord{IP: leader + 1, Flags: 9, QPN: 21}.AppendTo(buf))))
	f.SetPayload(b)
	f.Seal(0, false)
	a.HandleFrame(0, f)
	if got := o.take(); got != "10.0.0.2>10.0.0.1 MRP mr-update confirm 1/1 leaderqp=17 {10.254.0.7 flags=9 qp=21 va=0x3 rkey=0x4}" {
		t.Errorf("confirmation %q", got)
	}
}
