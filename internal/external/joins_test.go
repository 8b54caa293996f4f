// SPDX-License-Identifier: Apache-2.0

package external

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// groupAddrs are MGIDs in both families: two of one number, one that the lab has for itself, one that names no IPv4 group, and in
// the end one of the link.
var groupAddrs = map[bool][]string{
	false: {"::ffff:239.1.2.3", "::ffff:225.0.0.1", "::ffff:239.254.0.9", "::ffff:239.255.1.1", "::ffff:224.0.0.251"},
	true:  {"ff15::ef01:203", "ff0e::ffff:239.1.2.3", "ff01:0:2:c985::", "ff12:401b:ffff::1", "ff02::fb"},
}

// joinBench is a switch with a host, a device behind its adapter, and a second host.
type joinBench struct {
	*testing.T
	*machinetest.Net
	v6    bool
	sw    *virtswitch.Switch
	a     *Adapter
	host  *end
	dev   *end
	addrs [][16]byte
	in    map[[16]byte]bool // groups that the device has joined
	sent  wire.PSN
}

const devicePort = 1 // of the switch

func newJoinBench(t *testing.T, v6, rest bool, vlan uint16) *joinBench {
	cable := func(a, pa, b, pb int) machinetest.Link {
		return machinetest.Link{A: a, PA: pa, B: b, PB: pb, BitsPerSec: 100e9, Delay: vtime.Microsecond}
	}
	b := &joinBench{T: t, v6: v6, in: map[[16]byte]bool{}, Net: machinetest.New([]int{2, 2, 1, 1}, []machinetest.Link{
		cable(0, 0, 3, 0), cable(0, devicePort, 1, Lab), cable(1, Outside, 2, 0),
	})}
	b.sw = virtswitch.New(virtswitch.Config{
		IP: 10<<24 | 253<<16 | 1, Ports: b.PortsOf(0), Pool: b.Pool, QueriesRest: rest,
		FIB: virtswitch.FIB{Uplinks: []int{-1}}, Settings: virtswitch.Settings{Buffer: 1 << 20},
	})
	b.a = New(Config{IP: deviceIP, IPv6: v6, VLAN: vlan, Ports: b.PortsOf(1), Pool: b.Pool, Window: 64, Known: func(uint32) bool { return true }})
	b.host = &end{pool: b.Pool, out: outside{port: &b.PortsOf(3)[0]}}
	b.dev = &end{pool: b.Pool, out: outside{port: &b.PortsOf(2)[0]}}
	b.Set(0, "leaf", b.sw)
	b.Set(1, "adapter", b.a)
	b.Set(2, "device", b.dev)
	b.Set(3, "host", b.host)
	for _, s := range groupAddrs[v6] {
		b.addrs = append(b.addrs, netip.MustParseAddr(s).As16())
	}
	return b
}

// to runs until an instant.
func (b *joinBench) to(at vtime.Time) {
	b.Helper()
	over := false
	for b.At(at, func(vtime.Time) { over = true }); !over; {
		if !b.Step() {
			b.Fatal("nothing is left to do")
		}
	}
}

func (b *joinBench) settle() { b.Helper(); b.to(b.Now.Add(vtime.Millisecond)) }

// put has an end send bytes.
func (b *joinBench) put(from *end, raw []byte) {
	b.Helper()
	f, err := b.Pool.Parse(raw)
	if err != nil {
		b.Fatal(err)
	}
	from.out.send(b.Now, f)
}

// record is one of a report: a type of the RFCs and an address.
type record struct {
	kind wire.RecordType
	addr [16]byte
}

// report returns a report of the device.
func (b *joinBench) report(src uint32, records ...record) []byte {
	return deviceReport(b.v6, src, records...)
}

