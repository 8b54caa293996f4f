// SPDX-License-Identifier: Apache-2.0

package external

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// end is a machine that sends the frames of the test and keeps those that arrive.
type end struct {
	pool *wire.Pool
	out  outside
	got  []*wire.Frame
}

func (e *end) HandleFrame(_ vtime.Time, _ int, f *wire.Frame) { e.got = append(e.got, f) }
func (e *end) HandleTimeout(vtime.Time)                       {}
func (e *end) NextTimeout() (vtime.Time, bool)                { return vtime.Never, false }
func (e *end) Settle(until vtime.Time, _ int)                 { e.out.settle(until) }

// send sends a frame now.
func (e *end) send(now vtime.Time, build func(f *wire.Frame)) {
	f := e.pool.Get()
	build(f)
	e.out.send(now, f)
}

const (
	hostIP   = 10<<24 | 1
	deviceIP = 10<<24 | 2
	groupID  = wire.GroupNet | 1
	window   = 8
)

var deviceMAC = wire.MAC{0x52, 0x54, 0, 1, 2, 3}

// bench is a leaf, the adapter and a device, in a fabric of either family.
type bench struct {
	*machinetest.Net
	v6           bool
	leaf, device end
	a            *Adapter
	log          strings.Builder
}

// newBench makes the lab's link slower than the device's by a factor.
func newBench(slower int64, v6 bool) *bench {
	const rate = 100e9
	b := &bench{v6: v6, Net: machinetest.New([]int{1, 2, 1}, []machinetest.Link{
		{A: 0, PA: 0, B: 1, PB: Lab, BitsPerSec: rate / slower, Delay: vtime.Microsecond},
		{A: 1, PA: Outside, B: 2, PB: 0, BitsPerSec: rate, Delay: vtime.Microsecond},
	})}
	b.Log = &b.log
	b.leaf = end{pool: b.Pool, out: outside{port: &b.PortsOf(0)[0]}}
	b.device = end{pool: b.Pool, out: outside{port: &b.PortsOf(2)[0]}}
	b.a = New(Config{IP: deviceIP, Ports: b.PortsOf(1), Pool: b.Pool, IPv6: v6, Window: window, Known: func(ip uint32) bool { return ip == hostIP }})
	b.a.Answer(0x42)
	b.Set(0, "leaf", &b.leaf)
	b.Set(1, "adapter", b.a)
	b.Set(2, "device", &b.device)
	return b
}

func (b *bench) run(t *testing.T) {
	t.Helper()
	if err := b.Run(100000); err != nil {
		t.Fatal(err)
	}
}

// families runs a test in a fabric of each family.
func families(t *testing.T, test func(t *testing.T, v6 bool)) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} { // independent of each other
		t.Run(name, func(t *testing.T) { test(t, v6) })
	}
}

// packet builds a SEND_ONLY of the fabric's family.
func (b *bench) packet(src, dst uint32, mac wire.MAC, psn wire.PSN) func(*wire.Frame) {
	return send(wire.Flow{IPv6: b.v6}, src, dst, mac, psn)
}

// send builds a SEND_ONLY.
func send(w wire.Flow, src, dst uint32, mac wire.MAC, psn wire.PSN) func(*wire.Frame) {
	return func(f *wire.Frame) {
		e := wire.NewEnvelope(wire.Flow{IPv6: w.IPv6, VLAN: w.VLAN, SrcMAC: mac, DstMAC: wire.HostMAC(dst), Src: src, Dst: dst, Traffic: 26<<2 | 2, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: 0xffff, DestQP: 0x42, PSN: psn})
		f.SetPhantom(1000)
		f.Seal(0, false)
	}
}

// answer builds an acknowledgement of either kind.
func (b *bench) answer(src, dst uint32, psn wire.PSN, syndrome wire.Syndrome) func(*wire.Frame) {
	return func(f *wire.Frame) {
		e := wire.NewEnvelope(wire.Flow{IPv6: b.v6, SrcMAC: deviceMAC, DstMAC: wire.HostMAC(dst), Src: src, Dst: dst, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
		f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: 0xffff, DestQP: 0x42, PSN: psn})
		f.AddAETH(wire.AETH{Syndrome: syndrome})
		f.Seal(0, false)
	}
}

