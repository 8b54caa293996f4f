// SPDX-License-Identifier: Apache-2.0

package mrp

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// outbox keeps the packets of an agent as text.
type outbox struct {
	pool  *wire.Pool
	sent  []string
	bytes []byte // of all
}

// SendFrame implements Sender.
func (o *outbox) SendFrame(_ vtime.Time, f *wire.Frame) {
	o.sent = append(o.sent, f.String())
	o.bytes = f.AppendTo(o.bytes)
	o.pool.Put(f)
}

// take returns the packets sent since the last call.
func (o *outbox) take() string {
	s := strings.Join(o.sent, "\n")
	o.sent = nil
	return s
}

const (
	leader = 10<<24 | 1
	group  = wire.GroupNet | 7
)

func newAgent(ip uint32) (*Agent, *outbox) {
	pool := &wire.Pool{Poison: true}
	o := &outbox{pool: pool}
	return New(Config{IP: ip, Pool: pool, Sender: o, RetryAfter: vtime.Millisecond, RetriesMax: 2}), o
}

// packet hands an MRP packet to the agent.
func (o *outbox) packet(a *Agent, now vtime.Time, src, dst uint32, h wire.MRPHeader, records ...wire.MRPRecord) {
	e := wire.NewEnvelope(wire.Flow{Src: src, Dst: dst, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
	f := o.pool.Get()
	f.StartDatagram(&e)
	b := o.pool.Block()
	buf := h.AppendTo(b.Fill(wire.BlockCap)[:0])
	for _, r := range records {
		buf = r.AppendTo(buf)
	}
	b.Fill(len(buf))
	f.SetPayload(b)
	f.Seal(0, false)
	a.HandleFrame(now, f)
}

func twoMembers() Group {
	return Group{McstID: group, LeaderQPN: 17, StartPSN: 99, Activate: true, Members: []Member{{IP: leader + 1, QPN: 21}, {IP: leader + 2, QPN: 22}}}
}

// TestRegistrar walks a group through its phases: registered when all confirm, then
// activated, then active; only who is silent is asked again.
func TestRegistrar(t *testing.T) {
	a, o := newAgent(leader)
	confirm := func(now vtime.Time, ip uint32, qpn wire.QPN, f wire.MRPFlags) {
		o.packet(a, now, ip, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm | f, LeaderQPN: 17}, wire.MRPRecord{IP: group, QPN: qpn})
	}
	want := func(text string, p Phase) {
		t.Helper()
		if got := o.take(); got != text {
			t.Errorf("sent %q\nwant %q", got, text)
		}
		if got, err := a.Status(group); got != p || err != nil {
			t.Errorf("phase %v, %v; want %v", got, err, p)
		}
	}
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	want("10.0.0.1>10.254.0.7 MRP register 1/1 leaderqp=17 {10.0.0.2 qp=21} {10.0.0.3 qp=22}", Registering)
	confirm(10, leader+2, 22, 0)
	confirm(11, leader+2, 22, 0)                // again
	confirm(12, leader+1, 99, 0)                // another queue pair
	confirm(13, leader+9, 21, 0)                // not a member
	confirm(14, leader+1, 21, wire.MRPActivate) // another phase
	want("", Registering)
	if at, ok := a.NextTimeout(); !ok || at != vtime.Time(vtime.Millisecond) {
		t.Fatalf("repeat at %v, %v; want 1ms", at, ok)
	}
	a.HandleTimeout(vtime.Time(vtime.Millisecond))
	want("10.0.0.1>10.254.0.7 MRP register 1/1 leaderqp=17 {10.0.0.2 qp=21}", Registering)
	confirm(20, leader+1, 21, 0)
	want("10.0.0.1>10.254.0.7 MRP activate 1/1 leaderqp=17 {10.254.0.7 qp=99}", Activating)
	confirm(21, leader+1, 21, wire.MRPActivate)
	confirm(22, leader+2, 22, wire.MRPActivate)
	want("", Active)
	if _, armed := a.NextTimeout(); armed {
		t.Error("an active group has a timer")
	}
	a.Forget(group) // which is in use
	if err := a.Register(30, twoMembers()); err == nil {
		t.Error("a McstID is registered twice")
	}
	if err := a.Delete(40, group); err != nil {
		t.Fatal(err)
	}
	want("10.0.0.1>10.254.0.7 MRP delete 1/1 leaderqp=17 {10.254.0.7 qp=0}", Deleting)
	confirm(41, leader+1, 21, wire.MRPDelete)
	confirm(42, leader+2, 22, wire.MRPDelete)
	want("", Deleted)
	if err := a.Register(50, twoMembers()); err == nil {
		t.Error("a McstID that was not forgotten is registered again")
	}
	a.Forget(group)
	want("", Unknown)
	if err := a.Register(51, twoMembers()); err != nil {
		t.Error(err)
	}
	want("10.0.0.1>10.254.0.7 MRP register 1/1 leaderqp=17 attempt=1 {10.0.0.2 qp=21} {10.0.0.3 qp=22}", Registering)
}

// TestRegistrarBeginsAnew: when a switch reports changed routes all members are asked again, in another
// attempt, when it is time to repeat or all have confirmed. Confirmations and errors of an earlier
// attempt do not count, and attempts come to an end.
func TestRegistrarBeginsAnew(t *testing.T) {
	a, o := newAgent(leader)
	confirm := func(ip uint32, qpn wire.QPN, f wire.MRPFlags, attempt uint32) {
		o.packet(a, 5, ip, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm | f, LeaderQPN: 17, Attempt: attempt}, wire.MRPRecord{IP: group, QPN: qpn})
	}
	routes := func(attempt uint32) {
		o.packet(a, 5, 10<<24|253<<16, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPError, Attempt: attempt}, wire.MRPRecord{IP: group, Flags: uint8(wire.MRPErrRoutes)})
	}
	want := func(text string, p Phase) {
		t.Helper()
		if got := o.take(); got != text {
			t.Errorf("sent %q\nwant %q", got, text)
		}
		if got, err := a.Status(group); got != p || err != nil {
			t.Errorf("phase %v, %v; want %v", got, err, p)
		}
	}
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	o.take()
	confirm(leader+1, 21, 0, 0)
	routes(0)
	want("", Registering)
	a.HandleTimeout(vtime.Time(vtime.Millisecond))
	want("10.0.0.1>10.254.0.7 MRP register 1/1 leaderqp=17 attempt=1 {10.0.0.2 qp=21} {10.0.0.3 qp=22}", Registering)
	routes(0) // late
	confirm(leader+1, 21, 0, 0)
	confirm(leader+1, 21, 0, 1)
	confirm(leader+2, 22, 0, 0)
	want("", Registering)
	confirm(leader+2, 22, 0, 1)
	want("10.0.0.1>10.254.0.7 MRP activate 1/1 leaderqp=17 attempt=1 {10.254.0.7 qp=99}", Activating)
	confirm(leader+1, 21, wire.MRPActivate, 1)
	routes(1)
	confirm(leader+2, 22, wire.MRPActivate, 1)
	want("10.0.0.1>10.254.0.7 MRP register 1/1 leaderqp=17 attempt=2 {10.0.0.2 qp=21} {10.0.0.3 qp=22}", Registering)
	routes(2)
	confirm(leader+1, 21, 0, 2)
	confirm(leader+2, 22, 0, 2)
	p, err := a.Status(group)
	if p != Failed || err == nil || err.Error() != "group 10.254.0.7, registering: routes have changed in each of 3 attempts" {
		t.Errorf("phase %v, %v", p, err)
	}
	if got := o.take(); got != "10.0.0.1>10.254.0.7 MRP delete 1/1 leaderqp=17 attempt=2 {10.254.0.7 qp=0}" {
		t.Errorf("sent %q", got)
	}
}