// deviceReport returns a report as the RFCs have it. It is written here a second time: the adapter has to understand the
// reports of others.
func deviceReport(v6 bool, src uint32, records ...record) []byte {
	if v6 {
		m := []byte{143, 0, 0, 0, 0, 0, 0, byte(len(records))}
		for _, r := range records {
			m = append(append(m, byte(r.kind), 0, 0, 0), r.addr[:]...)
		}
		from, to := netip.MustParseAddr("fe80::5054:ff:fe01:203").As16(), netip.MustParseAddr("ff02::16").As16()
		pseudo := append(append(append(from[:], to[:]...), 0, 0, 0, byte(len(m)), 0, 0, 0, 58), m...)
		binary.BigEndian.PutUint16(m[2:], onesSum(pseudo))
		raw := []byte{0x33, 0x33, 0, 0, 0, 0x16, 0x52, 0x54, 0, 1, 2, 3, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(8 + len(m)), 0, 1}
		raw = append(append(raw, from[:16]...), to[:16]...)
		return append(append(raw, 58, 0, 5, 2, 0, 0, 1, 0), m...)
	}
	m := []byte{0x22, 0, 0, 0, 0, 0, 0, byte(len(records))}
	for _, r := range records {
		m = append(append(m, byte(r.kind), 0, 0, 0), r.addr[12:]...)
	}
	binary.BigEndian.PutUint16(m[2:], onesSum(m))
	ip := []byte{0x46, 0xc0, 0, byte(24 + len(m)), 0, 0, 0x40, 0, 1, 2, 0, 0, byte(src >> 24), byte(src >> 16), byte(src >> 8), byte(src), 224, 0, 0, 22, 0x94, 4, 0, 0}
	binary.BigEndian.PutUint16(ip[10:], onesSum(ip))
	raw := append([]byte{1, 0, 0x5e, 0, 0, 0x16, 0x52, 0x54, 0, 1, 2, 3, 8, 0}, append(ip, m...)...)
	return append(raw, make([]byte, max(0, wire.MinFrameLen-len(raw)))...)
}