// TestPassOn: packets go through in both directions; those to the device carry the MAC
// it was last seen with.
func TestPassOn(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		b.device.send(0, b.packet(deviceIP, groupID, deviceMAC, 1))
		b.run(t)
		b.leaf.send(b.Now, b.packet(groupID, deviceIP, wire.GroupMAC(groupID), 2))
		b.run(t)
		if len(b.device.got) != 1 || len(b.leaf.got) != 1 {
			t.Fatalf("device got %d, leaf %d, want 1 and 1\n%s", len(b.device.got), len(b.leaf.got), b.log.String())
		}
		eth, _, _ := wire.ParseEthernet(b.device.got[0].Header())
		if eth.Dst != deviceMAC || !b.device.got[0].CheckICRC() {
			t.Errorf("packet to the device is for %v, ICRC right: %v", eth.Dst, b.device.got[0].CheckICRC())
		}
		if s := b.a.Stats(); s.In != 1 || s.Out != 1 || b.a.MAC() != deviceMAC {
			t.Errorf("stats %+v, MAC %v", *s, b.a.MAC())
		}
	})
}

// TestAccessPort: in a lab with a VLAN the device is at an access port. Its frames get the tag with
// their class as code point, registration is confirmed with the tag, and frames to it have none.
func TestAccessPort(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		b.a = New(Config{
			IP: deviceIP, IPv6: v6, VLAN: 7, Ports: b.PortsOf(1), Pool: b.Pool, Window: window, Known: func(ip uint32) bool { return ip == hostIP },
			Classes: &[64]uint8{26: 5, 48: 6},
		})
		b.a.Answer(0x42)
		b.Set(1, "adapter", b.a)
		b.device.send(0, b.packet(deviceIP, hostIP, deviceMAC, 1))
		b.run(t)
		tagged := func(class uint8) *wire.VLAN { return &wire.VLAN{PCP: class, ID: 7} }
		b.leaf.send(b.Now, send(wire.Flow{IPv6: v6, VLAN: tagged(5)}, hostIP, deviceIP, wire.HostMAC(hostIP), 2))
		b.leaf.send(b.Now, b.registration(wire.Flow{IPv6: v6, VLAN: tagged(6), Traffic: 48 << 2}, 0, 0x42))
		b.run(t)
		if len(b.leaf.got) != 2 || len(b.device.got) != 1 {
			t.Fatalf("leaf got %d, device %d, want 2 and 1\n%s", len(b.leaf.got), len(b.device.got), b.log.String())
		}
		for i, want := range []wire.VLAN{{PCP: 5, ID: 7}, {PCP: 6, ID: 7}} {
			tag := b.leaf.got[i].Tag()
			if tag == nil || tag.PCP != want.PCP || tag.ID != want.ID {
				t.Errorf("%v has the tag %+v, want %+v", b.leaf.got[i], tag, want)
			}
		}
		if f := b.device.got[0]; f.Tag() != nil || !f.CheckICRC() || f.PSN() != 2 || !b.leaf.got[0].CheckICRC() {
			t.Errorf("the device got %v with tag %+v", f, f.Tag())
		}
	})
}

// TestSilentDevice: a device that has said nothing yet is asked for its MAC, again and again; frames
// for it wait meanwhile, up to the window.
func TestSilentDevice(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		const sent = window + 3
		for i := range sent {
			b.leaf.send(0, b.packet(hostIP, deviceIP, wire.HostMAC(hostIP), wire.PSN(i)))
		}
		b.At(vtime.Time(600*vtime.Millisecond), func(now vtime.Time) {
			if len(b.device.got) != 3 || b.a.Stats().Asked != 3 || b.a.Queued() != window {
				t.Errorf("asked %d times, the device got %d frames, %d wait", b.a.Stats().Asked, len(b.device.got), b.a.Queued())
			}
			q, ok := b.device.got[0].Asks()
			if !ok || q.IP != deviceIP {
				t.Fatalf("the device got %v", b.device.got[0])
			}
			b.device.send(now, func(f *wire.Frame) { q.Answer(f, deviceMAC) })
		})
		b.run(t)
		s := b.a.Stats()
		if len(b.device.got) != 3+window || s.Out != window || s.Told != 1 || s.Drops[DropUnresolved] != sent-window {
			t.Fatalf("the device got %d frames, stats %+v", len(b.device.got), *s)
		}
		for i, f := range b.device.got[3:] {
			if eth, _, _ := wire.ParseEthernet(f.Header()); f.PSN() != wire.PSN(i) || eth.Dst != deviceMAC {
				t.Errorf("frame %d is %v to %v", i, f, eth.Dst)
			}
		}
	})
}

