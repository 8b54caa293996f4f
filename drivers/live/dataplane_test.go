// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// veths makes a network namespace with n veth pairs and returns raw sockets on the near
// and far end of each. Nothing of it is left when the benchmark ends.
func veths(b *testing.B, n int, trains bool) (near, far []int) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("root is needed")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(b, err)
	own, err := netns.New()
	must(b, err)
	defer func() {
		must(b, netns.Set(home))
		must(b, home.Close())
		must(b, own.Close()) // sockets keep it
	}()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(b, err)
	defer h.Close()
	must(b, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	for i := range n {
		a, z := fmt.Sprintf("a%d", i), fmt.Sprintf("z%d", i)
		must(b, h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a, MTU: 4200}, PeerName: z, PeerMTU: 4200}))
		near = append(near, raw(b, h, a, trains))
		far = append(far, raw(b, h, z, trains))
	}
	return near, far
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func raw(b *testing.B, h *netlink.Handle, name string, trains bool) int {
	b.Helper()
	l, err := h.LinkByName(name)
	must(b, err)
	must(b, h.LinkSetUp(l))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(b, err)
	b.Cleanup(func() { _ = unix.Close(fd) })
	for opt, v := range map[int]int{unix.SO_TIMESTAMPNS: 1, unix.SO_RCVBUFFORCE: 8 << 20, unix.SO_SNDBUFFORCE: 8 << 20} {
		must(b, unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, v))
	}
	must(b, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	must(b, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	if trains {
		must(b, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	}
	const all = unix.ETH_P_ALL&0xff<<8 | unix.ETH_P_ALL>>8
	must(b, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index}))
	return fd
}

// pin keeps the calling goroutine on one core.
func pin(tb testing.TB, core int) {
	runtime.LockOSThread()
	var s unix.CPUSet
	s.Set(core % runtime.NumCPU())
	must(tb, unix.SchedSetaffinity(0, &s))
}

// deaf unbinds a socket: the kernel drops arriving frames.
func deaf(b *testing.B, fd int) { must(b, unix.Close(fd)) }

// generate sends the same frames over and over, from a core of its own, until stop is set, and counts
// the frames that the kernel took.
func generate(b *testing.B, io IO, frames [][]byte, stop *atomic.Bool) (sent *atomic.Uint64, ended chan struct{}) {
	sent, ended = new(atomic.Uint64), make(chan struct{})
	go func() {
		defer close(ended)
		pin(b, 0)
		for !stop.Load() {
			n, err := io.Send(frames)
			if err != nil {
				b.Error(err)
				return
			}
			sent.Add(uint64(n))
		}
	}()
	return sent, ended
}

func hosts(n int) []uint32 {
	var ips []uint32
	for i := range n {
		ips = append(ips, uint32(0x0a000001+i))
	}
	return ips
}

// stream is a batch of frames of one queue pair.
func stream(dst uint32, payload int) (frames [][]byte) {
	var pool wire.Pool
	for i := range batch {
		f := roce(&pool, wire.PSN(1+i), payload, 0x0a000001, false)
		g, err := pool.Parse(f)
		if err != nil {
			panic(err)
		}
		e := wire.NewEnvelope(wire.Flow{
			SrcMAC: wire.HostMAC(0x0a000001), DstMAC: wire.HostMAC(dst), Src: 0x0a000001, Dst: dst, Traffic: 26<<2 | 2, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2,
		})
		block := g.Payload()
		h := pool.Get()
		h.Start(&e, wire.BTH{OpCode: wire.OpSendMiddle, PKey: 0xffff, DestQP: 17, PSN: wire.PSN(1 + i)})
		c := pool.Block()
		copy(c.Fill(payload), block.Bytes())
		h.SetPayload(c)
		h.Seal(uint16(1+i), false)
		frames = append(frames, h.AppendTo(nil))
	}
	return frames
}

