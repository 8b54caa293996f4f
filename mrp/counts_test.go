package mrp

import (
	"testing"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// TestCounts: each packet is counted for what becomes of it, and each change of a phase is
// news.
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
	confirm(leader+2, 22, wire.MRPConfirm|wire.MRPMRUpdate) // regions nobody sent
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
	for k := range 3 { // silence: the fabric forgets by itself
		a.HandleTimeout(vtime.Time(k+2) * vtime.Time(vtime.Millisecond))
	}
	want("given up", Stats{Sent: 7, Received: 15, Ignored: 10, Repeats: 3, Confirmed: 1}, 5)
	if p, err := a.Status(group); p != Deleted || err != nil {
		t.Errorf("phase %v, %v; want %v", p, err, Deleted)
	}
	if err := a.Delete(7, group); err != nil {
		t.Fatal(err)
	}
	want("deleted before", Stats{Sent: 7, Received: 15, Ignored: 10, Repeats: 3, Confirmed: 1}, 5)
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
	if _, ok := a.NextTimeout(); ok {
		t.Error("a group that failed has a timer")
	}
}

// frames keeps what an agent sends.
type frames struct{ sent []*wire.Frame }

// SendFrame implements Sender.
func (s *frames) SendFrame(_ vtime.Time, f *wire.Frame) { s.sent = append(s.sent, f) }

// TestEnvelope: what is below an MRP packet: the class that data does not pause, a life
// long enough, the tag of the fabric, and the MAC address of a group or a host.
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
			mac, dst := wire.GroupMAC(group), uint32(group)
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