// TestRegistrarFails: silence, or a switch that refuses, ends the registration, names the member or the
// reason, and removes the installed entries.
func TestRegistrarFails(t *testing.T) {
	a, o := newAgent(leader)
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		a.HandleTimeout(vtime.Time(k+1) * vtime.Time(vtime.Millisecond))
	}
	p, err := a.Status(group)
	if p != Failed || err == nil || err.Error() != "group 10.254.0.7, registering: 2 of 2 members did not confirm, 10.0.0.2 first" {
		t.Errorf("phase %v, %v", p, err)
	}
	if got := o.take(); strings.Count(got, "register") != 3 || !strings.HasSuffix(got, "MRP delete 1/1 leaderqp=17 {10.254.0.7 qp=0}") {
		t.Errorf("sent %q", got)
	}

	a, o = newAgent(leader)
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	o.packet(a, 5, 10<<24|253<<16, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPError}, wire.MRPRecord{IP: group, Flags: uint8(wire.MRPErrNoMemory)})
	if p, err := a.Status(group); p != Failed || err == nil || err.Error() != "register group 10.254.0.7: no room in the multicast forwarding table" {
		t.Errorf("phase %v, %v", p, err)
	}
	for _, g := range []Group{{McstID: 1, Members: []Member{{}}}, {McstID: group + 1}} {
		if err := a.Register(0, g); err == nil {
			t.Errorf("group %+v accepted", g)
		}
	}
}