// BenchmarkRaw measures the kernel alone: sendmmsg into a veth on one core, recvmmsg out of it on the
// other.
func BenchmarkRaw(b *testing.B) {
	for _, trains := range []bool{false, true} {
		b.Run(map[bool]string{false: "frames", true: "trains"}[trains], func(b *testing.B) {
			near, far := veths(b, 1, trains)
			var stop atomic.Bool
			_, gone := generate(b, NewIO(near[0], trains), stream(0x0a000002, 1024), &stop)
			io := NewIO(far[0], trains)
			pin(b, 1)
			defer runtime.UnlockOSThread()
			b.ResetTimer()
			got := 0
			for got < b.N {
				n, err := io.Receive(func(int64, []byte) {})
				must(b, err)
				got += n
			}
			b.ReportMetric(float64(got)/b.Elapsed().Seconds()/1e6, "Mpps")
			b.StopTimer()
			stop.Store(true)
			<-gone
		})
	}
}

// BenchmarkHop is one hop of a switch: the generator keeps one core busy, the switch the other, which
// also pays for the kernel's work on the frames it sends.
func BenchmarkHop(b *testing.B) {
	for _, trains := range []bool{false, true} {
		for _, out := range []int{1, 4} {
			name := fmt.Sprintf("%s/1-to-%d", map[bool]string{false: "frames", true: "trains"}[trains], out)
			b.Run(name, func(b *testing.B) { benchHop(b, trains, out) })
		}
	}
}

func benchHop(b *testing.B, trains bool, out int) {
	near, far := veths(b, 1+out, trains)
	for _, fd := range far[1:] {
		deaf(b, fd)
	}
	l, sw := benchSwitch(b, near, trains, out)
	dst := uint32(0x0a000002)
	if out > 1 {
		dst = wire.GroupNet | 1
		benchGroup(b, l, sw, out)
	}
	ended := make(chan error, 1)
	go func() { pin(b, 1); ended <- l.Run() }()
	var stop atomic.Bool
	_, gone := generate(b, NewIO(far[0], trains), stream(dst, 1024), &stop)
	count := func() (n uint64) {
		all, _ := l.Stats()
		for _, s := range all[1:] {
			n += s.Sent
		}
		return n
	}
	for count() == 0 {
		runtime.Gosched()
	}
	b.ResetTimer()
	begin := time.Now()
	from := count()
	last := from
	for last < from+uint64(b.N) {
		wait := time.NewTimer(2 * time.Millisecond)
		<-wait.C
		last = count()
	}
	b.ReportMetric(float64(last-from)/time.Since(begin).Seconds()/1e6, "Mpps")
	b.StopTimer()
	stop.Store(true)
	<-gone
	l.Stop()
	must(b, <-ended)
	must(b, l.Close())
}

func benchSwitch(b *testing.B, near []int, trains bool, out int) (*Loop, *virtswitch.Switch) {
	mono, err := NewMonotonic()
	must(b, err)
	c := Config{Mono: mono, Rate: Rate{Mono: mono.Now(), Dilation: 1}}
	var ports []machine.PortConfig
	for _, fd := range near {
		c.IO = append(c.IO, NewIO(fd, trains))
		c.Delays = append(c.Delays, 0)
		ports = append(ports, machine.PortConfig{BitsPerSec: 100e9})
	}
	l, err := New(c)
	must(b, err)
	sc := virtswitch.Config{
		IP: 0x0afd0001, Ports: l.Ports(ports), Pool: l.Pool(), Seed: 1,
		Settings: virtswitch.Settings{Buffer: 32 << 20, Rules: virtswitch.RulesFixed()},
	}
	for i, ip := range hosts(1 + out) {
		sc.FIB.SetHost(ip, i)
	}
	sw := virtswitch.New(sc)
	l.Start(sw, nil)
	return l, sw
}

