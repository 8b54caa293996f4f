// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"bytes"
	"encoding/gob"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// report sends records from a host of a lone switch.
func (l *lone) report(host int, records ...wire.GroupRecord) {
	w := wire.Reporter{IP: hostIP(host)}
	for part := range slices.Chunk(records, wire.GroupRecordsMax) {
		l.stub[host].send(w.Report(l.net.Pool, part))
	}
}

func joinsOf(from, n int) (all []wire.GroupRecord) {
	for i := range n {
		all = append(all, wire.GroupRecord{Type: wire.ChangeToExclude, Group: 0xe1000000 + uint32(from+i)})
	}
	return all
}

// rooted makes the lone switch the root of all trees.
func rooted(c *Config) { c.FIB.Uplinks, c.QueriesRest = []int{-1}, true }

// crowded has hosts join more groups than there is room for, and send a report that is damaged.
func crowded(t *testing.T) *lone {
	l := newLone(t, rooted)
	l.report(0, joinsOf(0, MembershipsMax)...)
	l.run()
	l.report(1, joinsOf(0, 1)...)
	f := (&wire.Reporter{IP: hostIP(1)}).Report(l.net.Pool, joinsOf(1, 1))
	b := f.AppendTo(nil)
	l.net.Pool.Put(f)
	b[50]++
	f, err := l.net.Pool.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	l.stub[1].send(f)
	l.run()
	return l
}

// TestMembershipsFull: the table holds as many ports as it may, and not one more; the report that is refused is counted,
// and so is a damaged one. What leaves makes room.
func TestMembershipsFull(t *testing.T) {
	l := crowded(t)
	if n := l.sw.Holding().Members; n != MembershipsMax || l.sw.stats.Drops[DropMembershipsFull] != 1 || l.sw.stats.Drops[DropMalformed] != 1 {
		t.Errorf("%d ports, drops %v", n, l.sw.stats.Drops)
	}
	l.report(0, joinsOf(0, MembershipsMax)...) // a refresh needs no room
	l.report(0, wire.GroupRecord{Type: wire.ChangeToInclude, Group: 0xe1000005})
	l.run()
	if n := l.sw.stats.Drops[DropMembershipsFull]; n != 1 {
		t.Errorf("%d reports were refused, want 1", n)
	}
	l.report(1, joinsOf(0, 2)...)
	l.run()
	if n := l.sw.Holding().Members; n != MembershipsMax || l.sw.stats.Drops[DropMembershipsFull] != 2 {
		t.Errorf("then %d ports, drops %v", n, l.sw.stats.Drops)
	}
	if m := l.sw.Memberships()[0]; m.Group != 0xe1000000 || !slices.Equal(m.Ports, []uint16{0, 1}) || m.Uplink != -1 {
		t.Errorf("the first group is %+v", m)
	}
}

// TestMembershipsProxy: a switch speaks for the hosts below it: toward the root once for the first member and once for the last, twice
// each, and in answer to a query of the switch above, but not to that of another neighbour. A report from above is ignored.
func TestMembershipsProxy(t *testing.T) {
	const up = loneHosts
	l := newLone(t, func(c *Config) { c.FIB.Uplinks, c.QueriesRest = []int{up}, true })
	heard := func(port int) (n int) {
		l.run()
		for _, s := range l.stub[port].got {
			if strings.Contains(s, "IGMP") {
				n++
			}
		}
		l.stub[port].got = nil
		return n
	}
	expect := func(what string, at, want int) {
		t.Helper()
		if got := heard(at); got != want {
			t.Errorf("%s: %d messages, want %d", what, got, want)
		}
	}
	l.report(0, joinsOf(0, 1)...)
	expect("first member", up, 2)
	l.report(1, joinsOf(0, 1)...)
	expect("second member", up, 0)
	ask := func(port int) { l.stub[port].send((&wire.Reporter{IP: 10<<24 | 253<<16 | 9}).Query(l.net.Pool)) }
	ask(up)
	expect("query from above", up, 1)
	ask(up + 1)
	expect("query from elsewhere", up+1, 0)
	l.stub[up].send((&wire.Reporter{IP: 10<<24 | 253<<16 | 9}).Report(l.net.Pool, joinsOf(0, 1)))
	l.run()
	if m := l.sw.Memberships(); len(m) != 1 || !slices.Equal(m[0].Ports, []uint16{0, 1}) || m[0].Uplink != up {
		t.Errorf("memberships %+v", m)
	}
	leave := wire.GroupRecord{Type: wire.ChangeToInclude, Group: 0xe1000000}
	l.report(0, leave)
	expect("one leaves", up, 0)
	l.report(1, leave)
	expect("the last leaves", up, 2)
	l.report(0, wire.GroupRecord{Type: wire.ChangeToExclude, Group: wire.MulticastNet | 1}, wire.GroupRecord{Type: wire.ChangeToExclude, Group: 0})
	expect("groups that are no programs'", up, 0)
	if m := l.sw.Memberships(); len(m) != 0 {
		t.Errorf("memberships %+v", m)
	}
}

