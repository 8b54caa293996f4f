// SPDX-License-Identifier: Apache-2.0

package external

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Multicast groups of the device. It reports its groups as any host does (IGMPv3, MLDv2, and their earlier versions), and its
// leaf switch needs the reports with the numbers by which the fabric identifies groups (wire.GroupOf). The adapter therefore
// passes a report on in the fabric's terms, and readdresses datagrams: from the device to the number of the MGID, and to the
// device to each MGID under which it has joined the number. Queries go to the device, which answers them itself: if it is gone,
// the switch notices.

// JoinsMax limits the group addresses that an adapter keeps for one device: as many groups as a NIC lets programs join.
const JoinsMax = 4096

// Join is a group that the device has joined.
type Join struct {
	Number uint32   // by which the fabric identifies it
	Addr   [16]byte // MGID; of an IPv4 group ::ffff:a.b.c.d
}

func (x Join) compare(y Join) int {
	return cmp.Or(cmp.Compare(x.Number, y.Number), bytes.Compare(x.Addr[:], y.Addr[:]))
}

// joins lists the groups that the device has joined.
type joins struct {
	all   []joined // by number and address
	asked [2]vtime.Time
	up    []wire.GroupRecord // of the report that is passed on
	buf   []byte
}

type joined struct {
	Join
	heard vtime.Time // when the device reported it last
}

func (j *joins) find(x Join) (int, bool) {
	return slices.BinarySearchFunc(j.all, x, func(m joined, x Join) int { return m.compare(x) })
}

// of returns the addresses under which the device has joined a group.
func (j *joins) of(number uint32) []joined {
	i, _ := j.find(Join{Number: number})
	n := i
	for n < len(j.all) && j.all[n].Number == number {
		n++
	}
	return j.all[i:n]
}

// set notes that the device has joined a group, or left it. It returns false if there is no room.
func (j *joins) set(now vtime.Time, x Join, in bool) bool {
	i, known := j.find(x)
	switch {
	case in && known:
		j.all[i].heard = now
	case in && len(j.all) == JoinsMax:
		return false
	case in:
		j.all = slices.Insert(j.all, i, joined{x, now})
	case known:
		j.all = slices.Delete(j.all, i, i+1)
	}
	return true
}

// query notes that the device is asked, and forgets what it has not reported since the last query but one: it has come back without
// a word. The switch does the same by its own count.
func (j *joins) query(now vtime.Time) {
	since := j.asked[0]
	j.all = slices.DeleteFunc(j.all, func(m joined) bool { return m.heard < since })
	j.asked = [2]vtime.Time{j.asked[1], now}
}

// Joins returns the groups that the device has joined, by number and address.
func (a *Adapter) Joins() (all []Join) {
	for _, m := range a.joins.all {
		all = append(all, m.Join)
	}
	return all
}

// linkScope reports whether a group is one of those of a link, which hosts join for their own protocols: 224.0.0.0/24 and ff02::/16.
// Switches do not keep them (RFC 4541 §2.1.2 and §3).
func linkScope(addr [16]byte) bool {
	return addr[0] == 0xff && addr[1] == 2 || addr[0] == 0 && [3]byte(addr[12:15]) == [3]byte{224}
}

// report passes a report of the device on to the switch.
func (a *Adapter) report(now vtime.Time, f *wire.Frame) {
	m, buf, err := f.Membership(a.joins.buf)
	a.joins.buf = buf
	switch {
	case err != nil:
		a.drop(now, f, DropMalformed)
		return
	case m.Query || m.IPv6 != a.c.IPv6:
		a.drop(now, f, DropForeign)
		return
	case m.Src != 0 && m.Src != a.c.IP: // 0.0.0.0 is a host's that has no address yet (RFC 3376 §4.2.13)
		a.seen.Other = m.Src
		a.drop(now, f, DropSource)
		return
	case a.nic.Queued() >= a.c.Window:
		a.drop(now, f, DropOverrun)
		return
	}
	full := false
	up := a.joins.up[:0]
	for r, ok := m.Next(); ok; r, ok = m.Next() {
		number, group := wire.GroupOf(m.Addr())
		x := Join{number, m.Addr()}
		switch {
		case !group || linkScope(x.Addr):
		case r.Joins() && !a.joins.set(now, x, true):
			full = true
		case r.Joins():
			up = append(up, wire.GroupRecord{Type: wire.ChangeToExclude, Group: x.Number})
		case r.Leaves():
			a.joins.set(now, x, false)
			if len(a.joins.of(x.Number)) == 0 {
				up = append(up, wire.GroupRecord{Type: wire.ChangeToInclude, Group: x.Number})
			}
		}
	}
	a.joins.up = up
	a.tell(now, up)
	if full {
		a.drop(now, f, DropJoinsFull)
		return
	}
	a.stats.Reports++
	a.c.Pool.Put(f)
}

// tell sends the switch a report of records.
func (a *Adapter) tell(now vtime.Time, records []wire.GroupRecord) {
	w := a.nic.Reporter()
	for part := range slices.Chunk(records, wire.GroupRecordsMax) {
		a.nic.SendFrame(now, w.Report(a.c.Pool, part))
	}
}

// LinkUp implements virtrnic.LinkWatcher: the switch may have forgotten the device meanwhile.
func (s *stack) LinkUp(now vtime.Time) {
	a := (*Adapter)(s)
	up := a.joins.up[:0]
	for _, m := range a.joins.all {
		if n := len(up); n == 0 || up[n-1].Group != m.Number {
			up = append(up, wire.GroupRecord{Type: wire.ModeIsExclude, Group: m.Number})
		}
	}
	a.joins.up = up
	a.tell(now, up)
}

// inquire passes a query of the switch on to the device, and reports whether f is one.
func (a *Adapter) inquire(now vtime.Time, f *wire.Frame) bool {
	if !f.IsMembership() {
		return false
	}
	m, buf, err := f.Membership(a.joins.buf)
	a.joins.buf = buf
	if err != nil || !m.Query || m.IPv6 != a.c.IPv6 {
		return false
	}
	a.joins.query(now)
	f.Untag()
	a.stats.Queries++
	a.out.send(now, f)
	return true
}

// regroup returns a frame of the device as a packet of the fabric: one to a group has its number for an address. It puts
// back what it returns another frame for.
func (a *Adapter) regroup(f *wire.Frame) *wire.Frame {
	if a.c.IPv6 && f.Kind() == wire.KindOther {
		g, buf, ok := a.c.Pool.Regroup(f, a.joins.buf)
		if a.joins.buf = buf; ok {
			return g
		}
		return f
	}
	if f.Kind() == wire.KindRoCE && f.IPv6() == a.c.IPv6 && wire.IsMulticast(f.DstIP()) {
		if number, ok := wire.GroupOf(f.DstAddr()); ok {
			f.SetGroup(wire.IPv6Of(number))
		}
	}
	return f
}

// datagram passes a packet for a group on to the device, once for each address under which it has joined it.
func (a *Adapter) datagram(now vtime.Time, f *wire.Frame) {
	to := a.joins.of(f.DstIP())
	if len(to) == 0 {
		a.drop(now, f, DropNotJoined)
		return
	}
	f.Untag()
	for i, m := range to {
		g := f
		if i < len(to)-1 {
			g = a.c.Pool.Clone(f)
		}
		g.SetGroup(m.Addr)
		a.stats.Out++
		a.out.send(now, g)
	}
}