// benchGroup registers and activates a group of all hosts, led by the first.
func benchGroup(b *testing.B, l *Loop, sw *virtswitch.Switch, out int) {
	b.Helper()
	ips := hosts(1 + out)
	send := func(flags wire.MRPFlags, records ...wire.MRPRecord) {
		l.Call(vtime.Never, func(now vtime.Time) {
			e := wire.NewEnvelope(wire.Flow{Src: ips[0], Dst: wire.GroupNet | 1, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP})
			f := l.Pool().Get()
			f.StartDatagram(&e)
			k := l.Pool().Block()
			buf := wire.MRPHeader{Total: 1, Flags: flags, LeaderQPN: 17}.AppendTo(k.Fill(wire.BlockCap)[:0])
			for _, r := range records {
				buf = r.AppendTo(buf)
			}
			k.Fill(len(buf))
			f.SetPayload(k)
			f.Seal(0, false)
			sw.HandleFrame(now, 0, f)
		})
	}
	var members []wire.MRPRecord
	for _, ip := range ips[1:] {
		members = append(members, wire.MRPRecord{IP: ip, QPN: 17})
	}
	send(0, members...)
	send(wire.MRPActivate, wire.MRPRecord{IP: wire.GroupNet | 1, QPN: 1})
	if g, ok := sw.Group(wire.GroupNet | 1); !ok || !g.Active {
		b.Fatal("the group is not active")
	}
}

// BenchmarkGoodput moves messages from a NIC to another over one link, a core each: ICRC
// made and checked, bytes copied out of and into memory.
func BenchmarkGoodput(b *testing.B) {
	for _, trains := range []bool{false, true} {
		for _, mtu := range []int{1024, 4096} {
			b.Run(fmt.Sprintf("%s/%d", map[bool]string{false: "frames", true: "trains"}[trains], mtu), func(b *testing.B) { benchGoodput(b, trains, mtu) })
		}
	}
}

func benchGoodput(b *testing.B, trains bool, mtu int) {
	near, far := veths(b, 1, trains)
	const size, depth = 1 << 20, 8
	var ends [2]*endpoint
	for i, fd := range []int{near[0], far[0]} {
		ends[i] = benchNIC(b, NewIO(fd, trains), i, size)
	}
	for i, e := range ends {
		e.connectMTU(b, uint32(0x0a000001+1-i), mtu)
	}
	src, dst := ends[0], ends[1]
	prng.Fill(src.mem, 1, 0)
	recv := func(now vtime.Time) {
		must(b, dst.nic.PostRecv(now, dst.qp, virtrnic.RecvWR{SGE: virtrnic.SGE{Addr: dst.mr.Addr(), Length: size, LKey: dst.mr.LKey()}}))
	}
	send := func(now vtime.Time) {
		sge := virtrnic.SGE{Addr: src.mr.Addr(), Length: size, LKey: src.mr.LKey()}
		must(b, src.nic.PostSend(now, src.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: sge}))
	}
	// What follows a completion is done on the loop's own core.
	posted, done, all := 0, 0, make(chan struct{})
	dst.loop.Start(dst.nic, func(now vtime.Time) vtime.Time {
		for _, ok := dst.nic.PollCQ(dst.cq); ok; _, ok = dst.nic.PollCQ(dst.cq) {
			recv(now)
		}
		return vtime.Never
	})
	src.loop.Start(src.nic, func(now vtime.Time) vtime.Time {
		for w, ok := src.nic.PollCQ(src.cq); ok; w, ok = src.nic.PollCQ(src.cq) {
			if w.Status != virtrnic.WCSuccess {
				b.Errorf("completion %+v", w)
			}
			if done++; done == b.N {
				close(all)
			}
			if posted < b.N {
				posted++
				send(now)
			}
		}
		return vtime.Never
	})
	dst.loop.Call(vtime.Never, func(now vtime.Time) {
		for range 2 * depth {
			recv(now)
		}
	})
	for i, e := range ends {
		e.run(b, i)
	}
	b.SetBytes(size)
	b.ResetTimer()
	src.loop.Call(vtime.Never, func(now vtime.Time) {
		for ; posted < min(b.N, depth); posted++ {
			send(now)
		}
	})
	<-all
	b.ReportMetric(float64(b.N)*size*8/b.Elapsed().Seconds()/1e9, "Gb/s")
	b.StopTimer()
	if string(src.mem) != string(dst.mem) {
		b.Error("other bytes arrived than were sent")
	}
	if n := src.nic.Stats().Retransmitted; n > 0 {
		b.Logf("%d packets were sent again", n)
	}
}

