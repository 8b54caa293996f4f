// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// wireEnd is one end of a link in memory: a seqpacket socket pair carries whole frames
// as a veth does.
type wireEnd struct {
	fd   int
	buf  [frameBytesMax]byte
	full bool // the kernel has no room, for a while
}

// FD implements IO.
func (e *wireEnd) FD() int { return e.fd }

// Receive implements IO.
func (e *wireEnd) Receive(take func(wall int64, b []byte)) (got int, err error) {
	for got < batch {
		n, err := unix.Read(e.fd, e.buf[:])
		if err == unix.EAGAIN {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		take(time.Now().UnixNano(), e.buf[:n])
		got++
	}
	return got, nil
}

// Send implements IO.
func (e *wireEnd) Send(frames [][]byte) (sent int, err error) {
	for _, f := range frames {
		if e.full = !e.full; e.full && len(frames) > 1 {
			return sent, nil // every other frame of a batch has to wait
		}
		_, err := unix.Write(e.fd, f)
		if err == unix.EAGAIN {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// Drops implements IO.
func (e *wireEnd) Drops() uint64 { return 0 }

// Cut implements IO.
func (e *wireEnd) Cut() uint64 { return 0 }

func wirePair(t *testing.T) [2]*wireEnd {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) })
	return [2]*wireEnd{{fd: fds[0]}, {fd: fds[1]}}
}

// endpoint is a NIC with its loop.
type endpoint struct {
	loop *Loop
	nic  *virtrnic.NIC
	cq   *virtrnic.CQ
	qp   *virtrnic.QP
	mr   *virtrnic.MR
	mem  virtrnic.Bytes
	news chan struct{}
}

const testDelay = 50 * vtime.Microsecond

// pair starts two NICs on one link, connected queue pairs and all.
func pair(t *testing.T, size int, loss float64) (a, b *endpoint) {
	t.Helper()
	a, b = still(t, size, loss)
	for _, e := range []*endpoint{a, b} {
		ended := make(chan error, 1)
		go func() { ended <- e.loop.Run() }()
		t.Cleanup(func() {
			e.loop.Stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	return a, b
}

// still is pair with loops that do not run.
func still(t *testing.T, size int, loss float64) (a, b *endpoint) {
	t.Helper()
	mono, err := NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	rate := Rate{Mono: mono.Now(), Dilation: 1}
	ends := wirePair(t)
	var both [2]*endpoint
	for i := range both {
		own := *mono
		l, err := New(Config{Mono: &own, IO: []IO{ends[i]}, Delays: []vtime.Duration{testDelay}, Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		ports := l.Ports([]machine.PortConfig{{BitsPerSec: 1e9, Delay: testDelay}})
		e := &endpoint{loop: l, news: make(chan struct{}, 1), mem: make(virtrnic.Bytes, size)}
		e.nic = virtrnic.New(virtrnic.Config{
			IP: uint32(0x0a000001 + i), Port: &ports[0], Pool: l.Pool(), Keys: prng.New(uint64(i)),
			Settings: virtrnic.Settings{AckEvery: 4},
		})
		e.start()
		if loss > 0 {
			l.SetFault(0, &faults.Impairment{Loss: loss, Corrupt: loss, Duplicate: loss, Delay: 5 * vtime.Microsecond, Random: prng.New(7)})
		}
		both[i] = e
	}
	for i, e := range both {
		e.connect(t, uint32(0x0a000001+1-i))
		t.Cleanup(func() {
			if err := e.loop.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return both[0], both[1]
}

// start hands the NIC to the loop; completions call back.
func (e *endpoint) start() {
	seen := uint64(0)
	e.loop.Start(e.nic, func(vtime.Time) vtime.Time {
		if c := e.nic.Completions(); c != seen {
			seen = c
			select {
			case e.news <- struct{}{}:
			default:
			}
		}
		return vtime.Never
	})
}

func (e *endpoint) connect(t *testing.T, remote uint32) { e.connectMTU(t, remote, 1024) }

func (e *endpoint) connectMTU(t testing.TB, remote uint32, mtu int) {
	t.Helper()
	timeout := uint8(15) // 134 ms: a busy host may stand still for a while
	if _, bench := t.(*testing.B); bench {
		timeout = 18 // a second: the host may be busy for a while
	}
	e.loop.Call(vtime.Never, func(now vtime.Time) {
		pd := e.nic.AllocPD()
		var err error
		if e.cq, err = e.nic.CreateCQ(64); err != nil {
			t.Fatal(err)
		}
		if e.mr, err = e.nic.RegMR(pd, e.mem, virtrnic.AccessLocalWrite); err != nil {
			t.Fatal(err)
		}
		e.qp, err = e.nic.CreateQP(virtrnic.QPInit{PD: pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 64, MaxRecvWR: 64, SQSigAll: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			a    virtrnic.QPAttr
			mask virtrnic.AttrMask
		}{
			{virtrnic.QPAttr{State: virtrnic.StateInit, Port: 1}, virtrnic.AttrState | virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags},
			{
				virtrnic.QPAttr{
					State: virtrnic.StateRTR, AV: virtrnic.AH{DGID: remote, TrafficClass: 26 << 2, HopLimit: 64}, PathMTU: mtu,
					DestQPN: e.qp.Num(), RQPSN: 0xfffff0, MinRNRTimer: 1,
				},
				virtrnic.AttrState | virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN |
					virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer,
			},
			{
				virtrnic.QPAttr{State: virtrnic.StateRTS, SQPSN: 0xfffff0, Timeout: timeout, RetryCnt: 7, RNRRetry: 6},
				virtrnic.AttrState | virtrnic.AttrSQPSN | virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrMaxQPRdAtomic,
			},
		} {
			if err := e.nic.ModifyQP(now, e.qp, step.a, step.mask); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// completion waits for the next completion, at most for as long as a test may.
func (e *endpoint) completion(t testing.TB) (w virtrnic.WC) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		ok := false
		e.loop.Call(vtime.Never, func(vtime.Time) { w, ok = e.nic.PollCQ(e.cq) })
		if ok {
			return w
		}
		select {
		case <-e.news:
		case <-late:
			t.Fatal("no completion came")
		}
	}
}

// TestTransfer moves messages between two NICs in real time: every byte arrives, over a
// PSN wrap, on a link that loses, doubles and damages frames, through a kernel that has
// no room for every other frame; and no frame stays behind.
func TestTransfer(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		t.Run(fmt.Sprintf("loss %v", loss), func(t *testing.T) {
			const size, messages = 100_000, 3
			a, b := pair(t, size*messages, loss)
			prng.Fill(a.mem, 42, 0)
			b.loop.Call(vtime.Never, func(now vtime.Time) {
				for i := range messages {
					sge := virtrnic.SGE{Addr: b.mr.Addr() + uint64(i*size), Length: size, LKey: b.mr.LKey()}
					if err := b.nic.PostRecv(now, b.qp, virtrnic.RecvWR{WRID: uint64(i), SGE: sge}); err != nil {
						t.Error(err)
					}
				}
			})
			a.loop.Call(vtime.Never, func(now vtime.Time) {
				for i := range messages {
					sge := virtrnic.SGE{Addr: a.mr.Addr() + uint64(i*size), Length: size, LKey: a.mr.LKey()}
					if err := a.nic.PostSend(now, a.qp, virtrnic.SendWR{WRID: uint64(i), Opcode: virtrnic.WRSend, SGE: sge}); err != nil {
						t.Error(err)
					}
				}
			})
			for i := range uint64(messages) {
				for _, e := range []*endpoint{b, a} {
					if w := e.completion(t); w.Status != virtrnic.WCSuccess || w.WRID != i {
						t.Fatalf("completion %+v, want success of %d", w, i)
					}
				}
			}
			if string(a.mem) != string(b.mem) {
				t.Error("other bytes arrived than were sent")
			}
			sent, _ := a.loop.Stats()
			if s := sent[0]; s.Busy == 0 || s.Sent < size*messages/1024 {
				t.Errorf("sender's port: %+v", s)
			}
			if lag, ok := a.loop.SetRate(Rate{Dilation: 1}); !ok || lag.Sent.TotalCount() != int64(sent[0].Sent) {
				t.Errorf("lag of %d frames is recorded, %d were sent", lag.Sent.TotalCount(), sent[0].Sent)
			}
		})
	}
}

// TestRates: a rate that has been announced is returned beside the current one until its instant, and alone from then
// on.
func TestRates(t *testing.T) {
	mono, err := NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	first := Rate{Mono: mono.Now(), Dilation: 3}
	l, err := New(Config{Mono: mono, Rate: first})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	later := Rate{Mono: mono.Now() + int64(time.Hour), Lab: vtime.Time(vtime.Second), Dilation: 5}
	past := Rate{Mono: first.Mono, Dilation: 7}
	for _, c := range []struct {
		set  *Rate
		want []Rate
	}{{nil, []Rate{first}}, {&later, []Rate{first, later}}, {&past, []Rate{past}}} {
		if c.set != nil {
			l.SetRate(*c.set)
		}
		if got := l.Rates(); !slices.Equal(got, c.want) {
			t.Errorf("the rates are %v and not %v", got, c.want)
		}
	}
}

// TestClock: lab time is continuous over a change of rate, and Mono undoes Lab.
func TestClock(t *testing.T) {
	var c Clock
	c.Set(Rate{Mono: 1000, Lab: 0, Dilation: 2})
	c.Set(Rate{Mono: 3000, Lab: 1_000_000, Dilation: 1000})
	for _, x := range []struct {
		mono int64
		lab  vtime.Time
	}{{1000, 0}, {2000, 500_000}, {3000, 1_000_000}, {4000, 1_001_000}, {1_003_000, 2_000_000}} {
		if got := c.Mono(x.lab); got != x.mono {
			t.Errorf("Mono(%v) = %d, want %d", x.lab, got, x.mono)
		}
		if got := c.Lab(x.mono); got != x.lab {
			t.Errorf("Lab(%d) = %v, want %v", x.mono, got, x.lab)
		}
	}
	if c.Mono(vtime.Never) <= 1<<60 {
		t.Error("never comes at some time")
	}
}

// TestLateCall: a rank's call at an instant that its machine has passed is made later, and the delay is
// recorded: a host without processor time must not look like a slow network.
func TestLateCall(t *testing.T) {
	a, _ := pair(t, 1000, 0)
	a.loop.Call(vtime.Never, func(vtime.Time) {})
	lag, _ := a.loop.SetRate(a.loop.Rate()) // it runs
	before := lag.Acted.TotalCount()
	var at vtime.Time
	a.loop.Call(1, func(now vtime.Time) { at = now })
	lag, _ = a.loop.SetRate(a.loop.Rate())
	if n := lag.Acted.TotalCount(); before != 0 || n != 1 || at <= 1 || lag.Acted.Max() <= 0 {
		t.Errorf("done at %v: %d late ones recorded before and %d after", at, before, n)
	}
}

// TestHeld: a loop that gets no processor time while a timer runs out several times over takes it for one time, as
// no peer can have answered, and handles the earlier frames first.
func TestHeld(t *testing.T) {
	const rto = 134217728 * vtime.Nanosecond // connectMTU
	for _, answered := range []bool{false, true} {
		a, b := still(t, 1000, 0)
		a.loop.Call(vtime.Never, func(now vtime.Time) {
			if err := a.nic.PostSend(now, a.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: virtrnic.SGE{Addr: a.mr.Addr(), Length: 1000, LKey: a.mr.LKey()}}); err != nil {
				t.Fatal(err)
			}
		})
		posted := a.loop.Now()
		if answered { // after two times
			a.loop.links[0].delay = 2 * rto
			b.loop.Call(vtime.Never, func(now vtime.Time) {
				if err := b.nic.PostRecv(now, b.qp, virtrnic.RecvWR{SGE: virtrnic.SGE{Addr: b.mr.Addr(), Length: 1000, LKey: b.mr.LKey()}}); err != nil {
					t.Fatal(err)
				}
			})
			for _, e := range []*endpoint{a, b} {
				for e.loop.links[0].counts.Sent == 0 {
					e.loop.Call(vtime.Never, func(vtime.Time) {})
				}
			}
			a.loop.receive()
		}
		a.loop.handle(posted.Add(20 * rto))
		want := virtrnic.Stats{Timeouts: 1}
		if answered {
			want = virtrnic.Stats{AcksRcvd: 1}
		}
		if got := *a.nic.Stats(); got.Timeouts != want.Timeouts || got.AcksRcvd != want.AcksRcvd || a.qp.State() != virtrnic.StateRTS {
			t.Errorf("answered %v: %d timeouts, %d acknowledgements, %v", answered, got.Timeouts, got.AcksRcvd, a.qp.State())
		}
	}
}