// onesSum returns the checksum of RFC 1071.
func onesSum(b []byte) uint16 {
	s := 0
	for i, x := range b {
		s += int(x) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}

// datagram returns a UD packet between addresses.
func (b *joinBench) datagram(src uint32, to [16]byte, vlan uint16) (raw []byte, psn wire.PSN) {
	b.sent++
	f := b.Pool.Get()
	w := wire.Flow{IPv6: b.v6, SrcMAC: deviceMAC, Src: src, Dst: 0xef010203, Traffic: 26<<2 | 2, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2}
	if vlan > 0 {
		w.VLAN = &wire.VLAN{ID: vlan, PCP: 3}
	}
	e := wire.NewEnvelope(w)
	f.Start(&e, wire.BTH{OpCode: wire.OpUDSendOnly, PKey: 0xffff, DestQP: wire.QPNMulticast, PSN: b.sent})
	f.AddDETH(wire.DETH{QKey: 5, SrcQP: 7})
	f.SetPhantom(100)
	f.Seal(0, false)
	f.SetGroup(to)
	raw = f.AppendTo(nil)
	b.Pool.Put(f)
	return raw, b.sent
}

func number(addr [16]byte) uint32 {
	n, _ := wire.GroupOf(addr)
	return n
}

// wanted are the groups that the device has joined, as the adapter and as the switch know them.
func (b *joinBench) wanted() (joins []Join, numbers []uint32) {
	for _, addr := range b.addrs {
		if b.in[addr] && !linkScope(addr) {
			joins, numbers = append(joins, Join{number(addr), addr}), append(numbers, number(addr))
		}
	}
	slices.SortFunc(joins, Join.compare)
	slices.Sort(numbers)
	return joins, slices.Compact(numbers)
}

// check compares the groups of adapter and switch with those that the device has joined.
func (b *joinBench) check(what string) {
	b.Helper()
	b.settle()
	joins, numbers := b.wanted()
	if got := b.a.Joins(); !slices.Equal(got, joins) {
		b.Errorf("%s: the adapter knows %x, want %x", what, got, joins)
	}
	var known []uint32
	for _, m := range b.sw.Memberships() {
		if slices.Contains(m.Ports, devicePort) {
			known = append(known, m.Group)
		}
	}
	if !slices.Equal(known, numbers) {
		b.Errorf("%s: the switch has %x behind the device's port, want %x", what, known, numbers)
	}
}

// exchange sends a datagram to each group both ways: the device gets one for each address that it has joined, under that address, and the
// host gets one under the group's number.
func (b *joinBench) exchange(what string, vlan uint16) {
	b.Helper()
	b.settle()
	b.clear()
	sent := map[wire.PSN]uint32{}
	for _, addr := range b.addrs {
		raw, psn := b.datagram(hostIP, wire.AddrIn(b.v6, number(addr)).As16(), vlan)
		b.put(b.host, raw)
		sent[psn] = number(addr)
	}
	back := map[wire.PSN]uint32{}
	for _, addr := range b.addrs {
		raw, psn := b.datagram(deviceIP, addr, 0)
		b.put(b.dev, raw)
		back[psn] = number(addr)
	}
	b.settle()
	got := map[string]int{}
	for _, f := range b.dev.got {
		addr := f.DstAddr()
		if f.Kind() == wire.KindOther && b.v6 { // addressed to a group that is not the fabric's: as the device sees it
			b.Fatalf("%s: the device got a frame of no kind", what)
		}
		if f.Kind() != wire.KindRoCE || number(addr) != sent[f.PSN()] || !b.in[addr] || !f.CheckICRC() || f.Tag() != nil {
			b.Errorf("%s: the device got %v for %v", what, f, netip.AddrFrom16(addr))
		}
		if mac := wire.MAC(f.Header()[:6]); mac != wire.MulticastMAC(b.v6, binary.BigEndian.Uint32(addr[12:])) {
			b.Errorf("%s: %v has the MAC address %v", what, netip.AddrFrom16(addr), mac)
		}
		got[fmt.Sprint(f.PSN(), addr)]++
	}
	want := 0
	for psn, n := range sent {
		for _, x := range b.a.joins.of(n) {
			if want++; got[fmt.Sprint(psn, x.Addr)] != 1 {
				b.Errorf("%s: the device got datagram %d to %v %d times", what, psn, netip.AddrFrom16(x.Addr), got[fmt.Sprint(psn, x.Addr)])
			}
		}
	}
	if len(b.dev.got) != want {
		b.Errorf("%s: the device got %d datagrams, want %d", what, len(b.dev.got), want)
	}
	for _, f := range b.host.got {
		if f.Kind() == wire.KindRoCE && (f.DstAddr() != wire.AddrIn(b.v6, back[f.PSN()]).As16() || !f.CheckICRC()) {
			b.Errorf("%s: the host got %v", what, f)
		}
	}
	if n := len(b.host.got); n != len(back) {
		b.Errorf("%s: the host got %d datagrams of the device, want %d", what, n, len(back))
	}
	b.clear()
}

// clear takes the frames that have arrived at both ends.
func (b *joinBench) clear() {
	for _, e := range []*end{b.host, b.dev} {
		for _, f := range e.got {
			b.Pool.Put(f)
		}
		e.got = nil
	}
}

// hostJoins has the host join all groups.
func (b *joinBench) hostJoins() {
	w := wire.Reporter{IP: hostIP, IPv6: b.v6}
	for _, addr := range b.addrs {
		b.host.out.send(b.Now, w.Report(b.Pool, []wire.GroupRecord{{Type: wire.ChangeToExclude, Group: number(addr)}}))
	}
	b.settle()
}

// TestJoinsOfDevice: by random reports of a device, the switch has its port in the groups that it has joined, as numbers, and
// datagrams pass under the number inside and under each MGID outside. What is wrong with a report leaves all as it is.
func TestJoinsOfDevice(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 2))
			vlan := []uint16{0, 7}[seed%2]
			b := newJoinBench(t, v6, true, vlan)
			b.hostJoins()
			for step := range 25 {
				what := fmt.Sprintf("IPv6 %v, seed %d, step %d", v6, seed, step)
				b.act(r, what)
				b.check(what)
				if step%4 == 0 {
					b.exchange(what, vlan)
				}
			}
			if b.clear(); b.Pool.Live != 0 || b.Pool.LiveBlocks != 0 || t.Failed() {
				t.Fatalf("seed %d: %d frames, %d blocks live", seed, b.Pool.Live, b.Pool.LiveBlocks)
			}
		}
	})
}

