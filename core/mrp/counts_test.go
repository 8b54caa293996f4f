// SPDX-License-Identifier: Apache-2.0

package mrp

import (
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestCounts: each packet is counted by its outcome, and each change of a phase counts as a change.
func TestCounts(t *testing.T) {
	a, o := newAgent(leader)
	confirm := func(ip uint32, qpn wire.QPN, f wire.MRPFlags) {
		o.packet(a, 1, ip, leader, wire.MRPHeader{Total: 1, Flags: f, LeaderQPN: 17}, wire.MRPRecord{IP: group, QPN: qpn})
	}
	want := func(what string, s Stats, changes uint64) {
		t.Helper()
		if got := a.Stats(); got != s || a.Changes() != changes {
			t.Errorf("%s: %+v and %d changes, want %+v and %d", what, got, a.Changes(), s, changes)
		}
	}
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	want("registering", Stats{Sent: 1}, 1)
	confirm(leader+1, 21, wire.MRPConfirm)
	want("one confirmed", Stats{Sent: 1, Received: 1}, 1)
	confirm(leader+1, 21, wire.MRPConfirm)                  // again
	confirm(leader+2, 23, wire.MRPConfirm)                  // another queue pair
	confirm(leader+2, 22, wire.MRPConfirm|wire.MRPMRUpdate) // unsolicited regions
	confirm(leader+2, 22, wire.MRPConfirm|wire.MRPActivate) // another phase
	confirm(leader+2, 22, wire.MRPError|wire.MRPConfirm)    // neither
	o.packet(a, 1, leader+2, group, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm}, wire.MRPRecord{IP: group, QPN: 22})
	o.packet(a, 1, leader+2, leader+7, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm}, wire.MRPRecord{IP: group, QPN: 22})
	o.packet(a, 1, leader+2, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPConfirm}, wire.MRPRecord{IP: group + 1, QPN: 22})
	o.packet(a, 1, leader+2, group, wire.MRPHeader{Total: 1}, wire.MRPRecord{IP: leader, QPN: 17}) // not joined
	want("nine that concern nobody", Stats{Sent: 1, Received: 10, Ignored: 9}, 1)
	a.HandleTimeout(vtime.Time(vtime.Millisecond) - 1)
	want("before the time", Stats{Sent: 1, Received: 10, Ignored: 9}, 1)
	a.HandleTimeout(vtime.Time(vtime.Millisecond))
	want("asked again", Stats{Sent: 2, Received: 10, Ignored: 9, Repeats: 1}, 1)
	confirm(leader+2, 22, wire.MRPConfirm)
	want("activating", Stats{Sent: 3, Received: 11, Ignored: 9, Repeats: 1}, 2)
	o.packet(a, 1, 9, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPError}, wire.MRPRecord{IP: group, Flags: uint8(wire.MRPErrNoRoute)})
	want("an error of no registration", Stats{Sent: 3, Received: 12, Ignored: 10, Repeats: 1}, 2)
	a.Join(group, 17)
	o.packet(a, 1, leader+2, group, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate}, wire.MRPRecord{IP: group})
	want("confirmed as a member", Stats{Sent: 4, Received: 13, Ignored: 10, Repeats: 1, Confirmed: 1}, 2)
	confirm(leader+1, 21, wire.MRPConfirm|wire.MRPActivate)
	confirm(leader+2, 22, wire.MRPConfirm|wire.MRPActivate)
	want("active", Stats{Sent: 4, Received: 15, Ignored: 10, Repeats: 1, Confirmed: 1}, 3)
	if err := a.Delete(5, group); err != nil {
		t.Fatal(err)
	}
	if err := a.Delete(6, group); err != nil { // nothing new
		t.Fatal(err)
	}
	want("deleting", Stats{Sent: 5, Received: 15, Ignored: 10, Repeats: 1, Confirmed: 1}, 4)
	silence(a) // the fabric forgets by itself
	want("given up", Stats{Sent: 15, Received: 15, Ignored: 10, Repeats: 11, Confirmed: 1, DeletionsGivenUp: 1}, 5)
	if p, err := a.Status(group); p != Deleted || err != nil {
		t.Errorf("phase %v, %v; want %v", p, err, Deleted)
	}
	if err := a.Delete(7, group); err != nil {
		t.Fatal(err)
	}
	want("deleted before", Stats{Sent: 15, Received: 15, Ignored: 10, Repeats: 11, Confirmed: 1, DeletionsGivenUp: 1}, 5)
	if p, err := a.Status(group + 1); p != Unknown || err != nil {
		t.Errorf("a group nobody knows is %v, %v", p, err)
	}
	if err := a.Delete(7, group+1); err == nil || a.Delete(7, group-1) == nil {
		t.Error("a group that this host does not lead was deleted")
	}
}