// TestQueriesRest: without timers a switch holds no deadline, and sends due queries with the next frame.
func TestQueriesRest(t *testing.T) {
	l := newLone(t, rooted)
	l.report(0, joinsOf(0, 1)...)
	l.run()
	if at, armed := l.sw.NextTimeout(); armed {
		t.Errorf("a deadline at %v", at)
	}
	l.net.Now = l.net.Now.Add(queryInterval + vtime.Second)
	l.stub[0].got = nil
	l.report(1, joinsOf(5, 1)...)
	l.run()
	if !slices.ContainsFunc(l.stub[0].got, func(s string) bool { return strings.Contains(s, "IGMP query") }) {
		t.Errorf("no query with the first frame that comes when it is due: %v", l.stub[0].got)
	}
}

// TestMembershipsResumed: a switch that takes another's place forwards to members at once, and begins a round of queries: members
// that have left meanwhile are removed, and no others.
func TestMembershipsResumed(t *testing.T) {
	const up = loneHosts
	below := func(c *Config) { c.FIB.Uplinks = []int{up} }
	l := newLone(t, func(c *Config) { below(c); c.QueriesRest = true })
	if l.sw.Snooped() != nil {
		t.Error("a switch that has heard of no group knows something")
	}
	tag := &wire.VLAN{PCP: 6, ID: 9, EtherType: wire.EtherTypeIPv4}
	for host, records := range [][]wire.GroupRecord{joinsOf(0, 3), joinsOf(1, 1)} {
		w := wire.Reporter{IP: hostIP(host), VLAN: tag}
		l.stub[host].send(w.Report(l.net.Pool, records))
	}
	l.run()
	var b bytes.Buffer // as one process leaves it to the next
	var x Snooped
	if err := errors.Join(gob.NewEncoder(&b).Encode(l.sw.Snooped()), gob.NewDecoder(&b).Decode(&x)); err != nil {
		t.Fatal(err)
	}
	next := newLone(t, below)
	next.sw.Resume(0, nil)
	if next.sw.Memberships() != nil {
		t.Error("who is left nothing knows something")
	}
	next.sw.Resume(0, &x)
	if got, want := next.sw.Memberships(), l.sw.Memberships(); !reflect.DeepEqual(got, want) || len(got) != 3 || next.sw.Holding().Members != 4 {
		t.Fatalf("it knows %+v, want %+v", got, want)
	}
	to := func(at vtime.Duration) {
		over := false
		for next.net.At(vtime.Time(at), func(vtime.Time) { over = true }); !over; {
			if !next.net.Step() {
				t.Fatal("nothing is left to do")
			}
		}
	}
	heard := func(host int, what string) (n int) {
		for _, s := range next.stub[host].got {
			if strings.Contains(s, what) {
				n++
			}
		}
		next.stub[host].got = nil
		return n
	}
	to(vtime.Millisecond)
	if a, b, c := heard(0, "IGMP query"), heard(1, "IGMP query"), heard(up, "IGMP"); a != 1 || b != 1 || c != 0 {
		t.Errorf("%d and %d queries to the hosts, %d messages up", a, b, c)
	}
	w := wire.Reporter{IP: hostIP(0), VLAN: tag}
	next.stub[0].send(w.Report(next.net.Pool, joinsOf(0, 2)))
	to(15 * vtime.Second)
	if m := next.sw.Memberships(); len(m) != 3 {
		t.Errorf("after one query it knows %+v", m)
	}
	to(21 * vtime.Second)
	m := next.sw.Memberships()
	if len(m) != 2 || !slices.Equal(m[0].Ports, []uint16{0}) || !slices.Equal(m[1].Ports, []uint16{0}) || next.sw.stats.MembershipsExpired != 2 {
		t.Errorf("after both it knows %+v", m)
	}
	if n := heard(up, "IGMP"); n != 2 {
		t.Errorf("%d reports of the group that has no member any more, want 2", n)
	}
}