// act has the device send a report, good or bad.
func (b *joinBench) act(r *rand.Rand, what string) {
	b.Helper()
	kinds := []wire.RecordType{wire.ChangeToExclude, wire.ModeIsExclude, wire.ChangeToInclude, wire.ModeIsInclude, wire.BlockOldSources}
	var records []record
	for range r.IntN(4) {
		records = append(records, record{kinds[r.IntN(len(kinds))], b.addrs[r.IntN(len(b.addrs))]})
	}
	before := b.a.Stats().Drops
	expect := func(why DropReason) {
		b.Helper()
		if b.settle(); b.a.Stats().Drops[why] != before[why]+1 {
			b.Errorf("%s: nothing was dropped as %v", what, why)
		}
	}
	switch r.IntN(10) {
	case 0: // damaged
		raw := b.report(deviceIP, append(records, record{wire.ChangeToExclude, b.addrs[0]})...)
		raw[len(b.report(deviceIP))-1] ^= 1
		raw[map[bool]int{false: 40, true: 64}[b.v6]] ^= 1 // the checksum
		b.put(b.dev, raw)
		expect(DropMalformed)
	case 1: // of another family
		b.put(b.dev, deviceReport(!b.v6, deviceIP, records...))
		expect(DropForeign)
	case 2: // a query
		f := (&wire.Reporter{IP: deviceIP, IPv6: b.v6}).Query(b.Pool)
		b.dev.out.send(b.Now, f)
		expect(DropForeign)
	case 3: // another's
		if !b.v6 {
			b.put(b.dev, b.report(deviceIP+1, records...))
			expect(DropSource)
		}
	case 4: // of a host that has no address yet
		b.put(b.dev, b.report(0, records...))
		b.apply(records)
	default:
		b.put(b.dev, b.report(deviceIP, records...))
		b.apply(records)
	}
}

// apply applies a report to the model.
func (b *joinBench) apply(records []record) {
	for _, x := range records {
		switch x.kind {
		case wire.ChangeToExclude, wire.ModeIsExclude:
			b.in[x.addr] = true
		case wire.ChangeToInclude, wire.ModeIsInclude: // without sources
			b.in[x.addr] = false
		}
	}
}

// anyJoin has the device report something, or the leaf query or send to a group, in a bench of either kind. It returns the
// number of frames of the device.
func (b *bench) anyJoin(r *rand.Rand, now vtime.Time) (in uint64) {
	addr := func() [16]byte { return netip.MustParseAddr(groupAddrs[b.v6][r.IntN(5)]).As16() }
	parse := func(raw []byte) *wire.Frame {
		f, err := b.Pool.Parse(raw)
		if err != nil {
			panic(err)
		}
		return f
	}
	switch r.IntN(7) {
	case 6:
		f := b.Pool.Get()
		send(wire.Flow{IPv6: b.v6, VLAN: &wire.VLAN{ID: 5}}, deviceIP, hostIP, deviceMAC, 9)(f)
		b.device.out.send(now, f)
		return 1
	case 0:
		b.leaf.out.send(now, (&wire.Reporter{IP: hostIP, IPv6: b.v6 != (r.IntN(4) == 0)}).Query(b.Pool))
	case 1, 2:
		f := b.Pool.Get()
		send(wire.Flow{IPv6: b.v6}, hostIP, number(addr()), deviceMAC, 9)(f)
		b.leaf.out.send(now, f)
	case 3:
		f := b.Pool.Get()
		send(wire.Flow{IPv6: b.v6}, deviceIP, 0xef010203, deviceMAC, 9)(f)
		f.SetGroup(addr())
		raw := f.AppendTo(nil)
		b.Pool.Put(f)
		b.device.out.send(now, parse(raw))
		return 1
	default:
		src := []uint32{0, deviceIP, deviceIP, deviceIP + 1}[r.IntN(4)]
		raw := deviceReport(b.v6 != (r.IntN(8) == 0), src, record{wire.RecordType(1 + r.IntN(6)), addr()}, record{wire.RecordType(1 + r.IntN(6)), addr()})
		if r.IntN(4) == 0 {
			raw[len(raw)-1] ^= 1
		}
		b.device.out.send(now, parse(raw))
		return 1
	}
	return 0
}