// TestDefaults: ten milliseconds to the first repeat, five repeats (CEP-18).
func TestDefaults(t *testing.T) {
	o := &outbox{pool: &wire.Pool{}}
	a := New(Config{IP: leader, Pool: o.pool, Sender: o})
	if err := a.Register(0, twoMembers()); err != nil {
		t.Fatal(err)
	}
	for k := 1; k <= 6; k++ {
		at, ok := a.NextTimeout()
		if want := vtime.Time(k) * vtime.Time(10*vtime.Millisecond); !ok || at != want {
			t.Fatalf("timeout %d at %v, %v; want %v", k, at, ok, want)
		}
		a.HandleTimeout(at)
		p, _ := a.Status(group)
		if want := map[bool]Phase{true: Registering, false: Failed}[k <= 5]; p != want {
			t.Errorf("after timeout %d the group is %v, want %v", k, p, want)
		}
	}
	if got, want := silence(a), []int{10, 20, 40, 80, 80, 80, 80, 80, 80, 80, 80}; !slices.Equal(got, want) {
		t.Errorf("its deletion waits %v ms, want %v", got, want)
	}
	if p, err := a.Status(group); p != Failed || err == nil || a.Stats().DeletionsGivenUp != 1 {
		t.Errorf("phase %v, %v, %d deletions given up", p, err, a.Stats().DeletionsGivenUp)
	}
}

// silence lets all timers fire and returns the pauses between them in milliseconds.
func silence(a *Agent) (pauses []int) {
	at, ok := a.NextTimeout()
	last := vtime.Time(0)
	if r := a.find(group); r != nil {
		last = r.retryAt.Add(-a.retryAfter) // the first pause is the shortest
	}
	for ; ok; at, ok = a.NextTimeout() {
		pauses = append(pauses, int(at.Sub(last)/vtime.Millisecond))
		last = at
		a.HandleTimeout(at)
	}
	return pauses
}

// TestFailedIsDeleted: a registration that failed is taken out of the fabric as a group is
// that ends: the deletion is repeated until every member has confirmed it, by whatever queue
// pair, and then nothing is left of the group, not even a timer, once the host has left it.
func TestFailedIsDeleted(t *testing.T) {
	for _, leave := range []string{"before", "after", "deleted"} {
		o := &outbox{pool: &wire.Pool{}}
		a := New(Config{IP: leader, Pool: o.pool, Sender: o, RetryAfter: vtime.Millisecond})
		a.Join(group, 17)
		if err := a.Register(0, twoMembers()); err != nil {
			t.Fatal(err)
		}
		o.packet(a, 1, 9, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPError}, wire.MRPRecord{IP: group, Flags: uint8(wire.MRPErrNoRoute)})
		if p, err := a.Status(group); p != Failed || err == nil {
			t.Fatalf("phase %v, %v", p, err)
		}
		if leave == "before" {
			a.Leave(group)
		}
		if leave == "deleted" {
			if err := a.Delete(2, group); err != nil {
				t.Fatal(err)
			}
		}
		sent := a.Stats().Sent
		for range 3 {
			at, _ := a.NextTimeout()
			a.HandleTimeout(at)
		}
		if got := a.Stats().Sent - sent; got != 3 {
			t.Errorf("left %s: %d deletions in three pauses", leave, got)
		}
		confirm := func(member uint32) {
			o.packet(a, 9, member, leader, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete | wire.MRPConfirm}, wire.MRPRecord{IP: group})
		}
		confirm(leader + 1)
		if _, ok := a.NextTimeout(); !ok {
			t.Errorf("left %s: nothing is repeated for the other member", leave)
		}
		confirm(leader + 2)
		if _, ok := a.NextTimeout(); ok {
			t.Errorf("left %s: a group that is deleted has a timer", leave)
		}
		if p, _ := a.Status(group); p != map[string]Phase{"before": Unknown, "after": Failed, "deleted": Deleted}[leave] {
			t.Errorf("left %s: phase %v", leave, p)
		}
		a.Leave(group)
		if member, led := a.Groups(); member+led != 0 {
			t.Errorf("left %s: the agent keeps %d groups as a member, %d as leader", leave, member, led)
		}
	}
}