// ask builds the device's question for the MAC address of ip.
func ask(v6 bool, ip uint32) func(*wire.Frame) {
	return func(f *wire.Frame) { f.BuildAsk(v6, deviceMAC, deviceIP, ip) }
}

// TestAnswers: the adapter speaks for the fabric's hosts and for every group, and for no other address,
// to questions in the fabric's family.
func TestAnswers(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		for _, c := range []struct {
			ip    uint32
			other bool // in the other family
			want  wire.MAC
		}{
			{ip: hostIP, want: wire.HostMAC(hostIP)}, {ip: groupID, want: wire.GroupMAC(groupID)},
			{ip: deviceIP}, {ip: 10<<24 | 99}, {ip: hostIP, other: true}, {ip: groupID, other: true},
		} {
			b := newBench(1, v6)
			b.device.send(0, ask(v6 != c.other, c.ip))
			b.run(t)
			if len(b.leaf.got) != 0 {
				t.Errorf("%v: the request went into the lab", wire.AddrIn(v6, c.ip))
			}
			if c.want == (wire.MAC{}) {
				if len(b.device.got) != 0 || b.a.Stats().Ignored+b.a.Stats().Told != 1 {
					t.Errorf("%v: answered", wire.AddrIn(v6, c.ip))
				}
				continue
			}
			if len(b.device.got) != 1 {
				t.Errorf("%v: %d answers", wire.AddrIn(v6, c.ip), len(b.device.got))
				continue
			}
			f := b.device.got[0]
			mac, ok := f.Tells(c.ip)
			if _, asks := f.Asks(); asks || !ok || mac != c.want || wire.MAC(f.Header()[:6]) != deviceMAC {
				t.Errorf("%v: answered %v, %v to %x", wire.AddrIn(v6, c.ip), mac, ok, f.Header()[:6])
			}
		}
	})
}

// TestForeign: packets of the other family and of a VLAN do not come into the lab.
func TestForeign(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		b.device.send(0, send(wire.Flow{IPv6: !v6}, deviceIP, hostIP, deviceMAC, 1))
		b.device.send(0, send(wire.Flow{IPv6: v6, VLAN: &wire.VLAN{ID: 5}}, deviceIP, hostIP, deviceMAC, 1))
		b.run(t)
		if s := b.a.Stats(); s.Drops[DropForeign] != 2 || len(b.leaf.got) != 0 {
			t.Errorf("stats %+v, leaf got %d", *s, len(b.leaf.got))
		}
	})
}

// registration builds a packet of the group's leader with one record.
func (b *bench) registration(w wire.Flow, flags wire.MRPFlags, qpn wire.QPN) func(*wire.Frame) {
	return func(f *wire.Frame) {
		w.Src, w.Dst, w.TTL, w.SrcPort, w.DstPort = hostIP, groupID, 64, wire.PortMRP, wire.PortMRP
		e := wire.NewEnvelope(w)
		f.StartDatagram(&e)
		k := b.Pool.Block()
		buf := wire.MRPHeader{Total: 1, Flags: flags, LeaderQPN: 1}.AppendTo(k.Fill(wire.BlockCap)[:0])
		k.Fill(len(wire.MRPRecord{IP: deviceIP, QPN: qpn}.AppendTo(buf)))
		f.SetPayload(k)
		f.Seal(0, false)
	}
}

