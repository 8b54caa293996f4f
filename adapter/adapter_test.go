package adapter

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/machine/machinetest"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// end is a machine that sends what the test tells it to and keeps what comes.
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

// bench is a leaf, the adapter and a device.
type bench struct {
	*machinetest.Net
	leaf, device end
	a            *Adapter
	log          strings.Builder
}

// newBench makes the lab's link slower than the device's by a factor.
func newBench(slower int64) *bench {
	const rate = 100e9
	b := &bench{Net: machinetest.New([]int{1, 2, 1}, []machinetest.Link{
		{A: 0, PA: 0, B: 1, PB: Lab, BitsPerSec: rate / slower, Delay: vtime.Microsecond},
		{A: 1, PA: Outside, B: 2, PB: 0, BitsPerSec: rate, Delay: vtime.Microsecond},
	})}
	b.Log = &b.log
	b.leaf = end{pool: b.Pool, out: outside{port: &b.PortsOf(0)[0]}}
	b.device = end{pool: b.Pool, out: outside{port: &b.PortsOf(2)[0]}}
	b.a = New(Config{IP: deviceIP, Ports: b.PortsOf(1), Pool: b.Pool, Window: window, Known: func(ip uint32) bool { return ip == hostIP }})
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

// packet builds a SEND_ONLY.
func packet(src, dst uint32, mac wire.MAC, psn wire.PSN) func(*wire.Frame) {
	return func(f *wire.Frame) {
		e := wire.NewEnvelope(wire.Flow{SrcMAC: mac, DstMAC: wire.HostMAC(dst), Src: src, Dst: dst, Traffic: 26<<2 | 2, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: 0xffff, DestQP: 0x42, PSN: psn})
		f.SetPhantom(1000)
		f.Seal(0, false)
	}
}

// TestPassOn: packets go through in both directions; those to the device carry the MAC
// it was last seen with.
func TestPassOn(t *testing.T) {
	b := newBench(1)
	b.device.send(0, packet(deviceIP, groupID, deviceMAC, 1))
	b.run(t)
	b.leaf.send(b.Now, packet(groupID, deviceIP, wire.GroupMAC(groupID), 2))
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
}

// TestSilentDevice: a device that has said nothing yet is asked for its MAC, again and
// again; what is for it waits meanwhile, up to the window.
func TestSilentDevice(t *testing.T) {
	b := newBench(1)
	const sent = window + 3
	for i := range sent {
		b.leaf.send(0, packet(hostIP, deviceIP, wire.HostMAC(hostIP), wire.PSN(i)))
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
}

func arp(ip uint32) func(*wire.Frame) {
	return func(f *wire.Frame) {
		raw := wire.Ethernet{Dst: wire.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Src: deviceMAC, EtherType: wire.EtherTypeARP}.AppendTo(nil)
		raw = wire.ARP{Op: wire.ARPRequest, SenderMAC: deviceMAC, SenderIP: deviceIP, TargetIP: ip}.AppendTo(raw)
		var p wire.Pool
		g, err := p.Parse(raw)
		if err != nil {
			panic(err)
		}
		*f = *g
	}
}

// TestARP: the adapter speaks for the fabric's hosts and for every group, and for nobody
// else.
func TestARP(t *testing.T) {
	for _, c := range []struct {
		ip   uint32
		want wire.MAC
	}{{hostIP, wire.HostMAC(hostIP)}, {groupID, wire.GroupMAC(groupID)}, {deviceIP, wire.MAC{}}, {10<<24 | 99, wire.MAC{}}} {
		b := newBench(1)
		b.device.send(0, arp(c.ip))
		b.run(t)
		if len(b.leaf.got) != 0 {
			t.Errorf("%v: the request went into the lab", wire.AddrOf(c.ip))
		}
		if c.want == (wire.MAC{}) {
			if len(b.device.got) != 0 || b.a.Stats().Ignored+b.a.Stats().Told != 1 {
				t.Errorf("%v: answered", wire.AddrOf(c.ip))
			}
			continue
		}
		if len(b.device.got) != 1 {
			t.Errorf("%v: %d answers", wire.AddrOf(c.ip), len(b.device.got))
			continue
		}
		h, _, err := wire.ParseARP(b.device.got[0].Header()[wire.EthernetLen:])
		if err != nil || h.Op != wire.ARPReply || h.SenderMAC != c.want || h.SenderIP != c.ip || h.TargetIP != deviceIP || h.TargetMAC != deviceMAC {
			t.Errorf("%v: answered %+v, %v", wire.AddrOf(c.ip), h, err)
		}
	}
}

// TestConfirm: registration, activation and deletion are confirmed in the device's stead
// if they list its queue pair, and never reach it.
func TestConfirm(t *testing.T) {
	b := newBench(1)
	ask := func(flags wire.MRPFlags, qpn wire.QPN) {
		b.leaf.send(b.Now, func(f *wire.Frame) {
			e := wire.NewEnvelope(wire.Flow{Src: hostIP, Dst: groupID, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
			f.StartDatagram(&e)
			k := b.Pool.Block()
			buf := wire.MRPHeader{Total: 1, Flags: flags, LeaderQPN: 1}.AppendTo(k.Fill(wire.BlockCap)[:0])
			k.Fill(len(wire.MRPRecord{IP: deviceIP, QPN: qpn}.AppendTo(buf)))
			f.SetPayload(k)
			f.Seal(0, false)
		})
		b.run(t)
	}
	ask(0, 0x41) // another's
	ask(0, 0x42)
	ask(wire.MRPActivate, 0)
	ask(wire.MRPDelete, 0)
	var got []string
	for _, f := range b.leaf.got {
		got = append(got, f.String())
	}
	want := `10.0.0.2>10.0.0.1 MRP register confirm 1/1 leaderqp=1 {10.254.0.1 qp=66}
10.0.0.2>10.0.0.1 MRP activate confirm 1/1 leaderqp=1 {10.254.0.1 qp=66}
10.0.0.2>10.0.0.1 MRP delete confirm 1/1 leaderqp=1 {10.254.0.1 qp=66}`
	if s := strings.Join(got, "\n"); s != want || len(b.device.got) != 0 {
		t.Errorf("confirmed\n%s\nwant\n%s\nthe device got %d", s, want, len(b.device.got))
	}
}

// TestWindow: what the lab's slower link cannot take waits, and beyond the window it is
// dropped and counted.
func TestWindow(t *testing.T) {
	b := newBench(100)
	const sent = 20
	for i := range sent {
		b.device.send(0, packet(deviceIP, hostIP, deviceMAC, wire.PSN(i)))
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
	b := newBench(1)
	b.leaf.send(0, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 1 << 3, Quanta: [8]uint16{3: 0xffff}}) })
	var first vtime.Time
	b.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) { b.device.send(now, packet(deviceIP, hostIP, deviceMAC, 1)) })
	b.a.learn(0, deviceMAC)
	b.At(vtime.Time(2*vtime.Microsecond), func(now vtime.Time) { b.leaf.send(now, packet(hostIP, deviceIP, wire.HostMAC(hostIP), 1)) })
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

// TestConservation: whatever comes in whatever order, every frame is passed on, dropped
// with a reason or absorbed, and the device sees nothing but RoCE and answers.
func TestConservation(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(1 + int64(r.IntN(50)))
		b.a.learn(0, deviceMAC)
		in := uint64(0)
		for i := range 100 {
			at := vtime.Time(r.Int64N(int64(100 * vtime.Microsecond)))
			what := r.IntN(7)
			b.At(at, func(now vtime.Time) {
				switch what {
				case 0:
					b.leaf.send(now, packet(hostIP, deviceIP, wire.HostMAC(hostIP), wire.PSN(i)))
					return
				case 1:
					b.leaf.send(now, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 8, Quanta: [8]uint16{3: uint16(r.IntN(2000))}}) })
					return
				case 2:
					b.device.send(now, arp(hostIP))
				case 3:
					b.device.send(now, packet(hostIP, hostIP, deviceMAC, wire.PSN(i))) // not its address
				case 4:
					b.device.send(now, func(f *wire.Frame) { f.BuildPFC(wire.PFC{Enable: 8}) })
				default:
					b.device.send(now, packet(deviceIP, hostIP, deviceMAC, wire.PSN(i)))
				}
				in++
			})
		}
		b.run(t)
		s := b.a.Stats()
		sum := s.In + s.Answered + s.Ignored
		for _, n := range s.Drops {
			sum += n
		}
		if sum != in || int(s.In) != len(b.leaf.got) || int(s.Out+s.Answered) != len(b.device.got) || b.a.Queued() != 0 {
			t.Fatalf("seed %d: %d in, %+v, leaf got %d, device %d, %d wait", seed, in, *s, len(b.leaf.got), len(b.device.got), b.a.Queued())
		}
		for _, f := range append(b.leaf.got, b.device.got...) {
			b.Pool.Put(f)
		}
		if b.Pool.Live != 0 || b.Pool.LiveBlocks != 0 {
			t.Fatalf("seed %d: %d frames, %d blocks live", seed, b.Pool.Live, b.Pool.LiveBlocks)
		}
	}
}

var _ machine.Machine = (*Adapter)(nil)