// crowd has the device be a member of as many groups as there is room for.
func (b *bench) crowd() {
	for n := range JoinsMax {
		addr := [16]byte{10: 0xff, 11: 0xff, 12: 226, 14: byte(n >> 8), 15: byte(n)}
		b.a.joins.set(0, Join{number(addr), addr}, true)
	}
}

// TestDeviceQueried: the switch's queries reach the device, without a tag; while it answers it stays, and when it is silent the switch
// removes it, after two queries and no earlier. The adapter removes it, too.
func TestDeviceQueried(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newJoinBench(t, v6, false, 7)
		in := b.addrs[1]
		b.put(b.dev, b.report(deviceIP, record{wire.ChangeToExclude, in}))
		b.in[in] = true
		b.check("joined")
		queried := func() (n int) {
			for _, f := range b.dev.got {
				m, _, err := f.Membership(nil)
				if !f.IsMembership() || err != nil || !m.Query || m.IPv6 != v6 || f.Tag() != nil {
					t.Errorf("the device got %v, %v", f, err)
				}
				n++
			}
			b.clear()
			return n
		}
		round := func(n int) vtime.Time { return vtime.Time((125*n + 1) * int(vtime.Second)) }
		for n := 1; n <= 3; n++ {
			b.to(round(n))
			if got := queried(); got != 1 {
				t.Errorf("round %d: %d queries", n, got)
			}
			b.to(round(n).Add(5 * vtime.Second))
			b.put(b.dev, b.report(0, record{wire.ModeIsExclude, in}))
			b.to(round(n).Add(30 * vtime.Second))
			if got := queried(); got != 0 {
				t.Errorf("round %d: %d queries to a device that has answered", n, got)
			}
			b.check("answered")
		}
		b.to(round(4).Add(18 * vtime.Second))
		b.check("silent for 19 s, of 20")
		b.to(round(4).Add(20 * vtime.Second))
		if m := b.sw.Memberships(); len(m) != 0 || queried() != 2 || b.sw.Stats().MembershipsExpired != 1 {
			t.Errorf("the switch has %v of a device that does not answer", m)
		}
		b.to(round(6))
		if x := b.a.Joins(); len(x) != 0 {
			t.Errorf("the adapter has %x of a device that does not answer", x)
		}
	})
}

// TestJoinsRepeated: when the lab's link is up again, a switch that has lost the device's groups gets them again; and there is
// room for JoinsMax addresses and not for one more.
func TestJoinsRepeated(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newJoinBench(t, v6, true, 0)
		b.hostJoins()
		b.put(b.dev, b.report(deviceIP, record{wire.ChangeToExclude, b.addrs[0]}, record{wire.ChangeToExclude, b.addrs[1]}, record{wire.ChangeToExclude, b.addrs[2]}))
		b.apply([]record{{wire.ChangeToExclude, b.addrs[0]}, {wire.ChangeToExclude, b.addrs[1]}, {wire.ChangeToExclude, b.addrs[2]}})
		b.check("joined")
		b.sw.Restart(b.Now)
		b.settle()
		b.clear() // the device is asked, and has not answered yet
		b.a.NIC().SetCarrier(b.Now, false)
		b.a.NIC().SetCarrier(b.Now, true)
		b.check("the link is up again")
		b.hostJoins()
		b.exchange("the link is up again", 0)

		addr := b.addrs[0]
		for n := len(b.a.Joins()); n <= JoinsMax; n++ {
			binary.BigEndian.PutUint16(addr[14:], uint16(n))
			addr[13] = 0xee
			b.put(b.dev, b.report(deviceIP, record{wire.ChangeToExclude, addr}))
			b.settle()
			if full := b.a.Stats().Drops[DropJoinsFull]; full != 0 && n < JoinsMax || full != 1 && n == JoinsMax {
				t.Fatalf("%d addresses: %d reports were refused", n, full)
			}
		}
		if n := len(b.a.Joins()); n != JoinsMax {
			t.Errorf("%d addresses, want %d", n, JoinsMax)
		}
	})
}