// TestConfirm: registration, activation and deletion are confirmed in the device's stead
// if they list its queue pair, and never reach it.
func TestConfirm(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		list := func(flags wire.MRPFlags, qpn wire.QPN) {
			b.leaf.send(b.Now, b.registration(wire.Flow{IPv6: v6}, flags, qpn))
			b.run(t)
		}
		list(0, 0x41) // another's
		list(0, 0x42)
		list(wire.MRPActivate, 0)
		list(wire.MRPDelete, 0)
		var got []string
		for _, f := range b.leaf.got {
			got = append(got, f.String())
		}
		var want []string
		for _, flags := range []string{"register", "activate", "delete"} {
			want = append(want, fmt.Sprintf("%v>%v MRP %s confirm 1/1 leaderqp=1 {10.254.0.1 qp=66}", wire.AddrIn(v6, deviceIP), wire.AddrIn(v6, hostIP), flags))
		}
		if !slices.Equal(got, want) || len(b.device.got) != 0 {
			t.Errorf("confirmed\n%s\nwant\n%s\nthe device got %d", strings.Join(got, "\n"), strings.Join(want, "\n"), len(b.device.got))
		}
	})
}

// TestWindow: frames that the lab's slower link cannot take wait, and beyond the window they are
// dropped and counted.
func TestWindow(t *testing.T) {
	b := newBench(100, false)
	const sent = 20
	for i := range sent {
		b.device.send(0, b.packet(deviceIP, hostIP, deviceMAC, wire.PSN(i)))
	}
	b.run(t)
	// One is on the lab's link, window wait.
	if s := b.a.Stats(); len(b.leaf.got) != window+1 || s.Drops[DropOverrun] != sent-window-1 {
		t.Errorf("leaf got %d, %d overran", len(b.leaf.got), s.Drops[DropOverrun])
	}
	for i, f := range b.leaf.got {
		if f.PSN() != wire.PSN(i) {
			t.Errorf("packet %d is %v", i, f.PSN())
		}
	}
}

// TestPause: a pause of the leaf stops the lab's side for as long as it says, and not the
// other.
func TestPause(t *testing.T) {
	b := newBench(1, false)
	b.leaf.send(0, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 1 << 3, Quanta: [8]uint16{3: 0xffff}}) })
	var first vtime.Time
	b.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) { b.device.send(now, b.packet(deviceIP, hostIP, deviceMAC, 1)) })
	b.a.learn(0, deviceMAC)
	b.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) { b.leaf.send(now, b.packet(hostIP, deviceIP, wire.HostMAC(hostIP), 1)) })
	b.After = func() {
		if len(b.leaf.got) == 1 && first == 0 {
			first = b.Now
			if len(b.device.got) != 1 {
				t.Error("the other direction waited, too")
			}
		}
	}
	b.run(t)
	const full = 335 * vtime.Microsecond // 65535 quanta of 512 bits at 100 Gb/s
	if first < vtime.Time(full) || first > vtime.Time(full+5*vtime.Microsecond) {
		t.Errorf("the packet came at %v, the pause ends at %v", first, full)
	}
}

// TestConservation: whatever comes in whatever order, from a device whose address is known
// or not yet, every frame is passed on, dropped with a reason or absorbed, and the device
// sees nothing but RoCE, answers, questions and queries. Every reason to drop fires.
func TestConservation(t *testing.T) {
	var drops [dropReasons]uint64
	ignored := uint64(0)
	for seed := range uint64(400) {
		s := anything(t, seed)
		ignored += s.Ignored
		for why, n := range s.Drops {
			drops[why] += n
		}
	}
	for _, why := range DropReasons() {
		if drops[why] == 0 {
			t.Errorf("%v never fired", why)
		}
	}
	if ignored == 0 {
		t.Error("no question was ignored")
	}
}