// TestStrangerConfirmsDeletion: a host that is not in the group, or not any more, confirms that
// it is to be forgotten, and nothing else.
func TestStrangerConfirmsDeletion(t *testing.T) {
	o := &outbox{pool: &wire.Pool{}}
	a := New(Config{IP: leader + 1, Pool: o.pool, Sender: o})
	for _, f := range []wire.MRPFlags{0, wire.MRPActivate, wire.MRPDelete} {
		o.packet(a, 1, leader, group, wire.MRPHeader{Total: 1, Flags: f}, wire.MRPRecord{IP: group})
	}
	if s := a.Stats(); s.Confirmed != 1 || s.Ignored != 2 {
		t.Errorf("%+v; want the deletion confirmed and two ignored", s)
	}
}

// frames keeps the frames of an agent.
type frames struct{ sent []*wire.Frame }

// SendFrame implements Sender.
func (s *frames) SendFrame(_ vtime.Time, f *wire.Frame) { s.sent = append(s.sent, f) }

// TestEnvelope: the headers below an MRP packet: the class that data does not pause, a life long
// enough, the tag of the fabric, and the MAC address of a group or a host.
func TestEnvelope(t *testing.T) {
	for _, tag := range []*wire.VLAN{nil, {PCP: 6, ID: 9}} {
		var s frames
		a := New(Config{IP: leader, Pool: &wire.Pool{}, Sender: &s, VLAN: tag})
		a.Join(group, 17)
		if err := a.Register(0, twoMembers()); err != nil {
			t.Fatal(err)
		}
		o := &outbox{pool: a.pool}
		o.packet(a, 0, leader+1, group, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate}, wire.MRPRecord{IP: group})
		if len(s.sent) != 2 {
			t.Fatalf("%d packets sent, want a registration and a confirmation", len(s.sent))
		}
		for i, f := range s.sent {
			mac, dst := wire.GroupMAC(group), group
			if i == 1 {
				mac, dst = wire.HostMAC(leader+1), leader+1
			}
			pcp, tagged := f.PCP()
			if f.Traffic() != 48<<2 || f.TTL() != 64 || f.SrcIP() != leader || f.DstIP() != dst || tagged != (tag != nil) || tagged && pcp != 6 {
				t.Errorf("packet %d: class %#x, time to live %d, %v to %v, tagged %v with %d", i, f.Traffic(), f.TTL(), wire.AddrOf(f.SrcIP()), wire.AddrOf(f.DstIP()), tagged, pcp)
			}
			if head := f.Header(); wire.MAC(head[:6]) != mac || wire.MAC(head[6:12]) != wire.HostMAC(leader) || f.SrcPort() != wire.PortMRP {
				t.Errorf("packet %d goes to %x from %x by port %d", i, head[:6], head[6:12], f.SrcPort())
			}
		}
	}
}

// TestProxy: an agent answers for a device's queue pair wherever a registration lists it.
func TestProxy(t *testing.T) {
	other := wire.MRPRecord{IP: leader + 5, QPN: 3}
	own := wire.MRPRecord{IP: leader + 1, QPN: 21}
	for _, c := range []struct {
		records []wire.MRPRecord
		want    uint64
	}{{[]wire.MRPRecord{own, other}, 1}, {[]wire.MRPRecord{other, own}, 1}, {[]wire.MRPRecord{other}, 0}} {
		a, o := newAgent(leader + 1)
		a.Answer(21)
		o.packet(a, 0, leader, group, wire.MRPHeader{Total: 1, LeaderQPN: 17}, c.records...)
		if got := a.Stats().Confirmed; got != c.want {
			t.Errorf("listed as %v: %d confirmations, want %d", c.records, got, c.want)
		}
	}
}