func benchNIC(b *testing.B, io IO, i, size int) *endpoint {
	mono, err := NewMonotonic()
	must(b, err)
	l, err := New(Config{Mono: mono, IO: []IO{io}, Delays: []vtime.Duration{0}, Rate: Rate{Mono: mono.Now(), Dilation: 1}})
	must(b, err)
	ports := l.Ports([]machine.PortConfig{{BitsPerSec: 100e9}})
	e := &endpoint{loop: l, news: make(chan struct{}, 1), mem: make(virtrnic.Bytes, size)}
	e.nic = virtrnic.New(virtrnic.Config{
		IP: uint32(0x0a000001 + i), Port: &ports[0], Pool: l.Pool(), Keys: prng.New(uint64(i)),
		Settings: virtrnic.Settings{AckEvery: 16, Window: 512},
	})
	e.start()
	return e
}

// BenchmarkPacing sends frames at a tenth of the host's rate and reports the delay of each, and the
// error of the rate over 100 ms.
func BenchmarkPacing(b *testing.B) {
	near, far := veths(b, 1, false)
	ends := [2]*endpoint{benchNIC(b, NewIO(near[0], false), 0, 1<<20), benchNIC(b, NewIO(far[0], false), 1, 1<<20)}
	ends[0].slow(b, 20e6)
	for i, e := range ends {
		e.connectMTU(b, uint32(0x0a000001+1-i), 1024)
		e.run(b, i)
	}
	src, dst := ends[0], ends[1]
	var off []float64
	for range b.N {
		dst.loop.Call(vtime.Never, func(now vtime.Time) {
			must(b, dst.nic.PostRecv(now, dst.qp, virtrnic.RecvWR{SGE: virtrnic.SGE{Addr: dst.mr.Addr(), Length: 1 << 18, LKey: dst.mr.LKey()}}))
		})
		begin := time.Now()
		src.loop.Call(vtime.Never, func(now vtime.Time) {
			must(b, src.nic.PostSend(now, src.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: virtrnic.SGE{Addr: src.mr.Addr(), Length: 1 << 18, LKey: src.mr.LKey()}}))
		})
		dst.completion(b)
		want := float64(256*(1024+58+wire.LinkOverhead)*8) / 20e6
		off = append(off, time.Since(begin).Seconds()/want-1)
		src.completion(b)
	}
	lag, _ := src.loop.SetRate(Rate{Dilation: 1}) // it runs
	slices.Sort(off)
	b.ReportMetric(100*off[len(off)/2], "%rate-off")
	b.ReportMetric(float64(lag.Sent.ValueAtQuantile(50))/1000, "us-p50")
	b.ReportMetric(float64(lag.Sent.ValueAtQuantile(99))/1000, "us-p99")
}

// run starts the endpoint's loop on a core.
func (e *endpoint) run(b *testing.B, core int) {
	ended := make(chan error, 1)
	go func() { pin(b, core); ended <- e.loop.Run() }()
	b.Cleanup(func() {
		e.loop.Stop()
		must(b, <-ended)
		must(b, e.loop.Close())
	})
}

// slow gives the endpoint's port another rate before it is used.
func (e *endpoint) slow(b *testing.B, bitsPerSec int64) {
	b.Helper()
	e.loop.SetLinkRate(0, bitsPerSec)
}