// TestMember: an agent answers only for queue pairs that joined, and only if it is addressed.
func TestMember(t *testing.T) {
	a, o := newAgent(leader + 1)
	register := func(ip uint32, qpn wire.QPN) {
		o.packet(a, 0, leader, group, wire.MRPHeader{Seq: 1, Total: 2, LeaderQPN: 17}, wire.MRPRecord{IP: leader + 5, QPN: 3}, wire.MRPRecord{IP: ip, QPN: qpn})
	}
	register(leader+1, 21)
	if got := o.take(); got != "" {
		t.Errorf("answered before anyone joined: %q", got)
	}
	a.Join(group, 21)
	register(leader+2, 21)
	register(leader+1, 22)
	if got := o.take(); got != "" {
		t.Errorf("answered for another: %q", got)
	}
	register(leader+1, 21)
	if got := o.take(); got != "10.0.0.2>10.0.0.1 MRP register confirm 2/2 leaderqp=17 {10.254.0.7 qp=21}" {
		t.Errorf("confirmation %q", got)
	}
	o.packet(a, 0, leader, group, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 17}, wire.MRPRecord{QPN: 5})
	if got := o.take(); got != "10.0.0.2>10.0.0.1 MRP activate confirm 1/1 leaderqp=17 {10.254.0.7 qp=21}" {
		t.Errorf("confirmation %q", got)
	}
	a.Leave(group)
	register(leader+1, 21)
	if got := o.take(); got != "" {
		t.Errorf("answered after leaving: %q", got)
	}
	if o.pool.Live != 0 || o.pool.LiveBlocks != 0 {
		t.Errorf("%d frames, %d payloads live", o.pool.Live, o.pool.LiveBlocks)
	}
}

// FuzzAgent: no packet makes an agent panic or keep a frame.
func FuzzAgent(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0x18, 0, 0, 17, 10, 254, 0, 7, 0, 0, 0, 21}, true)
	f.Add([]byte{0, 0, 0, 1, 0x12, 0, 0, 17, 10, 254, 0, 7, 0, 0, 0, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, payload []byte, toGroup bool) {
		a, o := newAgent(leader)
		a.Join(group, 17)
		if err := a.Register(0, twoMembers()); err != nil {
			t.Fatal(err)
		}
		e := wire.NewEnvelope(wire.Flow{Src: leader + 1, Dst: map[bool]uint32{true: group, false: leader}[toGroup], TTL: 64, DstPort: wire.PortMRP})
		f := o.pool.Get()
		f.StartDatagram(&e)
		if n := min(len(payload), wire.BlockCap); n > 0 {
			b := o.pool.Block()
			copy(b.Fill(n), payload)
			f.SetPayload(b)
		}
		f.Seal(0, false)
		a.HandleFrame(1, f)
		if o.pool.Live != 0 || o.pool.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d payloads live", o.pool.Live, o.pool.LiveBlocks)
		}
	})
}

// TestReduce: a reduction is registered with its flag, members confirm it so, and only such
// a confirmation counts; it has no regions.
func TestReduce(t *testing.T) {
	a, o := newAgent(leader)
	g := twoMembers()
	g.Reduce = true
	if err := a.Register(0, g); err != nil {
		t.Fatal(err)
	}
	if got := o.take(); !strings.Contains(got, " register reduce ") {
		t.Errorf("registration %q", got)
	}
	for _, flags := range []wire.MRPFlags{wire.MRPConfirm, wire.MRPConfirm | wire.MRPReduce} {
		for i := range uint32(2) {
			o.packet(a, 0, leader+1+i, leader, wire.MRPHeader{Total: 1, Flags: flags, LeaderQPN: 17}, wire.MRPRecord{IP: group, QPN: wire.QPN(21 + i)})
		}
		p, _ := a.Status(group)
		if want := map[bool]Phase{false: Registering, true: Activating}[flags&wire.MRPReduce != 0]; p != want {
			t.Errorf("after confirmations %v: %v, want %v", flags, p, want)
		}
	}
	m, mo := newAgent(leader + 1)
	m.Join(group, 21)
	mo.packet(m, 0, leader, group, wire.MRPHeader{Total: 1, Flags: wire.MRPReduce, LeaderQPN: 17}, wire.MRPRecord{IP: leader + 1, QPN: 21})
	if got := mo.take(); !strings.Contains(got, " register reduce confirm ") {
		t.Errorf("confirmation %q", got)
	}
	g.McstID, g.Regions = group+1, true
	if err := a.Register(0, g); err == nil {
		t.Error("a reduction with regions is accepted")
	}
}