func anything(t *testing.T, seed uint64) *Stats {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	b := newBench(1+int64(r.IntN(50)), seed%2 == 1)
	if r.IntN(2) == 0 {
		b.a.learn(0, deviceMAC)
	}
	if r.IntN(8) == 0 {
		b.crowd()
	}
	in := uint64(0)
	for i := range 100 {
		at := vtime.Time(r.Int64N(int64(100 * vtime.Microsecond)))
		what := r.IntN(11)
		b.At(at, func(now vtime.Time) {
			switch what {
			case 10:
				in += b.anyJoin(r, now)
				return
			case 0, 1:
				if what == 1 && r.IntN(2) == 0 {
					b.leaf.send(now, b.answer(hostIP, deviceIP, wire.PSN(i), wire.SyndromeACK))
					return
				}
				b.leaf.send(now, b.packet([]uint32{hostIP, groupID}[r.IntN(2)], deviceIP, wire.HostMAC(hostIP), wire.PSN(i)))
				return
			case 2:
				b.leaf.send(now, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 8, Quanta: [8]uint16{3: uint16(r.IntN(2000))}}) })
				return
			case 9:
				b.leaf.send(now, func(f *wire.Frame) { // registration without a member here
					e := wire.NewEnvelope(wire.Flow{IPv6: b.v6, Src: hostIP, Dst: groupID, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
					f.StartDatagram(&e)
					f.Seal(0, false)
				})
				return
			case 3:
				target := []uint32{hostIP, groupID, deviceIP, 10<<24 | 99}[r.IntN(4)]
				if b.device.send(now, ask(b.v6, target)); r.IntN(4) == 0 {
					in++
					b.device.send(now, func(f *wire.Frame) { f.BuildAsk(b.v6, deviceMAC, deviceIP+1, target) })
				}
			case 4:
				b.device.send(now, b.packet(deviceIP+1, hostIP, deviceMAC, wire.PSN(i)))
			case 5:
				b.device.send(now, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 8}) })
			default:
				switch {
				case !b.a.known && r.IntN(50) != 0:
					return
				case what == 6:
					b.device.send(now, b.answer(deviceIP, hostIP, wire.PSN(i), []wire.Syndrome{wire.SyndromeACK, wire.SyndromeRNR}[r.IntN(2)]))
				default:
					b.device.send(now, b.packet(deviceIP, hostIP, deviceMAC, wire.PSN(i)))
				}
			}
			in++
		})
	}
	b.At(vtime.Time(600*vtime.Millisecond), func(now vtime.Time) { // the device speaks at last
		if q, ok := lastQuestion(b.device.got); ok && r.IntN(2) == 0 {
			b.device.send(now, func(f *wire.Frame) { q.Answer(f, deviceMAC) })
		} else {
			b.device.send(now, b.packet(deviceIP, hostIP, deviceMAC, 0))
		}
		in++
	})
	b.run(t)
	s := b.a.Stats()
	up := 0 // reports to the leaf
	for _, f := range b.leaf.got {
		if f.IsMembership() {
			up++
		}
	}
	sum := s.In + s.Answered + s.Ignored + s.Told + s.Reports
	for _, n := range s.Drops {
		sum += n
	}
	sum -= s.Drops[DropUnresolved] + s.Drops[DropNotJoined] // which come from the lab
	if sum != in || int(s.In) != len(b.leaf.got)-up || int(s.Out+s.Answered+s.Asked+s.Queries) != len(b.device.got) || b.a.Queued() != 0 {
		t.Fatalf("seed %d: %d in, %+v, leaf got %d, device %d, %d wait", seed, in, *s, len(b.leaf.got), len(b.device.got), b.a.Queued())
	}
	for _, f := range append(b.leaf.got, b.device.got...) {
		b.Pool.Put(f)
	}
	if b.Pool.Live != 0 || b.Pool.LiveBlocks != 0 {
		t.Fatalf("seed %d: %d frames, %d blocks live", seed, b.Pool.Live, b.Pool.LiveBlocks)
	}
	return s
}

// lastQuestion returns the last question among frames.
func lastQuestion(frames []*wire.Frame) (q wire.Ask, ok bool) {
	for _, f := range frames {
		if a, asks := f.Asks(); asks {
			q, ok = a, true
		}
	}
	return q, ok
}

var _ machine.Machine = (*Adapter)(nil)
